"""Running reduce and fold per key: one row out for each row in.

The user's function demands a call per row; everything around the call is by column. Rows
are seen in the order of event time, origin and offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, OFFSET, SOURCE, TIME, row_class, rows_of, table_of, values_of
from headrace.ops.contract import Fault, Step
from headrace.ops.grouping import Grouped, group, in_order
from headrace.state.table import KeyedTable, TableSpec

VALUES = "values"


class FoldOperator:
    version = 1

    def __init__(
        self, fold: Folder, keys: Sequence[str], input: pa.Schema, output: pa.Schema
    ) -> None:
        self._fold, self._keys = fold, list(keys)
        self._input, self._schema, self._value = input, output, fold.value

    def tables(self) -> tuple[TableSpec, ...]:
        key = pa.schema([self._input.field(k) for k in self._keys])
        return (TableSpec(VALUES, key, self._value),)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        return None

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        return rows

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        return prepared

    def step(self, step: Step) -> None:
        arrived = step.inputs[0]
        if arrived is None or not arrived.num_rows:
            return
        found = group(in_order(arrived), [HASH, *self._keys])
        states = self._fold.load(step.tables[VALUES], found.keys)
        kept, outs = self._fold.run(found, states, self._input.names, step)
        store(step.tables[VALUES], found.keys, states, self._value)
        if outs:
            step.out.append(self._emit(found.rows, kept, outs))

    def _emit(self, rows: pa.Table, kept: list[int], outs: list[Any]) -> pa.Table:
        base = rows if len(kept) == rows.num_rows else rows.take(pa.array(kept))
        values = table_of(outs, self._value)
        columns = [
            values.column(n) if n in values.column_names else base.column(n)
            for n in self._schema.names
        ]
        hidden = [n for n in (TIME, SOURCE, OFFSET) if n in base.column_names]
        names = [*self._schema.names, *hidden]
        return pa.table([*columns, *(base.column(n) for n in hidden)], names=names)


class Folder:
    """The user's reduce or fold function, wrapped once for the loop."""

    def __init__(self, fn: Callable[..., Any], zero: Callable[[], Any] | None, value: pa.Schema):
        self._fn, self._zero = fn, zero
        self._scalar = zero is not None and value.names == ["value"]
        self.value = value

    def load(self, table: KeyedTable, keys: pa.Table) -> list[Any]:
        """The accumulator of each key: as stored, or None for a key not seen before."""
        held, known = table.get(keys)
        if not known.any():
            return [None] * keys.num_rows
        if self._scalar:
            rows = held.column("value").to_pylist()
        else:
            make = row_class(tuple(held.column_names))._make
            rows = [make(v) for v in zip(*(c.to_pylist() for c in held.columns), strict=True)]
        return [row if is_known else None for row, is_known in zip(rows, known, strict=True)]

    def run(
        self, found: Grouped, states: list[Any], names: list[str], step: Step
    ) -> tuple[list[int], list[Any]]:
        """Fold each row into its key's state; what came after each, and of which rows."""
        fn, zero = self._fn, self._zero
        started = [state is not None for state in states]
        kept: list[int] = []
        outs: list[Any] = []
        for i, (code, row) in enumerate(
            zip(found.codes.tolist(), rows_of(found.rows.select(names)), strict=True)
        ):
            try:
                if started[code]:
                    state = fn(states[code], row)
                elif zero is not None:
                    state = fn(zero(), row)
                else:
                    state = self._first(row)
            except Exception as error:
                step.faults.append(Fault(found.rows.slice(i, 1), error))
                continue
            started[code] = True
            states[code] = state
            kept.append(i)
            outs.append(state)
        return kept, outs

    def _first(self, row: Any) -> Any:
        """A key's first row is where its reduce starts."""
        if row._fields == tuple(self.value.names):
            return row
        return row_class(tuple(self.value.names))._make(values_of(row, self.value.names))


def store(table: KeyedTable, keys: pa.Table, states: list[Any], value: pa.Schema) -> None:
    """Write back the accumulators of the keys that have one."""
    live = [i for i, state in enumerate(states) if state is not None]
    if not live:
        return
    rows = table_of([states[i] for i in live], value)
    put = keys.take(pa.array(live))
    for field in value:
        put = put.append_column(field, rows.column(field.name))
    table.put(put)
