"""Assigners: into which windows of time a row goes.

An assigner is a value. Given the times of some rows it names, for each of them, the windows
that hold it: half-open, in milliseconds. One that *merges* (sessions) gives every row a
window of its own, and windows of a key that meet become one. No state, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Times
from headrace.at_rest import Identified
from headrace.callables import title
from headrace.chunk import visible
from headrace.clock import FURTHEST, MAX_TIME, MIN_TIME, Duration, millis, pretty, shift_millis
from headrace.errors import PlanError, refusal
from headrace.expr import Expr
from headrace.ops.agg.order import sorted_by
from headrace.ops.window.aligned import Interval, Window
from headrace.rows import rows_of

FOREVER = MAX_TIME - 1  # the end of a window that only the end of input ends
GAP = "$gap"  # the column into which the plan puts a gap that is an expression
LONGEST_GAP = 1_000 * 366 * 86_400_000  # of a row; nobody waits for a thousand years


class Placed(NamedTuple):
    """Rows in windows: row `row[i]` is in the window [start[i], end[i])."""

    row: Times
    start: Times
    end: Times


class Assigner(Protocol):
    """What a window step needs to know of its windows."""

    def at_rest(self) -> str:
        """What identifies it in a manifest."""

    @property
    def merges(self) -> bool:
        """Whether windows of a key may become one."""

    @property
    def longest(self) -> int | None:
        """How many ms the longest window has; None if there is no saying."""

    @property
    def slack(self) -> int:
        """For how many ms a window stays open beyond the end that it shows."""

    @property
    def by_time(self) -> bool:
        """Whether a window's rows are all those of its key whose time lies in it."""

    def place(self, times: Times, rows: pa.Table) -> Placed:
        """Every row in every window that holds it, rows in order."""

    def reach(self, times: Times, rows: pa.Table) -> Times:
        """For each row, when the last window that holds it ends."""

    def join(self, key: Times, start: Times, end: Times) -> Joined:
        """Which windows of a key become one; asked only if it merges."""


class NonMerging(Identified):
    """Base of windows that never merge."""

    __slots__ = ()
    merges = False
    slack = 0
    by_time = True

    @property
    def longest(self) -> int | None:
        return None

    def join(self, key: Times, start: Times, end: Times) -> Joined:
        raise NotImplementedError("these windows do not merge")


@dataclass(frozen=True, slots=True)
class AlignedAssigner(NonMerging):
    """Tumbling and sliding windows, one by one; panes are for those who can share."""

    window: Window

    def at_rest(self) -> str:
        return self.window.at_rest()

    def place(self, times: Times, rows: pa.Table) -> Placed:
        window = self.window
        last = (times - window.offset) // window.slide
        if window.tumbles:
            start = last * window.slide + window.offset
            return Placed(np.arange(len(times)), start, start + window.size)
        first = (times - window.offset - window.size) // window.slide + 1
        row, number = expanded(first, last - first + 1)
        start = number * window.slide + window.offset
        return Placed(row, start, start + window.size)

    @property
    def longest(self) -> int:
        return self.window.size

    def reach(self, times: Times, rows: pa.Table) -> Times:
        window = self.window
        last = (times - window.offset) // window.slide
        return last * window.slide + (window.offset + window.size)


