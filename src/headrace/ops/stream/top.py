"""The n best rows of each key, as changes: what leaves with "-", what comes with "+".

After each batch the rows that are among the n best of their key and were not, or have
another rank now, are told; before them those whose rank they took. The state is the n best
rows of each key. With `each`, a newer row of the same thing takes the place of its older one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.at_rest import described
from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.ops.agg.groups import Index, flat, integers
from headrace.ops.agg.order import sorted_by
from headrace.ops.contract import Operator, Place, Spec, Step
from headrace.ops.grouping import group
from headrace.ops.stream.alike import Mask, numbered, place_in_group
from headrace.ops.stream.base import Keys
from headrace.ops.stream.ranking import best_first
from headrace.ops.stream.stored import TIES, Stored
from headrace.state.table import KeyedTable, TableSpec

BEST = "best"
RANK, CHANGE = pa.field("rank", pa.int32()), pa.field("change", pa.string())
_RANK = "rank"


@dataclass(frozen=True)
class Top(Spec):
    rows: int
    by: str
    largest: bool
    each: tuple[str, ...]
    types: tuple[tuple[str, str], ...]  # of the rows that are kept

    kind = "top"

    @property
    def endless(self) -> bool:
        return True

    def __str__(self) -> str:
        order = "largest" if self.largest else "smallest"
        each = f", one of each {', '.join(self.each)}" if self.each else ""
        return f"the {self.rows} {order} by {self.by}{each}, as changes"

    @property
    def bound(self) -> str:
        return (
            "unbounded=True; otherwise take the best of each window: "
            ".window(...).agg(...).top(...)."
        )

    def shape(self) -> dict[str, Any]:
        said = {"rows": self.rows, "by": self.by, "largest": self.largest, "each": [*self.each]}
        return {**said, "columns": [list(pair) for pair in self.types]}

    @property
    def compares(self) -> tuple[str, ...]:
        return (self.by, *self.each)

    @staticmethod
    def of(rows: int, by: str, largest: bool, each: Sequence[str], input: pa.Schema) -> Top:
        types = tuple((name, kind) for name, kind in described(input))
        return Top(rows, by, largest, tuple(each), types)

    def operator(self, place: Place) -> Operator:
        return _Top(self, Keys(place.key, place.input), place.input, place.output)


class _Top(Operator):
    def __init__(self, what: Top, keys: Keys, input: pa.Schema, output: pa.Schema) -> None:
        self._what, self._keys, self._output = what, keys, output
        self._stored = Stored(keys, input)

    def tables(self) -> tuple[TableSpec, ...]:
        place = pa.schema([*self._keys.schema, (_RANK, pa.int32())])
        return (TableSpec(BEST, place, self._stored.value),)

    def step(self, step: Step) -> None:
        arrived, table = step.inputs[0], step.tables[BEST]
        if arrived is None or not arrived.num_rows:
            return
        rows = self._with_held(arrived, table.match(flat(arrived.column(HASH)).to_numpy()))
        numbers = numbered(rows.select(self._keys.identity))
        before, after = self._ranks(rows, numbers, self._replaced(rows))
        moved = before != after
        enters = moved & (after > 0)
        put = rows.filter(pa.array(enters)).drop_columns([_RANK])
        put = put.append_column(_RANK, pa.array(after[enters].astype(np.int32)))
        table.put(put)
        times = _latest(rows, numbers, before)
        for change, ranks, some in (("-", before, moved & (before > 0)), ("+", after, enters)):
            if some.any():
                told = np.flatnonzero(some)
                told = told[sorted_by([numbers[told], ranks[told]])]
                step.out.append(self._told(rows, ranks, told, change, times, arrived))

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The best rows of each key, and the rank of each."""
        held = tables[BEST].scan()
        return self._stored.whole(held).append_column(RANK, held.column(_RANK))

    def _with_held(self, arrived: pa.Table, held: pa.Table) -> pa.Table:
        fresh = self._stored.of(arrived)
        ranks = pa.array(np.zeros(fresh.num_rows, np.int32))
        fresh = fresh.append_column(_RANK, ranks).select(held.column_names)
        return pa.concat_tables([held, fresh.cast(held.schema)])

    def _replaced(self, rows: pa.Table) -> Mask:
        """With `each`: the rows of which there is a newer one of the same thing."""
        gone = np.zeros(rows.num_rows, np.bool_)
        if self._what.each:
            things = [self._stored.column(c) for c in self._what.each]
            thing = group(rows, [*self._keys.identity, *things]).codes
            fresh = (integers(rows.column(_RANK)) == 0).astype(np.int64)
            order = sorted_by([thing, fresh, *_ties(rows)])
            gone[order[:-1]] = thing[order][1:] == thing[order][:-1]
        return gone

    def _ranks(self, rows: pa.Table, numbers: Index, gone: Mask) -> tuple[Index, Index]:
        """The rank of each row before and now; 0 for none."""
        before = integers(rows.column(_RANK))
        by = rows.column(self._stored.column(self._what.by))
        order = best_first([numbers, gone.astype(np.int64)], by, self._what.largest, _ties(rows))
        place = place_in_group(numbers[order]) + 1
        after = np.zeros(len(before), np.int64)
        after[order] = np.where((place <= self._what.rows) & ~gone[order], place, 0)
        return before, after

    def _told(
        self,
        rows: pa.Table,
        ranks: Index,
        some: Index,
        change: str,
        times: Index,
        arrived: pa.Table,
    ) -> pa.Table:
        told = rows.take(pa.array(some))
        names = [n for n in self._output.names if n not in (RANK.name, CHANGE.name)]
        found = self._stored.rows(told, names)
        found = found.append_column(RANK, pa.array(ranks[some].astype(np.int32)))
        found = found.append_column(CHANGE, pa.array([change] * told.num_rows))
        if TIME in arrived.column_names:
            found = found.append_column(TIME, pa.array(times[some]))
        count, hashes = told.num_rows, flat(told.column(HASH)).to_numpy()
        found = found.append_column(SOURCE, pa.array(np.full(count, -1, np.int32)))
        return found.append_column(OFFSET, pa.array(hashes.view(np.int64)))


def _ties(rows: pa.Table) -> list[Index]:
    return [integers(rows.column(n)) for n in TIES]


def _latest(rows: pa.Table, numbers: Index, before: Index) -> Index:
    """For each row the newest event time among the new rows of its key: when it changed."""
    latest = np.full(int(numbers.max()) + 1, np.iinfo(np.int64).min)
    fresh = before == 0
    np.maximum.at(latest, numbers[fresh], integers(rows.column("t"))[fresh])
    return latest[numbers]
