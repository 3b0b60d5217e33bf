"""Rows that joins store: for partners still to come, or until it is certain that none comes.

`RowStore` finds rows by key and approximate time: time is cut into buckets, so a search costs as
much as its keys and its range of time, and dropping old rows costs nothing. `OuterRows`
stores the rows of an outer side until no partner can come, `SemiRows` those of a semi join until
it is certain which partner was the first; both by the time at which they are due, so an epoch
pays for what is due in it. Event times without lateness.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, Times, numbers
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.hashing import Hashes
from headrace.ops.contract import EpochStep
from headrace.ops.join.sides import AT, EPOCH, NUMBER, JoinSide, first_time
from headrace.ops.window.assigners import expanded
from headrace.state.table import KeyedTable, TableSpec


class RowStore:
    def __init__(self, name: str, side: JoinSide, bucket: int) -> None:
        self._side, self._bucket = side, bucket
        self.spec = side.row_table(name)

    def add(self, rows: pa.Table, step: EpochStep) -> None:
        """Store rows as they come from `JoinSide.arrived`."""
        buckets = numbers(rows[AT]) // self._bucket * self._bucket
        step.tables[self.spec.name].put(rows.append_column(TIME, pa.array(buckets)))

    def near(self, others: pa.Table, lower: int, upper: int, step: EpochStep) -> pa.Table:
        """The rows that may meet `others`: of their key, from `lower` to `upper` around them.

        Rows a little further away, and some of another key with the same hash, come along.
        """
        if not others.num_rows:
            return self._side.stored.empty_table()
        table = step.tables[self.spec.name]
        times, hashes = self._buckets(others, lower, upper, table)
        rows = table.match_at(times, hashes).select(self._side.stored.names)
        return self._side.split_nulls(rows)[0]

    def _buckets(
        self, others: pa.Table, lower: int, upper: int, table: KeyedTable
    ) -> tuple[Times, Hashes]:
        """Every bucket and hash that may hold such a row, once, in order."""
        oldest, newest, size = table.first_time(), table.last_time(), self._bucket
        if oldest is None or newest is None:
            return np.zeros(0, np.int64), np.zeros(0, np.uint64)
        hashes, buckets = distinct(numbers(others[HASH]), numbers(others[AT]) // size)
        first = np.maximum(buckets + lower // size, oldest // size)
        last = np.minimum(buckets + (size - 1 + upper) // size, newest // size)
        row, bucket = expanded(first, np.maximum(last - first + 1, 0))
        hashes, buckets = distinct(hashes[row], bucket)
        return buckets * size, hashes

    def rows(self, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """All stored rows."""
        return tables[self.spec.name].scan().select(self._side.stored.names)

    def expire(self, floor: int, reach: int, step: EpochStep) -> None:
        """Drop rows from more than `reach` before `floor`; some of the same bucket stay a while."""
        before = floor - reach if MIN_TIME < floor < MAX_TIME else floor
        step.tables[self.spec.name].expire(before // self._bucket * self._bucket)


def distinct(hashes: Hashes, buckets: Times) -> tuple[Hashes, Times]:
    """The distinct pairs of bucket and hash, sorted."""
    rising = buckets[1:] > buckets[:-1]
    rising |= (buckets[1:] == buckets[:-1]) & (hashes[1:] >= hashes[:-1])
    if not rising.all():
        order = np.lexsort((hashes, buckets))
        hashes, buckets = hashes[order], buckets[order]
    fresh = np.ones(len(hashes), np.bool_)
    fresh[1:] = (hashes[1:] != hashes[:-1]) | (buckets[1:] != buckets[:-1])
    return hashes[fresh], buckets[fresh]


_MET, _FIRST = "$met", "$first"


class OuterRows:
    """Rows that are due `reach` after their time, unless a partner comes before."""

    def __init__(self, name: str, side: JoinSide, reach: int) -> None:
        self._side, self._reach = side, max(reach, 0)
        value = [*side.value, pa.field(AT, pa.int64()), pa.field(_MET, pa.bool_())]
        self.spec = TableSpec(name, _identity(side), pa.schema(value), timed=True)
        self._now: list[pa.Table] = []  # due in this epoch: they need no table

    def add(self, rows: pa.Table, floor: int, step: EpochStep) -> None:
        """Rows without a partner so far."""
        due = self._due(rows)
        rows = rows.append_column(TIME, pa.array(due))
        self._now.append(rows.filter(pa.array(due < floor)))
        rows = rows.filter(pa.array(due >= floor))
        self._table(step).put(rows.append_column(_MET, pa.repeat(False, rows.num_rows)))

    def meet(self, rows: pa.Table, step: EpochStep) -> None:
        """Rows that were added in an earlier epoch have a partner now."""
        met = rows.select([*self._side.identity, EPOCH, NUMBER, AT])
        for field in self._side.value:
            met = met.append_column(field, pa.nulls(rows.num_rows, field.type))
        met = met.append_column(_MET, pa.repeat(True, rows.num_rows))
        self._table(step).put(met.append_column(TIME, pa.array(self._due(rows))))

    def take(self, floor: int, step: EpochStep) -> tuple[pa.Table, Times]:
        """The rows that are due before `floor` and have no partner, and when they were due."""
        table = self._table(step)
        rows = table.scan(MIN_TIME, floor)
        table.expire(floor)
        rows = rows.filter(pa.array(~numbers(rows[_MET])))
        return _with_due_times([rows, *self._now], self._side)

    def keyless(self, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """The rows that wait with a null in their key: these are stored nowhere else."""
        rows = tables[self.spec.name].scan().select(self._side.stored.names)
        return self._side.split_nulls(rows)[1]

    def next(self, step: EpochStep) -> int:
        return first_time(self._table(step))

    def _due(self, rows: pa.Table) -> Times:
        due: Times = numbers(rows[AT]) + self._reach
        return due

    def _table(self, step: EpochStep) -> KeyedTable:
        return step.tables[self.spec.name]


class SemiRows:
    """Rows that are emitted once, at the time of their first partner."""

    def __init__(self, name: str, side: JoinSide, reach: int) -> None:
        self._side, self._reach = side, max(reach, 0)
        value = [*side.value, pa.field(AT, pa.int64())]
        self.spec = TableSpec(name, _identity(side), pa.schema(value), timed=True)
        first = pa.schema([(_FIRST, pa.int64())])
        self.firsts = TableSpec(f"{name} since", _identity(side), first, timed=True)
        self._now: list[pa.Table] = []

    def meet(self, rows: pa.Table, first: Times, floor: int, step: EpochStep) -> None:
        """Rows have a partner, the earliest at `first`; an even earlier one may still come."""
        firsts, keys = step.tables[self.firsts.name], self._until_decided(rows)
        before, stored = firsts.get(keys)
        sooner: Mask = ~stored | (first < numbers(before[_FIRST].fill_null(MAX_TIME)))
        times = pa.array(first)
        firsts.put(keys.append_column(_FIRST, times).filter(pa.array(sooner)))
        due = rows.append_column(TIME, times)
        self._now.append(due.filter(pa.array(sooner & (first < floor))))
        step.tables[self.spec.name].put(due.filter(pa.array(sooner & (first >= floor))))

    def take(self, floor: int, step: EpochStep) -> tuple[pa.Table, Times]:
        """The rows whose first partner came before `floor`, and when."""
        table, firsts = step.tables[self.spec.name], step.tables[self.firsts.name]
        rows = table.scan(MIN_TIME, floor)
        first, _ = firsts.get(self._until_decided(rows))
        is_first = numbers(first[_FIRST].fill_null(MIN_TIME)) == numbers(rows[TIME])
        table.expire(floor)
        firsts.expire(floor)
        return _with_due_times([rows.filter(pa.array(is_first)), *self._now], self._side)

    def next(self, step: EpochStep) -> int:
        return first_time(step.tables[self.spec.name])

    def _until_decided(self, rows: pa.Table) -> pa.Table:
        """The identity of rows, to be stored until no partner can come any more."""
        identity = rows.select([*self._side.identity, EPOCH, NUMBER])
        return identity.append_column(TIME, pa.array(numbers(rows[AT]) + self._reach))


def _with_due_times(parts: list[pa.Table], side: JoinSide) -> tuple[pa.Table, Times]:
    """Stored rows of all parts, and when each was due."""
    rows = pa.concat_tables([p.select([TIME, *side.stored.names]) for p in parts])
    return rows.drop_columns([TIME]), numbers(rows[TIME])


def _identity(side: JoinSide) -> pa.Schema:
    return pa.schema([*side.key, (EPOCH, pa.int64()), (NUMBER, pa.int64())])
