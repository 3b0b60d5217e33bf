"""Reporting what a run does in a notebook: one card below the cell, replaced in place."""

from __future__ import annotations

import io
import time
from collections import deque
from typing import Any

from rich.console import Console

from headrace.engine.reporter import Reporter
from headrace.inspect.progress import Progress
from headrace.notebook import Card, heading, is_live, preformatted

_EVERY = 0.5  # seconds between two drawings, at least
_AT_LEAST = 5.0  # seconds between two drawings when nothing comes
_LINES = 30  # the newest ones stay


def reporter_for(job: str) -> Reporter:
    """Whoever reports a run where this program runs."""
    return CardReporter(job) if is_live() else Reporter(job)


def card_html(job: str, state: str, lines: list[str], error: str = "") -> str:
    """A run as HTML."""
    html = heading(job, state)
    html += preformatted("\n".join(lines)) if lines else ""
    return html + (f"<div style='color: #b00020'>{preformatted(error)}</div>" if error else "")


class CardReporter(Reporter):
    def __init__(self, job: str) -> None:
        super().__init__(job, Console(file=io.StringIO()))
        self._card, self._lines = Card(), deque[str](maxlen=_LINES)
        self._state, self._error = "starting", ""
        self._drawn, self._behind = 0.0, False  # whether there is something that it does not show

    def show_again(self) -> None:
        """Show the card below this cell as well."""
        self._card.show_again()

    def say(self, line: str) -> None:
        self._lines.append(line.removeprefix(f"{self._job}: "))
        self._redraw()

    def started(self, run: Any) -> None:
        self._state = "running"
        super().started(run)

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
        self._card.draw(card_html(self._job, self._state, lines, self._error), plain)
