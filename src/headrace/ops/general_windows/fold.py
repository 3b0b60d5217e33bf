"""Windows folded by the user's own function.

A row is folded into every window that holds it when it arrives, those of an epoch in order
of event time, so nothing is shared between windows: the price of a function that cannot be
merged. State is a timed table of accumulators by (window start, key).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import timestamps
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import EpochStep, Operator
from headrace.ops.keys import in_order, key_groups
from headrace.ops.panes.operator import derived
from headrace.ops.running.fold import Folder
from headrace.ops.window.aligned import Window
from headrace.state.table import KeyedTable, TableSpec

WINDOWS = "windows"


class FoldWindowOperator(Operator):
    def __init__(
        self,
        window: Window,
        fold: Folder,
        keys: Sequence[str],
        input: pa.Schema,
        output: pa.Schema,
    ) -> None:
        self._window, self._fold, self._keys = window, fold, list(keys)
        self._input, self._schema = input, output

    def tables(self) -> tuple[TableSpec, ...]:
        key = pa.schema([self._input.field(k) for k in self._keys])
        return (TableSpec(WINDOWS, key, self._fold.value, timed=True),)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        if watermark == MIN_TIME:
            return None
        return self._window.is_late(rows.column(TIME).to_numpy(), watermark)

    def step(self, step: EpochStep) -> None:
        table = step.tables[WINDOWS]
        if step.inputs[0] is not None and step.inputs[0].num_rows:
            self._absorb(table, step.inputs[0], step)
        size = self._window.size
        if step.after > step.before:
            due = table.scan(MIN_TIME, _shift(step.after, 1 - size))
            if due.num_rows:
                step.out.append(self._results(due))
        table.expire(_shift(step.after, 1 - size))
        first = table.first_time()
        step.next = MAX_TIME if first is None else first + size

    def _absorb(self, table: KeyedTable, arrived: pa.Table, step: EpochStep) -> None:
        spread = self._spread(in_order(arrived), step.before)
        found = key_groups(spread, ["__w", HASH, *self._keys])
        keys = found.keys.rename_columns([TIME, HASH, *self._keys])
        self._fold.apply(table, keys, found, self._input.names, step)

    def _spread(self, rows: pa.Table, watermark: int) -> pa.Table:
        """Each row once for every open window that holds it, with the window's start."""
        window = self._window
        times = rows.column(TIME).to_numpy()
        last = (times - window.offset) // window.slide
        first = (times - window.offset - window.size) // window.slide + 1
        if watermark > MIN_TIME:
            closed = (watermark - window.offset - window.size) // window.slide
            first = np.maximum(first, closed + 1)
        count = np.maximum(last - first + 1, 0)
        index = np.repeat(np.arange(len(times)), count)
        step = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
        starts = (first[index] + step) * window.slide + window.offset
        return rows.take(pa.array(index)).append_column("__w", pa.array(starts))

    def _results(self, due: pa.Table) -> pa.Table:
        starts = due.column(TIME).to_numpy()
        bounds = {"window_start": starts, "window_end": starts + self._window.size}
        rows = due.drop_columns([n for n in bounds if n in due.column_names])  # those of its rows
        for name, times in bounds.items():
            rows = rows.append_column(name, timestamps(times))
        return derived(rows, self._schema)


def _shift(time: int, by: int) -> int:
    return time if abs(time) >= MAX_TIME else time + by
