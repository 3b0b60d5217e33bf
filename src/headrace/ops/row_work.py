"""What is computed over windows whose rows are there: named aggregates, or a function.

Aggregates take all windows at once, whatever their overlap. A function sees the rows of its
windows laid end to end, so many at a time that memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.chunk import TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg_groups import Index, integers
from headrace.ops.agg_span import Ranges, Ufunc, stretches
from headrace.ops.aggregates import Aggregate, columns_of, naming, singles
from headrace.ops.contract import Step
from headrace.ops.row_results import Ended, Fired
from headrace.ops.row_sequence import Laid
from headrace.ops.window_function import Laid as LaidRows
from headrace.ops.window_function import WindowFunction

_BAND = 1 << 20  # rows laid out for a function at a time


class Work(Protocol):
    def over(self, laid: Laid, windows: Ended, step: Step) -> Iterator[Fired]:
        """What comes of the windows."""


class Aggregating:
    def __init__(self, aggs: Mapping[str, Aggregate]) -> None:
        self._aggs = aggs

    @np.errstate(all="ignore")  # inf and NaN are values here, not accidents
    def over(self, laid: Laid, windows: Ended, step: Step) -> Iterator[Fired]:
        alone = singles(laid.pool, self._aggs)
        span = Ranges(laid.low, laid.high, laid.index)
        results = {}
        for name, agg in self._aggs.items():
            with naming(name, agg):
                merged = agg.synopsis.combine(columns_of(alone, name, agg), span)
                results[name] = agg.synopsis.result(merged)
        return iter([Fired(windows, pa.table(results), np.arange(len(windows)))])


class Calling:
    def __init__(self, function: WindowFunction) -> None:
        self._function = function

    def over(self, laid: Laid, windows: Ended, step: Step) -> Iterator[Fired]:
        ends = np.cumsum(laid.high - laid.low)
        start = 0
        while start < len(ends):
            done = int(ends[start - 1]) if start else 0
            stop = max(int(np.searchsorted(ends, done + _BAND, side="right")), start + 1)
            yield self._band(laid, windows.part(slice(start, stop)), slice(start, stop), step)
            start = stop

    def _band(self, laid: Laid, windows: Ended, band: slice, step: Step) -> Fired:
        low, sizes = laid.low[band], (laid.high - laid.low)[band]
        rows = laid.pool.take(pa.array(laid.index[stretches(low, sizes)]))
        given = self._function.over(_given(rows, sizes, windows, step))
        return Fired(windows, given.values, given.windows, given.faults)


def _given(rows: pa.Table, sizes: Index, windows: Ended, step: Step) -> LaidRows:
    count = len(windows)
    return LaidRows(
        rows=rows,
        starts=np.cumsum(sizes) - sizes,
        keys=windows.keys,
        begins=np.full(count, MIN_TIME) if windows.begins is None else windows.begins,
        ends=np.full(count, MAX_TIME) if windows.ends is None else windows.ends,
        panes=windows.number,
        timings=windows.timings,
        finals=[True] * count,
        watermark=step.after,
        clock=step.clock,
    )


def bounds(laid: Laid) -> tuple[Index | None, Index | None]:
    """From the earliest row of each window to the millisecond after its latest."""
    if TIME not in laid.pool.column_names:
        return None, None
    times = integers(laid.pool[TIME])
    first, last = times[laid.index[laid.low]], times[laid.index[laid.high - 1]]
    falls = np.append(0, np.cumsum(np.diff(times[laid.index]) < 0))
    if (falls[laid.high - 1] > falls[laid.low]).any():  # in the order of epochs, not of time
        span = Ranges(laid.low, laid.high, laid.index)
        first = span.reduce(Ufunc(np.minimum, MAX_TIME), [times])[0]
        last = span.reduce(Ufunc(np.maximum, MIN_TIME), [times])[0]
    return first, last + 1
