"""Running reduce and fold per key: one row out for each row in.

The user's function demands a call per row; everything around the call is by column. Rows
are seen in the order of event time, origin and offset.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, OFFSET, SOURCE, TIME, row_class, rows_of, table_of
from headrace.ops.contract import Fault, Step
from headrace.ops.grouping import Grouped, group, in_order
from headrace.state.table import KeyedTable, TableSpec

VALUES = "values"
_MUTABLE = (list, dict, set)  # the next row may change it in place


class FoldOperator:
    version = 1

    def __init__(
        self, fold: Folder, keys: Sequence[str], input: pa.Schema, output: pa.Schema
    ) -> None:
        self._fold, self._keys = fold, list(keys)
        self._input, self._schema = input, output

    def tables(self) -> tuple[TableSpec, ...]:
        key = pa.schema([self._input.field(k) for k in self._keys])
        return (TableSpec(VALUES, key, self._fold.value),)

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
        kept, values = self._fold.apply(
            step.tables[VALUES], found.keys, found, self._input.names, step
        )
        if kept:
            step.out.append(self._emit(found.rows, kept, values))

    def _emit(self, rows: pa.Table, kept: list[int], values: pa.Table) -> pa.Table:
        base = rows if len(kept) == rows.num_rows else rows.take(pa.array(kept))
        columns = [
            (values if n in values.column_names else base).column(n) for n in self._schema.names
        ]
        hidden = [n for n in (TIME, SOURCE, OFFSET) if n in base.column_names]
        names = [*self._schema.names, *hidden]
        return pa.table([*columns, *(base.column(n) for n in hidden)], names=names)


class Folder:
    """The user's reduce or fold function, wrapped once for the loop.

    A reduce sees whole rows on both sides; only the columns that are not the key are kept. A
    fold sees its own value, of any one column or record.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        zero: Callable[[], Any] | None,
        value: pa.Schema,
        row: pa.Schema,
    ) -> None:
        self._fn, self._zero, self.value = fn, zero, value
        self._scalar = zero is not None and value.names == ["value"]
        self._shape = tuple(row.names if zero is None else value.names)

    def apply(
        self, table: KeyedTable, keys: pa.Table, found: Grouped, names: list[str], step: Step
    ) -> tuple[list[int], pa.Table]:
        """Fold the rows into the table; which rows gave something, and what.

        Only if some value does not fit its columns are the rows gone through again, each
        value checked by itself, so that the row that spoils it is set aside alone.
        """
        for check in (False, True):
            folded, faults = self._load(table, keys), list[Fault]()
            kept, outs = self._run(found, folded, names, faults, check)
            try:
                values = table_of(outs, self.value)
                self._store(table, keys, folded)
            except ValueError:
                if check:
                    raise
                continue
            step.faults.extend(faults)
            return kept, values
        raise AssertionError("unreachable")

    def _load(self, table: KeyedTable, keys: pa.Table) -> Folded:
        """The accumulator of each key, as far as it has one."""
        held, known = table.get(keys)
        if not known.any():
            return Folded([None] * keys.num_rows, known.tolist())
        if self._scalar:
            return Folded(held.column("value").to_pylist(), known.tolist())
        columns = [(held if n in held.column_names else keys).column(n) for n in self._shape]
        make = row_class(self._shape)._make
        rows = zip(*(c.to_pylist() for c in columns), strict=True)
        return Folded([make(values) for values in rows], known.tolist())

    def _run(
        self, found: Grouped, folded: Folded, names: list[str], faults: list[Fault], check: bool
    ) -> tuple[list[int], list[Any]]:
        """Fold each row into its key's value; what came after each, and of which rows."""
        fn, zero = self._fn, self._zero
        values, known = folded.values, folded.known
        kept: list[int] = []
        outs: list[Any] = []
        rows = rows_of(found.rows.select(names))
        for i, (code, row) in enumerate(zip(found.codes.tolist(), rows, strict=True)):
            try:
                if known[code]:
                    value = fn(values[code], row)
                else:
                    value = row if zero is None else fn(zero(), row)
                if check:
                    table_of([value], self.value)
            except Exception as error:
                faults.append(Fault(found.rows.slice(i, 1), error))
                continue
            known[code] = True
            values[code] = value
            kept.append(i)
            outs.append(copy.copy(value) if type(value) in _MUTABLE else value)
        return kept, outs

    def _store(self, table: KeyedTable, keys: pa.Table, folded: Folded) -> None:
        """Write back the accumulators of the keys that have one."""
        live = [i for i, known in enumerate(folded.known) if known]
        rows = table_of([folded.values[i] for i in live], self.value)
        put = keys.take(pa.array(live, pa.int64()))
        for field in self.value:
            put = put.append_column(field, rows.column(field.name))
        table.put(put)


@dataclass(slots=True)
class Folded:
    """The accumulators of some keys, by number, and which of them there are."""

    values: list[Any]
    known: list[bool]
