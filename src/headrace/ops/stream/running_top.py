"""The n best rows of each key, as a changelog: "-" for a row that leaves, "+" for one that enters.

After each batch the rows that are among the n best of their key and were not, or have another
rank now, are emitted; before them those whose rank they took. With `each`, a newer row of the same
thing replaces its older one, or ends it, and another may come up: all other rows are held as well
(`candidate_levels.py`). Without `each` rows never get worse, and only the n best are held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, flat, integers, numbers
from headrace.chunk import HASH, TIME
from headrace.ops.agg.order import sorted_by
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.keys import KeyColumns, key_groups
from headrace.ops.stream.candidate_levels import CandidateLevels, distinct_groups, members
from headrace.ops.stream.key_groups import key_ids, place_in_group
from headrace.ops.stream.rank_order import CHANGE, RANK, RankOrder, best_first
from headrace.ops.tables import TIES, RowLayout, column_types, derived_rows
from headrace.state.table import KeyedTable, TableSpec

BEST = "best"
_RANK = "rank"


@dataclass(frozen=True)
class Top(Spec):
    rows: int
    by: str
    largest: bool
    each: tuple[str, ...]
    types: tuple[tuple[str, str], ...]  # of the stored rows
    gone: str | None = None  # the column that says which rows end their thing

    kind = "top"
    endless = True
    widens_keys = True

    @property
    def table_ports(self) -> tuple[int, ...]:  # type: ignore[override]
        return (0,) if self.each else ()

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
        shape = {"rows": self.rows, "by": self.by, "largest": self.largest, "each": [*self.each]}
        held = {"holds": "all"} if self.each else {}
        return {**shape, **held, "columns": [list(pair) for pair in self.types]}

    @property
    def compares(self) -> tuple[str, ...]:
        return (self.by, *self.each)

    @staticmethod
    def of(
        rows: int,
        by: str,
        largest: bool,
        each: Sequence[str],
        input: pa.Schema,
        *,
        gone: str | None = None,
    ) -> Top:
        stored = pa.schema([f for f in input if f.name != gone])
        return Top(rows, by, largest, tuple(each), column_types(stored), gone)

    def operator(self, place: Place) -> Operator:
        return (_FallingTop if self.each else _GrowingTop)(self, place)


class _TopOperator(Operator):
    """What is stored of the best rows, and how changes of them are emitted."""

    sliceable = False

    def __init__(self, spec: Top, place: Place) -> None:
        self._spec, self._output = spec, place.output
        input = pa.schema([f for f in place.input if f.name != spec.gone])
        self._keys = KeyColumns(place.key, input)
        self._stored = RowLayout(self._keys, input)

    def tables(self) -> tuple[TableSpec, ...]:
        place = pa.schema([*self._keys.schema, (_RANK, pa.int32())])
        return (TableSpec(BEST, place, self._stored.value),)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The best rows of each key, and the rank of each."""
        stored = tables[BEST].scan()
        return self._stored.whole(stored).append_column(RANK, stored.column(_RANK))

    def _change(
        self, rows: pa.Table, ids: Index, ranks: tuple[Index, Index], times: Index, step: EpochStep
    ) -> None:
        """Store and emit what changes; `ranks` are those of the rows before and now, 0 for none."""
        if not rows.num_rows:
            return
        before, after = ranks
        moved = before != after
        enters, leaves = moved & (after > 0), moved & (before > 0)
        table, count = step.tables[BEST], np.bincount(ids[after > 0], minlength=ids.max() + 1)
        vacant = _ranked(rows, before, before > count[ids])
        table.delete(vacant.select([*self._keys.identity, _RANK]))
        table.put(_ranked(rows, after, enters))
        for change, ranked, some in (("-", before, leaves), ("+", after, enters)):
            if some.any():
                emitted = np.flatnonzero(some)
                emitted = emitted[sorted_by([ids[emitted], ranked[emitted]])]
                step.out.append(self._emitted(rows, ranked, emitted, change, times, step))

    def _emitted(
        self, rows: pa.Table, ranks: Index, some: Index, change: str, times: Index, step: EpochStep
    ) -> pa.Table:
        emitted = rows.take(pa.array(some))
        names = [n for n in self._output.names if n not in (RANK.name, CHANGE.name)]
        output = self._stored.rows(emitted, names)
        output = output.append_column(RANK, pa.array(ranks[some].astype(np.int32)))
        output = output.append_column(CHANGE, pa.array([change] * emitted.num_rows))
        hashes = flat(emitted.column(HASH)).to_numpy()
        arrived = step.arrived
        timed = arrived is not None and TIME in arrived.column_names
        return derived_rows(output, hashes.view(np.int64), times[some] if timed else None)