@dataclass(frozen=True, slots=True)
class Cumulating(NonMerging):
    """Windows that begin together and end one step after the other, up to `size`."""

    size: int
    step: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.size <= 0 or self.step <= 0:
            fact = f"cumulating windows have size {self.size} ms and step {self.step} ms"
            raise refusal("HR-WINDOW-004", fact, "Choose both above zero.")
        if self.size % self.step:
            fact = f"cumulating windows of {pretty(self.size)} grow by {pretty(self.step)}"
            raise refusal("HR-WINDOW-005", fact, "Choose a size that is a whole number of steps.")

    def at_rest(self) -> str:
        shift = f" offset {pretty(self.offset)}" if self.offset else ""
        return f"cumulating {pretty(self.size)} every {pretty(self.step)}{shift}"

    @property
    def longest(self) -> int:
        return self.size

    def place(self, times: Times, rows: pa.Table) -> Placed:
        begins = (times - self.offset) // self.size * self.size + self.offset
        done = (times - begins) // self.step
        row, number = expanded(done + 1, self.size // self.step - done)
        return Placed(row, begins[row], begins[row] + number * self.step)

    def reach(self, times: Times, rows: pa.Table) -> Times:
        return (times - self.offset) // self.size * self.size + (self.offset + self.size)


@dataclass(frozen=True, slots=True)
class Session(Identified):
    """Windows that last until nothing has come for `gap`, which may differ from row to row.

    A row exactly `gap` after the last one still belongs: the window is open a millisecond
    longer than it says, and closes when no such row can come any more.
    """

    gap: Any  # milliseconds, or what gives them for each row
    merges = True
    longest = None
    slack = 1
    by_time = True

    def __post_init__(self) -> None:
        if isinstance(self.gap, int) and self.gap <= 0:
            raise refusal(
                "HR-WINDOW-006", f"session has gap {self.gap} ms", "Choose a gap above zero."
            )

    def at_rest(self) -> str:
        gap = pretty(self.gap) if isinstance(self.gap, int) else column_text(self.gap)
        return f"session gap {gap}"

    @property
    def differs(self) -> bool:
        """Whether each row has a gap of its own."""
        return not isinstance(self.gap, int)

    def place(self, times: Times, rows: pa.Table) -> Placed:
        return Placed(np.arange(len(times)), times, self.reach(times, rows))

    def reach(self, times: Times, rows: pa.Table) -> Times:
        gap = _gaps(rows) if self.differs else self.gap
        return times + (gap + self.slack)

    def join(self, key: Times, start: Times, end: Times) -> Joined:
        return joined(key, start, end)


@dataclass(frozen=True, slots=True)
class Everything(NonMerging):
    """One window for all time: it ends with the input."""

    def at_rest(self) -> str:
        return "everything"

    def place(self, times: Times, rows: pa.Table) -> Placed:
        count = len(times)
        return Placed(np.arange(count), np.full(count, MIN_TIME), np.full(count, FOREVER))

    def reach(self, times: Times, rows: pa.Table) -> Times:
        return np.full(len(times), FOREVER)


def session(gap: Duration | Expr | Callable[[Any], Any]) -> Session:
    """Windows of activity: a session ends when nothing has come for `gap`.

    A gap that differs from row to row is an expression, or a lambda over the row, that gives
    milliseconds.
    """
    if isinstance(gap, Expr) or callable(gap):
        return Session(gap)
    try:
        return Session(millis(gap))
    except PlanError as error:
        if isinstance(gap, str) and gap.isidentifier():
            error.hint = (
                f'If it is a column of milliseconds, write hr.session(hr.col("{gap}")) or '
                f"hr.session(lambda row: row.{gap}); if a duration, "
                'hr.session("10m").'
            )
        raise


def cumulating(size: Duration, every: Duration, *, offset: Duration | None = None) -> Cumulating:
    """Windows of up to `size` that are looked at `every` so often, from their beginning on."""
    length = millis(size)
    shift = 0 if offset is None else shift_millis(offset)
    return Cumulating(length, millis(every), shift % length if length > 0 else shift)


def everything() -> Everything:
    """One window for all rows of a key; give it a trigger, or let a bounded input end it."""
    return Everything()


def expanded(first: Times, count: Times) -> tuple[Times, Times]:
    """For each i the numbers first[i], first[i] + 1, ..., `count[i]` of them; and the i."""
    row = np.repeat(np.arange(len(count)), count)
    number = np.arange(len(row)) - np.repeat(np.cumsum(count) - count - first, count)
    return row, number


def no_gap(rows: pa.Table) -> npt.NDArray[np.bool_] | None:
    """Which rows have a gap that makes no session; None if none has."""
    gaps = rows.column(GAP).fill_null(0).to_numpy()
    wrong: npt.NDArray[np.bool_] = (gaps <= 0) | (gaps > LONGEST_GAP)
    return wrong if wrong.any() else None


def why_no_gap(gap: int | None) -> str:
    text = "null" if gap is None else f"{gap} ms"
    long = ", more than 1000 years" if gap is not None and gap > 0 else ""
    return f"the gap of a session is {text}{long}"


def _gaps(rows: pa.Table) -> Times:
    """The gap of each row; raises if there is a row without."""
    wrong = no_gap(rows)
    if wrong is not None:
        raise ValueError(why_no_gap(rows.column(GAP)[int(wrong.argmax())].as_py()))
    gaps: Times = rows.column(GAP).to_numpy()
    return gaps


def column_text(column: object) -> str:
    """A column or an expression, as the user would write it; a function not yet read, by name."""
    if isinstance(column, Expr):
        return column.sql()
    return title(column) if callable(column) else str(column)


def whole(number: object) -> bool:
    """Whether it is a whole number, one or more."""
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def above_zero(number: object) -> bool:
    """Whether it is a number above zero; NaN is not."""
    return isinstance(number, int | float) and not isinstance(number, bool) and number > 0


# Windows of one key that meet become one: the arithmetic of merging windows.
#
# Two windows meet when one begins before the other ends. Only intervals and numbers of keys
# are known here; what the windows hold is merged by who asks.


_LIMIT = 2**62


class Joined(NamedTuple):
    """Windows in groups that meet: the group of each window, and the bounds of each group."""

    group: Times
    start: Times
    end: Times
    key: Times  # of each group


def joined(key: Times, start: Times, end: Times) -> Joined:
    """Group the windows [start, end) of each key that meet, directly or through others.

    Groups are numbered by key, then by time.
    """
    if not len(key):
        return Joined(key, start, end, key)
    order = sorted_by([key, start])
    key, start, end = key[order], start[order], end[order]
    furthest = _running_max(key, end)
    fresh = np.ones(len(key), np.bool_)
    fresh[1:] = (key[1:] != key[:-1]) | (start[1:] >= furthest[:-1])
    heads = np.flatnonzero(fresh)
    group = np.empty(len(key), np.int64)
    group[order] = np.cumsum(fresh) - 1
    last = np.append(heads[1:], len(key)) - 1
    return Joined(group, start[heads], furthest[last], key[heads])


def _running_max(key: Times, values: Times) -> Times:
    """The largest value of the key so far; keys rise."""
    low, high = int(values.min()), int(values.max())
    if (high - low + 1) * (int(key[-1]) + 1) < _LIMIT:
        return _lifted_max(key, values, low, high - low + 1)
    distinct, rank = np.unique(values, return_inverse=True)  # ranks are smaller
    return distinct[_lifted_max(key, rank, 0, len(distinct))]


def _lifted_max(key: Times, values: Times, low: int, width: int) -> Times:
    """Each key's values are lifted above those of the keys before."""
    lift = key * width - low
    largest: Times = np.maximum.accumulate(values + lift) - lift
    return largest


# Windows of the user's own: a class that says where a row goes and which windows merge.
#
# The user's code is called once per row, and once per pair of neighbouring windows; all that
# happens inside the windows stays vectorised.


class WindowAssigner:
    """Subclass me: `assign(time, row)` gives the windows of a row, (start, end) in ms.

    With a method `merge(first, second)` windows of a key may become one: it is asked for two
    neighbours, the earlier first, and gives the window they make together, or None.
    """

    def assign(self, time: int, row: object) -> Iterable[tuple[int, int]]:
        """The windows of a row, each [start, end) in milliseconds."""
        raise NotImplementedError


@dataclass(frozen=True)
class OwnAssigner(Identified):
    """A user's assigner, as the operator sees it."""

    user: WindowAssigner
    longest: int | None = None
    slack: int = 0
    by_time: bool = False
    merges: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "merges", callable(getattr(self.user, "merge", None)))

    def at_rest(self) -> str:
        return type(self.user).__qualname__.split("<locals>.")[-1]

    def place(self, times: Times, rows: pa.Table) -> Placed:
        windows: list[tuple[int, int, int]] = []
        for i, (time, row) in enumerate(zip(times.tolist(), rows_of(visible(rows)), strict=True)):
            windows.extend((i, *self._bounds(window)) for window in self.user.assign(time, row))
        placed = np.array(windows, np.int64).reshape(-1, 3)
        return Placed(placed[:, 0], placed[:, 1], placed[:, 2])

    def _bounds(self, window: tuple[int, int]) -> tuple[int, int]:
        start, end = window
        if not -FURTHEST <= start < end <= FURTHEST:
            raise ValueError(f"{self} gave the window ({start}, {end}), which is empty or endless")
        return start, end

    def reach(self, times: Times, rows: pa.Table) -> Times:
        placed = self.place(times, rows)
        last = np.full(len(times), MIN_TIME)  # a row in no window is late for all
        np.maximum.at(last, placed.row, placed.end)
        return last

    def join(self, key: Times, start: Times, end: Times) -> Joined:
        order = np.lexsort((end, start, key)).tolist()
        group = np.empty(len(key), np.int64)
        windows: list[tuple[int, Interval]] = []
        for i in order:
            interval, owner = Interval(int(start[i]), int(end[i])), int(key[i])
            same_key = bool(windows) and windows[-1][0] == owner
            merged = self._merge(windows[-1][1], interval) if same_key else None
            if merged is None:
                windows.append((owner, interval))
            else:
                windows[-1] = (owner, merged)
            group[i] = len(windows) - 1
        bounds = np.array([(k, *w) for k, w in windows], np.int64).reshape(-1, 3)
        return Joined(group, bounds[:, 1], bounds[:, 2], bounds[:, 0])

    def _merge(self, first: Interval, second: Interval) -> Interval | None:
        if first == second:
            return first
        merged = self.user.merge(first, second)  # type: ignore[attr-defined]
        return None if merged is None else Interval(*self._bounds(merged))
