"""Triggers: when a window shows its result, besides or instead of when it is over.

A trigger is a value; `ready` judges many windows at once by their `Facts`. It is asked once
per epoch (or, if it is `PerRow`, for each row), of windows that got rows, whose end the
watermark passed, or whose time has come (`due` by the clock, `mark` by the watermark). After a
firing counts start anew. Nothing here has state or knows what a window computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headrace.arrays import Mask, Times
from headrace.clock import MAX_TIME, MIN_TIME, pretty
from headrace.errors import StepError
from headrace.expr import Expr
from headrace.ops.agg.named import Aggregate
from headrace.ops.window.aligned import floor_of
from headrace.ops.window.assigners import Assigner, Session, column_text
from headrace.ops.window.trigger_base import TIMES, Facts, Trigger, Watch


@dataclass(frozen=True)
class AtWatermark(Trigger):
    """When the watermark passes the end; before that as `early` says, after it as `late`."""

    early: Trigger | None = None
    late: Trigger | None = None
    safe = True

    def __str__(self) -> str:
        early = f", early {self.early}" if self.early else ""
        late = f", late {self.late}" if self.late else ""
        return f"at the watermark{early}{late}"

    @property
    def clocked(self) -> bool:  # type: ignore[override]
        return any(t.clocked for t in (self.early, self.late) if t)

    @property
    def marked(self) -> bool:  # type: ignore[override]
        return any(t.marked for t in (self.early, self.late) if t)

    def ready(self, f: Facts) -> Mask:
        closes, late = f.closes, f.late
        early = self.early.ready(f) if self.early else np.zeros(len(f), np.bool_)
        again = self.late.ready(f) if self.late else f.touched
        return np.where(closes, True, np.where(late, again, early))

    def due(self, f: Facts) -> Times:
        over = f.over
        early = self.early.due(f) if self.early else f.none()
        again = self.late.due(f) if self.late else f.none()
        return np.where(over, again, early)

    def mark(self, f: Facts) -> Times:
        over = f.over
        early = self.early.mark(f) if self.early else f.none()
        again = self.late.mark(f) if self.late else f.none()
        return np.where(over, again, np.where(early < f.extent.end, early, MAX_TIME))

    def counts(self, f: Facts) -> dict[str, Mask]:
        early = self.early.counts(f) if self.early else {}
        again = self.late.counts(f) if self.late else {}
        open_ones = ~(f.closes | f.late)
        return {
            **{name: mask & open_ones for name, mask in early.items()},
            **{name: mask & f.late for name, mask in again.items()},
        }

    def watches(self) -> list[Watch]:
        return [w for t in (self.early, self.late) if t for w in t.watches()]


@dataclass(frozen=True)
class AfterRows(Trigger):
    """When at least so many rows have come since the last firing."""

    count: int

    def __str__(self) -> str:
        return "on every change" if self.count == 1 else f"after {self.count} rows"

    def ready(self, f: Facts) -> Mask:
        return f.new >= self.count


@dataclass(frozen=True)
class Every(Trigger):
    """Every so often, if there is something new.

    By the clock: so long after the last firing, or after the first row. By event time: when
    the watermark passes a multiple of the period, counted from the window's start; from 1970
    in a window without bounds.
    """

    period: int
    event: bool = False

    def __str__(self) -> str:
        return f"every {pretty(self.period)}{' of event time' if self.event else ''}"

    @property
    def clocked(self) -> bool:  # type: ignore[override]
        return not self.event

    @property
    def marked(self) -> bool:  # type: ignore[override]
        return self.event

    def ready(self, f: Facts) -> Mask:
        if self.event:
            return (f.new > 0) & (self._mark_after(f, f.before) <= f.after)
        return (f.new > 0) & (self._next(f) <= f.clock)

    def due(self, f: Facts) -> Times:
        return f.none() if self.event else _coming(f, self._next(f))

    def mark(self, f: Facts) -> Times:
        if not self.event:
            return f.none()
        return np.where(f.new > 0, self._mark_after(f, f.after), MAX_TIME)

    def _next(self, f: Facts) -> Times:
        return _later(np.where(f.fired > MIN_TIME, f.fired, f.first), self.period)

    def _mark_after(self, f: Facts, watermark: int) -> Times:
        """The first multiple of the period that the watermark has not reached."""
        begins = f.extent.start
        start = np.where(begins > MIN_TIME, begins, 0)
        reached = np.maximum(watermark, begins)
        mark: Times = start + ((reached - start) // self.period + 1) * self.period
        return mark


@dataclass(frozen=True)
class AfterDelay(Trigger):
    """So long after the oldest row that has not been shown came, by the clock."""

    delay: int
    clocked = True

    def __str__(self) -> str:
        return f"{pretty(self.delay)} after a row"

    def ready(self, f: Facts) -> Mask:
        return (f.new > 0) & (_later(f.first, self.delay) <= f.clock)

    def due(self, f: Facts) -> Times:
        return _coming(f, _later(f.first, self.delay))


@dataclass(frozen=True)
class OnRow(Trigger):
    """When a row came that fulfils the predicate: a punctuation."""

    name: str
    predicate: Expr

    def __str__(self) -> str:
        return f"on a row with {column_text(self.predicate)}"

    def ready(self, f: Facts) -> Mask:
        came: Mask = np.nan_to_num(f.values[self.name]) > 0
        return came

    def watches(self) -> list[Watch]:
        return [Watch(self.name, "count", since=True)]


@dataclass(frozen=True)
class OnDelta(Trigger):
    """When the last value is `threshold` or more from the last that was shown.

    Before the first firing: from the window's first value. "Last" is by event time.
    """

    name: str
    column: Expr
    threshold: float

    def __str__(self) -> str:
        return f"on {column_text(self.column)} moving by {self.threshold:g}"

    def ready(self, f: Facts) -> Mask:
        base, last = f.values[f"{self.name}.base"], f.values[self.name]
        moved: Mask = np.abs(last - base) >= self.threshold
        return (f.new > 0) & moved

    def watches(self) -> list[Watch]:
        return [
            Watch(self.name, "last"),
            Watch(f"{self.name}.first", "first"),
        ]


@dataclass(frozen=True)
class Combined(Trigger):
    """Any, or all, of several."""

    parts: tuple[Trigger, ...]
    every: bool

    def __str__(self) -> str:
        return f"{'all' if self.every else 'any'} of ({'; '.join(map(str, self.parts))})"

    @property
    def safe(self) -> bool:  # type: ignore[override]
        return (all if self.every else any)(t.safe for t in self.parts)

    @property
    def clocked(self) -> bool:  # type: ignore[override]
        return any(t.clocked for t in self.parts)

    @property
    def marked(self) -> bool:  # type: ignore[override]
        return any(t.marked for t in self.parts)

    def ready(self, f: Facts) -> Mask:
        masks = [t.ready(f) for t in self.parts]
        combined: Mask = (np.logical_and if self.every else np.logical_or).reduce(masks)
        return combined

    def due(self, f: Facts) -> Times:
        earliest: Times = np.minimum.reduce([t.due(f) for t in self.parts])
        return earliest

    def mark(self, f: Facts) -> Times:
        earliest: Times = np.minimum.reduce([t.mark(f) for t in self.parts])
        return earliest

    def counts(self, f: Facts) -> dict[str, Mask]:
        return {name: mask for t in self.parts for name, mask in t.counts(f).items()}

    def watches(self) -> list[Watch]:
        return [w for t in self.parts for w in t.watches()]


@dataclass(frozen=True)
class AtMost(Trigger):
    """Another trigger, at most so many times per window; the plan gives it its name."""

    name: str
    of: Trigger
    most: int

    def __str__(self) -> str:
        return f"{self.of}, {'once' if self.most == 1 else f'{self.most} times'} at most"

    @property
    def clocked(self) -> bool:  # type: ignore[override]
        return self.of.clocked

    @property
    def marked(self) -> bool:  # type: ignore[override]
        return self.of.marked

    def ready(self, f: Facts) -> Mask:
        return self.of.ready(f) & self._goes_on(f)

    def due(self, f: Facts) -> Times:
        return np.where(self._goes_on(f), self.of.due(f), MAX_TIME)

    def mark(self, f: Facts) -> Times:
        return np.where(self._goes_on(f), self.of.mark(f), MAX_TIME)

    def counts(self, f: Facts) -> dict[str, Mask]:
        ready = self.ready(f)
        return {self.name: ready, **{n: m & ready for n, m in self.of.counts(f).items()}}

    def watches(self) -> list[Watch]:
        return [Watch(self.name, TIMES), *self.of.watches()]

    def _goes_on(self, f: Facts) -> Mask:
        more: Mask = f.times[self.name] < self.most
        return more


@dataclass(frozen=True)
class PerRow(Trigger):
    """Another trigger, asked for each row; the plan takes it off and says so to the windows."""

    of: Trigger


@dataclass(frozen=True, slots=True)
class WindowNow:
    """One window, as a trigger of the user's own sees it."""

    start: int | None  # ms; None for a window without bounds
    end: int | None
    rows: int
    new: int  # not shown yet
    panes: int  # how often it has fired
    watermark: int
    clock: int
    over: bool  # the watermark has passed the end


