"""One input of a join: its rows in the form in which joins hold and compare them.

A held row has its hash, its key under names that all inputs share ($k0, $k1, ...), its other
columns under their own names, and its place: event time, and the epoch in which it came with
its number there. Nothing here is kept from epoch to epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.errors import StepError
from headrace.ops.agg.groups import Index, Mask
from headrace.ops.agg.order import by_number
from headrace.ops.contract import Fault, Step
from headrace.ops.join.columns import numbers
from headrace.ops.window.aligned import Times

AT, EPOCH, NUMBER = "$at", "$epoch", "$number"
GONE = "$deleted"  # the column of a table's rows that says which delete their key
PLACE = pa.schema([(name, pa.int64()) for name in (AT, EPOCH, NUMBER)])


class Side:
    """The columns of one input, and which of them are its key."""

    def __init__(self, keys: Sequence[str], schema: pa.Schema) -> None:
        self.keys = list(keys)
        self.names = schema.names
        self.key = pa.schema([(f"$k{i}", schema.field(k).type) for i, k in enumerate(keys)])
        self.value = pa.schema([pa.field(f.name, f.type) for f in schema if f.name not in keys])

    @cached_property
    def identity(self) -> list[str]:
        """What tells the keys of held rows apart."""
        return [HASH, *self.key.names]

    @cached_property
    def held(self) -> pa.Schema:
        """The columns of held rows."""
        return pa.schema([pa.field(HASH, pa.uint64()), *self.key, *self.value, *PLACE])

    def without_nulls(self, rows: pa.Table) -> pa.Table:
        """Of rows as they arrive, those whose key can be equal to another."""
        nulls = null_keys(rows, self.keys)
        return rows if nulls is None else rows.filter(pa.array(~nulls))

    def keyed(self, rows: pa.Table | None, step: Step) -> pa.Table | None:
        """Of a table's rows as they arrive, those with a whole key; the others are dead letters.

        Nothing could ever change or delete a row without a key, so a table cannot hold it.
        """
        nulls = None if rows is None else null_keys(rows, self.keys)
        if rows is None or nulls is None:
            return rows
        lost = rows.filter(pa.array(nulls))
        step.faults.extend(self._keyless(lost.slice(i, 1)) for i in range(lost.num_rows))
        return rows.filter(pa.array(~nulls))

    def _keyless(self, row: pa.Table) -> Fault:
        nulls = [k for k in self.keys if row.column(k).null_count]
        named = " and ".join(map(repr, nulls))
        why = f"a row of a table has no key: {named} {'is' if len(nulls) == 1 else 'are'} null"
        shown = [n for n in row.column_names if n != GONE]
        return Fault(row.select(shown), StepError("HR-JOIN-027", why))

    def arrived(self, rows: pa.Table | None, epoch: int, bucket: int = 1) -> pa.Table:
        """Rows as they are held, in order: by bucket of time, hash, time, split and offset."""
        if rows is None or not rows.num_rows:
            return self.held.empty_table()
        at = _times(rows)
        order = self._order(rows, at, at // bucket)
        names = [HASH, *self.keys, *self.value.names]
        rows = rows.select(names).combine_chunks().take(pa.array(order))
        columns = [*rows.columns, pa.array(at[order])]
        columns += [pa.array(np.full(len(at), epoch)), pa.array(np.arange(len(at)))]
        found = pa.Table.from_arrays(
            columns, [HASH, *self.key.names, *self.value.names, *PLACE.names]
        )
        return (found if found.schema.equals(self.held) else found.cast(self.held)).combine_chunks()

    def _order(self, rows: pa.Table, at: Times, bucket: Times) -> Index:
        """By bucket, hash, time, split and offset: sorted from the last to the first."""
        keys = [_column(rows, n) for n in (OFFSET, SOURCE)] + [at, numbers(rows[HASH]), bucket]
        order: Index | None = None
        for key in keys:
            values = key if order is None else key[order]
            if (values[1:] >= values[:-1]).all():
                continue
            turn = by_number(values)
            order = turn if order is None else order[turn]
        return np.arange(len(at)) if order is None else order

    def solid(self, held: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Held rows whose key is whole, and those that have a null in it and so meet nobody."""
        nulls = null_keys(held, self.key.names)
        if nulls is None:
            return held, held.slice(0, 0)
        return held.filter(pa.array(~nulls)), held.filter(pa.array(nulls))


def null_keys(rows: pa.Table, keys: Sequence[str]) -> Mask | None:
    """Which rows have a null in their key; None for none."""
    found: Mask | None = None
    for key in keys:
        column = rows.column(key)
        if column.null_count:
            nulls: Mask = numbers(column.is_null())
            found = nulls if found is None else found | nulls
    return found


def _times(rows: pa.Table) -> Times:
    """The event time of each row; a stream without time counts as all at once."""
    if TIME in rows.column_names:
        return numbers(rows[TIME])
    return np.zeros(rows.num_rows, np.int64)


def _column(rows: pa.Table, name: str) -> Times:
    if name in rows.column_names:
        return numbers(rows[name])
    return np.zeros(rows.num_rows, np.int64)
