"""Tables as they change: their versions in state, and the changelog of a table as a stream.

In the changelog the old row of a key is retracted, then the new one is emitted, for every
change. By event time a change counts when the watermark has passed it, so changes are emitted in
the order of their times, however they came; by processing time at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Index, Mask, Times, numbers
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.join.sides import (
    AT,
    EPOCH,
    NUMBER,
    PLACE,
    JoinSide,
    SideRows,
    not_deleted,
    stored_view,
    with_place,
)
from headrace.ops.keys import key_numbers
from headrace.state.table import KeyedTable, TableSpec

CHANGE = "change"
TAKEN, GIVEN = "-", "+"


@dataclass(frozen=True)
class Changes(Spec):
    """The changes of one table."""

    processing: bool
    timed: bool
    gone: str | None  # the column that says which rows delete
    rows: tuple[str, ...] = ()

    kind = "changes"
    endless = True

    @property
    def needs_time(self) -> bool:
        return not self.processing

    @property
    def has_late(self) -> bool:
        return not self.processing

    def __str__(self) -> str:
        return f"by {'processing' if self.processing else 'event'} time"

    @property
    def bound(self) -> str:
        return "table(..., unbounded=True)."

    def shape(self) -> dict[str, Any]:
        deletes = self.gone is not None
        return {"processing": self.processing, "deletes": deletes, "rows": list(self.rows)}

    def operator(self, place: Place) -> ChangesOperator:
        return ChangesOperator(self, place.key, place.input, place.output)


class ChangesOperator(Operator):
    def __init__(
        self, spec: Changes, keys: Sequence[str], input: pa.Schema, output: pa.Schema
    ) -> None:
        self._spec, self._schema = spec, output
        self._side = JoinSide(keys, input)
        self._versions = Versions(self._side, spec.gone)
        named = dict(zip(keys, self._side.key.names, strict=True))
        self._columns = [named.get(n, n) for n in output.names[:-1]]

    def tables(self) -> tuple[TableSpec, ...]:
        return self._versions.tables()

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows of the table."""
        held = SideRows(None, self._side, self._versions.rows(tables))
        return stored_view([held], since, until, self._spec.timed)

    def late(self, port: int, rows: pa.Table, watermark: int) -> Mask | None:
        return behind(rows, watermark, self._spec.processing)

    def step(self, step: EpochStep) -> None:
        floor = MAX_TIME if self._spec.processing else step.after
        arrived = self._side.arrived(self._side.keyed(step.inputs[0], step), step.epoch)
        passed = self._versions.passing(arrived, floor, step)
        if passed.num_rows:
            known = self._versions.known(passed, step)
            self._changes_of(
                pa.concat_tables([known, passed]).combine_chunks(), known.num_rows, step
            )
        self._versions.settle(passed, floor, step)
        step.next = after(self._versions.next(step))

    def _changes_of(self, rows: pa.Table, known: int, step: EpochStep) -> None:
        """Every version after the `known` ones retracts the one before it, and is emitted."""
        dead, new = self._versions.deletes(rows), np.arange(known, rows.num_rows)
        before = one_before(key_numbers(rows.select(self._side.identity))[0])[new]
        taken = new[(before >= 0) & ~dead[before]]
        inserts = new[~dead[new]]
        cause = np.concatenate([taken, inserts])
        shown = np.concatenate([before[taken - known], inserts])
        signs = np.arange(len(cause)) >= len(taken)
        order = np.lexsort((signs, cause))
        self._emit(rows, shown[order], signs[order], when(rows, step)[cause[order]], step)

    def _emit(self, rows: pa.Table, shown: Index, signs: Mask, at: Times, step: EpochStep) -> None:
        if not len(shown):
            return
        rows = rows.take(pa.array(shown))
        change = pa.array(np.where(signs, GIVEN, TAKEN))
        columns = [*rows.select(self._columns).columns, change]
        table = pa.Table.from_arrays(columns, self._schema.names).cast(self._schema)
        times = at if self._spec.timed else None
        step.out.append(with_place(table, times, numbers(rows[HASH])))


def inserts(changes: pa.Table) -> Mask:
    """Which changes insert a row; the others retract one."""
    plus: Mask = numbers(pc.equal(changes[CHANGE], GIVEN))
    return plus


