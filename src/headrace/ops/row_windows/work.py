"""What is computed over windows whose rows are there: named aggregates, or a function.

Aggregates take all windows at once, whatever their overlap. A function sees the rows of its
windows one window after the other, a few at a time, so memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.arrays import Column, Index, Mask, array, flat, integers, take, timestamps
from headrace.chunk import HASH, TIME, hidden_columns
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.named import Aggregate, columns_of, naming, singles
from headrace.ops.agg.span import RangeSpan, Ufunc, stretches
from headrace.ops.contract import EpochStep, Fault
from headrace.ops.row_windows.sequence import RowRanges
from headrace.ops.tables import derived_rows
from headrace.ops.window.function import RowTable, WindowedRows, WindowFunction, WindowResults
from headrace.schema import TIMESTAMP

_BAND = 1 << 18  # rows passed to a function at a time


class WindowWork(Protocol):
    def over(self, windows: RowRanges, ended: Ended, step: EpochStep) -> Fired:
        """What comes of the windows, which are described by `ended`."""


class AggregateWork:
    def __init__(self, aggs: Mapping[str, Aggregate]) -> None:
        self._aggs = aggs

    @np.errstate(all="ignore")  # inf and NaN are values here, not accidents
    def over(self, windows: RowRanges, ended: Ended, step: EpochStep) -> Fired:
        rows = windows.pool.take(pa.array(windows.index))  # better once than per column
        if any(agg.draws for agg in self._aggs.values()):
            rows = rows.append_column(HASH, _key_hashes(windows, ended))
        partials = singles(rows, self._aggs)
        span = RangeSpan(windows.low, windows.high, np.arange(rows.num_rows))
        results = {}
        for name, agg in self._aggs.items():
            with naming(name, agg):
                merged = agg.synopsis.combine(columns_of(partials, name, agg), span)
                results[name] = agg.synopsis.result(merged)
        return Fired(_lasting(windows, ended), pa.table(results), np.arange(len(ended)))


class FunctionWork:
    """`columns` are those that the function sees, in order; the key's are not stored."""

    def __init__(self, function: WindowFunction, columns: Sequence[str]) -> None:
        self._function, self._columns = function, columns

    def over(self, windows: RowRanges, ended: Ended, step: EpochStep) -> Fired:
        ended = _lasting(windows, ended)
        results = [self._called(windows, ended, band, step) for band in _bands(windows)]
        values = pa.concat_tables([r.values for r in results])
        of = np.concatenate([r.windows for r in results])
        return Fired(ended, values, of, [fault for r in results for fault in r.faults])

    def _called(
        self, windows: RowRanges, ended: Ended, band: slice, step: EpochStep
    ) -> WindowResults:
        low, part = windows.low[band], ended.part(band)
        sizes = windows.high[band] - low
        names = [*self._columns, *hidden_columns(windows.pool)]
        places, owner = stretches(low, sizes), np.repeat(np.arange(len(low)), sizes)
        rows = _Picked(windows.pool, windows.index[places], part.keys, owner, names)
        starts = np.cumsum(sizes) - sizes
        arrival = None if windows.arrival is None else windows.arrival[places]
        windowed = replace(_windowed(rows, starts, part, step), arrival=arrival)
        results = self._function.over(windowed)
        step.metrics.update(results.metrics)
        return WindowResults(results.values, results.windows + band.start, results.faults)


@dataclass(frozen=True, slots=True)
class _Picked:
    """The rows of some windows, of which columns are only fetched when they are asked for."""

    pool: pa.Table
    index: Index  # where in the pool each row is
    keys: pa.Table  # of each window: the columns that are not stored with every row
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


def _key_hashes(windows: RowRanges, ended: Ended) -> pa.Array:
    """The hash of the key of each row that is in a window: that of the last to begin before it."""
    order = np.argsort(windows.low, kind="stable")
    places = np.arange(len(windows.index))
    last = np.searchsorted(windows.low[order], places, side="right") - 1
    hashes = flat(ended.keys[HASH]).to_numpy()
    return pa.array(hashes[order[np.maximum(last, 0)]])


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


def _windowed(rows: RowTable, starts: Index, ended: Ended, step: EpochStep) -> WindowedRows:
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


# Windows that have ended, and the rows that are emitted for them.
#
# A window lasts from the time of its earliest row to the millisecond after that of its latest;
# without event time it has no bounds. Each ends once, so what is emitted is final.


ON_TIME, AT_END = "on time", "end"


@dataclass(frozen=True, slots=True)
class Ended:
    """Windows: whose they are, where in time, and whether the end of the input ended them."""

    keys: pa.Table  # a row per window: "__h" and the key columns
    number: Index  # of each among its key's
    at_end: Mask
    begins: Index | None = None  # the bounds in ms; None without event time
    ends: Index | None = None

    def __len__(self) -> int:
        return len(self.number)

    @property
    def timings(self) -> list[str]:
        return [AT_END if end else ON_TIME for end in self.at_end.tolist()]

    def part(self, rows: slice) -> Ended:
        begins, ends = (None if t is None else t[rows] for t in (self.begins, self.ends))
        keys = self.keys.slice(rows.start, rows.stop - rows.start)
        return Ended(keys, self.number[rows], self.at_end[rows], begins, ends)

    def lasting(self, first: Index, last: Index) -> Ended:
        """With the times of the earliest and the latest row of each."""
        return replace(self, begins=first, ends=last + 1)


@dataclass(frozen=True, slots=True)
class Fired:
    """What came of some windows: rows, and the window that each is of."""

    windows: Ended
    values: pa.Table
    of: Index
    faults: Sequence[Fault] = field(default_factory=list)

    def chunk(self, schema: pa.Schema) -> pa.Table:
        """The columns of `schema`, and the hidden ones of derived rows."""
        computed = dict(zip(self.values.column_names, self.values.columns, strict=True))
        columns = [
            computed[n] if n in computed else take([self._column(n)], self.of)[0]
            for n in schema.names
        ]
        chunk = pa.table(columns, names=schema.names).cast(schema)
        ends = self.windows.ends
        hashes = self.windows.keys[HASH].to_numpy()[self.of]
        return derived_rows(
            chunk, hashes.view(np.int64), None if ends is None else ends[self.of] - 1
        )

    def _column(self, name: str) -> Column:
        """Something about each window."""
        windows, count = self.windows, len(self.windows)
        if name in windows.keys.column_names:  # it may be called "pane"
            return windows.keys[name]
        match name:
            case "window_start":
                return _times(windows.begins, count)
            case "window_end":
                return _times(windows.ends, count)
            case "pane":
                return array(windows.number, pa.int32())
            case "timing":
                return pa.array(windows.timings, pa.string())
            case "final":
                return pa.repeat(True, count)
        raise KeyError(name)


def _times(times: Index | None, count: int) -> pa.Array:
    return pa.nulls(count, TIMESTAMP) if times is None else timestamps(times)
