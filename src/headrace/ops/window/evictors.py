"""Evictors: which rows of a window its function gets to see.

An evictor looks at all rows of a window each time it fires; nothing is thrown away until
the window is. With `after`, it spares what has come since the window last fired.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask
from headrace.chunk import TIME
from headrace.clock import Duration, millis, pretty
from headrace.errors import refusal
from headrace.isolate import one_by_one
from headrace.ops.contract import Fault
from headrace.ops.window.assigners import above_zero, column_text, whole
from headrace.rows import rows_of

NEAR = "$near"  # the column into which the plan puts what `keep_near` compares


@dataclass(frozen=True, eq=False)
class Evictor:
    """Base: `keeps` says which rows stay, one window after the other from `starts` on."""

    after: bool = False

    def keeps(self, rows: pa.Table, starts: Index) -> Mask:
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.what}{', after' if self.after else ''}"

    @property
    def what(self) -> str:
        return "keep"


@dataclass(frozen=True, eq=False)
class KeepRows(Evictor):
    count: int = 1

    @property
    def what(self) -> str:
        return f"keep the last {self.count} rows"

    def keeps(self, rows: pa.Table, starts: Index) -> Mask:
        sizes = np.diff(starts, append=rows.num_rows)
        place = np.arange(rows.num_rows) - np.repeat(starts, sizes)
        keep: Mask = place >= np.repeat(sizes, sizes) - self.count
        return keep


@dataclass(frozen=True, eq=False)
class KeepTime(Evictor):
    length: int = 1

    @property
    def what(self) -> str:
        return f"keep the last {pretty(self.length)}"

    def keeps(self, rows: pa.Table, starts: Index) -> Mask:
        times = rows.column(TIME).to_numpy()
        latest = np.maximum.reduceat(times, starts)  # in windows of rows not always the last
        keep: Mask = times > _spread(latest, starts, len(times)) - self.length
        return keep


@dataclass(frozen=True, eq=False)
class KeepNear(Evictor):
    column: Any = None
    threshold: float = 0.0

    @property
    def what(self) -> str:
        return f"keep {column_text(self.column)} within {self.threshold:g} of the last"

    def keeps(self, rows: pa.Table, starts: Index) -> Mask:
        values = rows.column(NEAR).cast(pa.float64(), safe=False).to_numpy()
        last = _spread(_last(values, starts), starts, len(values))
        keep: Mask = ~(np.abs(values - last) >= self.threshold)
        return keep


@dataclass(frozen=True, eq=False)
class KeepBy(Evictor):
    fn: Callable[[list[Any]], list[bool]] = len  # type: ignore[assignment]

    @property
    def what(self) -> str:
        return f"keep what {getattr(self.fn, '__name__', 'a function')} says"

    def keeps(self, rows: pa.Table, starts: Index) -> Mask:
        seen = rows_of(rows.select([n for n in rows.column_names if n[:2] != "__" and n[0] != "$"]))
        stays: list[bool] = []
        for first, last in zip(starts.tolist(), [*starts[1:].tolist(), len(seen)], strict=True):
            answers = [bool(k) for k in self.fn(seen[first:last])]
            if len(answers) != last - first:
                raise ValueError(f"the evictor gave {len(answers)} answers for {last - first} rows")
            stays += answers
        return np.array(stays, np.bool_)


def kept_by(evictor: Evictor, rows: pa.Table, starts: Index) -> tuple[Mask, dict[int, Fault]]:
    """Which rows stay, and the windows on which a user's evictor raises, each with its fault."""
    try:
        return evictor.keeps(rows, starts), {}
    except Exception:
        if not isinstance(evictor, KeepBy):
            raise
    stays, faults = np.zeros(rows.num_rows, np.bool_), dict[int, Fault]()
    ends = np.append(starts[1:], rows.num_rows)

    def keeps(bounds: tuple[int, int]) -> Mask:
        first, last = bounds
        return evictor.keeps(rows.slice(first, last - first), np.zeros(1, np.int64))

    def failed(window: int, error: Exception) -> None:
        faults[window] = Fault(rows.slice(int(starts[window]), 1), error)

    windows = zip(starts.tolist(), ends.tolist(), strict=True)
    for window, stay in one_by_one(windows, keeps, failed):
        stays[starts[window] : ends[window]] = stay
    return stays, faults


def keep_last(
    length: Duration | None = None, *, rows: int | None = None, after: bool = False
) -> Evictor:
    """Only the last `rows` rows of a window, or those of its last stretch of time."""
    if (length is None) == (rows is None):
        raise refusal(
            "HR-WINDOW-030", "keep_last needs a length or rows=", 'Write "10s" or rows=100.'
        )
    if rows is not None:
        if not whole(rows):
            raise refusal(
                "HR-WINDOW-031", f"keep_last keeps {rows!r} rows", "Keep one row or more."
            )
        return KeepRows(after, rows)
    assert length is not None
    if millis(length) <= 0:
        raise refusal("HR-WINDOW-031", f"keep_last keeps {length!r}", "Keep a length above zero.")
    return KeepTime(after, millis(length))


def keep_near(column: Any, threshold: float, *, after: bool = False) -> Evictor:
    """Only rows whose `column` is less than `threshold` from that of the window's last row.

    Where one of the two is null there is nothing to compare, and the row stays.
    """
    if not above_zero(threshold):
        raise refusal(
            "HR-WINDOW-032", f"keep_near has threshold {threshold!r}", "Choose one above zero."
        )
    return KeepNear(after, column, float(threshold))


def keep(fn: Callable[[list[Any]], list[bool]], *, after: bool = False) -> Evictor:
    """The user's own: a function of a window's rows that gives True for each row to keep."""
    if not callable(fn):
        raise refusal(
            "HR-WINDOW-046", f"keep needs a function, not {fn!r}", "Give fn(rows) -> [True, ...]."
        )
    return KeepBy(after, fn)


def _last(values: np.ndarray, starts: Index) -> np.ndarray:
    last: np.ndarray = values[np.append(starts[1:], len(values)) - 1]
    return last


def _spread(values: np.ndarray, starts: Index, count: int) -> np.ndarray:
    return np.repeat(values, np.diff(starts, append=count))
