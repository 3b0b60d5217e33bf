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
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.join.interval import LEAST, passed
from headrace.ops.join.pairs import SortedRows, matches, shared_key_ids
from headrace.ops.join.row_stores import RowStore
from headrace.ops.join.sides import AT, PLACE, Columns, JoinOutput, JoinSide, SideRows, stored_view
from headrace.ops.window.assigners import expanded
from headrace.state.table import KeyedTable, TableSpec

MANY_HOWS = ("inner", "left", "full")


@dataclass(frozen=True)
class ManyJoin(Spec):
    """No two rows of a result are more than `within` ms apart."""

    how: str
    names: tuple[str, ...]
    within: int
    lateness: int
    columns: Columns
    rows: tuple[str, ...] = ()

    kind = "join"
    needs_time = True
    has_late = True

    def __str__(self) -> str:
        late = f", lateness {pretty(self.lateness)}" if self.lateness else ""
        return f"{self.how} of {', '.join(self.names)} within {pretty(self.within)}{late}"

    def shape(self) -> dict[str, Any]:
        shape = {"how": self.how, "names": list(self.names), "within": self.within}
        return shape | {"rows": list(self.rows)}

    @property
    def lengths(self) -> dict[str, int]:
        return {"lateness": self.lateness}

    @property
    def input_names(self) -> tuple[str, ...]:
        return self.names

    def operator(self, place: Place) -> ManyJoinOperator:
        return ManyJoinOperator(self, place.keys, place.inputs, place.output)


@dataclass(frozen=True, slots=True)
class _EpochInput:
    """The rows of one input in this epoch, old ones first."""

    rows: pa.Table
    number: Index
    at: Index
    old: int

    def only_old(self) -> _EpochInput:
        return _EpochInput(self.rows, self.number[: self.old], self.at[: self.old], self.old)


