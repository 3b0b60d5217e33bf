"""`headrace submit`, `activate`, `deactivate`, `restart`, `rebalance`, `upgrade`, `drain`, `kill`
and `remove`: what is done with a job on a server; stopping, draining and killing without one, too.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.folders import JobFolder, job_at
from headrace.cli.jobs import AsJson, Drop, Folder, Name
from headrace.cli.served import (
    JobName,
    NoWait,
    ServedName,
    ServerUrl,
    Timeout,
    Yes,
    needs_server,
    served,
)
from headrace.errors import RunError, ServerError
from headrace.server.client import ServedJob
from headrace.server.lifecycle import State
from headrace.server.values import JobView

_RUNS = (State.RUNNING, State.ENDED)  # a job with little to read is over soon
_RESTS = (State.INACTIVE, State.ENDED, State.FAILED, State.KILLED)
_LOOK_EVERY = 0.1  # seconds
_QUIET = 30.0  # seconds: a new version that runs for so long without a batch has nothing to read
Parallelism = Annotated[int, typer.Argument(help="Tasks per level.", metavar="TASKS")]


def submit(
    file: Annotated[
        Path,
        typer.Argument(
            help="A program in a folder that the server allows: a Python file, or a folder with a "
            "job.py.",
            metavar="FILE",
            show_default=False,
        ),
    ],
    job: Name = None,
    inactive: Annotated[bool, typer.Option("--inactive", help="Do not start it yet.")] = False,
    master: Annotated[
        str | None, typer.Option(help="Spark master. Default: local[*].", metavar="URL")
    ] = None,
    parallelism: Annotated[
        int | None, typer.Option(help="Tasks per level. Default: one per core.", metavar="TASKS")
    ] = None,
    target_batch: Annotated[
        str | None, typer.Option(help="Time that a batch should take: 500ms, 2s.", metavar="TIME")
    ] = None,
    max_batch: Annotated[
        int | None, typer.Option(help="Rows in a batch, instead of a time.", metavar="ROWS")
    ] = None,
    server: ServerUrl = None,
    no_wait: NoWait = False,
    timeout: Timeout = 120.0,
    as_json: AsJson = False,
) -> None:
    """Give a program to the server, which runs it from now on.

    The server takes a copy: a later change of the file is a new version, by headrace upgrade.

    Example: [bold]headrace submit jobs/shop.py --parallelism 4[/bold]
    """
    at = needs_server(server, f"Or run it yourself: `headrace run {file}`.")
    made = at.submit(
        file.absolute() if file.exists() else file, job=job, activate=not inactive, master=master,
        parallelism=parallelism, target_batch=target_batch, max_batch=max_batch,
    )  # fmt: skip
    _settled(made, made.view, _RUNS, no_wait, timeout, as_json)


def activate(
    job: ServedName,
    server: ServerUrl = None,
    no_wait: NoWait = False,
    timeout: Timeout = 120.0,
    as_json: AsJson = False,
) -> None:
    """Start a job that does not run; it goes on after its last batch.

    Example: [bold]headrace activate shop[/bold]
    """
    found = needs_server(server, "Or run it yourself: `headrace run FILE`.").job(job)
    _settled(found, found.activate(), _RUNS, no_wait, timeout, as_json)


def deactivate(
    job: JobName,
    name: Name = None,
    folder: Folder = None,
    server: ServerUrl = None,
    no_wait: NoWait = False,
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
) -> None:
    """Stop a job once its current batch is done.

    Its state stays; it goes on from there when it is started again: by headrace activate on a
    server, by headrace run without one.

    Example: [bold]headrace deactivate shop[/bold]
    """
    from headrace.driver.planner import request_stop

    found = served(job, server)
    if found is not None:
        resting = (State.INACTIVE, State.ENDED)
        return _settled(found, found.deactivate(), resting, no_wait, timeout, as_json)
    at = job_at(Path(job), name, folder)
    if _is_driven(at):
        request_stop(at.log.folder)
        _left(at, "stopped", no_wait, timeout)


def restart(
    job: ServedName,
    server: ServerUrl = None,
    no_wait: NoWait = False,
    timeout: Timeout = 120.0,
    as_json: AsJson = False,
) -> None:
    """Stop a job once its current batch is done, and start it again.

    Example: [bold]headrace restart shop[/bold]
    """
    instead = "Or stop it with `headrace deactivate JOB`, and start it with `headrace run FILE`."
    found = needs_server(server, instead).job(job)
    _settled(found, found.restart(), _RUNS, no_wait, timeout, as_json)


def rebalance(
    job: ServedName,
    tasks: Parallelism,
    server: ServerUrl = None,
    no_wait: NoWait = False,
    timeout: Timeout = 120.0,
    as_json: AsJson = False,
) -> None:
    """Give a job another number of tasks; it is restarted if it runs.

    Example: [bold]headrace rebalance shop 8[/bold]
    """
    instead = f"Or start it yourself: `headrace run FILE --parallelism {tasks}`."
    found = needs_server(server, instead).job(job)
    _settled(found, found.rebalance(tasks), _RUNS, no_wait, timeout, as_json)


def upgrade(
    job: ServedName,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="The new program. Default: what is now at the path of the old one.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    drop: Drop = None,
    note: Annotated[
        str | None, typer.Option(help="What the version is for.", metavar="TEXT")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")
    ] = False,
    server: ServerUrl = None,
    no_wait: NoWait = False,
    timeout: Timeout = 120.0,
    as_json: AsJson = False,
) -> None:
    """Run another version of a job's program.

    Shows what happens to its state, makes a savepoint, stops the old version and starts the new
    one. If that fails before its first batch, the old one comes back. The exit code is 1 if the
    upgrade is refused or rolled back.

    Example: [bold]headrace upgrade shop jobs/shop.py --dry-run[/bold]
    """
    instead = "Or look at it with `headrace plan FILE`, deactivate the job, and run the new one."
    found = needs_server(server, instead).job(job)
    program = file.absolute() if file is not None and file.exists() else file
    plan = found.plan_upgrade(program, drop=drop or ())
    if not as_json:
        typer.echo(plan.text)
    elif dry_run:
        typer.echo(json.dumps(plan.json, indent=2))
    if dry_run:
        raise typer.Exit(1 if plan.refused else 0)
    view = found.upgrade(program, drop=drop or (), note=note)
    if view.state not in _RESTS and not no_wait:
        _decided(found, plan.version, timeout)
        view = found.view
    _settled(found, view, _RUNS, no_wait, timeout, as_json)


def _decided(job: ServedJob, version: int, timeout: float) -> None:
    """Wait until a new version has committed its first batch; an error if it is taken back."""
    deadline = time.monotonic() + timeout
    runs_since: float | None = None
    while True:
        details = job.details()
        now, state = time.monotonic(), details.job.state
        outcome = next((v.outcome for v in details.versions if v.version == version), "in place")
        if outcome == "in place" or (outcome == "on trial" and state == State.ENDED):
            return
        taken_back = outcome == "refused" or (
            outcome == "rolled back" and details.job.version != version
        )
        if taken_back or state in _RESTS:
            became = outcome if taken_back else f"{outcome}, and the job is {state}"
            events = sorted(job.events(limit=20), key=lambda event: event.id)
            why = [
                e.text
                for e in events
                if e.kind in ("rolling back", "rolled back", "upgrade failed")
            ]
            raise ServerError(
                "HR-CLI-025",
                f"version {version} of job {job.name!r} was {became}"
                + (f": {why[-1]}" if why else ""),
                "`headrace logs` shows what it printed. The version before is in its place."
                if taken_back
                else "`headrace events` shows what happened to it.",
            )
        runs = outcome == "on trial" and state == State.RUNNING
        runs_since = (runs_since or now) if runs else None
        if now > deadline or (runs_since is not None and now > runs_since + _QUIET):
            if runs:  # with nothing to read, perhaps
                typer.echo(
                    f"version {version} is on trial: it runs, and has committed no batch yet; if it "
                    "fails before it does, it is rolled back",
                    err=True,
                )
                return
            raise ServerError(
                "HR-CLI-026",
                f"job {job.name!r} is {state} {timeout:g} s after its upgrade to version {version}",
                "`headrace events` and `headrace logs` show what it does. Until its first batch "
                "the version is rolled back if it fails.",
            )
        time.sleep(_LOOK_EVERY * 5)


def drain(
    job: JobName,
    name: Name = None,
    folder: Folder = None,
    server: ServerUrl = None,
    no_wait: NoWait = False,
    timeout: Timeout = 300.0,
    as_json: AsJson = False,
) -> None:
    """Let a job read what is there now, close every window, and end.

    Example: [bold]headrace drain shop[/bold]
    """
    from headrace.driver.planner import request_drain

    found = served(job, server)
    if found is not None:
        return _settled(found, found.drain(), (State.ENDED,), no_wait, timeout, as_json)
    at = job_at(Path(job), name, folder)
    if _is_driven(at):
        request_drain(at.log.folder)
        _left(at, "ended", no_wait, timeout)


def kill(
    job: JobName,
    yes: Yes = False,
    name: Name = None,
    folder: Folder = None,
    server: ServerUrl = None,
    timeout: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """End a job's process at once; nothing that was committed is lost.

    The batch in hand is done again when it is started again. headrace deactivate waits for it.

    Example: [bold]headrace kill shop --yes[/bold]
    """
    found = served(job, server)
    if found is not None:
        _sure(yes, f"Kill job {job!r} on the server at {found.server}?")
        return _settled(found, found.kill(), (State.KILLED,), False, timeout, as_json)
    at = job_at(Path(job), name, folder)
    holder = at.log.holder()
    if holder is None:
        typer.echo(f"{at.name} is not running")
        return
    pid, host = holder
    if host != socket.gethostname():
        raise RunError(
            "HR-CLI-027",
            f"job {at.name!r} runs on {host}, not on this machine",
            f"Kill it there: process {pid}. `headrace deactivate` stops it from here.",
        )
    _sure(yes, f"Kill job {at.name!r}, process {pid}?")
    if at.log.holder() == holder:  # it may have ended while you thought about it
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _left(at, "been killed", False, timeout)


def remove(job: ServedName, yes: Yes = False, server: ServerUrl = None) -> None:
    """Take a job off the server's list; its state stays.

    Its folder is not touched: submitted again, it goes on from there.

    Example: [bold]headrace remove shop --yes[/bold]
    """
    instead = "Without one a job is its folder in .headrace/jobs, which is yours to delete."
    found = needs_server(server, instead).job(job)
    _sure(yes, f"Remove job {job!r} from the server at {found.server}?")
    found.remove()
    typer.echo(f"{job}: removed; its folder stays")


def _sure(yes: bool, question: str) -> None:
    if not yes:
        typer.confirm(question, abort=True, err=True)


def _settled(
    job: ServedJob,
    view: JobView,
    wanted: tuple[State, ...],
    no_wait: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Wait for what a verb is for, unless the job rests and stays so; and say what it is."""
    if not no_wait and view.state not in (*wanted, *_RESTS):
        view = job.wait(wanted, timeout)
    if as_json:
        typer.echo(json.dumps(view.json, indent=2))
        return
    process = f", process {view.pid}" if view.pid is not None else ""
    reason = f": {view.reason}" if view.reason else ""
    typer.echo(f"{view.name}: {view.state}, version {view.version}{process}{reason}")


def _is_driven(at: JobFolder) -> bool:
    if at.log.driver() is None:
        typer.echo(f"{at.name} is not running")
        return False
    return True


def _left(at: JobFolder, done: str, no_wait: bool, timeout: float) -> None:
    """Wait until nobody drives a job of this machine any more."""
    if no_wait:
        typer.echo(f"{at.name} is asked to; it goes on until its batch is done")
        return
    driver = at.log.driver()
    deadline = time.monotonic() + timeout
    while driver is not None and at.log.driver() == driver:
        if time.monotonic() > deadline:
            raise RunError(
                "HR-CLI-008",
                f"{at.name} has not {done} within {timeout:g} s: {driver} drives it",
                "It goes on until its batch is done: wait, and ask `headrace describe`. A signal "
                "(Ctrl-C, SIGTERM) to that process asks for the same, a second one does not wait.",
            )
        time.sleep(_LOOK_EVERY)
    typer.echo(f"{at.name} has {done} after epoch {at.log.newest()}")
