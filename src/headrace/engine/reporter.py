"""Reporting what a run does: a live line on a terminal, plain lines elsewhere.

All of it goes to standard error: standard output is for what a job writes. Knows nothing of
how the run does it.
"""

from __future__ import annotations

import signal
import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from headrace.clock import SystemClock
from headrace.inspect.progress import Meter, Progress, account, status_line

_EVERY = 5.0  # seconds between plain lines


class Reporter:
    """Prints the start, the progress and the end of one run."""

    def __init__(self, job: str, console: Console | None = None) -> None:
        self._job, self._console = job, console or Console(stderr=True)
        self._clock, self._meter = SystemClock(), Meter()
        self._last: Progress | None = None
        self._live: Live | None = None
        self._shown: float | None = None
        self._starting = self._stalled = self._stopping = False
        self._warned: set[str] = set()  # of which kinds of trouble

    def starting(self, slowly: bool = False) -> None:
        """Say so once, whoever needs Spark first; and what would make it quicker."""
        if not self._starting:
            self._starting = True
            self.say(f"{self._job}: starting Spark")
            if slowly:
                self.say("  `headrace warm`, once after installing, halves the time this takes")

    def started(self, run: Any) -> None:
        """Say what becomes of the state and what the outputs offer, then go live."""
        self.say(f"{self._job}: running in {run.folder}")
        if run.comparison is not None:
            for line in str(run.comparison).splitlines():
                self.say(f"  {line}")
        for line in run.guarantee.lines:
            self.say(f"  {line}")
        if self._console.is_terminal:
            self._live = Live(
                console=self._console, get_renderable=self._draw, refresh_per_second=4
            )
            self._live.start()

    def progress(self, progress: Progress) -> None:
        """An epoch has been committed."""
        self._note(progress)
        if self._live is None and (self._shown is None or time.monotonic() - self._shown >= _EVERY):
            self._shown = time.monotonic()
            self.say(f"{self._job}: {self._status()}")

    def _note(self, progress: Progress) -> None:
        self._meter.add(progress)
        self._last = progress
        self._warn(progress)

    def tick(self) -> None:
        """Called again and again while it runs; a terminal's line refreshes itself."""

    def stopping(self, number: int, *, now: bool) -> None:
        """A signal asks it to stop, once the batch in hand is done, or for the second time."""
        self._stopping = True
        if now:
            words = "stopping now; the batch in hand is done again at the next start"
        elif number == signal.SIGINT:
            words = "stopping after this batch; press Ctrl-C again to stop now"
        else:
            name = signal.Signals(number).name
            words = f"{name}: stopping after this batch; a second signal stops it now"
        self.say(f"{self._job}: {words}")

    def stalled(self, stalled: bool) -> None:
        """Whether it is stalled: the status line shows it while it is."""
        self._stalled = stalled

    def finished(self, run: Any) -> None:
        """Say how it ended, and where every record went."""
        self._close()
        self.say(f"{self._job}: {run.status.state} after epoch {run.status.epoch}")
        if run.status.state == "ended" and self._last is None:
            self.say(
                "  it had ended before, so nothing was read or computed; these are the figures of "
                "the runs before. To compute again, remove the job's folder and its outputs"
            )
        if run.progress is not None:
            for line in account(run.progress):
                self.say(f"  {line}")
            for warning in run.progress.warnings:
                self.say(f"{self._job}: WARNING: {warning}")

    def _warn(self, progress: Progress) -> None:
        """Once, as soon as it is so, and not only at the end."""
        kinds = {
            "dead": progress.all_dead,
            "late": progress.often_late,
            "shed": progress.sheds,
        }
        for kind, warnings in kinds.items():
            if kind not in self._warned:
                for warning in warnings:
                    self.say(f"{self._job}: WARNING: {warning}")
        self._warned = {kind for kind, warnings in kinds.items() if warnings}

    def say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _draw(self) -> Text:
        return Text(self._status(self._console.width), style="dim")

    def _status(self, width: int | None = None) -> str:
        """The status as it is now: the rate falls and the delay grows while nothing comes."""
        state = "stopping  " if self._stopping else "stalled  " if self._stalled else ""
        if self._last is None:
            return f"{state}first batch"
        now = self._clock.now()
        return state + status_line(self._last, self._meter.rate(now), now, width)

    def _close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
