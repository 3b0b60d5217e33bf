"""Reporting what a run does in a notebook: one card below the cell, replaced in place.

Its plan is shown below it, once: what a reader has unfolded must stay so.
"""

from __future__ import annotations

import io
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rich.console import Console

from headrace.clock import SystemClock
from headrace.engine.reporter import Reporter
from headrace.errors import HeadraceError
from headrace.inspect.figures_card import figures_html, plan_html, warnings_html
from headrace.inspect.progress import Progress
from headrace.inspect.recent import Recent
from headrace.notebook import Card, heading, is_live, preformatted

_EVERY = 0.5  # seconds between two drawings, at least
_AT_LEAST = 2.0  # seconds between two drawings when nothing comes
_LINES = 30  # the newest ones stay


def reporter_for(job: str) -> Reporter:
    """Whoever reports a run where this program runs."""
    return CardReporter(job) if is_live() else Reporter(job)


def card_html(
    job: str,
    state: str,
    lines: list[str],
    error: str = "",
    recent: Recent | None = None,
    warnings: Sequence[str] = (),
) -> str:
    """A run as HTML; with its figures if there are any."""
    html = heading(job, state) + (figures_of_recent(recent) if recent is not None else "")
    html += warnings_html(warnings)
    html += preformatted("\n".join(lines)) if lines else ""
    return html + (f"<div style='color: #d33'>{preformatted(error)}</div>" if error else "")


def figures_of_recent(recent: Recent) -> str:
    """As of now; nothing if they cannot be read, which is no reason to fail."""
    with suppress(HeadraceError, OSError):
        figures = recent.look(SystemClock().now())
        if figures is not None:
            return figures_html(figures.to_json(), recent.times(), recent.series())
    return ""


def plan_of(run: Any) -> str:
    """The plan of a run as HTML; nothing if it cannot be drawn."""
    with suppress(Exception):
        return plan_html(run.explain().svg)
    return ""


class CardReporter(Reporter):
    def __init__(self, job: str) -> None:
        super().__init__(job, Console(file=io.StringIO()))
        self._card, self._plan, self._lines = Card(), Card(), deque[str](maxlen=_LINES)
        self._state, self._error = "starting", ""
        self._run: Any = None
        self._recent: Recent | None = None
        self._drawn, self._behind = 0.0, False  # whether there is something that it does not show

    def show_again(self) -> None:
        """Show the card below this cell as well."""
        self._card.show_again()
        self._plan.show_again()

    def say(self, line: str) -> None:
        self._lines.append(line.removeprefix(f"{self._job}: "))
        self._redraw()

    def started(self, run: Any) -> None:
        self._state, self._run, self._recent = "running", run, Recent(run.folder)
        super().started(run)
        if plan := plan_of(run):
            self._plan.draw(plan, f"{self._job}: print(run.explain()) shows its plan")

    def progress(self, progress: Progress) -> None:
        self._note(progress)
        self._behind = True
        self.tick()

    def tick(self) -> None:
        age = time.monotonic() - self._drawn
        if age >= (_EVERY if self._behind else _AT_LEAST):
            self._redraw()

    def finished(self, run: Any) -> None:
        self._state = run.status.state
        self._error = "" if run.status.error is None else str(run.status.error)
        super().finished(run)

    def _redraw(self) -> None:
        self._drawn, self._behind = time.monotonic(), False
        running = self._state == "running"
        lines = [*self._lines, *([self._status()] if running else [])]
        plain = "\n".join([f"{self._job}: {self._state}", *lines, *filter(None, [self._error])])
        warnings = self._run.status.warnings if self._run is not None else ()
        html = card_html(self._job, self._state, lines, self._error, self._recent, warnings)
        self._card.draw(html, plain)
