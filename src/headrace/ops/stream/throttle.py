"""Throttling: at most so many rows of a key in each period of event time.

Periods begin at multiples of their length. In a batch the earliest rows go on; across
batches, those that came first. The state is how many rows of a key and period went on, and
is dropped with the period.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, integers
from headrace.chunk import TIME
from headrace.clock import MIN_TIME, pretty
from headrace.ops.agg.order import sorted_by
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.keys import ORDER, KeyColumns
from headrace.ops.stream.key_groups import key_ids, place_in_group
from headrace.ops.tables import emit_some, output_rows
from headrace.state.table import TableSpec

COUNTS, DROPPED = "counts", "dropped"
_COUNT = "count"


@dataclass(frozen=True)
class Throttle(Spec):
    rows: int
    per: int

    kind = "throttle"
    widens_keys = True
    passes = True
    needs_time = True
    has_late = True

    def __str__(self) -> str:
        return f"at most {self.rows} in each {pretty(self.per)}"

    def shape(self) -> dict[str, Any]:
        return {"per": self.per}

    def operator(self, place: Place) -> Operator:
        return _ThrottleOperator(self, KeyColumns(place.key, place.input), place.output)


class _ThrottleOperator(Operator):
    def __init__(self, spec: Throttle, keys: KeyColumns, output: pa.Schema) -> None:
        self._rows, self._per, self._keys, self._output = spec.rows, spec.per, keys, output

    def tables(self) -> tuple[TableSpec, ...]:
        value = pa.schema([(_COUNT, pa.int64())])
        return (TableSpec(COUNTS, self._keys.schema, value, timed=True),)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        """The count of a period that is over is forgotten."""
        return None if watermark == MIN_TIME else self._periods(rows) + self._per <= watermark

    def step(self, step: EpochStep) -> None:
        arrived, table = step.arrived, step.tables[COUNTS]
        if arrived is not None:
            rows, group = self._grouped(arrived)
            place = place_in_group(group)
            first = place == 0
            head = rows.filter(pa.array(first))
            identities = self._keys.of(head).add_column(0, TIME, pa.array(self._periods(head)))
            stored, present = table.get(identities)
            before = np.where(present, integers(stored.column(_COUNT)), 0)
            group_id = np.cumsum(first) - 1
            stays = place + before[group_id] < self._rows
            passed = before + np.add.reduceat(stays, np.flatnonzero(first))
            table.put(identities.append_column(_COUNT, pa.array(passed)))
            emit_some(rows, stays, self._output.names, step)
            if not stays.all():
                dropped = rows.filter(pa.array(~stays))
                step.sides[DROPPED] = [output_rows(dropped, self._output.names)]
        if step.after > MIN_TIME:
            table.expire(step.after - self._per + 1)

    def _periods(self, rows: pa.Table) -> Index:
        times = integers(rows.column(TIME))
        return times - times % self._per

    def _grouped(self, rows: pa.Table) -> tuple[pa.Table, Index]:
        """Rows by period and key, in order, and a number that is equal within a group."""
        periods, ids = self._periods(rows), key_ids(self._keys.of(rows))
        order = sorted_by(
            [periods, ids, *(integers(rows.column(n)) for n in ORDER if n in rows.column_names)]
        )
        periods, ids = periods[order], ids[order]
        new = np.zeros(len(order), np.int64)
        new[1:] = (periods[1:] != periods[:-1]) | (ids[1:] != ids[:-1])
        return rows.take(pa.array(order)), np.cumsum(new)
