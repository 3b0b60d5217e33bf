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


@dataclass(frozen=True, slots=True)
class WindowExtent:
    """Where some windows begin and end, and which of them are over."""

    start: Times  # where marks of event time are counted from; MIN_TIME: from 1970
    end: Times
    closes: Mask  # becomes over in this epoch
    late: Mask  # was over before
    expires: Mask  # is forgotten at the end of this epoch
    shown: tuple[Times, Times]  # the bounds that they show; beyond all times where they have none


@dataclass(slots=True)
class Facts:
    """What is known of some windows at the end of an epoch, a row for each."""

    extent: WindowExtent
    rows: Times  # in all
    new: Times  # not shown yet
    touched: Mask  # got rows in this epoch
    panes: Times  # firings so far
    first: Times  # the clock when the oldest row not shown yet came
    fired: Times  # the clock at the last firing; MIN_TIME before the first
    before: int
    after: int
    clock: int
    values: Mapping[str, Any]  # what the trigger watches, by name; NaN for none
    times: Mapping[str, Times]  # how often each limited trigger has fired, by name

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def closes(self) -> Mask:
        """It becomes over in this epoch: the watermark passes its end, or its last row came."""
        return self.extent.closes

    @property
    def late(self) -> Mask:
        """It was over before."""
        return self.extent.late

    @property
    def over(self) -> Mask:
        over: Mask = self.extent.closes | self.extent.late
        return over

    @property
    def expires(self) -> Mask:
        return self.extent.expires

    def none(self) -> Times:
        return np.full(len(self), MAX_TIME)

    def bounds(self, window: int) -> tuple[int | None, int | None]:
        """The bounds that a window shows; None where it has none."""
        start, end = (int(times[window]) for times in self.extent.shown)
        return (start, end) if start > MIN_TIME else (None, None)


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
