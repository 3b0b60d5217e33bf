"""Firings of windows that rows end: the same as of windows of time, where they are in time.

A window is over when its last row has come, or the input has ended; the watermark does not
matter to it. It lasts from its earliest row to the millisecond after its latest, so its bounds
may be others each time it fires, and a result is retracted with those that it had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Times
from headrace.chunk import TIME
from headrace.clock import MIN_TIME
from headrace.ops.contract import EpochStep
from headrace.ops.general_windows.firing import WindowFiring
from headrace.ops.general_windows.window_state import (
    EARLIEST,
    LATEST,
    START,
    Retraction,
    WindowState,
)
from headrace.ops.row_windows.rows_by_number import RowsByNumber
from headrace.ops.tables import with_column
from headrace.ops.window.assigners import FOREVER
from headrace.ops.window.evictors import Evictor
from headrace.ops.window.function import WindowedRows, WindowFunction, WindowResults
from headrace.ops.window.trigger_base import WindowExtent
from headrace.ops.window.triggers import Windowing

OPEN, FULL, INPUT_ENDED = range(3)
_TIMING = np.array([0, 1, 3])  # of each, its place in `TIMINGS`
_OVER, _LOW, _HIGH = "$over", "$low", "$high"  # of windows at hand, not stored
_BOUNDS = [pa.field(name, pa.int64()) for name in (_LOW, _HIGH)]


class RowWindowFiring(WindowFiring):
    def __init__(
        self,
        windowing: Windowing,
        state: WindowState,
        stored_rows: RowsByNumber | None,
        work: tuple[WindowFunction, Evictor | None] | None,
        keys: Sequence[str],
        output: pa.Schema,
        *,
        timed: bool,
        looks_back: bool,
    ) -> None:
        super().__init__(windowing, state, stored_rows, work, keys, output)
        self._timed, self._looks_back = timed, looks_back
        self._once = windowing.fires_once

    def _retracting(self) -> Retraction:
        return Retraction([*self._values, *_BOUNDS])

    def described(self, windows: pa.Table, over: Index) -> pa.Table:
        """The windows with their bounds, and whether they are over."""
        count = windows.num_rows
        low, high = np.full(count, MIN_TIME), np.full(count, FOREVER)
        if self._timed:
            moments = {n: self._state.ever[n] for n in (EARLIEST, LATEST)}
            found = self._state.results(windows, moments)
            low, last = (found.column(n).to_numpy() for n in (EARLIEST, LATEST))
            high = last + 1
        for name, values in ((_OVER, over), (_LOW, low), (_HIGH, high)):
            windows = windows.append_column(name, pa.array(values))
        return windows

    def _extent(self, windows: pa.Table, step: EpochStep) -> WindowExtent:
        count = windows.num_rows
        over = windows.column(_OVER).to_numpy() != OPEN
        start, end = np.full(count, MIN_TIME), np.full(count, FOREVER)
        shown = (start, end) if self._looks_back else self._bounds(windows)
        return WindowExtent(start, end, over, np.zeros(count, np.bool_), over, shown)

    def _timing(self, windows: pa.Table, step: EpochStep) -> Index:
        timing: Index = _TIMING[windows.column(_OVER).to_numpy()]
        return timing

    def _bounds(self, windows: pa.Table) -> tuple[Times, Times]:
        low, high = (windows.column(n).to_numpy() for n in (_LOW, _HIGH))
        return low, high

    def _windowed(
        self, rows: pa.Table, starts: Index, windows: pa.Table, step: EpochStep
    ) -> WindowedRows:
        turn = windows.column(START).to_numpy()
        return replace(super()._windowed(rows, starts, windows, step), turn=turn)

    def _panes(self, windows: pa.Table) -> Times:
        """Where each window fires once, its number."""
        if self._once:
            number: Times = windows.column(START).to_numpy()
            return number
        return super()._panes(windows)

    def _times(self, windows: pa.Table) -> Times | None:
        return self._bounds(windows)[1] - 1 if self._timed else None

    @property
    def _renews(self) -> bool:
        return self._looks_back or super()._renews

    def _holding(self, windows: pa.Table, rows: pa.Table, starts: Index) -> pa.Table:
        """A window of the last rows is as long as those that it holds now."""
        if not (self._looks_back and self._timed):
            return windows
        times = rows.column(TIME).to_numpy()
        low, high = (ufunc.reduceat(times, starts) for ufunc in (np.minimum, np.maximum))
        return with_column(with_column(windows, _LOW, pa.array(low)), _HIGH, pa.array(high + 1))

    def _emitted(self, windows: pa.Table, owners: Index, results: WindowResults) -> WindowResults:
        values, of = results.values, windows.take(pa.array(owners))
        for field in _BOUNDS:
            values = values.append_column(field, of.column(field.name))
        return WindowResults(values, results.windows)

    def _as_emitted(self, windows: pa.Table) -> pa.Table:
        assert self._retraction is not None
        emitted = self._retraction.values(windows)
        for name in (_LOW, _HIGH):
            windows = with_column(windows, name, emitted.column(name))
        return windows
