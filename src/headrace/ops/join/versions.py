"""The rows of a table as they change: which was the latest version at a moment.

Versions that the watermark has not passed lie by their time; of those it has passed only the
last of each key is kept. So asking about a moment that has just been passed pays for the keys
asked for and the versions that came meanwhile, whatever the table holds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headrace.chunk import TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.groups import Index, Mask
from headrace.ops.agg.keys import key_numbers
from headrace.ops.contract import Step
from headrace.ops.join.columns import numbers
from headrace.ops.join.side import AT, EPOCH, NUMBER, PLACE, Side
from headrace.ops.join.view import existing
from headrace.state.table import KeyedTable, TableSpec


class Versions:
    """`gone` is a column that says which rows delete their key; `within` how old one may be."""

    def __init__(
        self, side: Side, gone: str | None = None, within: int | None = None, name: str = ""
    ) -> None:
        self._side, self._gone, self._within = side, gone, within
        value, coming, latest = pa.schema([*side.value, *PLACE]), f"{name}coming", f"{name}latest"
        self._coming = TableSpec(coming, side.key, value, timed=True, once=True)
        self._latest = TableSpec(latest, side.key, value)
        self._ages = TableSpec(f"{name}ages", side.key, pa.schema([]), timed=True)

    def tables(self) -> tuple[TableSpec, ...]:
        bounded = (self._ages,) if self._within is not None else ()
        return (self._coming, self._latest, *bounded)

    def passing(self, rows: pa.Table, floor: int, step: Step) -> pa.Table:
        """Take new versions in; those whose time is before `floor` now, in order."""
        at = numbers(rows[AT])
        table = step.tables[self._coming.name]
        late, soon = rows.filter(pa.array(at >= floor)), rows.filter(pa.array(at < floor))
        table.put(late.append_column(TIME, late[AT]))
        due = table.scan(MIN_TIME, floor).select(rows.column_names)
        table.expire(floor)
        return in_turn(pa.concat_tables([due, soon]))

    def known(self, keys: pa.Table, step: Step) -> pa.Table:
        """The versions that counted before this epoch, of these keys."""
        identity = keys.select(self._side.identity)
        if identity.num_rows:
            _, first = key_numbers(identity)
            identity = identity.take(pa.array(first))
        held, found = step.tables[self._latest.name].get(identity)
        for name in held.column_names:
            identity = identity.append_column(name, held.column(name))
        return identity.filter(pa.array(found)).select(self._side.held.names)

    def next(self, step: Step) -> int:
        """The time of the first version that has not been passed."""
        first = step.tables[self._coming.name].first_time()
        return MAX_TIME if first is None else first

    def last(self, passed: pa.Table) -> pa.Table:
        """Of versions in order, the last of each key."""
        if not passed.num_rows:
            return passed
        return passed.take(pa.array(last_of_each(passed, self._side.identity)))

    def real(self, passed: pa.Table, step: Step, presence: bool = False) -> pa.Table:
        """Of versions in order, those that change something: what is not there is not deleted.

        With `presence` those with which a key comes or goes, whatever its value.
        """
        dead = self.deletes(passed)
        if not passed.num_rows or not (presence or dead.any()):
            return passed
        known = self.known(passed if presence else passed.filter(pa.array(dead)), step)
        parts = [known.select(self._side.identity), passed.select(self._side.identity)]
        before = one_before(key_numbers(pa.concat_tables(parts))[0])[known.num_rows :]
        ended = np.concatenate([np.zeros(known.num_rows, np.bool_), dead])
        there = (before >= 0) & ~ended[before]
        return passed.filter(pa.array(there == dead if presence else there | ~dead))

    def next_old(self, step: Step) -> int:
        """The last moment of the first version that gets too old; some are gone by then."""
        if self._within is None:
            return MAX_TIME
        first = step.tables[self._ages.name].first_time()
        return MAX_TIME if first is None else first + self._within

    def settle(self, passed: pa.Table, floor: int, step: Step) -> pa.Table:
        """Of the versions that were passed, in order, remember the last of each key.

        Gives those that are forgotten, because they are too old.
        """
        table = step.tables[self._latest.name]
        if passed.num_rows:
            last = self.last(passed)
            dead = self.deletes(last)
            table.delete(last.filter(pa.array(dead)))
            table.put(last.filter(pa.array(~dead)))
            if self._within is not None:
                step.tables[self._ages.name].put(last.append_column(TIME, last[AT]))
        if self._within is None:
            return self._side.held.empty_table()
        return self._age(floor - self._within, step)

    def _age(self, before: int, step: Step) -> pa.Table:
        """Forget versions from before this moment: nobody will look at them again."""
        old = step.tables[self._ages.name].scan(MIN_TIME, before)
        step.tables[self._ages.name].expire(before)
        known = self.known(old, step)
        known = known.filter(pa.array(numbers(known[AT]) < before))
        step.tables[self._latest.name].delete(known)
        return known

    def rows(self, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """The versions that count, and those that the watermark has not passed."""
        specs = self._latest, self._coming
        return existing([tables[spec.name].scan() for spec in specs], self._side)

    def deletes(self, rows: pa.Table) -> Mask:
        """Which versions say that the key is there no more."""
        if self._gone is None:
            return np.zeros(rows.num_rows, np.bool_)
        gone: Mask = numbers(rows[self._gone].fill_null(False))
        return gone


def in_turn(rows: pa.Table) -> pa.Table:
    """Versions by time; those of one moment as they came."""
    order = np.lexsort([numbers(rows[n]) for n in (NUMBER, EPOCH, AT)])
    return rows.take(pa.array(order))


def last_of_each(rows: pa.Table, identity: list[str]) -> Index:
    """The last row of each key."""
    number, first = key_numbers(rows.select(identity))
    last = np.empty(len(first), np.int64)
    last[number] = np.arange(rows.num_rows)  # the last to be written stays
    return last


def one_before(number: Index) -> Index:
    """For each row the one with the same key number before it, or -1."""
    order = np.argsort(number, kind="stable")
    before = np.full(len(order), -1)
    same = number[order][1:] == number[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before
