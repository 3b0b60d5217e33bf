"""The inputs of a join and its output: rows as joins store and compare them, and as they leave.

A stored row has its hash, its key under names that all inputs share ($k0, $k1, ...), its other
columns under their own names, and its place: event time, and the epoch in which it came with
its number there. Nothing here is stored from epoch to epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, Times, numbers, timestamps
from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME, MIN_TIME, pretty
from headrace.errors import StepError
from headrace.ops.agg.order import by_number
from headrace.ops.contract import EpochStep, Fault, Place, Spec
from headrace.ops.keys import HIDDEN_KEY, key_schema
from headrace.ops.tables import free_name
from headrace.state.table import KeyedTable, TableSpec

AT, EPOCH, NUMBER = "$at", "$epoch", "$number"
GONE = "$deleted"  # the column of a table's rows that says which delete their key
PLACE = pa.schema([(name, pa.int64()) for name in (AT, EPOCH, NUMBER)])


class EventTimeJoin(Spec):
    """A join by event time, for which rows can be late."""

    lateness: int
    widens_keys = True
    needs_time = True
    has_late = True

    @property
    def lengths(self) -> dict[str, int]:
        return {"lateness": self.lateness}


class EitherTimeJoin(Spec):
    """A join by event time or, if `processing`, by processing time, when no row is late."""

    processing: bool
    widens_keys = True

    @property
    def needs_time(self) -> bool:
        return not self.processing

    @property
    def has_late(self) -> bool:
        return not self.processing


def lateness_text(lateness: int) -> str:
    """What `explain` adds for a join that waits for late rows."""
    return f", lateness {pretty(lateness)}" if lateness else ""


def late_floor(watermark: int, lateness: int) -> int:
    """Rows with a time before this are late."""
    return watermark if watermark in (MIN_TIME, MAX_TIME) else watermark - lateness


def late_rows(
    rows: pa.Table, watermark: int, lateness: int = 0, processing: bool = False
) -> Mask | None:
    """Which rows are late; None where none can be."""
    floor = late_floor(watermark, lateness)
    return None if processing or floor == MIN_TIME else numbers(rows[TIME]) < floor


def first_time(table: KeyedTable) -> int:
    """The time of the first row in a state table; MAX_TIME if it is empty."""
    first = table.first_time()
    return MAX_TIME if first is None else first


def watermark_after(time: int, lateness: int = 0) -> int:
    """The watermark at which something of this time is due."""
    return time if time == MAX_TIME else time + lateness + 1


class JoinSide:
    """The columns of one input, and which of them are its key."""

    def __init__(self, keys: Sequence[str], schema: pa.Schema) -> None:
        self.keys = list(keys)
        self.names = schema.names
        self.key = key_schema(keys, schema, HIDDEN_KEY)
        self.value = pa.schema([pa.field(f.name, f.type) for f in schema if f.name not in keys])

    @cached_property
    def identity(self) -> list[str]:
        """The columns that identify the key of a stored row."""
        return [HASH, *self.key.names]

    @cached_property
    def stored(self) -> pa.Schema:
        """The columns of stored rows."""
        return pa.schema([pa.field(HASH, pa.uint64()), *self.key, *self.value, *PLACE])

    def row_table(self, name: str) -> TableSpec:
        """A state table of rows that are written once, by time."""
        value = pa.schema([*self.value, *PLACE])
        return TableSpec(name, self.key, value, timed=True, once=True)

    def without_nulls(self, rows: pa.Table) -> pa.Table:
        """Of rows as they arrive, those whose key can be equal to another."""
        nulls = null_keys(rows, self.keys)
        return rows if nulls is None else rows.filter(pa.array(~nulls))

    def keyed(self, rows: pa.Table | None, step: EpochStep, port: int = 0) -> pa.Table | None:
        """Of a table's rows as they arrive, those with a whole key; the others are dead letters.

        Nothing could ever change or delete a row without a key, so a table cannot hold it.
        """
        nulls = None if rows is None else null_keys(rows, self.keys)
        if rows is None or nulls is None:
            return rows
        keyless = rows.filter(pa.array(nulls))
        rows_of_them = (keyless.slice(i, 1) for i in range(keyless.num_rows))
        step.faults.extend(self._keyless(row, port) for row in rows_of_them)
        return rows.filter(pa.array(~nulls))

    def _keyless(self, row: pa.Table, port: int) -> Fault:
        nulls = [k for k in self.keys if row.column(k).null_count]
        named = " and ".join(map(repr, nulls))
        why = f"a row of a table has no key: {named} {'is' if len(nulls) == 1 else 'are'} null"
        shown = [n for n in row.column_names if n != GONE]
        return Fault(row.select(shown), StepError("HR-JOIN-027", why), port)

    def arrived(self, rows: pa.Table | None, epoch: int, bucket: int = 1) -> pa.Table:
        """Rows in the form in which they are stored: by bucket, hash, time, split and offset."""
        if rows is None or not rows.num_rows:
            return self.stored.empty_table()
        at = _hidden(rows, TIME)
        order = self._order(rows, at, at // bucket)
        names = [HASH, *self.keys, *self.value.names]
        rows = rows.select(names).combine_chunks().take(pa.array(order))
        columns = [*rows.columns, pa.array(at[order])]
        columns += [pa.array(np.full(len(at), epoch)), pa.array(np.arange(len(at)))]
        table = pa.Table.from_arrays(columns, self.stored.names)
        same = table.schema.equals(self.stored)
        return (table if same else table.cast(self.stored)).combine_chunks()

    def _order(self, rows: pa.Table, at: Times, bucket: Times) -> Index:
        """By bucket, hash, time, split and offset: sorted from the last to the first."""
        keys = [_hidden(rows, n) for n in (OFFSET, SOURCE)] + [at, numbers(rows[HASH]), bucket]
        order: Index | None = None
        for key in keys:
            values = key if order is None else key[order]
            if (values[1:] >= values[:-1]).all():
                continue
            turn = by_number(values)
            order = turn if order is None else order[turn]
        return np.arange(len(at)) if order is None else order

    def split_nulls(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Stored rows whose key is whole, and those that have a null in it and so match none."""
        nulls = null_keys(rows, self.key.names)
        if nulls is None:
            return rows, rows.slice(0, 0)
        return rows.filter(pa.array(~nulls)), rows.filter(pa.array(nulls))


