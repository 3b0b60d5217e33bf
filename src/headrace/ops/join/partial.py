"""Combinations of a join of many streams that lack some of them, in left and full joins.

A combination that lacks a stream is a result if no row could be added to it. It is decided when
the watermark has passed its earliest row by `within`. Its rows all lie in that stretch, and any
two rows there are near each other. So a stream that has rows there is in it, by any one of
them; and a stream that has none is lacking, unless its last row before the stretch is near
enough to the latest row. Each row is looked at once as the earliest, when it is due, beside
rows of other streams only: an epoch pays for what is due in it, and for what that may meet.
Times here are event times without lateness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.chunk import TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.groups import Index, Mask
from headrace.ops.contract import Step
from headrace.ops.join.columns import numbers
from headrace.ops.join.kept import Kept
from headrace.ops.join.layout import Layout
from headrace.ops.join.pairs import Sorted, shared_numbers
from headrace.ops.join.side import AT, PLACE, Side
from headrace.ops.window.aligned import Times
from headrace.ops.window.assigners import expanded
from headrace.state.table import KeyedTable, TableSpec


class _Earliest(NamedTuple):
    """The rows that are due, of all inputs one after the other, as the earliest of combinations."""

    port: Index
    row: Index  # its number among those of its input
    number: Index  # of its key
    at: Times


class _Choice(NamedTuple):
    """For each earliest row, which rows of one input go with it: a stretch of `order`.

    The last of `order` is nobody, -1, whose time is before all others.
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
        self._how, self._within, self._lateness = how, within, lateness
        self._sides, self._kept, self._layout = sides, kept, layout
        self.tables = tuple(
            TableSpec(f"{name} waiting", side.key, pa.schema([*side.value, *PLACE]), timed=True,
                      once=True)
            for name, side in zip(names, sides, strict=True)
        )  # fmt: skip

    def alone(self, port: int) -> bool:
        """Whether a row of this input can come out alone."""
        return self._how == "full" or port == 0

    def keyless(self, port: int, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """The rows that wait with a null in their key: these are kept nowhere else."""
        side = self._sides[port]
        return side.solid(tables[self.tables[port].name].scan().select(side.held.names))[1]

    def add(self, arrived: Sequence[pa.Table], step: Step) -> list[pa.Table]:
        """Let rows wait until they are due; gives those that have a key and so may meet others."""
        for rows, spec in zip(arrived, self.tables, strict=True):
            due = pa.array(numbers(rows[AT]) + self._within)
            step.tables[spec.name].put(rows.append_column(TIME, due))
        return [s.solid(rows)[0] for s, rows in zip(self._sides, arrived, strict=True)]

    def give(self, floor: int, step: Step) -> None:
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

    def _combine(self, due: list[pa.Table], step: Step) -> None:
        identity, within = self._sides[0].identity, self._within
        places = [rows.select([*identity, AT]) for rows in due]
        rows, counts = [], [p.num_rows for p in places]
        for port, kept in enumerate(self._kept):
            others = pa.concat_tables([p for i, p in enumerate(places) if i != port])
            rows.append(kept.near(others, -within, within, step))
        known = shared_numbers([*places, *rows], identity)
        begin = _Earliest(
            np.repeat(np.arange(len(due)), counts), np.concatenate([np.arange(n) for n in counts]),
            np.concatenate(known[: len(due)]), np.concatenate([numbers(p[AT]) for p in places]),
        )  # fmt: skip
        choices = [
            self._choice(begin, port, numbers(due[port][AT]), known[len(due) + port],
                         numbers(rows[port][AT]))
            for port in range(len(due))
        ]  # fmt: skip
        which, at = self._chosen(begin, choices)
        if len(which):
            parts = [pa.concat_tables(both) for both in zip(due, rows, strict=True)]
            keys = pa.concat_tables(places).take(pa.array(which))
            times = begin.at[which] + within + self._lateness
            step.out.append(self._layout.pairs(parts, at, times, keys))

    def _choice(self, begin: _Earliest, port: int, due: Times, number: Index, at: Times) -> _Choice:
        """Among the rows of one input: those that are due themselves, and then the others."""
        there, low, own = Sorted(number, at), begin.at, begin.port == port
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
        return _Choice(first, many, order, np.concatenate([due, at, [MIN_TIME]]), absent, before)

    def _chosen(self, begin: _Earliest, choices: list[_Choice]) -> tuple[Index, list[Index]]:
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
