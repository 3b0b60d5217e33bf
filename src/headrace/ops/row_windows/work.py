"""What is computed over windows whose rows are there: named aggregates, or a function.

Aggregates take all windows at once, whatever their overlap. A function sees the rows of its
windows laid end to end, a few windows at a time, so memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.chunk import TIME, hidden_columns
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.groups import Index, flat, integers
from headrace.ops.agg.named import Aggregate, columns_of, naming, singles
from headrace.ops.agg.span import RangeSpan, Ufunc, stretches
from headrace.ops.contract import Step
from headrace.ops.row_windows.results import Ended, Fired
from headrace.ops.row_windows.sequence import RowRanges
from headrace.ops.window.function import WindowedRows, WindowFunction, WindowResults
from headrace.ops.window.rows import RowTable

_BAND = 1 << 18  # rows laid out for a function at a time


class WindowWork(Protocol):
    def over(self, windows: RowRanges, ended: Ended, step: Step) -> Fired:
        """What comes of the windows, which are described by `ended`."""


class AggregateWork:
    def __init__(self, aggs: Mapping[str, Aggregate]) -> None:
        self._aggs = aggs

    @np.errstate(all="ignore")  # inf and NaN are values here, not accidents
    def over(self, windows: RowRanges, ended: Ended, step: Step) -> Fired:
        rows = windows.pool.take(pa.array(windows.index))  # better once than per column
        alone = singles(rows, self._aggs)
        span = RangeSpan(windows.low, windows.high, np.arange(rows.num_rows))
        results = {}
        for name, agg in self._aggs.items():
            with naming(name, agg):
                merged = agg.synopsis.combine(columns_of(alone, name, agg), span)
                results[name] = agg.synopsis.result(merged)
        return Fired(_lasting(windows, ended), pa.table(results), np.arange(len(ended)))


class FunctionWork:
    """`columns` are those that the function is given, in order; the key's are not kept."""

    def __init__(self, function: WindowFunction, columns: Sequence[str]) -> None:
        self._function, self._columns = function, columns

    def over(self, windows: RowRanges, ended: Ended, step: Step) -> Fired:
        ended = _lasting(windows, ended)
        given = [self._called(windows, ended, band, step) for band in _bands(windows)]
        values = pa.concat_tables([g.values for g in given])
        of = np.concatenate([g.windows for g in given])
        return Fired(ended, values, of, [fault for g in given for fault in g.faults])

    def _called(self, windows: RowRanges, ended: Ended, band: slice, step: Step) -> WindowResults:
        low, part = windows.low[band], ended.part(band)
        sizes = windows.high[band] - low
        names = [*self._columns, *hidden_columns(windows.pool)]
        places, owner = stretches(low, sizes), np.repeat(np.arange(len(low)), sizes)
        rows = _Picked(windows.pool, windows.index[places], part.keys, owner, names)
        starts = np.cumsum(sizes) - sizes
        arrival = None if windows.arrival is None else windows.arrival[places]
        laid = replace(_laid(rows, starts, part, step), arrival=arrival)
        given = self._function.over(laid)
        step.counts.update(given.counts)
        return WindowResults(given.values, given.windows + band.start, given.faults)


@dataclass(frozen=True, slots=True)
class _Picked:
    """The rows of some windows, of which columns are only fetched when they are asked for."""

    pool: pa.Table
    index: Index  # where in the pool each row is
    keys: pa.Table  # of each window: the columns that are not kept with every row
    owner: Index  # the window of each row
    column_names: list[str]

    @property
    def num_rows(self) -> int:
        return len(self.index)

    def select(self, names: Sequence[str]) -> pa.Table:
        return pa.table([self._column(name) for name in names], list(names))

    def slice(self, start: int, length: int) -> pa.Table:
        part = slice(start, start + length)
        rows = replace(self, index=self.index[part], owner=self.owner[part])
        return rows.select(self.column_names)

    def take(self, indices: pa.Array) -> _Picked:
        order = indices.to_numpy()
        return replace(self, index=self.index[order], owner=self.owner[order])

    def _column(self, name: str) -> pa.Array:
        if name in self.pool.column_names:
            return flat(self.pool[name]).take(pa.array(self.index))
        return flat(self.keys[name]).take(pa.array(self.owner))


def _lasting(windows: RowRanges, ended: Ended) -> Ended:
    """With the earliest and the latest time in each window; mostly those of its ends."""
    if TIME not in windows.pool.column_names:
        return ended
    times = integers(windows.pool[TIME])[windows.index]
    low, high = windows.low, windows.high
    falls = np.append(0, np.cumsum(np.diff(times) < 0))
    if (falls[high - 1] == falls[low]).all():
        return ended.lasting(times[low], times[high - 1])
    span = RangeSpan(low, high, np.arange(len(times)))  # in the order of epochs, not of time
    first = span.reduce(Ufunc(np.minimum, MAX_TIME), [times])[0]
    return ended.lasting(first, span.reduce(Ufunc(np.maximum, MIN_TIME), [times])[0])


def _bands(windows: RowRanges) -> Iterator[slice]:
    """The windows a few at a time."""
    stops = np.cumsum(windows.high - windows.low)
    start = 0
    while start < len(stops):
        done = int(stops[start - 1]) if start else 0
        stop = max(int(np.searchsorted(stops, done + _BAND, side="right")), start + 1)
        yield slice(start, stop)
        start = stop


def _laid(rows: RowTable, starts: Index, ended: Ended, step: Step) -> WindowedRows:
    count = len(ended)
    return WindowedRows(
        rows=rows,
        starts=starts,
        keys=ended.keys,
        begins=np.full(count, MIN_TIME) if ended.begins is None else ended.begins,
        ends=np.full(count, MAX_TIME) if ended.ends is None else ended.ends,
        panes=ended.number,
        timings=ended.timings,
        finals=[True] * count,
        watermark=step.after,
        clock=step.clock,
    )
