"""Tables of operators: columns put together, rows as they are stored, emitted and looked at.

Stored rows have neutral names, so that the user's columns may have any. Nothing here knows what
an operator does with its rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Column, Index, Mask, integers, timestamps
from headrace.at_rest import described
from headrace.chunk import HASH, OFFSET, SOURCE, TIME, plain_type
from headrace.ops.contract import EpochStep
from headrace.ops.keys import KeyColumns
from headrace.state.table import KeyedTable, TableSpec


def side_by_side(left: pa.Table, right: pa.Table) -> pa.Table:
    """The columns of two tables that have the same rows."""
    for name in right.column_names:
        left = left.append_column(name, right.column(name))
    return left


def with_column(rows: pa.Table, name: str, values: Column) -> pa.Table:
    """The rows with other values in the column `name`."""
    return rows.set_column(rows.column_names.index(name), name, values)


def output_rows(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows as they leave: the user's columns, and those that say when and where from."""
    hidden = [n for n in (TIME, SOURCE, OFFSET) if n in rows.column_names]
    return rows.select([*names, *hidden])


def emit_some(rows: pa.Table, stays: Mask, names: Sequence[str], step: EpochStep) -> None:
    """Emit the rows that stay; the others count as filtered."""
    step.out.append(output_rows(rows.filter(pa.array(stays)), names))
    if not stays.all():
        step.filtered.append(rows.filter(pa.array(~stays)))


def derived_rows(rows: pa.Table, offsets: Index, times: Index | None = None) -> pa.Table:
    """Computed rows as a chunk: they come from no split, and offsets put them in order."""
    if times is not None:
        rows = rows.append_column(TIME, pa.array(times))
    rows = rows.append_column(SOURCE, pa.array(np.full(rows.num_rows, -1, np.int32)))
    return rows.append_column(OFFSET, pa.array(offsets))


# Whole rows in state: under neutral names, with what says when and where they came from.


def column_types(input: pa.Schema) -> tuple[tuple[str, str], ...]:
    """The columns of stored rows and their types, as text: they shape the state."""
    return tuple((name, kind) for name, kind in described(input))


_PLACE = {"t": TIME, "s": SOURCE, "o": OFFSET}
TIES = tuple(_PLACE)


class RowLayout:
    """How rows of `input` are stored in a table whose identity begins with their key."""

    def __init__(self, keys: KeyColumns, input: pa.Schema) -> None:
        self._keys, self._all = keys, input.names
        self._names = {f"v{i}": f.name for i, f in enumerate(input) if f.name not in keys.columns}
        values = [(v, plain_type(input.field(n).type)) for v, n in self._names.items()]
        self.value = pa.schema([*values, *((p, pa.int64()) for p in _PLACE)])
        self._column = {n: v for v, n in self._names.items()}
        self._column |= dict(zip(keys.columns, keys.schema.names, strict=True))

    def column(self, name: str) -> str:
        """What the user's column is called here."""
        return self._column[name]

    def of(self, rows: pa.Table) -> pa.Table:
        """Rows as they are stored, hash and key included."""
        stored = self._keys.of(rows)
        for field in self.value:
            if field.name in _PLACE:
                column: object = pa.array(_place(rows, _PLACE[field.name]))
            else:
                column = rows.column(self._names[field.name]).cast(field.type)
            stored = stored.append_column(field, column)
        return stored

    def rows(self, stored: pa.Table, names: Sequence[str]) -> pa.Table:
        """The user's columns again."""
        return pa.table([stored.column(self._column[n]) for n in names], list(names))

    def whole(self, stored: pa.Table) -> pa.Table:
        """All of the user's columns again."""
        return self.rows(stored, self._all)


def _place(rows: pa.Table, name: str) -> Index:
    if name not in rows.column_names:
        return np.zeros(rows.num_rows, np.int64)
    return integers(rows.column(name))


# Tables that every slot has a copy of.
#
# Each slot stores its own copy of a broadcast table, so that slots can move from task to task. A
# task writes the copy of each of its slots and reads one of them.


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


def free_name(name: str, used: Collection[str]) -> str:
    """A name for a column of ours that no column of the user's has."""
    return free_name(f"{name}_", used) if name in used else name


def with_bounds(keys: pa.Table, start: np.ndarray, end: np.ndarray, values: pa.Table) -> pa.Table:
    """Keys, the bounds of a window or stretch, and values, as results of windows look."""
    columns = [*keys.columns, timestamps(start), timestamps(end), *values.columns]
    names = [*keys.column_names, "window_start", "window_end", *values.column_names]
    return pa.table(columns, names=names)
