"""Running aggregates per key: one row out for each row in, by column throughout.

State is the partial of each aggregate per key; `results.py` has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.chunk import OFFSET, SOURCE, TIME
from headrace.ops.agg.named import Aggregate, result
from headrace.ops.contract import Step
from headrace.ops.grouping import by_key
from headrace.ops.running.results import rolling
from headrace.state.table import KeyedTable, TableSpec

PARTIALS = "partials"


class RollingOperator:
    version = 1

    def __init__(
        self,
        aggs: Mapping[str, Aggregate],
        keys: Sequence[str],
        input: pa.Schema,
        output: pa.Schema,
    ) -> None:
        self._aggs, self._keys = dict(aggs), list(keys)
        self._input, self._schema = input, output
        self._partials = [f for n, a in aggs.items() for f in a.partial_fields(n, input)]

    def tables(self) -> tuple[TableSpec, ...]:
        key = pa.schema([self._input.field(k) for k in self._keys])
        return (TableSpec(PARTIALS, key, pa.schema(self._partials)),)

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
        found, starts = by_key(arrived, self._keys)
        held, known = step.tables[PARTIALS].get(found.keys)
        running, after = rolling(found.rows, starts, self._aggs, held, known)
        put = found.keys
        for field in after.schema:
            put = put.append_column(field, after.column(field.name))
        step.tables[PARTIALS].put(put)
        step.out.append(self._emit(found.rows, running))

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The aggregates of each key, as they are now."""
        held = tables[PARTIALS].scan()
        keys, values = held.select(self._keys), result(held, self._aggs).select(list(self._aggs))
        return pa.table([*keys.columns, *values.columns], [*self._keys, *self._aggs])

    def _emit(self, rows: pa.Table, running: pa.Table) -> pa.Table:
        hidden = [n for n in (TIME, SOURCE, OFFSET) if n in rows.column_names]
        names = [*self._schema.names, *hidden]
        columns = [running.column(n) if n in self._aggs else rows.column(n) for n in names]
        return pa.table(columns, names=names)
