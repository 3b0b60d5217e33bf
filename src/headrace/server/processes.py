"""Processes of jobs: started, found again, asked to stop, killed, with all that they have started.

What is known of a process is in the folder of its run, where `launcher.py` has written it, so a
server that is started later knows as much as the one that has started the process. A process is
its number and the moment of its start: a number alone may be somebody else's by now. Whatever a
run starts has its folder in the environment; by that it is found where the folder's notes are lost.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import ServerError
from headrace.files import make_folder, replace_durably
from headrace.inspect import live
from headrace.restarts import command_of
from headrace.server import launcher

MARK = live.RUN  # in the environment of all that belongs to a run
_NOTE = "HEADRACE_NOTE_ERROR"  # of `cli/error_note.py`
LOG_BYTES = 32 << 20  # of a run's log, at most
_children: dict[Path, subprocess.Popen[bytes]] = {}  # by run: of this process, to be waited for
_KILL = 10.0  # seconds until what is killed is gone
_LOOK = 0.02


@dataclass(frozen=True, slots=True)
class ExitNote:
    """How the process of a run has ended, as its launcher has noted it."""

    code: int  # negative: by that signal
    asked: bool  # it had been asked to stop
    ended: int
    error_code: str | None = None
    error: str | None = None  # its text

    @property
    def clean(self) -> bool:
        """It has ended as it should; one that was asked while it began to run, too."""
        return self.code == 0 or (self.asked and self.code == -signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class RunProcess:
    """What is known of the process of a run."""

    launched: bool  # else there is none, and there was none
    pid: int | None = None  # while it lives
    exit: ExitNote | None = None  # None of a process that is gone: it was killed


class Processes:
    """Starts and ends the runs of jobs; `command` makes the command line of arguments."""

    def __init__(
        self,
        folder: Path,
        command: Callable[[Sequence[str]], list[str]] = command_of,
        log_bytes: int = LOG_BYTES,
    ) -> None:
        self._folder, self._command, self._log_bytes = folder, command, log_bytes

    def start(self, run: Path, arguments: Sequence[str]) -> None:
        """Launch a run; the folder `run` is new."""
        make_folder(run)
        environment = {**os.environ, MARK: str(run), _NOTE: str(run / launcher.ERROR)}
        environment["PYTHONUNBUFFERED"] = "1"  # its log is read while it runs
        order = {
            "command": self._command(arguments), "cwd": str(self._folder),
            "log_bytes": self._log_bytes,
        }  # fmt: skip
        (run / launcher.ORDER).write_text(json.dumps(order), encoding="utf-8")
        command = [sys.executable, "-I", "-S", launcher.__file__, str(run)]
        try:
            _children[run] = subprocess.Popen(
                command, cwd=self._folder, env=environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            raise ServerError(
                "HR-SERVER-005",
                f"no process can be started: {error.strerror}",
                "Free memory, or allow more processes.",
            ) from error

    def look(self, run: Path) -> RunProcess:
        child = _children.get(run)
        if child is not None and child.poll() is not None:
            _children.pop(run, None)
        who = _who(run)
        pid = _alive(who) if who is not None else self._launcher(run)
        if pid is not None:
            return RunProcess(True, pid)
        launched = who is not None or (run / launcher.PROCESS).exists()
        return RunProcess(launched, None, _exit_note(run) if launched else None)

    def _launcher(self, run: Path) -> int | None:
        """That of a run whose note of it is lost; None while it is on its way to write it."""
        if (run / launcher.ORDER).exists():
            return None
        words = [os.fsencode(launcher.__file__), os.fsencode(run)]
        found = marked(f"{MARK}={run}")
        return next((pid for pid in found if _command_line(pid)[-2:] == words), None)

    def is_ours(self, run: Path) -> bool:
        """Whether the launcher of a run is a child of this process, on its way perhaps."""
        return run in _children

    def call_off(self, run: Path) -> bool:
        """See to it that a run that has not been launched never will be; False if it has."""
        if not run.is_dir():
            return True
        called_off = launcher.claim(run, {"pid": 0, "start": None})
        if called_off:
            (run / launcher.ORDER).unlink(missing_ok=True)
        return called_off

    def stop(self, run: Path) -> None:
        """Ask it to stop after the batch in hand."""
        pid = self.look(run).pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def kill(self, run: Path, within: float = _KILL) -> bool:
        """End a run with all that it has started, at once; False if something is left."""
        deadline = time.monotonic() + within
        while members := self.members(run):
            for pid in members:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK)
        child = _children.get(run)
        if child is not None and child.poll() is not None:
            del _children[run]
        return True

    def members(self, run: Path) -> list[int]:
        """Every process of a run that lives: its launcher, the job, Spark, workers, and what has
        left its session or its environment."""
        alive = _alive(_who(run))
        found = marked(f"{MARK}={run}")
        if alive is not None:  # so the session is this run's
            found |= {alive} | {pid for pid in _numbers() if _session(pid) == alive}
        return sorted(pid for pid in found if launcher.start_of(pid) is not None)


def kill_marked(mark: str) -> None:
    """End whatever has "NAME=VALUE" in the environment that it was started with."""
    deadline = time.monotonic() + _KILL
    while (found := marked(mark)) and time.monotonic() < deadline:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK)


def _numbers() -> list[int]:
    """Of all processes."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def _session(pid: int) -> int | None:
    with suppress(OSError):
        return os.getsid(pid)
    return None


def marked(mark: str) -> set[int]:
    """The processes that have "NAME=VALUE" in the environment that they were started with."""
    wanted, found = os.fsencode(mark), set[int]()
    for pid in _numbers():
        with suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(pid)
    return found - {os.getpid()}


def _command_line(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    return []


def _who(run: Path) -> dict[str, Any] | None:
    """Who a run is, or that it was called off; None if nobody has said so, or not legibly."""
    who = _read(run / launcher.PROCESS)
    if who is None or not isinstance(who.get("pid"), int):
        return None
    return who if isinstance(who.get("start"), str | None) else None


def _alive(who: Mapping[str, Any] | None) -> int | None:
    """The number of a process that is this very one and lives."""
    if who is None or who["pid"] <= 0 or not who.get("start"):
        return None
    pid: int = who["pid"]
    return pid if launcher.start_of(pid) == who["start"] else None


def _exit_note(run: Path) -> ExitNote | None:
    """None if there is none that can be read."""
    noted = _read(run / launcher.EXIT) or {}
    error = noted.get("error")
    error = error if isinstance(error, dict) else {}
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        code, text = error.get("code"), error.get("text")
        return ExitNote(
            int(noted["code"]), bool(noted["asked"]), int(noted["ended"]),
            None if code is None else str(code), None if text is None else str(text),
        )  # fmt: skip
    return None


def _read(path: Path) -> dict[str, Any] | None:
    """What a small file holds; None if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def last_words(run: Path, most: int = 20) -> list[str]:
    """The last lines of a run's log."""
    there = launcher.parts(run)
    if not there:
        return []
    with suppress(OSError), there[-1][1].open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 16_384))
        return file.read().decode(errors="replace").splitlines()[-most:]
    return []


def write_json(path: Path, content: Any) -> None:
    replace_durably(path, json.dumps(content, indent=1).encode())
