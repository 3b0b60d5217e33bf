"""Combinations of a join of many streams that lack some of them, in left and full joins.

A combination that lacks a stream is a result if no row could be added to it. It is decided when
the watermark has passed its earliest row by `within`. Its rows all lie in that stretch, and any
two rows there are near each other. So a stream that has rows there is in it, by any one of
them; and a stream that has none is lacking, unless its last row before the stretch is near
enough to the latest row. Each moment of a key at which a row came is looked at once, when it is
due, so an epoch pays for what is due in it. Times here are event times without lateness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.chunk import TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.groups import Index, Mask
from headrace.ops.contract import Step
from headrace.ops.join.alone import Unmet
from headrace.ops.join.columns import numbers
from headrace.ops.join.kept import Kept
from headrace.ops.join.layout import Layout
from headrace.ops.join.pairs import Sorted, meeting, shared_numbers
from headrace.ops.join.side import AT, Side
from headrace.ops.window.aligned import Times
from headrace.ops.window.assigners import expanded
from headrace.state.table import KeyedTable, TableSpec

DUE = "moments due"


class _Earliest(NamedTuple):
    """Rows as the earliest of combinations: each one's moment, its input and its number there."""

    due: Index
    port: Index
    row: Index


@dataclass(frozen=True, slots=True)
class _Choice:
    """For each earliest row, which rows of one input go with it: a stretch of `order`.

    Behind the last row of `order` is nobody, -1, whose time is before all others.
    """

    first: Index
    many: Index
    order: Index
    at: Times
    absent: Mask
    before: Times  # the time of an absent input's last row before, if that is near enough


class Partial:
    def __init__(
        self, how: str, within: int, lateness: int, names: Sequence[str], sides: Sequence[Side],
        kept: Sequence[Kept], layout: Layout,
    ) -> None:  # fmt: skip
        self._within, self._lateness, self._layout = within, lateness, layout
        self._sides, self._kept, self._first_is_there = sides, kept, how == "left"
        self._due = TableSpec(DUE, sides[0].key, pa.schema([]), timed=True)
        named = zip(names, sides, strict=True)
        # Rows with a null in their key meet nobody: they only wait until they are due.
        self.keyless = [
            Unmet(f"{name} without key", side, within) if how == "full" or not port else None
            for port, (name, side) in enumerate(named)
        ]

    def tables(self) -> tuple[TableSpec, ...]:
        return self._due, *(unmet.spec for unmet in self.keyless if unmet is not None)

    def view(self, port: int, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """The rows of one input that wait without a key."""
        unmet = self.keyless[port]
        return self._sides[port].held.empty_table() if unmet is None else unmet.keyless(tables)

    def add(self, arrived: Sequence[pa.Table], floor: int, step: Step) -> list[pa.Table]:
        """Note when rows are due; gives those that have a key and so may meet others."""
        found = []
        for side, rows, unmet in zip(self._sides, arrived, self.keyless, strict=True):
            solid, never = side.solid(rows)
            if unmet is not None:
                unmet.add(never, floor, step)
            due = pa.array(numbers(solid[AT]) + self._within)
            step.tables[DUE].put(solid.select(side.identity).append_column(TIME, due))
            found.append(solid)
        return found

    def give(self, floor: int, step: Step) -> None:
        """All combinations that lack a stream and whose time has come before `floor`."""
        for port, unmet in enumerate(self.keyless):
            if unmet is not None:
                rows, at = unmet.take(floor, step)
                parts = [rows if p == port else None for p in range(len(self._sides))]
                if len(at):
                    step.out.append(self._layout.rows(parts, at + self._lateness))
        due = step.tables[DUE].scan(MIN_TIME, floor)
        step.tables[DUE].expire(floor)
        if due.num_rows:
            at = numbers(due[TIME]) - self._within
            self._combine(due.append_column(AT, pa.array(at)), at, step)
        first = step.tables[DUE].first_time()
        waiting = [unmet.next(step) for unmet in self.keyless if unmet is not None]
        if (soonest := min(MAX_TIME if first is None else first, *waiting)) < MAX_TIME:
            step.next = soonest + self._lateness + 1

    def _combine(self, due: pa.Table, low: Times, step: Step) -> None:
        rows = [kept.near(due, -self._within, self._within, step) for kept in self._kept]
        number, *theirs = shared_numbers([due, *rows], self._sides[0].identity)
        inputs = [(n, numbers(r[AT])) for n, r in zip(theirs, rows, strict=True)]
        begin = _earliest(number, low, inputs)
        choices = [self._choice(begin, port, number[begin.due], low[begin.due], *one)
                   for port, one in enumerate(inputs)]  # fmt: skip
        lacking = np.logical_or.reduce([c.absent for c in choices])
        which = np.flatnonzero(lacking & ~choices[0].absent if self._first_is_there else lacking)
        later = np.maximum.reduce([c.before for c in choices])[which] + self._within
        at: list[Index] = []
        high = low[begin.due[which]]
        for choice in choices:
            again, place = expanded(choice.first[which], choice.many[which])
            which, later, at = which[again], later[again], [a[again] for a in at]
            at.append(choice.order[place])
            high = np.maximum(high[again], choice.at[at[-1]])
        whole = high > later
        moment = begin.due[which[whole]]
        if len(moment):
            times = low[moment] + self._within + self._lateness
            keys = due.take(pa.array(moment))
            step.out.append(self._layout.pairs(rows, [a[whole] for a in at], times, keys))

    def _choice(
        self, begin: _Earliest, port: int, number: Index, low: Times, theirs: Index, at: Times
    ) -> _Choice:
        there, within = Sorted(theirs, at), self._within
        since, end = there.before(number, low), there.before(number, low + within + 1)
        absent: Mask = since == end
        # Of two rows of one moment the earliest is that of the first input: so each
        # combination is found from one row.
        first = np.where(begin.port > port, there.before(number, low + 1), since)
        many = np.where(absent, 1, end - first)
        first = np.where(absent, len(at), first)
        own = begin.port == port
        first[own], many[own] = np.argsort(there.order)[begin.row[own]], 1
        before = np.full(len(low), MIN_TIME)
        near = absent & (there.before(number, low - within) < since)
        before[near] = at[there.order[since[near] - 1]]
        nobody = np.append(there.order, -1), np.append(at, MIN_TIME)
        return _Choice(first, many, *nobody, absent, before)


def _earliest(number: Index, low: Times, inputs: Sequence[tuple[Index, Times]]) -> _Earliest:
    """The rows of all inputs that came at a moment which is due."""
    found = []
    for port, (theirs, at) in enumerate(inputs):
        due = meeting(theirs, at, at, number, low).nearest()
        row = np.flatnonzero(due >= 0)
        found.append((due[row], np.full(len(row), port), row))
    return _Earliest(*map(np.concatenate, zip(*found, strict=True)))
