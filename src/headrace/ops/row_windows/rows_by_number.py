"""The rows of windows that rows end, stored with the number of their window.

A window's rows are in the order in which they count: epoch after epoch, those of an epoch by
event time. A window of the last rows also holds rows of the windows before it, so these are
stored as long as a window to come may hold them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, Times
from headrace.chunk import TIME
from headrace.ops.agg.order import places_in_group
from headrace.ops.agg.span import stretches
from headrace.ops.contract import EpochStep
from headrace.ops.general_windows.stored_rows import (
    ARRIVAL,
    AT,
    FROM,
    ROWS,
    StoredRows,
    count_before,
)
from headrace.ops.general_windows.window_state import START
from headrace.ops.row_windows.sequence import RowSequence
from headrace.ops.window.aligned import floor_of
from headrace.ops.window.assigners import Everything
from headrace.ops.window.by_rows import CountWindow, LastTime, RowWindow


class RowsByNumber(StoredRows):
    def __init__(self, keys: Sequence[str], input: pa.Schema, window: RowWindow) -> None:
        super().__init__(keys, input, Everything(), lambda watermark: floor_of(watermark, 0))
        self._window = window

    def _own_columns(self) -> dict[str, pa.DataType]:
        return {FROM: pa.int64()}

    def _placed(self, rows: pa.Table, step: EpochStep) -> tuple[pa.Table, dict[str, Times]]:
        return rows, {FROM: rows.column(FROM).to_numpy()}

    def _rows_of(self, windows: pa.Table, step: EpochStep) -> tuple[pa.Table, Index]:
        stored, row_key, window_key = self._matching(windows, step)
        order = _by_arrival(stored, row_key)
        key, at = row_key[order], stored.column(FROM).to_numpy()[order]
        number = windows.column(START).to_numpy()
        high = count_before(key, at, window_key, number + 1)
        if self._window.tumbles:
            low = count_before(key, at, window_key, number)
        else:
            times = pa.table({TIME: stored.column(AT)})
            counts = np.bincount(row_key, minlength=int(window_key.max()) + 1)
            sequence = RowSequence(times, order, np.zeros_like(counts), counts)
            after = high - sequence.starts[window_key]
            ranges = sequence.windows(self._window, window_key, after)
            low, high, order = ranges.low, ranges.high, ranges.index
        rows = stored.take(pa.array(order[stretches(low, high - low)]))
        return rows, np.cumsum(high - low) - (high - low)

    def forget(self, windows: pa.Table, step: EpochStep) -> None:
        """Delete the rows that no window after these, which are over, can hold."""
        stored, row_key, window_key = self._matching(windows, step)
        if stored.num_rows:
            dead = self._dead(stored, row_key, windows.column(START).to_numpy(), window_key, step)
            step.tables[ROWS].delete(stored.filter(pa.array(dead)))

    def _dead(
        self, stored: pa.Table, row_key: Times, over: Times, window_key: Times, step: EpochStep
    ) -> Mask:
        order = _by_arrival(stored, row_key)
        match self._window:
            case CountWindow(tumbles=False):
                counts = np.bincount(row_key)
                place = np.empty(len(order), np.int64)
                place[order] = places_in_group(row_key[order])
                dead: Mask = place < counts[row_key] - self._window.size
            case LastTime():
                times = stored.column(AT).to_numpy()
                last = np.zeros(int(row_key.max()) + 1, np.int64)
                last[row_key[order]] = times[order]  # the last to be written is the last
                dead = times <= np.minimum(last, step.after)[row_key] - self._window.size
            case _:
                furthest = np.full(int(max(row_key.max(), window_key.max())) + 1, -1)
                np.maximum.at(furthest, window_key, over)
                dead = stored.column(FROM).to_numpy() <= furthest[row_key]
        return dead


def _by_arrival(stored: pa.Table, group: Times) -> Times:
    epoch, number = (stored.column(n).to_numpy() for n in ARRIVAL)
    order: Times = np.lexsort((number, epoch, group))
    return order