def when(rows: pa.Table, step: EpochStep) -> Times:
    """The event time of changes: their own, but never behind the watermark."""
    times: Times = np.maximum(numbers(rows[AT]), step.before)
    return times


def behind(rows: pa.Table, watermark: int, processing: bool) -> Mask | None:
    """Which rows come after the watermark has passed them; None where that does not matter."""
    if processing or watermark == MIN_TIME:
        return None
    return numbers(rows[TIME]) < watermark


def after(first: int) -> int:
    """The watermark that passes the first thing to come."""
    return first if first == MAX_TIME else first + 1


# The versions of a table's rows: which was the latest at a moment.
#
# Versions that the watermark has not passed are stored by time; of those it has passed, only the
# last of each key. So a question about a moment just passed pays for the keys asked for and the
# versions that came meanwhile, whatever the size of the table.


class Versions:
    """`gone` is a column that says which rows delete their key; `within` how old one may be."""

    def __init__(
        self, side: JoinSide, gone: str | None = None, within: int | None = None, name: str = ""
    ) -> None:
        self._side, self._gone, self._within = side, gone, within
        value, coming, latest = pa.schema([*side.value, *PLACE]), f"{name}coming", f"{name}latest"
        self._coming = TableSpec(coming, side.key, value, timed=True, once=True)
        self._latest = TableSpec(latest, side.key, value)
        self._ages = TableSpec(f"{name}ages", side.key, pa.schema([]), timed=True)

    def tables(self) -> tuple[TableSpec, ...]:
        bounded = (self._ages,) if self._within is not None else ()
        return (self._coming, self._latest, *bounded)

    def passing(self, rows: pa.Table, floor: int, step: EpochStep) -> pa.Table:
        """Take new versions in; those whose time is before `floor` now, in order."""
        at = numbers(rows[AT])
        table = step.tables[self._coming.name]
        late, soon = rows.filter(pa.array(at >= floor)), rows.filter(pa.array(at < floor))
        table.put(late.append_column(TIME, late[AT]))
        due = table.scan(MIN_TIME, floor).select(rows.column_names)
        table.expire(floor)
        return in_turn(pa.concat_tables([due, soon]))

    def known(self, keys: pa.Table, step: EpochStep) -> pa.Table:
        """The versions that counted before this epoch, of these keys."""
        identity = keys.select(self._side.identity)
        if identity.num_rows:
            _, first = key_numbers(identity)
            identity = identity.take(pa.array(first))
        held, found = step.tables[self._latest.name].get(identity)
        for name in held.column_names:
            identity = identity.append_column(name, held.column(name))
        return identity.filter(pa.array(found)).select(self._side.held.names)

    def next(self, step: EpochStep) -> int:
        """The time of the first version that has not been passed."""
        first = step.tables[self._coming.name].first_time()
        return MAX_TIME if first is None else first

    def last(self, passed: pa.Table) -> pa.Table:
        """Of versions in order, the last of each key."""
        if not passed.num_rows:
            return passed
        return passed.take(pa.array(last_of_each(passed, self._side.identity)))

    def real(self, passed: pa.Table, step: EpochStep, presence: bool = False) -> pa.Table:
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

    def next_old(self, step: EpochStep) -> int:
        """The last moment of the first version that gets too old; some are gone by then."""
        if self._within is None:
            return MAX_TIME
        first = step.tables[self._ages.name].first_time()
        return MAX_TIME if first is None else first + self._within

    def settle(self, passed: pa.Table, floor: int, step: EpochStep) -> pa.Table:
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

    def _age(self, before: int, step: EpochStep) -> pa.Table:
        """Forget versions from before this moment: no row will ask for them again."""
        old = step.tables[self._ages.name].scan(MIN_TIME, before)
        step.tables[self._ages.name].expire(before)
        known = self.known(old, step)
        known = known.filter(pa.array(numbers(known[AT]) < before))
        step.tables[self._latest.name].delete(known)
        return known

    def rows(self, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """The versions that count, and those that the watermark has not passed."""
        specs = self._latest, self._coming
        return not_deleted([tables[spec.name].scan() for spec in specs], self._side)

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
