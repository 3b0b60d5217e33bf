"""The first rows of a stream, or of each key: so many, and no more ever.

Across batches those come first that arrived first; in a batch the earliest by event time, if there
is one, then by split and offset. The state is how many rows of a key went on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import integers
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.keys import KeyColumns
from headrace.ops.stream.key_groups import by_key_order, group_heads, key_ids, place_in_group
from headrace.ops.tables import emit_some
from headrace.state.table import TableSpec

COUNTS = "counts"
_COUNT = "count"


@dataclass(frozen=True)
class Limit(Spec):
    rows: int

    kind = "limit"
    widens_keys = True
    passes = True
    endless = True

    def __str__(self) -> str:
        return f"the first {self.rows}"

    @property
    def bound(self) -> str:
        return 'unbounded=True; otherwise use throttle(10, per="1h"), whose counts are dropped.'

    def shape(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def goes_on(self, before: Mapping[str, Any]) -> dict[str, str]:
        """What is stored is how many rows have passed."""
        return {"rows": f"from {before['rows']} to {self.rows}"}

    def operator(self, place: Place) -> Operator:
        return _LimitOperator(self.rows, KeyColumns(place.key, place.input), place.output)


class _LimitOperator(Operator):
    """Leaves out, where the rows are, those that enough others come before."""

    filters = True

    def __init__(self, most: int, keys: KeyColumns, output: pa.Schema) -> None:
        self._most, self._keys, self._output = most, keys, output

    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec(COUNTS, self._keys.schema, pa.schema([(_COUNT, pa.int64())])),)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        rows = self._keys.hashed(rows)
        if rows.num_rows <= self._most:
            return rows
        ids = key_ids(self._keys.of(rows))
        order = by_key_order(rows, ids)
        first = order[place_in_group(ids[order]) < self._most]
        return rows if len(first) == rows.num_rows else rows.take(pa.array(np.sort(first)))

    def step(self, step: EpochStep) -> None:
        arrived, table = step.arrived, step.tables[COUNTS]
        if arrived is None:
            return
        ids = key_ids(self._keys.of(arrived))
        order = by_key_order(arrived, ids)
        rows, ids = arrived.take(pa.array(order)), ids[order]
        first = group_heads(ids)
        keys = self._keys.of(rows.filter(pa.array(first)))
        stored, present = table.get(keys)
        before = np.where(present, integers(stored.column(_COUNT)), 0)
        stays = place_in_group(ids) + before[np.cumsum(first) - 1] < self._most
        passed = np.add.reduceat(stays.astype(np.int64), np.flatnonzero(first))
        some = pa.array(passed > 0)
        counts = keys.append_column(_COUNT, pa.array(before + passed))
        table.put(counts.filter(some))
        emit_some(rows, stays, self._output.names, step)
