"""Running aggregates per key: one row out for each row in, by column throughout.

State is the partial of each aggregate per key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Column, Index, Mask, flat, take
from headrace.chunk import OFFSET, SOURCE, TIME
from headrace.ops.agg.named import (
    Aggregate,
    Aggs,
    aggregates_code,
    aggregates_shape,
    aggregates_text,
    columns_of,
    naming,
    part_names,
    result,
    singles,
)
from headrace.ops.agg.order import group_numbers
from headrace.ops.agg.span import RunningSpan
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.keys import rows_by_key
from headrace.ops.tables import side_by_side
from headrace.state.table import KeyedTable, TableSpec

PARTIALS = "partials"


@dataclass(frozen=True, eq=False)
class RunningAggregates(Spec):
    """Each row with the aggregates of its key so far.

    The input may have further columns: the arguments that `plan/rewrite.py` projected.
    """

    aggs: Aggs

    at_rest = "Rolling"
    kind = "rolling"
    keys_by_name = True
    endless = True
    stores_partials = True
    widens_keys = True

    @property
    def by_event_time(self) -> bool:
        return any(agg.ordered for _, agg in self.aggs)

    @property
    def aggregates(self) -> Aggs:
        return self.aggs

    def with_aggregates(self, aggs: Aggs) -> RunningAggregates:
        return replace(self, aggs=aggs)

    @property
    def user_code(self) -> list[Any]:
        return aggregates_code(self.aggs)

    def __str__(self) -> str:
        return aggregates_text(self.aggs)

    def state_shape(self, place: Place) -> dict[str, Any]:
        return {"kind": self.at_rest, "aggregates": aggregates_shape(self.aggs, place.input)}

    def passes_on(self, columns: Collection[str]) -> bool:
        return not {name for name, _ in self.aggs}.intersection(columns)

    def operator(self, place: Place) -> RunningAggregateOperator:
        return RunningAggregateOperator(dict(self.aggs), place.key, place.input, place.output)


class RunningAggregateOperator(Operator):
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

    def step(self, step: EpochStep) -> None:
        arrived = step.arrived
        if arrived is None:
            return
        groups, starts = rows_by_key(arrived, self._keys)
        stored, present = step.tables[PARTIALS].get(groups.keys)
        running, after = rolling(groups.rows, starts, self._aggs, stored, present)
        step.tables[PARTIALS].put(side_by_side(groups.keys, after))
        step.out.append(self._emit(groups.rows, running))

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The aggregates of each key, as they are now."""
        stored = tables[PARTIALS].scan()
        keys = stored.select(self._keys)
        values = result(stored, self._aggs).select(list(self._aggs))
        return pa.table([*keys.columns, *values.columns], [*self._keys, *self._aggs])

    def _emit(self, rows: pa.Table, running: pa.Table) -> pa.Table:
        hidden = [n for n in (TIME, SOURCE, OFFSET) if n in rows.column_names]
        names = [*self._schema.names, *hidden]
        columns = [running.column(n) if n in self._aggs else rows.column(n) for n in names]
        return pa.table(columns, names=names)


# Running aggregates: the result after each row, for all keys at once.
#
# Every row becomes a partial of its own, the partial that a group starts from is put before
# its rows, and each aggregate runs along. State comes in and goes out as partials; where it is
# stored is not known here.


@np.errstate(all="ignore")  # inf and NaN are values here, not accidents
def rolling(
    rows: pa.Table,
    starts: Index,
    aggs: Mapping[str, Aggregate],
    stored: pa.Table | None = None,
    present: Mask | None = None,
) -> tuple[pa.Table, pa.Table]:
    """The aggregates after each row, and the partial of each group after its last.

    `rows` lie group by group from `starts` on, each group's in order. `stored` has the partials
    that the groups start from, a row per group, of which only the `present` ones count.
    """
    partials = singles(rows, aggs)
    sequence, at, begins = _with_starts(partials, starts, stored, present)
    span = RunningSpan(begins, sequence.num_rows)
    results: dict[str, Column] = {}
    after: dict[str, Column] = {}
    for name, agg in aggs.items():
        with naming(name, agg):
            running, final = agg.synopsis.running(columns_of(sequence, name, agg), span)
        results[name] = running if at is None else take([running], at)[0]
        after.update(zip(part_names(name, agg), final, strict=True))
    return pa.table(results), pa.table(after)


def _with_starts(
    partials: pa.Table,
    starts: Index,
    stored: pa.Table | None,
    present: Mask | None,
) -> tuple[pa.Table, Index | None, Index]:
    """Each group's starting partial, where it has one, and then its rows.

    Also where the rows are now (None: where they were), and where the groups start.
    """
    if stored is None or (present is not None and not present.any()):
        return partials, None, starts
    mask = np.ones(len(starts), np.bool_) if present is None else present
    before = stored.select(partials.column_names).filter(pa.array(mask)).cast(partials.schema)
    extra = np.cumsum(mask)
    at = np.arange(partials.num_rows) + extra[group_numbers(starts, partials.num_rows)]
    begins: Index = starts + extra - mask
    source = np.empty(partials.num_rows + before.num_rows, np.int64)
    source[begins[mask]] = np.arange(before.num_rows)
    source[at] = before.num_rows + np.arange(partials.num_rows)
    both = pa.concat_tables([before, partials])
    return pa.table(take([flat(c) for c in both.columns], source), both.column_names), at, begins
