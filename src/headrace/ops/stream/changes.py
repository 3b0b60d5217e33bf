"""Changes only: a row goes on if some columns differ from those of the row of its key before.

Rows are compared in the order of event time, split and offset within a batch; the state is
what those columns were in each key's last row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, flat
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.keys import KeyColumns
from headrace.ops.stream.key_groups import by_key_order, group_heads, key_ids, same_values
from headrace.ops.tables import column_types, emit_some
from headrace.state.table import KeyedTable, TableSpec

LAST = "last"


@dataclass(frozen=True)
class ChangesOnly(Spec):
    columns: tuple[str, ...]
    types: tuple[tuple[str, str], ...]  # of the columns, as text: they shape the state

    kind = "changes_only"
    widens_keys = True
    passes = True
    endless = True

    def __str__(self) -> str:
        return f"rows in which {', '.join(self.columns)} changed"

    @property
    def bound(self) -> str:
        return (
            "unbounded=True; otherwise write it with process and a value that is forgotten: "
            'hr.value(str, ttl="1h").'
        )

    def shape(self) -> dict[str, Any]:
        return {"columns": [list(pair) for pair in self.types]}

    @property
    def compares(self) -> tuple[str, ...]:
        return self.columns

    @staticmethod
    def of(columns: Sequence[str], input: pa.Schema) -> ChangesOnly:
        compared = [input.field(c) for c in columns if c in input.names]
        return ChangesOnly(tuple(columns), column_types(pa.schema(compared)))

    def operator(self, place: Place) -> Operator:
        return _ChangesOnlyOperator(
            self.columns, KeyColumns(place.key, place.input), place.input, place.output
        )


class _ChangesOnlyOperator(Operator):
    def __init__(
        self, columns: Sequence[str], keys: KeyColumns, input: pa.Schema, output: pa.Schema
    ) -> None:
        self._columns, self._keys, self._output = list(columns), keys, output
        fields = [(f"c{i}", input.field(c).type) for i, c in enumerate(columns)]
        self._value = pa.schema(fields)

    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec(LAST, self._keys.schema, self._value),)

    def step(self, step: EpochStep) -> None:
        arrived, table = step.arrived, step.tables[LAST]
        if arrived is None:
            return
        ids = key_ids(self._keys.of(arrived))
        order = by_key_order(arrived, ids)
        rows, first = arrived.take(pa.array(order)), group_heads(ids[order])
        keys = self._keys.of(rows.filter(pa.array(first)))
        stored, present = table.get(keys)
        changed = ~self._unchanged(rows, first, stored, present)
        self._store(rows, keys, first, changed, step)
        emit_some(rows, changed, self._output.names, step)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """Of each key what was emitted last."""
        stored = tables[LAST].scan().select([*self._keys.schema.names, *self._value.names])
        return stored.rename_columns([*self._keys.columns, *self._columns])

    def _unchanged(self, rows: pa.Table, first: Mask, stored: pa.Table, present: Mask) -> Mask:
        """Whether each row is as the one of its key before it, here or in state."""
        alike = np.ones(len(first), np.bool_)
        alike[first] = present
        before = pa.array(np.maximum(np.arange(len(first)) - 1, 0))
        for name, column in zip(self._value.names, self._columns, strict=True):
            values = flat(rows.column(column))
            here = same_values(values, values.take(before))
            here[first] = same_values(values.filter(pa.array(first)), flat(stored.column(name)))
            alike &= here
        return alike

    def _store(
        self, rows: pa.Table, keys: pa.Table, first: Mask, changed: Mask, step: EpochStep
    ) -> None:
        """The last row of each key in which anything changed."""
        starts = np.flatnonzero(first)
        written = np.logical_or.reduceat(changed, starts)
        last = np.append(starts[1:], len(first)) - 1
        now = rows.take(pa.array(last[written]))
        values = keys.filter(pa.array(written))
        for field, column in zip(self._value, self._columns, strict=True):
            values = values.append_column(field, now.column(column))
        step.tables[LAST].put(values)