def join_sides(place: Place) -> list[JoinSide]:
    """The inputs of a join."""
    return [JoinSide(k, s) for k, s in zip(place.keys, place.inputs, strict=True)]


def arrived_rows(sides: Sequence[JoinSide], step: EpochStep, bucket: int = 1) -> list[pa.Table]:
    """The rows of each input in this epoch, as they are stored."""
    pairs = zip(sides, step.inputs, strict=True)
    return [side.arrived(rows, step.epoch, bucket) for side, rows in pairs]


def null_keys(rows: pa.Table, keys: Sequence[str]) -> Mask | None:
    """Which rows have a null in their key; None for none."""
    nulls: Mask | None = None
    for key in keys:
        column = rows.column(key)
        if column.null_count:
            here: Mask = numbers(column.is_null())
            nulls = here if nulls is None else nulls | here
    return nulls


def _hidden(rows: pa.Table, name: str) -> Times:
    """A hidden column; where there is none, as without event time, all rows are equal in it."""
    if name in rows.column_names:
        return numbers(rows[name])
    return np.zeros(rows.num_rows, np.int64)


# The rows that a join emits: which column comes from which input.
#
# A key column is the same on all sides and comes from whichever is present. Results carry the
# event time that the join decides, and the hash of their key as their place.


KEY = -1
Column = tuple[int, str]  # the input's number, or KEY, and the name of the column there
Columns = tuple[Column, ...]  # of every column of the result, in order


