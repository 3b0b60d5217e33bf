"""Sliding windows that were stored one by one, and are shared panes from now on.

A step that had a trigger, or lateness, and has none any more has stored each window by itself, and
that cannot be parted into panes. So it stays as it was until its window is over, which then shows
this and what its panes have got since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, Times, integers
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME, utc_text
from headrace.errors import StateError
from headrace.ops.agg.named import Aggregate, merge, result
from headrace.ops.tables import with_bounds, with_column
from headrace.ops.window.aligned import Window
from headrace.state.table import KeyedTable

CARRIED = "carried"  # a row per window and key, timed by the window's end


class CarriedWindows:
    def __init__(self, window: Window, aggs: Mapping[str, Aggregate], keys: Sequence[str]) -> None:
        self._window, self._aggs, self._keys = window, dict(aggs), list(keys)

    def due(self, carried: KeyedTable, before: int, after: int) -> Times:
        """The ends in (before, after] of the windows of which something is stored."""
        return np.unique(integers(carried.scan(before + 1, after + 1).column(TIME)))

    def fire(self, carried: KeyedTable, panes: KeyedTable, ends: Times) -> pa.Table:
        """The results of all windows that end there, of any key."""
        parts = []
        for end in ends.tolist():
            rows = [carried.scan(end, end + 1), panes.scan(end - self._window.size, end)]
            same = pa.concat_tables([part.select(rows[0].column_names) for part in rows])
            parts.append(with_column(same, TIME, pa.array(np.full(same.num_rows, end, np.int64))))
        merged = merge(pa.concat_tables(parts), [TIME, HASH, *self._keys], self._aggs)
        return self._shown(merged, [*self._keys, HASH])

    def view(self, carried: KeyedTable, since: int, until: int) -> pa.Table:
        """What is stored, with the bounds of its windows; it is of no stretch of time."""
        rows = carried.scan()
        if rows.num_rows and (since, until) != (MIN_TIME, MAX_TIME):
            raise StateError(
                "HR-STATE-039",
                "windows that had a trigger or lateness are still stored one by one",
                "Look at all of the state, which shows them as they are; or wait until they are "
                f"over, when the watermark is at {utc_text(int(rows.column(TIME)[-1].as_py()))}.",
            )
        return self._shown(merge(rows, [TIME, HASH, *self._keys], self._aggs), self._keys)

    def _shown(self, windows: pa.Table, names: Sequence[str]) -> pa.Table:
        """Stored windows with their bounds and results."""
        end = integers(windows.column(TIME))
        values = result(windows, self._aggs).select(list(self._aggs))
        return with_bounds(windows.select(names), end - self._window.size, end, values)


def others(fired: pa.Table, ends: Times) -> pa.Table:
    """The results of windows that do not end there."""
    own = integers(fired.column("window_end").cast(pa.int64())) // 1_000
    elsewhere: Mask = ~np.isin(own, ends)
    return fired.filter(pa.array(elsewhere))
