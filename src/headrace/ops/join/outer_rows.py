"""Rows that come out of a join without a partner, or once for all their partners.

`Unmet` holds the rows of an outer side until no partner can come; `Firsts` those of a semi
join until it is sure which partner was the first. Both lie by the time at which they are due,
so an epoch pays for what is due in it. Times here are event times without lateness.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from headrace.chunk import TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.groups import Mask
from headrace.ops.contract import Step
from headrace.ops.join.columns import numbers
from headrace.ops.join.side import AT, EPOCH, NUMBER, Side
from headrace.ops.window.aligned import Times
from headrace.state.table import KeyedTable, TableSpec

_MET, _FIRST = "$met", "$first"


class Unmet:
    """Rows that are due `reach` after their time, unless they meet somebody before."""

    def __init__(self, name: str, side: Side, reach: int) -> None:
        self._side, self._reach = side, max(reach, 0)
        value = [*side.value, pa.field(AT, pa.int64()), pa.field(_MET, pa.bool_())]
        self.spec = TableSpec(name, _identity(side), pa.schema(value), timed=True)
        self._now: list[pa.Table] = []  # due in this epoch: they need no table

    def add(self, rows: pa.Table, floor: int, step: Step) -> None:
        """Rows that have met nobody so far."""
        due = self._due(rows)
        rows = rows.append_column(TIME, pa.array(due))
        self._now.append(rows.filter(pa.array(due < floor)))
        rows = rows.filter(pa.array(due >= floor))
        self._table(step).put(rows.append_column(_MET, pa.repeat(False, rows.num_rows)))

    def meet(self, rows: pa.Table, step: Step) -> None:
        """Rows that were added in an earlier epoch have met somebody."""
        known = rows.select([*self._side.identity, EPOCH, NUMBER, AT])
        for field in self._side.value:
            known = known.append_column(field, pa.nulls(rows.num_rows, field.type))
        known = known.append_column(_MET, pa.repeat(True, rows.num_rows))
        self._table(step).put(known.append_column(TIME, pa.array(self._due(rows))))

    def take(self, floor: int, step: Step) -> tuple[pa.Table, Times]:
        """The rows that are due before `floor` and have met nobody, and when they were due."""
        table = self._table(step)
        rows = table.scan(MIN_TIME, floor)
        table.expire(floor)
        rows = rows.filter(pa.array(~numbers(rows[_MET])))
        return _gathered([rows, *self._now], self._side)

    def keyless(self, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """The rows that wait with a null in their key: these are kept nowhere else."""
        rows = tables[self.spec.name].scan().select(self._side.held.names)
        return self._side.solid(rows)[1]

    def next(self, step: Step) -> int:
        first = self._table(step).first_time()
        return MAX_TIME if first is None else first

    def _due(self, rows: pa.Table) -> Times:
        due: Times = numbers(rows[AT]) + self._reach
        return due

    def _table(self, step: Step) -> KeyedTable:
        return step.tables[self.spec.name]


class Firsts:
    """Rows that come out once, at the time of their first partner."""

    def __init__(self, name: str, side: Side, reach: int) -> None:
        self._side, self._reach = side, max(reach, 0)
        value = [*side.value, pa.field(AT, pa.int64())]
        self.spec = TableSpec(name, _identity(side), pa.schema(value), timed=True)
        first = pa.schema([(_FIRST, pa.int64())])
        self.known = TableSpec(f"{name} since", _identity(side), first, timed=True)
        self._now: list[pa.Table] = []

    def meet(self, rows: pa.Table, first: Times, floor: int, step: Step) -> None:
        """Rows have met somebody, the earliest at `first`; an even earlier one may still come."""
        over = self._over(rows)
        before, found = step.tables[self.known.name].get(over)
        sooner: Mask = ~found | (first < numbers(before[_FIRST].fill_null(MAX_TIME)))
        times = pa.array(first)
        step.tables[self.known.name].put(over.append_column(_FIRST, times).filter(pa.array(sooner)))
        due = rows.append_column(TIME, times)
        self._now.append(due.filter(pa.array(sooner & (first < floor))))
        step.tables[self.spec.name].put(due.filter(pa.array(sooner & (first >= floor))))

    def take(self, floor: int, step: Step) -> tuple[pa.Table, Times]:
        """The rows whose first partner came before `floor`, and when."""
        table, known = step.tables[self.spec.name], step.tables[self.known.name]
        rows = table.scan(MIN_TIME, floor)
        first, _ = known.get(self._over(rows))
        really = numbers(first[_FIRST].fill_null(MIN_TIME)) == numbers(rows[TIME])
        table.expire(floor)
        known.expire(floor)
        return _gathered([rows.filter(pa.array(really)), *self._now], self._side)

    def next(self, step: Step) -> int:
        first = step.tables[self.spec.name].first_time()
        return MAX_TIME if first is None else first

    def _over(self, rows: pa.Table) -> pa.Table:
        """What is known of rows lies until no partner can come any more."""
        identity = rows.select([*self._side.identity, EPOCH, NUMBER])
        return identity.append_column(TIME, pa.array(numbers(rows[AT]) + self._reach))


def _gathered(parts: list[pa.Table], side: Side) -> tuple[pa.Table, Times]:
    """Held rows of all parts, and when each was due."""
    rows = pa.concat_tables([p.select([TIME, *side.held.names]) for p in parts])
    return rows.drop_columns([TIME]), numbers(rows[TIME])


def _identity(side: Side) -> pa.Schema:
    return pa.schema([*side.key, (EPOCH, pa.int64()), (NUMBER, pa.int64())])