@dataclass(frozen=True, eq=False)
class CustomTrigger(Trigger):
    """The user's own: a function of a `WindowNow`.

    It is asked of windows that got rows, whose end was passed, or that are about to be
    forgotten; when another trigger has the window judged, it says no.
    """

    fn: Callable[[WindowNow], bool]

    def __str__(self) -> str:
        return f"when {getattr(self.fn, '__name__', 'a function')} says so"

    def ready(self, f: Facts) -> Mask:
        ready = np.zeros(len(f), np.bool_)
        judged = np.flatnonzero(f.touched | f.closes | f.expires)
        for i in judged.tolist():
            ready[i] = self._says(self._window(f, i))
        return ready

    def _says(self, window: WindowNow) -> bool:
        try:
            return bool(self.fn(window))
        except Exception as error:
            raise StepError(
                "HR-TRIGGER-011",
                f"the trigger that fires {self} failed: {type(error).__name__}: {error}",
                f"Correct it; the window was {window}.",
            ) from error

    def _window(self, f: Facts, i: int) -> WindowNow:
        start, end = f.bounds(i)
        rows, new, panes = (int(c[i]) for c in (f.rows, f.new, f.panes))
        return WindowNow(start, end, rows, new, panes, f.after, f.clock, bool(f.over[i]))


