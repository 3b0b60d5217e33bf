"""Joins of many streams: rows with the same key, one of each stream, all near each other.

A combination is emitted when its last row arrives, with the latest of its times. It is found
from the first input that has a new row in it, so it is found once. Left and full joins also
emit combinations that lack a stream: see the second half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, Times, numbers
from headrace.chunk import TIME
from headrace.clock import MAX_TIME, MIN_TIME, pretty
from headrace.ops.contract import EpochStep, Operator, Place
from headrace.ops.join.interval import LEAST
from headrace.ops.join.pairs import SortedRows, matches, shared_key_ids
from headrace.ops.join.row_stores import RowStore
from headrace.ops.join.sides import (
    AT,
    Columns,
    EventTimeJoin,
    JoinOutput,
    JoinSide,
    SideRows,
    arrived_rows,
    first_time,
    join_sides,
    late_floor,
    late_rows,
    lateness_text,
    stored_view,
    watermark_after,
)
from headrace.ops.window.assigners import expanded
from headrace.state.table import KeyedTable, TableSpec

MANY_HOWS = ("inner", "left", "full")


@dataclass(frozen=True)
class ManyJoin(EventTimeJoin):
    """No two rows of a result are more than `within` ms apart."""

    how: str
    names: tuple[str, ...]
    within: int
    lateness: int
    columns: Columns
    rows: tuple[str, ...] = ()

    kind = "join"

    def __str__(self) -> str:
        streams = f"{self.how} of {', '.join(self.names)}"
        return f"{streams} within {pretty(self.within)}{lateness_text(self.lateness)}"

    def shape(self) -> dict[str, Any]:
        shape = {"how": self.how, "names": list(self.names), "within": self.within}
        return shape | {"rows": list(self.rows)}

    @property
    def input_names(self) -> tuple[str, ...]:
        return self.names

    def operator(self, place: Place) -> ManyJoinOperator:
        return ManyJoinOperator(self, place)


@dataclass(frozen=True, slots=True)
class _EpochInput:
    """The rows of one input in this epoch, old ones first."""

    rows: pa.Table
    ids: Index
    at: Index
    old: int

    def only_old(self) -> _EpochInput:
        return _EpochInput(self.rows, self.ids[: self.old], self.at[: self.old], self.old)


class ManyJoinOperator(Operator):
    def __init__(self, spec: ManyJoin, place: Place) -> None:
        self._spec, self._output = spec, JoinOutput(spec.columns, place.output)
        self._bucket = max(spec.within // 2, LEAST)
        self._sides = join_sides(place)
        named = zip(spec.names, self._sides, strict=True)
        self._stores = [RowStore(name, side, self._bucket) for name, side in named]
        self._partial: PartialCombinations | None = None
        if spec.how != "inner":
            self._partial = PartialCombinations(spec, self._sides, self._stores, self._output)

    def tables(self) -> tuple[TableSpec, ...]:
        partial = () if self._partial is None else self._partial.tables
        return *(store.spec for store in self._stores), *partial

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The stored rows of each input, also those without a key that wait."""
        parts = []
        named = zip(self._spec.names, self._sides, self._stores, strict=True)
        for port, (name, side, store) in enumerate(named):
            rows = store.rows(tables)
            if self._partial is not None:
                rows = pa.concat_tables([rows, self._partial.keyless(port, tables)])
            parts.append(SideRows(name, side, rows))
        return stored_view(parts, since, until)

    def late(self, port: int, rows: pa.Table, watermark: int) -> Mask | None:
        return late_rows(rows, watermark, self._spec.lateness)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        if self._partial is not None and self._partial.may_be_alone(port):
            return rows
        return self._sides[port].without_nulls(rows)

    def step(self, step: EpochStep) -> None:
        arrived = arrived_rows(self._sides, step, self._bucket)
        floor = late_floor(step.after, self._spec.lateness)
        if self._partial is not None:
            arrived = self._partial.add(arrived, step)
        if any(rows.num_rows for rows in arrived):
            inputs = self._gather(arrived, step)
            for store, rows in zip(self._stores, arrived, strict=True):
                store.add(rows, step)
            for port in range(len(inputs)):
                self._combine(inputs, port, step)
        reach = self._spec.within
        if self._partial is not None:
            self._partial.emit_due(floor, step)
            reach *= 2  # a row may belong to what begins up to `within` after it
        for store in self._stores:
            store.expire(floor, reach, step)

    def _gather(self, arrived: list[pa.Table], step: EpochStep) -> list[_EpochInput]:
        within, identity = self._spec.within, self._sides[0].identity
        old = []
        for port, store in enumerate(self._stores):
            others = [r.select([*identity, AT]) for i, r in enumerate(arrived) if i != port]
            old.append(store.near(pa.concat_tables(others), -within, within, step))
        rows = [pa.concat_tables(pair).combine_chunks() for pair in zip(old, arrived, strict=True)]
        ids = shared_key_ids(rows, identity)
        return [
            _EpochInput(r, n, numbers(r[AT]), o.num_rows)
            for r, n, o in zip(rows, ids, old, strict=True)
        ]

    def _combine(self, inputs: list[_EpochInput], first: int, step: EpochStep) -> None:
        """Emit the combinations whose first input with a new row is this one."""
        begin, within = inputs[first], self._spec.within
        chosen = {first: np.arange(begin.old, len(begin.at))}
        low = high = begin.at[begin.old :]
        ids = begin.ids[begin.old :]
        for port, one in enumerate(inputs):
            if port == first:
                continue
            other = one.only_old() if port < first else one
            row, at = matches(ids, high - within, low + within, other.ids, other.at).pairs()
            chosen = {p: rows[row] for p, rows in chosen.items()} | {port: at}
            ids, times = ids[row], other.at[at]
            low, high = np.minimum(low[row], times), np.maximum(high[row], times)
        if len(ids):
            at_each = [chosen[port] for port in range(len(inputs))]
            parts = [one.rows for one in inputs]
            step.out.append(self._output.pairs(parts, at_each, high + self._spec.lateness))