class _GrowingTop(_TopOperator):
    """No row is replaced by a worse one: what is not among the best never will be."""

    def step(self, step: EpochStep) -> None:
        arrived, table = step.arrived, step.tables[BEST]
        if arrived is None:
            return
        rows = self._with_stored(arrived, table.match(flat(arrived.column(HASH)).to_numpy()))
        ids = key_ids(rows.select(self._keys.identity))
        before, after = self._ranks(rows, ids, self._replaced(rows))
        fresh = before == 0
        latest = _latest(integers(rows.column("t"))[fresh], ids[fresh], int(ids.max()) + 1)
        self._change(rows.drop_columns([_RANK]), ids, (before, after), latest[ids], step)

    def _with_stored(self, arrived: pa.Table, stored: pa.Table) -> pa.Table:
        fresh = self._stored.of(arrived)
        ranks = pa.array(np.zeros(fresh.num_rows, np.int32))
        fresh = fresh.append_column(_RANK, ranks).select(stored.column_names)
        return pa.concat_tables([stored, fresh.cast(stored.schema)])

    def _replaced(self, rows: pa.Table) -> Mask:
        """With `each`: the rows of which there is a newer one of the same thing."""
        replaced = np.zeros(rows.num_rows, np.bool_)
        if self._spec.each:
            things = [self._stored.column(c) for c in self._spec.each]
            thing = key_groups(rows, [*self._keys.identity, *things]).codes
            fresh = (integers(rows.column(_RANK)) == 0).astype(np.int64)
            order = sorted_by([thing, fresh, *_ties(rows)])
            replaced[order[:-1]] = thing[order][1:] == thing[order][:-1]
        return replaced

    def _ranks(self, rows: pa.Table, ids: Index, replaced: Mask) -> tuple[Index, Index]:
        """The rank of each row before and now; 0 for none."""
        before = integers(rows.column(_RANK))
        by = rows.column(self._stored.column(self._spec.by))
        groups = [ids, replaced.astype(np.int64)]
        order = best_first(groups, by, self._spec.largest, _ties(rows))
        place = place_in_group(ids[order]) + 1
        after = np.zeros(len(before), np.int64)
        after[order] = np.where((place <= self._spec.rows) & ~replaced[order], place, 0)
        return before, after