class JoinOutput:
    def __init__(self, columns: Columns, output: pa.Schema) -> None:
        self._columns, self._schema = columns, output

    def pairs(
        self,
        parts: Sequence[pa.Table],
        at: Sequence[Index],
        times: Times | None,
        keys: pa.Table | None = None,
    ) -> pa.Table:
        """Results of the rows `at` of each input: only what is shown of them is copied.

        With `keys`, as in `rows`, an index of -1 is a row that is absent.
        """
        needed = [{n for p, n in self._columns if p == port} for port in range(len(parts))]
        needed[0] |= {HASH, *(n for p, n in self._columns if p == KEY)}
        sides = [
            part.select([n for n in part.column_names if n in names])
            .combine_chunks()
            .take(pa.array(rows, mask=None if keys is None else rows < 0))
            for part, rows, names in zip(parts, at, needed, strict=True)
        ]
        return self.rows(sides, times, keys=keys)

    def rows(
        self,
        parts: Sequence[pa.Table | None],
        at: Times | None,
        extra: Sequence[pa.Array] = (),
        keys: pa.Table | None = None,
        source: int = -1,
    ) -> pa.Table:
        """Stored rows of the inputs side by side, None for one that is absent.

        `extra` are the last columns; `at` is the event time, None where there is none. `keys`
        has the keys, where no input has all of them; `source` is their rank at one moment.
        """
        keyed = next(part for part in (keys, *parts) if part is not None)
        columns: list[pa.ChunkedArray | pa.Array] = []
        for (port, name), field in zip(self._columns, self._schema, strict=False):
            part = keyed if port == KEY else parts[port]
            columns.append(pa.nulls(keyed.num_rows, field.type) if part is None else part[name])
        table = pa.Table.from_arrays([*columns, *extra], self._schema.names).cast(self._schema)
        return with_place(table, at, numbers(keyed[HASH]), source)


def with_place(rows: pa.Table, at: Times | None, hashes: np.ndarray, source: int = -1) -> pa.Table:
    """Rows made by a join with the hidden columns of derived rows."""
    if at is not None:
        rows = rows.append_column(TIME, pa.array(at))
    rows = rows.append_column(SOURCE, pa.array(np.full(rows.num_rows, source, np.int32)))
    return rows.append_column(OFFSET, pa.array(hashes.view(np.int64)))


# The state of a join as people see it: the rows of all its inputs, and the side of each.
#
# The key has the names that it has in the first input. A column that two inputs have is one
# column; if its type differs, or it is called like the key, the name of its input is added.


SIDES = ("left", "right")


class SideRows(NamedTuple):
    """All rows that are stored of one input; `name` is None where there is no other."""

    name: str | None
    side: JoinSide
    rows: pa.Table


def stored_view(parts: Sequence[SideRows], since: int, until: int, timed: bool = True) -> pa.Table:
    """The rows of [since, until): key, side, event time if they have one, and their columns."""
    first = parts[0].side
    fields = {name: field.type for name, field in zip(first.keys, first.key, strict=True)}
    shown = [_shown(part, fields, first.keys) for part in parts]
    side, time = (free_name(name, fields) for name in ("side", "time"))
    own = {} if parts[0].name is None else {side: pa.string()}
    own |= {time: timestamps(np.zeros(0, np.int64)).type} if timed else {}
    keys = {name: fields.pop(name) for name in first.keys}
    schema = pa.schema(list((keys | own | fields).items()))
    tables = []
    for part, names in zip(parts, shown, strict=True):
        at = numbers(part.rows[AT])
        rows = part.rows.filter(pa.array((at >= since) & (at < until)))
        columns = {names[n]: rows.column(n) for n in names}
        columns |= dict(zip(first.keys, rows.select(part.side.key.names).columns, strict=True))
        columns[side] = pa.repeat(pa.scalar(part.name, pa.string()), rows.num_rows)
        columns[time] = timestamps(numbers(rows[AT]))
        arrays = [
            columns[f.name] if f.name in columns else pa.nulls(rows.num_rows, f.type)
            for f in schema
        ]
        tables.append(pa.Table.from_arrays(arrays, schema.names).cast(schema))
    return pa.concat_tables(tables)


def not_deleted(tables: Iterable[pa.Table], side: JoinSide) -> pa.Table:
    """Stored rows of several tables, without those that delete their key."""
    rows = pa.concat_tables([t.select(side.stored.names) for t in tables])
    if GONE not in rows.column_names:
        return rows
    return rows.filter(pa.array(~numbers(rows[GONE].fill_null(False))))


def _shown(part: SideRows, fields: dict[str, pa.DataType], keys: Sequence[str]) -> dict[str, str]:
    """What the columns of one input are called; adds those that are new to `fields`."""
    names = {}
    for field in part.side.value:
        if field.name.startswith("$"):
            continue
        name = field.name
        if name in keys or fields.get(name, field.type) != field.type:
            name = free_name(f"{name}_{part.name}", fields)
        fields[name] = field.type
        names[field.name] = name
    return names