# Combinations of a join of many streams that lack some of them, in left and full joins.
#
# A combination that lacks a stream is a result if no row could be added to it. It is decided when
# the watermark has passed its earliest row by `within`. Its rows all lie in that stretch, and any
# two rows there are near each other. So a stream that has rows there is in it, by any one of
# them; and a stream that has none is lacking, unless its last row before the stretch is near
# enough to the latest row. Each row is considered once as the earliest, when it is due, with rows
# of other streams only: an epoch pays for what is due in it, and for what may match that.
# Times here are event times without lateness.


class _EarliestRows(NamedTuple):
    """The rows that are due, of all inputs one after the other, as the earliest of combinations."""

    port: Index
    row: Index  # its number among those of its input
    ids: Index  # of its key
    at: Times


class _Candidates(NamedTuple):
    """For each earliest row, which rows of one input go with it: a stretch of `order`.

    The last of `order` is no row, -1, whose time is before all others.
    """

    first: Index
    counts: Index
    order: Index
    at: Times
    absent: Mask
    before: Times  # the time of an absent input's last row before, if that is near enough


class PartialCombinations:
    def __init__(
        self,
        spec: ManyJoin,
        sides: Sequence[JoinSide],
        stores: Sequence[RowStore],
        output: JoinOutput,
    ) -> None:
        self._how, self._within, self._lateness = spec.how, spec.within, spec.lateness
        self._sides, self._stores, self._output = sides, stores, output
        named = zip(spec.names, sides, strict=True)
        self.tables = tuple(side.row_table(f"{name} waiting") for name, side in named)

    def may_be_alone(self, port: int) -> bool:
        """Whether a row of this input may be a result by itself."""
        return self._how == "full" or port == 0

    def keyless(self, port: int, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """The rows that wait with a null in their key: these are stored nowhere else."""
        side, table = self._sides[port], tables[self.tables[port].name]
        return side.split_nulls(table.scan().select(side.stored.names))[1]

    def add(self, arrived: Sequence[pa.Table], step: EpochStep) -> list[pa.Table]:
        """Let rows wait until they are due; those that have a key and so may match others."""
        for rows, spec in zip(arrived, self.tables, strict=True):
            due = pa.array(numbers(rows[AT]) + self._within)
            step.tables[spec.name].put(rows.append_column(TIME, due))
        return [s.split_nulls(rows)[0] for s, rows in zip(self._sides, arrived, strict=True)]

    def emit_due(self, floor: int, step: EpochStep) -> None:
        """All combinations that lack a stream and are due before `floor`."""
        due, first = [], MAX_TIME
        for side, spec in zip(self._sides, self.tables, strict=True):
            table = step.tables[spec.name]
            due.append(table.scan(MIN_TIME, floor).select(side.stored.names))
            table.expire(floor)
            first = min(first, first_time(table))
        if any(rows.num_rows for rows in due):
            self._combine(due, step)
        step.next = watermark_after(first, self._lateness)

    def _combine(self, due: list[pa.Table], step: EpochStep) -> None:
        identity, within = self._sides[0].identity, self._within
        places = [rows.select([*identity, AT]) for rows in due]
        rows, counts = [], [p.num_rows for p in places]
        for port, store in enumerate(self._stores):
            others = pa.concat_tables([p for i, p in enumerate(places) if i != port])
            rows.append(store.near(others, -within, within, step))
        ids = shared_key_ids([*places, *rows], identity)
        begin = _EarliestRows(
            np.repeat(np.arange(len(due)), counts),
            np.concatenate([np.arange(n) for n in counts]),
            np.concatenate(ids[: len(due)]),
            np.concatenate([numbers(p[AT]) for p in places]),
        )
        choices = [
            self._choice(
                begin, port, numbers(due[port][AT]), ids[len(due) + port], numbers(rows[port][AT])
            )
            for port in range(len(due))
        ]
        which, at = self._chosen(begin, choices)
        if len(which):
            parts = [pa.concat_tables(both) for both in zip(due, rows, strict=True)]
            keys = pa.concat_tables(places).take(pa.array(which))
            times = begin.at[which] + within + self._lateness
            step.out.append(self._output.pairs(parts, at, times, keys))

    def _choice(
        self, begin: _EarliestRows, port: int, due: Times, ids: Index, at: Times
    ) -> _Candidates:
        """Among the rows of one input: those that are due themselves, and then the others."""
        rows, low, own = SortedRows(ids, at), begin.at, begin.port == port
        since = rows.before(begin.ids, low)
        end = rows.before(begin.ids, low + self._within + 1)
        absent: Mask = (since == end) & ~own
        near = absent & (rows.before(begin.ids, low - self._within) < since)
        before = np.full(len(low), MIN_TIME)
        before[near] = at[rows.order[since[near] - 1]]
        # Of rows of one moment that of the first input is the earliest: so each combination is
        # found from one row.
        first = np.where(begin.port > port, rows.before(begin.ids, low + 1), since)
        counts = np.where(absent | own, 1, end - first)
        first[own], first[absent] = len(at) + begin.row[own], len(at) + len(due)
        order = np.concatenate([rows.order + len(due), np.arange(len(due)), [-1]])
        return _Candidates(
            first, counts, order, np.concatenate([due, at, [MIN_TIME]]), absent, before
        )

    def _chosen(
        self, begin: _EarliestRows, choices: list[_Candidates]
    ) -> tuple[Index, list[Index]]:
        """Every combination: its earliest row, and its row of each input."""
        lacking = np.logical_or.reduce([c.absent for c in choices])
        if self._how == "left":
            lacking &= ~choices[0].absent
        which = np.flatnonzero(lacking)
        high, at = begin.at[which], list[Index]()
        for choice in choices:
            again, place = expanded(choice.first[which], choice.counts[which])
            which, at = which[again], [rows[again] for rows in at]
            at.append(choice.order[place])
            high = np.maximum(high[again], choice.at[at[-1]])
        before = np.maximum.reduce([c.before for c in choices])
        full = high > before[which] + self._within
        return which[full], [rows[full] for rows in at]
