"""The best rows of each group: by a column, then by whatever decides between equals.

`Best` emits them once, when time has passed; `Top` emits them as a changelog. A row without a
value (null or NaN) is worse than every other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, Mask, flat, integers
from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME, MIN_TIME, pretty
from headrace.ops.agg.order import codes, sorted_by
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.keys import KeyColumns, key_groups
from headrace.ops.stream.chunk_steps import place_hashes
from headrace.ops.stream.key_groups import key_ids, place_in_group
from headrace.ops.tables import TIES, RowLayout, column_types, derived_rows
from headrace.state.table import KeyedTable, TableSpec


def best_first(groups: Sequence[Index], by: Column, largest: bool, ties: Sequence[Index]) -> Index:
    """The rows by group and, in one, the best first."""
    values = flat(by)
    missing = values.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(values.type):
        missing = missing | pc.is_nan(values).fill_null(True).to_numpy(zero_copy_only=False)
    worth = codes(values).codes
    worth = np.where(missing, 0, ~worth if largest else worth)  # ~ turns the order round
    return sorted_by([*groups, missing.astype(np.int64), worth, *ties])


def order_of(columns: Sequence[Column]) -> list[Index]:
    """Columns as numbers that sort as they do; a null is after all others."""
    keys = []
    for column in columns:
        values = flat(column)
        missing = values.is_null().to_numpy(zero_copy_only=False)
        keys += [missing.astype(np.int64), np.where(missing, 0, codes(values).codes)]
    return keys


# The n best rows of each group and period, emitted once, when the watermark has passed it.
#
# Two uses: the best results of each window, where the period is the window itself; and a sample
# of n rows of each period, where the best are those with the smallest hash of their place: so
# the sample is uniform, and the same however the rows are cut into batches. Rows wait in a
# timed table, at most n of a group and batch; where a result may come again, all of them, and
# the newer replaces the older.


WAITING = "waiting"
_WORTH, _TURN = "worth", "turn"


@dataclass(frozen=True)
class Best(Spec):
    rows: int
    by: str | None  # None: by the hash of a row's place, which is a sample
    largest: bool = True
    period: int | None = None  # None: rows of one event time belong together
    each: tuple[str, ...] = ()  # what distinguishes the results of a window
    again: bool = False  # a result may come again
    seed: int = 0
    types: tuple[tuple[str, str], ...] = ()

    needs_time = True
    has_late = True

    @property
    def kind(self) -> str:
        return "sample" if self.by is None else "top"

    def __str__(self) -> str:
        if self.by is None:
            return f"{self.rows} of each {pretty(self.period or 0)}"
        return f"the {self.rows} {'largest' if self.largest else 'smallest'} by {self.by}"

    def shape(self) -> dict[str, Any]:
        shape: dict[str, Any] = {
            "rows": self.rows,
            "by": self.by,
            "largest": self.largest,
            "period": self.period,
        }
        shape |= {"each": [*self.each], "again": self.again, "seed": self.seed}
        return {**shape, "columns": [list(pair) for pair in self.types]}

    @property
    def compares(self) -> tuple[str, ...]:
        return () if self.by is None else (self.by, *self.each)

    def operator(self, place: Place) -> Operator:
        return _BestOperator(self, KeyColumns(place.key, place.input), place.input, place.output)


class _BestOperator(Operator):
    def __init__(self, spec: Best, keys: KeyColumns, input: pa.Schema, output: pa.Schema) -> None:
        self._spec, self._keys, self._output = spec, keys, output
        self._stored = RowLayout(keys, input)
        self._each = [self._stored.column(c) for c in spec.each]

    def tables(self) -> tuple[TableSpec, ...]:
        """The identity ends with what distinguishes rows of a group."""
        distinct = [self._stored.value.field(c) for c in self._each]
        turn = [] if self._spec.again else [pa.field(_TURN, pa.int64())]
        value = [f for f in self._stored.value if not (self._spec.again and f.name in self._each)]
        identity = [*self._keys.schema, *(distinct if self._spec.again else turn)]
        worth = pa.field(_WORTH, pa.uint64())
        return (TableSpec(WAITING, pa.schema(identity), pa.schema([*value, worth]), timed=True),)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        return None if watermark == MIN_TIME else self._marks(rows) <= watermark

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """Of rows that cannot be replaced, only the best travel."""
        rows = self._keys.hashed(rows)
        if self._spec.by is None:
            rows = rows.append_column(_WORTH, pa.array(place_hashes(rows, self._spec.seed)))
        if self._spec.again:
            return rows
        return self._cut(rows, self._marks(rows), self._keys.of(rows), self._by(rows))

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        if self._spec.again:
            return prepared
        keys = self._keys.of(prepared)
        return self._cut(prepared, self._marks(prepared), keys, self._by(prepared))

    def step(self, step: EpochStep) -> None:
        arrived, table = step.arrived, step.tables[WAITING]
        if arrived is not None:
            table.put(self._waiting(arrived, step.epoch))
        if step.after > step.before:
            due = table.scan(MIN_TIME, _past(step.after))
            table.expire(_past(step.after))
            if due.num_rows:
                step.out.append(self._emitted(due))
        first = table.first_time()
        step.next = MAX_TIME if first is None else first

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows that wait."""
        return self._stored.whole(tables[WAITING].scan(since, until))

    def _marks(self, rows: pa.Table) -> Index:
        """The watermark at which a row's group is emitted."""
        times, period = integers(rows.column(TIME)), self._spec.period
        return times + 1 if period is None else times - times % period + period

    def _by(self, rows: pa.Table) -> Any:
        return rows.column(_WORTH if self._spec.by is None else self._spec.by)

    def _waiting(self, rows: pa.Table, epoch: int) -> pa.Table:
        waiting = self._stored.of(rows).append_column(TIME, pa.array(self._marks(rows)))
        if not self._spec.again:
            turn = (epoch << 32) + np.arange(rows.num_rows)
            waiting = waiting.append_column(_TURN, pa.array(turn))
        if self._spec.by is None:
            return waiting.append_column(_WORTH, rows.column(_WORTH))
        return waiting.append_column(_WORTH, pa.nulls(rows.num_rows, pa.uint64()))

    def _cut(self, rows: pa.Table, marks: Index, keys: pa.Table, by: Any) -> pa.Table:
        """The best of each group, in no order."""
        places = [rows.column(n) for n in (SOURCE, OFFSET) if n in rows.column_names]
        ties = [*(rows.column(c) for c in self._spec.each), *places]
        order, place = self._ranked(marks, keys, by, order_of(ties))
        return rows.take(pa.array(order[place < self._spec.rows]))

    def _ranked(
        self, marks: Index, keys: pa.Table, by: Any, ties: Sequence[Index]
    ) -> tuple[Index, Index]:
        """The rows by group, the best first, and each one's place in its group."""
        ids = key_ids(keys)
        largest = self._spec.largest and self._spec.by is not None
        order = best_first([marks, ids], by, largest, ties)
        new = np.zeros(len(order), np.int64)
        for column in (marks[order], ids[order]):
            new[1:] |= column[1:] != column[:-1]
        return order, place_in_group(np.cumsum(new))

    def _emitted(self, due: pa.Table) -> pa.Table:
        marks, keys = integers(due.column(TIME)), due.select(self._keys.identity)
        by = due.column(_WORTH if self._spec.by is None else self._stored.column(self._spec.by))
        ties = order_of([due.column(n) for n in (*self._each, *TIES)])
        order, place = self._ranked(marks, keys, by, ties)
        best = place < self._spec.rows
        emitted, marks = due.take(pa.array(order[best])), marks[order[best]]
        names = [n for n in self._output.names if self._spec.by is None or n != RANK.name]
        output = self._stored.rows(emitted, names)
        if self._spec.by is not None:
            output = output.append_column(RANK, pa.array((place[best] + 1).astype(np.int32)))
        output = output.append_column(TIME, pa.array(marks - 1))
        output = output.append_column(SOURCE, emitted.column("s").cast(pa.int32()))
        return output.append_column(OFFSET, emitted.column("o"))


