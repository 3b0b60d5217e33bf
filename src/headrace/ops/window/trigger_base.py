"""What a trigger is, and the facts of the windows that it judges.

Nothing here has state or knows what a window computes; the triggers themselves are in
`triggers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.arrays import Mask, Times
from headrace.clock import MAX_TIME, MIN_TIME


@dataclass(slots=True)
class Facts:
    """What is known of some windows at the end of an epoch, a row for each."""

    start: Times
    end: Times
    rows: Times  # in all
    new: Times  # not shown yet
    touched: Mask  # got rows in this epoch
    expires: Mask  # is forgotten at the end of this epoch
    panes: Times  # firings so far
    first: Times  # the clock when the oldest row not shown yet came
    fired: Times  # the clock at the last firing; MIN_TIME before the first
    before: int
    after: int
    clock: int
    slack: int  # ms that windows stay open beyond the end that they show
    values: Mapping[str, Any]  # what the trigger watches, by name; NaN for none
    times: Mapping[str, Times]  # how often each limited trigger has fired, by name

    def __len__(self) -> int:
        return len(self.end)

    @property
    def closes(self) -> Mask:
        """The watermark passes the end in this epoch."""
        passed: Mask = (self.end > self.before) & (self.end <= self.after)
        return passed

    @property
    def late(self) -> Mask:
        """The watermark had passed the end before."""
        over: Mask = self.end <= self.before
        return over

    def none(self) -> Times:
        return np.full(len(self), MAX_TIME)

    def bounds(self, window: int) -> tuple[int | None, int | None]:
        """The bounds that a window shows; None where it has none."""
        start, end = int(self.start[window]), int(self.end[window])
        bounded = start > MIN_TIME
        return (start, end - self.slack) if bounded else (None, None)


@dataclass(frozen=True, slots=True)
class Watch:
    """What a trigger needs in state: an aggregate of a column, or how often it fired."""

    name: str
    agg: str
    since: bool = False  # the last firing; else since ever


TIMES = "times"  # instead of an aggregate: how often it fired


class Trigger:
    """Base of all triggers."""

    safe = False  # shows every row before the window is forgotten
    clocked = False  # needs the clock
    marked = False  # goes by marks of event time

    @property
    def paced(self) -> bool:
        """Whether it may become ready by time alone, before the window's end."""
        return self.clocked or self.marked

    def ready(self, f: Facts) -> Mask:
        raise NotImplementedError

    def due(self, f: Facts) -> Times:
        """The next clock, after now, at which it may become ready without another row."""
        return f.none()

    def mark(self, f: Facts) -> Times:
        """The next watermark, after now, at which it may become ready without another row."""
        return f.none()

    def counts(self, f: Facts) -> dict[str, Mask]:
        """The limited triggers in it, by name, and where they have a part in a firing now."""
        return {}

    def watches(self) -> list[Watch]:
        return []
