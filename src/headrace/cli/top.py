"""`headrace top`: what jobs are doing, on a terminal, until q or Ctrl-C."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live

from headrace.cli.folders import job_at
from headrace.cli.jobs import AsJson
from headrace.cli.served import ServerUrl, served
from headrace.cli.top_jobs import TopSeen, Watched, WatchedFolder, WatchedJobs, WatchedServed
from headrace.cli.top_screen import SORTS, job_frame, list_frame
from headrace.clock import SystemClock, millis
from headrace.engine.interrupts import acting
from headrace.settings import Settings

_KEYS = 0.1  # seconds within which a key is answered


def top(
    job: Annotated[
        str | None,
        typer.Argument(
            help="A job of the server, its name in .headrace/jobs, or its folder. Default: all.",
            metavar="JOB",
            show_default=False,
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print it once; so it is where there is no terminal.")
    ] = False,
    every: Annotated[str, typer.Option(help="How often to look.", metavar="TIME")] = "1s",
    server: ServerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Watch jobs on a live screen: rate, lag, latency, warnings.

    With JOB one of them, with its steps and what limits it.

    Those of the server, and those of this folder that it does not run. Keys: q quits; s sorts
    the jobs by another column, r the other way round.

    Example: [bold]headrace top fire-alarm[/bold]
    """
    watched, pause = _watched(job, server), max(100, millis(every)) / 1_000
    console = Console()
    if as_json or once or not console.is_terminal:
        seen = watched.look(SystemClock().now())
        if as_json:
            typer.echo(json.dumps(seen.json if job is None else seen.json_of_one, indent=2))
        else:
            console.print(list_frame(seen, console.width) if job is None else
                          job_frame(seen, console.width))  # fmt: skip
        return
    over = threading.Event()
    with acting(lambda number: over.set()):
        _watch(watched, pause, console, over, of_one=job is not None)


def _watched(job: str | None, server: str | None) -> Watched:
    if job is None:
        return WatchedJobs(server, Path(Settings.load().jobs))
    found = served(job, server)
    if found is not None:
        return WatchedServed(found, server)
    return WatchedFolder(job_at(Path(job)).log.folder)


class _TopLoop:
    """Looks from time to time, in a thread: keys are answered though a server is not there."""

    def __init__(self, watched: Watched, pause: float, over: threading.Event) -> None:
        self._watched, self._pause, self._over = watched, pause, over
        self.seen: TopSeen | None = None
        self.failed: BaseException | None = None
        threading.Thread(target=self._run, name="headrace-top", daemon=True).start()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.seen = self._watched.look(SystemClock().now())
            except BaseException as error:
                self.failed = error
                return
            self._over.wait(self._pause)


def _watch(
    watched: Watched, pause: float, console: Console, over: threading.Event, of_one: bool
) -> None:
    looking = _TopLoop(watched, pause, over)
    sort, reverse, drawn = 0, False, object()

    def frame() -> Group:
        seen, width, height = looking.seen, console.width, console.height
        if seen is None:
            return Group("...")
        if of_one:
            return job_frame(seen, width, height, keys=True)
        return list_frame(seen, width, height, SORTS[sort], reverse, keys=True)

    with _pressed() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while not over.is_set() and looking.failed is None:
            key = pressed(_KEYS)
            if key == "q":
                over.set()
            sort = (sort + 1) % len(SORTS) if key == "s" else sort
            reverse = reverse != (key == "r")
            state = (looking.seen, sort, reverse, console.size)
            if state != drawn:
                live.update(frame(), refresh=True)
                drawn = state
    if looking.failed is not None:
        raise looking.failed


def _nothing(seconds: float) -> str:
    time.sleep(seconds)
    return ""


@contextmanager
def _pressed() -> Iterator[Callable[[float], str]]:
    """A function that waits so long for a key; "" if none comes."""
    fd = sys.stdin.fileno() if sys.stdin.isatty() else None
    if fd is None:
        yield _nothing
        return
    import termios
    import tty

    before = termios.tcgetattr(fd)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([fd], [], [], seconds)
        return os.read(fd, 16).decode(errors="replace")[:1] if ready else ""

    try:
        tty.setcbreak(fd)
        yield pressed
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
