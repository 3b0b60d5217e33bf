"""Time windows: which intervals a timestamp falls into, and when they end.

A window is half-open, [start, end), in epoch milliseconds; windows start at
offset + k * slide. A *pane* is the longest slice that every window holds whole or not at
all, so windows are made of panes. Specs are values and everything here is arithmetic: no
state, no clock, and no loop over time, whose range may be astronomically large.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from headrace.arrays import Mask, Times
from headrace.at_rest import Identified
from headrace.clock import MAX_TIME, MIN_TIME, Duration, millis, pretty, shift_millis
from headrace.errors import refusal
from headrace.ops.window.by_rows import CountWindow, DeltaWindow, LastRows, LastTime, UntilWindow


class Interval(NamedTuple):
    """One window: [start, end)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Window(Identified):
    """Windows `size` long that open every `slide`; when equal, they tumble."""

    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.size <= 0:
            raise refusal(
                "HR-WINDOW-001", f"window has size {self.size} ms", "Choose a size above zero."
            )
        if self.slide <= 0:
            hint = "Choose a slide above zero: it is how often a window opens."
            raise refusal("HR-WINDOW-002", f"window has slide {self.slide} ms", hint)
        if self.slide > self.size:
            fact = f"window has slide {pretty(self.slide)} but size {pretty(self.size)}"
            hint = "Choose 0 < slide <= size: a larger slide would skip records."
            raise refusal("HR-WINDOW-003", fact, hint)

    def at_rest(self) -> str:
        shift = f" offset {pretty(self.offset)}" if self.offset else ""
        if self.tumbles:
            return f"tumbling {pretty(self.size)}{shift}"
        return f"sliding {pretty(self.size)} every {pretty(self.slide)}{shift}"

    @property
    def tumbles(self) -> bool:
        return self.size == self.slide

    @property
    def pane_size(self) -> int:
        return gcd(self.size, self.slide)

    def assign(self, ts: int) -> list[Interval]:
        """The windows that contain `ts`, earliest first."""
        first = self._floor(ts - self.size) + self.slide
        return [Interval(s, s + self.size) for s in range(first, ts + 1, self.slide)]

    def panes_of(self, times: Times) -> Times:
        """The start of the pane that holds each time."""
        return _floor(times, self.pane_size, self.offset)

    def is_late(self, times: Times, watermark: int, lateness: int = 0) -> Mask:
        """True where every window that contains the time ended at or before the watermark."""
        late: Mask = times < self.oldest_needed_pane(watermark, lateness)
        return late

    def oldest_needed_pane(self, watermark: int, lateness: int = 0) -> int:
        """Panes that start before this are in no window that is still to fire."""
        if watermark <= MIN_TIME:
            return MIN_TIME
        cut = self._floor(watermark - lateness - self.size) + self.slide
        return min(max(cut, MIN_TIME), MAX_TIME)

    def next_end(self, after: int, panes: Times) -> int | None:
        """The earliest end beyond `after` of a window that holds one of the live `panes`."""
        live = panes[panes >= self.oldest_needed_pane(after)]
        if not len(live):
            return None
        bound = max(after, int(live.min()))
        return self._floor(bound - self.size) + self.slide + self.size

    def panes_between(self, before: int, after: int) -> tuple[int, int]:
        """Panes [low, high) are those in a window with before < end <= after."""
        origin = self.offset + self.size
        high = (after - origin) // self.slide * self.slide + origin
        return (self.oldest_needed_pane(before), high) if high > before else (high, high)

    def end_range(self, before: int, after: int, panes: Times) -> tuple[Times, Times]:
        """For each pane, the numbers of its first and last window with before < end <= after.

        Window k starts at offset + k * slide. A pane without such a window has first > last;
        neither bound falls when `panes` rise.
        """
        origin = self.offset + self.size
        first = np.maximum((panes - origin) // self.slide, (before - origin) // self.slide) + 1
        last = np.minimum((panes - self.offset) // self.slide, (after - origin) // self.slide)
        return first, last

    def end_of(self, number: Times) -> Times:
        """The end of window `number`."""
        return number * self.slide + (self.offset + self.size)

    def _floor(self, time: int) -> int:
        return (time - self.offset) // self.slide * self.slide + self.offset


def tumbling(
    size: Duration | None = None, *, rows: int | None = None, offset: Duration | None = None
) -> Window | CountWindow:
    """Windows one after the other, each record in exactly one: `size` long, or of so many rows."""
    if (size is None) == (rows is None) or (rows is not None and offset is not None):
        fact = f"tumbling has size {size!r}, rows {rows!r} and offset {offset!r}"
        raise refusal(
            "HR-WINDOW-041", fact, 'Write tumbling("5s"), tumbling("1d", offset="6h"), or rows=100.'
        )
    if rows is not None:
        return CountWindow(rows)
    assert size is not None
    length = millis(size)
    return Window(length, length, _shift(offset, length))


def sliding(
    size: Duration | None = None,
    every: Duration | None = None,
    *,
    rows: int | None = None,
    every_rows: int | None = None,
    offset: Duration | None = None,
) -> Window | CountWindow | LastRows | LastTime:
    """Windows that overlap: `size` long or the last `rows`, `every` so often or `every_rows`."""
    if (size is None) == (rows is None) or (every is None) == (every_rows is None):
        fact = "sliding needs one length and one step"
        hint = 'Write sliding("60s", every="5s"), sliding(rows=100, every_rows=10), or mix them.'
        raise refusal("HR-WINDOW-042", fact, hint)
    if offset is not None and (size is None or every is None):
        raise refusal("HR-WINDOW-043", "offset= is for windows of time", "Leave it out.")
    if rows is not None:
        return CountWindow(rows, every_rows) if every is None else LastRows(rows, millis(every))
    assert size is not None
    if every_rows is not None:
        return LastTime(millis(size), every_rows)
    assert every is not None
    slide = millis(every)
    return Window(millis(size), slide, _shift(offset, slide))


def delta(column: Any, threshold: float, *, since: str = "first") -> DeltaWindow:
    """Windows that end before `column` is more than `threshold` from the window's first row.

    With since="previous", from the row before.
    """
    return DeltaWindow(column, threshold, since)


def until(predicate: Any, *, inside: bool = True) -> UntilWindow:
    """Windows that a row ends, if it fulfils `predicate`; as its last row, or (not `inside`)
    as the first of the next window."""
    return UntilWindow(predicate, inside)


def floor_of(watermark: int, lateness: int) -> int:
    """Windows that end before this are done with under the watermark."""
    if watermark <= MIN_TIME:
        return MIN_TIME
    return MAX_TIME + 1 if watermark >= MAX_TIME else watermark - lateness + 1


def _shift(offset: Duration | None, slide: int) -> int:
    shift = 0 if offset is None else shift_millis(offset)
    return shift % slide if slide > 0 else shift


def _floor(times: Times, step: int, offset: int) -> Times:
    if offset % step == 0:
        return times // step * step
    return (times - offset) // step * step + offset
