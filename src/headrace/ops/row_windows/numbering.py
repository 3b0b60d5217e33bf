"""The rows of an epoch, each with the number of its window, and the windows that rows end.

The windows of a key are numbered from 0 on. State is a few counters per key; what windows hold,
and when they fire, is not known here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, Times, integers
from headrace.chunk import HASH
from headrace.ops.contract import EpochStep
from headrace.ops.general_windows.window_state import START
from headrace.ops.row_windows.ends import Pieces, ends_of
from headrace.ops.row_windows.sequence import NUMBER, KeyCounters, counter_fields
from headrace.ops.row_windows.store import ordered
from headrace.ops.tables import with_column
from headrace.ops.window.by_rows import RowWindow
from headrace.state.table import TableSpec

KEYS = "keys"


class NumberedRows(NamedTuple):
    rows: pa.Table  # key by key, each key's rows in the order in which they count
    window: Times  # the number of the window that each row is in
    ended: pa.Table  # the windows that rows ended: key and number


class RowNumbering:
    def __init__(self, spec: RowWindow, key: pa.Schema, input: pa.Schema) -> None:
        self._spec, self._key = spec, key
        counters = pa.schema(counter_fields(spec, input, with_rows=False))
        self.table = TableSpec(KEYS, key, counters)

    def of(self, arrived: pa.Table, step: EpochStep) -> NumberedRows:
        """The rows that arrived; the counters of their keys go on."""
        table, rows = step.tables[KEYS], ordered(arrived, self._key)
        counters = KeyCounters.of(table.get(rows.keys)[0])
        ends = ends_of(self._spec, rows, counters.since, counters.reference)
        cut = Pieces.cut(rows, ends)
        owner = cut.key[cut.piece]
        window = counters.number[owner] + cut.piece - cut.first[owner]
        ended = rows.keys.take(pa.array(ends.key))
        number = counters.number[ends.key] + ends.number
        self._put(step, rows.keys, counters.after(ends))
        in_order = arrived.take(pa.array(rows.order))
        for name in self._key.names:  # equal keys as one value: of zeros, one
            in_order = with_column(in_order, name, rows.keys[name].take(pa.array(owner)))
        return NumberedRows(in_order, window, ended.append_column(START, pa.array(number)))

    def over(self, windows: pa.Table, step: EpochStep) -> Mask:
        """Which windows a row has ended."""
        stored, _ = step.tables[KEYS].get(windows.select([HASH, *self._key.names]))
        over: Mask = windows.column(START).to_numpy() < integers(stored[NUMBER])
        return over

    def finish(self, step: EpochStep) -> None:
        """The input has ended, and so have all windows."""
        stored = step.tables[KEYS].scan()
        counters = KeyCounters.of(stored)
        is_open = np.flatnonzero(counters.since > 0)
        if len(is_open):
            stored = stored.take(pa.array(is_open))
            self._put(
                step, stored.select(self.table.identity.names), KeyCounters.of(stored).ended()
            )

    def _put(self, step: EpochStep, keys: pa.Table, counters: KeyCounters) -> None:
        columns = {name: keys[name] for name in keys.column_names}
        step.tables[KEYS].put(pa.table(columns | counters.columns()))
