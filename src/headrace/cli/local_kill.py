"""`headrace kill` without a server: the process that drives a job's folder on this machine, and no
other.

A number alone may be somebody else's: of a process that has begun since, or that another container
calls so. The one that is killed has the folder's fence open, which is looked at while a handle on
that very process is held.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import typer

from headrace.cli.folders import JobFolder
from headrace.errors import RunError
from headrace.inspect.live import last_note
from headrace.server.home import Home


def kill_driver(at: JobFolder, sure: Callable[[str], None]) -> bool:
    """Kill it, once `sure` has asked; False if there is none."""
    holder = at.log.holder()
    if holder is None:
        return False
    pid, host = holder
    if host != socket.gethostname():
        raise RunError(
            "HR-CLI-027",
            f"job {at.name!r} runs on {host}, not on this machine",
            f"Kill it there: process {pid}. `headrace deactivate` stops it from here.",
        )
    home = _refuse_served(at, pid)
    sure(f"Kill job {at.name!r}, process {pid}?")
    if at.log.holder() == holder:  # it may have ended while you thought about it
        _kill(at, pid)
    if home is not None:
        typer.echo(f"the next server in {home.path} will start it again", err=True)
    return True


def _refuse_served(at: JobFolder, pid: int) -> Home | None:
    """The home of the server that has started it, if that does not run any more."""
    live = last_note(at.log.folder)
    if live is None or live.run is None or live.pid != pid:
        return None
    home = Home(Path(live.run).parents[3])  # jobs/JOB/runs/N in it
    if not home.is_held():
        return home if home.store.exists() else None
    where = (home.address() or {}).get("url")
    raise RunError(
        "HR-CLI-029",
        f"job {at.name!r} is run by the server in {str(home.path)!r}, which would start it again",
        f"End it there: headrace kill {at.name}" + (f" --server {where}." if where else "."),
    )


def _kill(at: JobFolder, pid: int) -> None:
    fence = at.log.fence_in_force()
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        try:
            if fence is not None and not _has_open(pid, fence):
                raise RunError(
                    "HR-CLI-030",
                    f"job {at.name!r} is driven, but not by process {pid} of this machine, which "
                    "is another one",
                    "It may run in a container: kill it there. `headrace deactivate` stops it "
                    "from here.",
                )
            if handle is not None:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)
        finally:
            if handle is not None:
                os.close(handle)


def _has_open(pid: int, file: Path) -> bool:
    """Whether a process has a file open; taken for granted where the system does not tell."""
    if not Path("/proc/self/fd").is_dir():
        return True
    wanted = file.stat()
    try:
        handles = list(Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError as error:
        raise ProcessLookupError from error
    for handle in handles:
        with suppress(OSError):
            found = handle.stat()
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    return False