class ManyJoinOperator(Operator):
    def __init__(
        self,
        spec: ManyJoin,
        keys: Sequence[Sequence[str]],
        inputs: Sequence[pa.Schema],
        output: pa.Schema,
    ) -> None:
        self._spec, self._output = spec, JoinOutput(spec.columns, output)
        self._bucket = max(spec.within // 2, LEAST)
        self._sides = [JoinSide(k, s) for k, s in zip(keys, inputs, strict=True)]
        named = zip(spec.names, self._sides, strict=True)
        self._stores = [RowStore(name, side, self._bucket) for name, side in named]
        self._partial: PartialCombinations | None = None
        if spec.how != "inner":
            self._partial = PartialCombinations(
                spec.how,
                spec.within,
                spec.lateness,
                spec.names,
                self._sides,
                self._stores,
                self._output,
            )

    def tables(self) -> tuple[TableSpec, ...]:
        more = () if self._partial is None else self._partial.tables
        return *(stored.spec for stored in self._stores), *more

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The stored rows of each input, also those without a key that wait."""
        parts = []
        named = zip(self._spec.names, self._sides, self._stores, strict=True)
        for port, (name, side, stored) in enumerate(named):
            rows = stored.rows(tables)
            if self._partial is not None:
                rows = pa.concat_tables([rows, self._partial.keyless(port, tables)])
            parts.append(SideRows(name, side, rows))
        return stored_view(parts, since, until)

    def late(self, port: int, rows: pa.Table, watermark: int) -> Mask | None:
        floor = passed(watermark, self._spec.lateness)
        return None if floor == MIN_TIME else numbers(rows[TIME]) < floor

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        if self._partial is not None and self._partial.alone(port):
            return rows
        return self._sides[port].without_nulls(rows)

    def step(self, step: EpochStep) -> None:
        arrived = [
            s.arrived(rows, step.epoch, self._bucket)
            for s, rows in zip(self._sides, step.inputs, strict=True)
        ]
        floor = passed(step.after, self._spec.lateness)
        if self._partial is not None:
            arrived = self._partial.add(arrived, step)
        if any(rows.num_rows for rows in arrived):
            inputs = self._gather(arrived, step)
            for stored, rows in zip(self._stores, arrived, strict=True):
                stored.add(rows, step)
            for port in range(len(inputs)):
                self._combine(inputs, port, step)
        stays = self._spec.within
        if self._partial is not None:
            self._partial.emit_due(floor, step)
            stays *= 2  # a row may belong to what begins up to `within` after it
        for stored in self._stores:
            stored.expire(floor - stays if MIN_TIME < floor < MAX_TIME else floor, step)

    def _gather(self, arrived: list[pa.Table], step: EpochStep) -> list[_EpochInput]:
        within, identity = self._spec.within, self._sides[0].identity
        old = []
        for port, stored in enumerate(self._stores):
            others = [r.select([*identity, AT]) for i, r in enumerate(arrived) if i != port]
            old.append(stored.near(pa.concat_tables(others), -within, within, step))
        rows = [pa.concat_tables(pair).combine_chunks() for pair in zip(old, arrived, strict=True)]
        number = shared_key_ids(rows, identity)
        return [
            _EpochInput(r, n, numbers(r[AT]), o.num_rows)
            for r, n, o in zip(rows, number, old, strict=True)
        ]

    def _combine(self, inputs: list[_EpochInput], first: int, step: EpochStep) -> None:
        """Give the combinations whose first input with a new row is this one."""
        begin, within = inputs[first], self._spec.within
        chosen = {first: np.arange(begin.old, len(begin.at))}
        low = high = begin.at[begin.old :]
        number = begin.number[begin.old :]
        for port, one in enumerate(inputs):
            if port == first:
                continue
            other = one.only_old() if port < first else one
            row, at = matches(number, high - within, low + within, other.number, other.at).pairs()
            chosen = {p: rows[row] for p, rows in chosen.items()} | {port: at}
            number, times = number[row], other.at[at]
            low, high = np.minimum(low[row], times), np.maximum(high[row], times)
        if len(number):
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
    number: Index  # of its key
    at: Times


class _Candidates(NamedTuple):
    """For each earliest row, which rows of one input go with it: a stretch of `order`.

    The last of `order` is no row, -1, whose time is before all others.
    """

    first: Index
    many: Index
    order: Index
    at: Times
    absent: Mask
    before: Times  # the time of an absent input's last row before, if that is near enough


class PartialCombinations:
    def __init__(
        self,
        how: str,
        within: int,
        lateness: int,
        names: Sequence[str],
        sides: Sequence[JoinSide],
        stores: Sequence[RowStore],
        layout: JoinOutput,
    ) -> None:
        self._how, self._within, self._lateness = how, within, lateness
        self._sides, self._stores, self._output = sides, stores, layout
        self.tables = tuple(
            TableSpec(
                f"{name} waiting", side.key, pa.schema([*side.value, *PLACE]), timed=True, once=True
            )
            for name, side in zip(names, sides, strict=True)
        )

    def alone(self, port: int) -> bool:
        """Whether a row of this input can come out alone."""
        return self._how == "full" or port == 0

    def keyless(self, port: int, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """The rows that wait with a null in their key: these are stored nowhere else."""
        side = self._sides[port]
        return side.solid(tables[self.tables[port].name].scan().select(side.held.names))[1]

    def add(self, arrived: Sequence[pa.Table], step: EpochStep) -> list[pa.Table]:
        """Let rows wait until they are due; those that have a key and so may match others."""
        for rows, spec in zip(arrived, self.tables, strict=True):
            due = pa.array(numbers(rows[AT]) + self._within)
            step.tables[spec.name].put(rows.append_column(TIME, due))
        return [s.solid(rows)[0] for s, rows in zip(self._sides, arrived, strict=True)]

    def emit_due(self, floor: int, step: EpochStep) -> None:
        """All combinations that lack a stream and are due before `floor`."""
        due, soonest = [], MAX_TIME
        for side, spec in zip(self._sides, self.tables, strict=True):
            table = step.tables[spec.name]
            due.append(table.scan(MIN_TIME, floor).select(side.held.names))
            table.expire(floor)
            first = table.first_time()
            soonest = soonest if first is None else min(soonest, first)
        if any(rows.num_rows for rows in due):
            self._combine(due, step)
        if soonest < MAX_TIME:
            step.next = soonest + self._lateness + 1

    def _combine(self, due: list[pa.Table], step: EpochStep) -> None:
        identity, within = self._sides[0].identity, self._within
        places = [rows.select([*identity, AT]) for rows in due]
        rows, counts = [], [p.num_rows for p in places]
        for port, stored in enumerate(self._stores):
            others = pa.concat_tables([p for i, p in enumerate(places) if i != port])
            rows.append(stored.near(others, -within, within, step))
        known = shared_key_ids([*places, *rows], identity)
        begin = _EarliestRows(
            np.repeat(np.arange(len(due)), counts),
            np.concatenate([np.arange(n) for n in counts]),
            np.concatenate(known[: len(due)]),
            np.concatenate([numbers(p[AT]) for p in places]),
        )
        choices = [
            self._choice(
                begin, port, numbers(due[port][AT]), known[len(due) + port], numbers(rows[port][AT])
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
        self, begin: _EarliestRows, port: int, due: Times, number: Index, at: Times
    ) -> _Candidates:
        """Among the rows of one input: those that are due themselves, and then the others."""
        there, low, own = SortedRows(number, at), begin.at, begin.port == port
        since = there.before(begin.number, low)
        end = there.before(begin.number, low + self._within + 1)
        absent: Mask = (since == end) & ~own
        near = absent & (there.before(begin.number, low - self._within) < since)
        before = np.full(len(low), MIN_TIME)
        before[near] = at[there.order[since[near] - 1]]
        # Of rows of one moment that of the first input is the earliest: so each combination is
        # found from one row.
        first = np.where(begin.port > port, there.before(begin.number, low + 1), since)
        many = np.where(absent | own, 1, end - first)
        first[own], first[absent] = len(at) + begin.row[own], len(at) + len(due)
        order = np.concatenate([there.order + len(due), np.arange(len(due)), [-1]])
        return _Candidates(
            first, many, order, np.concatenate([due, at, [MIN_TIME]]), absent, before
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
            again, place = expanded(choice.first[which], choice.many[which])
            which, at = which[again], [rows[again] for rows in at]
            at.append(choice.order[place])
            high = np.maximum(high[again], choice.at[at[-1]])
        before = np.maximum.reduce([c.before for c in choices])
        full = high > before[which] + self._within
        return which[full], [rows[full] for rows in at]