def _past(watermark: int) -> int:
    """The first mark that is not emitted yet."""
    return min(watermark + 1, MAX_TIME)


# The n best rows of each key, as a changelog: "-" for a row that leaves, "+" for one that enters.
#
# After each batch the rows that are among the n best of their key and were not, or have another
# rank now, are emitted; before them those whose rank they took. The state is the n best rows of
# each key. With `each`, a newer row of the same thing replaces its older one.


BEST = "best"
RANK, CHANGE = pa.field("rank", pa.int32()), pa.field("change", pa.string())
_RANK = "rank"


@dataclass(frozen=True)
class Top(Spec):
    rows: int
    by: str
    largest: bool
    each: tuple[str, ...]
    types: tuple[tuple[str, str], ...]  # of the stored rows

    kind = "top"
    endless = True

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
        return {**shape, "columns": [list(pair) for pair in self.types]}

    @property
    def compares(self) -> tuple[str, ...]:
        return (self.by, *self.each)

    @staticmethod
    def of(rows: int, by: str, largest: bool, each: Sequence[str], input: pa.Schema) -> Top:
        return Top(rows, by, largest, tuple(each), column_types(input))

    def operator(self, place: Place) -> Operator:
        return _TopOperator(self, KeyColumns(place.key, place.input), place.input, place.output)


