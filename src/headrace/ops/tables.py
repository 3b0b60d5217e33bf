"""Tables of operators: those that every slot has a copy of, and state as people see it.

Each slot stores its own copy of a broadcast table, so that slots can move from task to task. A
task writes the copy of each of its slots and reads one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import timestamps
from headrace.chunk import HASH, TIME
from headrace.ops.contract import EpochStep
from headrace.state.table import KeyedTable, TableSpec


class BroadcastTable:
    """A table of rows by `identity` that is the same in every slot."""

    def __init__(self, name: str, identity: pa.Schema, value: pa.Schema) -> None:
        self.spec = TableSpec(name, identity, value, everywhere=True)

    def put(self, rows: pa.Table, step: EpochStep) -> None:
        """Add rows, or replace those of the same identity."""
        step.tables[self.spec.name].put(self._everywhere(rows, step.homes))

    def delete(self, identities: pa.Table, step: EpochStep) -> None:
        step.tables[self.spec.name].delete(self._everywhere(identities, step.homes))

    def rows(self, step: EpochStep) -> pa.Table:
        """All rows, without the hash that says where a copy is."""
        here = np.array(step.homes[:1], np.uint64)
        return step.tables[self.spec.name].match(here).drop_columns([HASH])

    def _everywhere(self, rows: pa.Table, homes: Sequence[int]) -> pa.Table:
        hashes = np.repeat(np.array(homes, np.uint64), rows.num_rows)
        every = np.tile(np.arange(rows.num_rows), len(homes))
        return rows.take(pa.array(every)).append_column(HASH, pa.array(hashes))


# State as people see it: without hashes, with times as timestamps.


def plain_view(table: KeyedTable, since: int, until: int) -> pa.Table:
    """The rows of a table; the time of a timed one is the column `time`."""
    rows = (table.scan(since, until) if table.spec.timed else table.scan()).drop_columns([HASH])
    hidden = [n for n in rows.column_names if n.startswith(("__", "$")) and n != TIME]
    rows = rows.drop_columns(hidden)
    if not table.spec.timed:
        return rows
    times = timestamps(rows.column(TIME).to_numpy())
    return rows.set_column(rows.column_names.index(TIME), "time", times)


def free_name(name: str, taken: Collection[str]) -> str:
    """A name for a column of ours that no column of the user's has."""
    return free_name(f"{name}_", taken) if name in taken else name


def with_bounds(keys: pa.Table, start: np.ndarray, end: np.ndarray, values: pa.Table) -> pa.Table:
    """Keys, the bounds of a window or stretch, and values, as results of windows look."""
    columns = [*keys.columns, timestamps(start), timestamps(end), *values.columns]
    names = [*keys.column_names, "window_start", "window_end", *values.column_names]
    return pa.table(columns, names=names)