def _later(times: Times, length: int) -> Times:
    """Times moved on; MAX_TIME, which is never, stays."""
    moved: Times = np.minimum(times, MAX_TIME - length) + length
    return moved


def _coming(f: Facts, clock: Times) -> Times:
    """Clock times that are still to come, where something is new."""
    return np.where((f.new > 0) & (clock > f.clock), clock, MAX_TIME)


def watched(trigger: Trigger) -> tuple[dict[str, Aggregate], dict[str, Aggregate], list[str]]:
    """What a trigger needs: aggregates since the last firing and since ever, and counts."""
    watches = {w.name: w for w in trigger.watches()}
    aggs = {name: w for name, w in watches.items() if w.agg != TIMES}
    since, ever = (
        {name: Aggregate(w.agg, name) for name, w in aggs.items() if w.since == recent}
        for recent in (True, False)
    )
    return since, ever, [name for name, w in watches.items() if w.agg == TIMES]


# How a stream is cut into windows of time: a value that says it all.


@dataclass(frozen=True)
class Windowing:
    """How a stream is cut, and when and how a window shows its result."""

    assigner: Assigner
    trigger: Trigger
    lateness: int = 0
    mode: str = "replace"  # or "delta", "retract"
    loses: bool = False  # what was not shown when a window is forgotten never is
    per_row: bool = False  # the trigger is asked for each row, not once per epoch
    result_time: str = "end"  # or "earliest", "latest": of the rows of the window
    over: int = MIN_TIME  # what ends before this was over when the lateness was shorter

    def floor(self, watermark: int) -> int:
        """Windows that end before this are done with under the watermark."""
        return max(floor_of(watermark, self.lateness), self.over)

    @property
    def fires_once(self) -> bool:
        """Whether a window fires when it is over, and never else."""
        return self.trigger == AtWatermark() and not self.per_row

    @property
    def behind(self) -> int | None:
        """How many ms a result's time may lie behind the watermark; None if there is no saying."""
        if self.result_time == "end":
            return 0
        assigner = self.assigner
        if isinstance(assigner, Session) and self.result_time == "latest":
            return None if assigner.differs else assigner.gap + assigner.slack
        return assigner.longest