class _TopOperator(Operator):
    def __init__(self, spec: Top, keys: KeyColumns, input: pa.Schema, output: pa.Schema) -> None:
        self._spec, self._keys, self._output = spec, keys, output
        self._stored = RowLayout(keys, input)

    def tables(self) -> tuple[TableSpec, ...]:
        place = pa.schema([*self._keys.schema, (_RANK, pa.int32())])
        return (TableSpec(BEST, place, self._stored.value),)

    def step(self, step: EpochStep) -> None:
        arrived, table = step.arrived, step.tables[BEST]
        if arrived is None:
            return
        rows = self._with_stored(arrived, table.match(flat(arrived.column(HASH)).to_numpy()))
        ids = key_ids(rows.select(self._keys.identity))
        before, after = self._ranks(rows, ids, self._replaced(rows))
        moved = before != after
        enters = moved & (after > 0)
        entering = rows.filter(pa.array(enters)).drop_columns([_RANK])
        entering = entering.append_column(_RANK, pa.array(after[enters].astype(np.int32)))
        table.put(entering)
        times = _latest(rows, ids, before)
        for change, ranks, some in (("-", before, moved & (before > 0)), ("+", after, enters)):
            if some.any():
                emitted = np.flatnonzero(some)
                emitted = emitted[sorted_by([ids[emitted], ranks[emitted]])]
                step.out.append(self._emitted(rows, ranks, emitted, change, times, arrived))

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The best rows of each key, and the rank of each."""
        stored = tables[BEST].scan()
        return self._stored.whole(stored).append_column(RANK, stored.column(_RANK))

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

    def _emitted(
        self,
        rows: pa.Table,
        ranks: Index,
        some: Index,
        change: str,
        times: Index,
        arrived: pa.Table,
    ) -> pa.Table:
        emitted = rows.take(pa.array(some))
        names = [n for n in self._output.names if n not in (RANK.name, CHANGE.name)]
        output = self._stored.rows(emitted, names)
        output = output.append_column(RANK, pa.array(ranks[some].astype(np.int32)))
        output = output.append_column(CHANGE, pa.array([change] * emitted.num_rows))
        hashes = flat(emitted.column(HASH)).to_numpy()
        when = times[some] if TIME in arrived.column_names else None
        return derived_rows(output, hashes.view(np.int64), when)


def _ties(rows: pa.Table) -> list[Index]:
    return [integers(rows.column(n)) for n in TIES]


def _latest(rows: pa.Table, ids: Index, before: Index) -> Index:
    """For each row the newest event time among the new rows of its key: when it changed."""
    latest = np.full(int(ids.max()) + 1, np.iinfo(np.int64).min)
    fresh = before == 0
    np.maximum.at(latest, ids[fresh], integers(rows.column("t"))[fresh])
    return latest[ids]