class _FallingTop(_TopOperator):
    """A row may be replaced by a worse one, or end: then the best of the others comes up."""

    def __init__(self, spec: Top, place: Place) -> None:
        super().__init__(spec, place)
        each = dict.fromkeys(self._stored.column(c) for c in spec.each)
        thing = [n for n in each if n not in self._keys.schema.names]
        by = self._stored.column(spec.by)
        self._order = RankOrder(by, spec.largest, thing)
        self._rest = CandidateLevels(self._keys, self._stored.value, thing, self._order, spec.rows)

    def tables(self) -> tuple[TableSpec, ...]:
        return (*super().tables(), *self._rest.tables())

    def step(self, step: EpochStep) -> None:
        if step.arrived is None:
            return
        updates, ends = self._updates(step.arrived)
        groups = distinct_groups(updates.select(self._keys.identity))
        _, update_ids = members(groups, updates)
        stored = step.tables[BEST].match(flat(groups.column(HASH)).to_numpy())
        best, best_ids = members(groups, stored)
        ranks, best = integers(best.column(_RANK)), best.drop_columns([_RANK])
        replaced, known = self._same_things(best, updates)
        rest = self._rest.of(groups, step)
        rest.forget(updates.filter(pa.array(~known)), update_ids[~known])
        new, new_ids = updates.filter(pa.array(~ends)), update_ids[~ends]
        last = (ranks == self._spec.rows) & (rest.total[best_ids] > 0)
        level = rest.place(new, new_ids, best.filter(pa.array(last)), best_ids[last])
        rest.put(new.filter(pa.array(level > 0)), new_ids[level > 0], level[level > 0])
        new, new_ids = new.filter(pa.array(level == 0)), new_ids[level == 0]

        rows = pa.concat_tables([best, new.select(best.column_names)]).combine_chunks()
        ids = np.concatenate([best_ids, new_ids])
        before = np.concatenate([ranks, np.zeros(len(new_ids), np.int64)])
        live = np.concatenate([~replaced, np.ones(len(new_ids), np.bool_)])
        after = self._ranks(rows, ids, live)
        surplus = live & (after == 0)
        level_one = np.ones(int(surplus.sum()), np.int64)
        rest.put(rows.filter(pa.array(surplus)), ids[surplus], level_one)

        count = np.bincount(ids[after > 0], minlength=groups.num_rows)
        risen, risen_ids = rest.take_best(self._spec.rows - count)
        order = sorted_by([risen_ids])
        risen, risen_ids = risen.take(pa.array(order)), risen_ids[order]
        after = np.concatenate([after, count[risen_ids] + place_in_group(risen_ids) + 1])
        rest.settle()
        rows = pa.concat_tables([rows, risen.select(rows.column_names)])
        ids = np.concatenate([ids, risen_ids])
        before = np.concatenate([before, np.zeros(len(risen_ids), np.int64)])
        latest = _latest(integers(updates.column("t")), update_ids, groups.num_rows)
        self._change(rows, ids, (before, after), latest[ids], step)

    def _updates(self, arrived: pa.Table) -> tuple[pa.Table, Mask]:
        """The newest row about each thing, and which of them end it."""
        rows = self._stored.of(arrived)
        thing = key_groups(rows, self._rest.thing).codes
        order = sorted_by([thing, *_ties(rows)])
        newest = np.ones(len(order), np.bool_)
        newest[:-1] = thing[order][1:] != thing[order][:-1]
        ends = np.zeros(len(order), np.bool_)
        if self._spec.gone is not None:
            ends = numbers(arrived.column(self._spec.gone).fill_null(False))
        chosen = order[newest]
        return rows.take(pa.array(chosen)), ends[chosen]

    def _same_things(self, best: pa.Table, updates: pa.Table) -> tuple[Mask, Mask]:
        """Which of the best rows are replaced, and which updates replace one of them."""
        names = self._rest.thing
        both = pa.concat_tables([best.select(names), updates.select(names)])
        thing = key_groups(both, names).codes
        old, new = thing[: best.num_rows], thing[best.num_rows :]
        return np.isin(old, new), np.isin(new, old)

    def _ranks(self, rows: pa.Table, ids: Index, live: Mask) -> Index:
        """The rank of each row among those that live; 0 for none."""
        order = self._order.sort([ids, (~live).astype(np.int64)], rows)
        place = place_in_group(ids[order]) + 1
        after = np.zeros(len(ids), np.int64)
        after[order] = np.where((place <= self._spec.rows) & live[order], place, 0)
        return after


def _ranked(rows: pa.Table, ranks: Index, some: Mask) -> pa.Table:
    """Some rows, each with its rank."""
    chosen = pa.array(ranks[some].astype(np.int32))
    return rows.filter(pa.array(some)).append_column(_RANK, chosen)


def _ties(rows: pa.Table) -> list[Index]:
    return [integers(rows.column(n)) for n in TIES]


def _latest(times: Index, ids: Index, count: int) -> Index:
    """The newest event time among the new rows of each key: when it changed."""
    latest = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(latest, ids, times)
    return latest
