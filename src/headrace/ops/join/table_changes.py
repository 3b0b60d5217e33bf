"""Tables as they change: their versions in state, and the changelog of a table as a stream.

In the changelog the old row of a key is retracted, then the new one is emitted, for every
change. By event time a change counts when the watermark has passed it, so changes are emitted in
the order of their times, however they came; by processing time at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Index, Mask, Times, numbers
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import EpochStep, Operator, Place
from headrace.ops.join.pairs import last_of_each, one_before
from headrace.ops.join.sides import (
    AT,
    EPOCH,
    NUMBER,
    EitherTimeJoin,
    JoinSide,
    SideRows,
    first_time,
    late_rows,
    not_deleted,
    stored_view,
    watermark_after,
    with_place,
)
from headrace.ops.keys import key_numbers
from headrace.state.table import KeyedTable, TableSpec

CHANGE = "change"
RETRACT, INSERT = "-", "+"


@dataclass(frozen=True)
class Changes(EitherTimeJoin):
    """The changes of one table."""

    processing: bool
    timed: bool
    gone: str | None  # the column that says which rows delete
    rows: tuple[str, ...] = ()

    kind = "changes"
    endless = True
    table_ports = (0,)

    def __str__(self) -> str:
        return f"by {'processing' if self.processing else 'event'} time"

    @property
    def bound(self) -> str:
        return "table(..., unbounded=True)."

    def shape(self) -> dict[str, Any]:
        deletes = self.gone is not None
        return {"processing": self.processing, "deletes": deletes, "rows": list(self.rows)}

    def operator(self, place: Place) -> ChangesOperator:
        return ChangesOperator(self, place)


class ChangesOperator(Operator):
    def __init__(self, spec: Changes, place: Place) -> None:
        self._spec, self._schema = spec, place.output
        self._side = JoinSide(place.key, place.input)
        self._versions = Versions(self._side, spec.gone)
        stored_names = dict(zip(place.key, self._side.key.names, strict=True))
        self._columns = [stored_names.get(n, n) for n in place.output.names[:-1]]

    def tables(self) -> tuple[TableSpec, ...]:
        return self._versions.tables()

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows of the table."""
        rows = SideRows(None, self._side, self._versions.rows(tables))
        return stored_view([rows], since, until, self._spec.timed)

    def late(self, port: int, rows: pa.Table, watermark: int) -> Mask | None:
        return late_rows(rows, watermark, processing=self._spec.processing)

    def step(self, step: EpochStep) -> None:
        floor = MAX_TIME if self._spec.processing else step.after
        arrived = self._side.arrived(self._side.keyed(step.inputs[0], step), step.epoch)
        passed = self._versions.passing(arrived, floor, step)
        if passed.num_rows:
            stored = self._versions.stored(passed, step)
            rows = pa.concat_tables([stored, passed]).combine_chunks()
            self._emit_changes(rows, stored.num_rows, step)
        self._versions.settle(passed, floor, step)
        step.next = watermark_after(self._versions.next(step))

    def _emit_changes(self, rows: pa.Table, stored: int, step: EpochStep) -> None:
        """Every version after the `stored` ones retracts the one before it, and is emitted."""
        dead, new = self._versions.deletes(rows), np.arange(stored, rows.num_rows)
        before = one_before(key_numbers(rows.select(self._side.identity))[0])[new]
        retracts = new[(before >= 0) & ~dead[before]]
        inserts = new[~dead[new]]
        cause = np.concatenate([retracts, inserts])
        shown = np.concatenate([before[retracts - stored], inserts])
        signs = np.arange(len(cause)) >= len(retracts)
        order = np.lexsort((signs, cause))
        self._emit(rows, shown[order], signs[order], when(rows, step)[cause[order]], step)

    def _emit(self, rows: pa.Table, shown: Index, signs: Mask, at: Times, step: EpochStep) -> None:
        if not len(shown):
            return
        rows = rows.take(pa.array(shown))
        change = pa.array(np.where(signs, INSERT, RETRACT))
        columns = [*rows.select(self._columns).columns, change]
        table = pa.Table.from_arrays(columns, self._schema.names).cast(self._schema)
        times = at if self._spec.timed else None
        step.out.append(with_place(table, times, numbers(rows[HASH])))


def inserts(changes: pa.Table) -> Mask:
    """Which changes insert a row; the others retract one."""
    plus: Mask = numbers(pc.equal(changes[CHANGE], INSERT))
    return plus


def when(rows: pa.Table, step: EpochStep) -> Times:
    """The event time of changes: their own, but never behind the watermark."""
    times: Times = np.maximum(numbers(rows[AT]), step.before)
    return times


# The versions of a table's rows: which was the latest at a moment.
#
# Versions that the watermark has not passed are stored by time; of those it has passed, only the
# last of each key. So a search at a moment just passed costs as much as its keys and the versions
# that came meanwhile, whatever the size of the table.


class Versions:
    """`delete_column` says which rows delete their key; `within` the age at most, in ms."""

    def __init__(
        self,
        side: JoinSide,
        delete_column: str | None = None,
        within: int | None = None,
        name: str = "",
    ) -> None:
        self._side, self._delete_column, self._within = side, delete_column, within
        self._coming = side.row_table(f"{name}coming")
        self._latest = TableSpec(f"{name}latest", side.key, self._coming.value)
        self._ages = TableSpec(f"{name}ages", side.key, pa.schema([]), timed=True)

    def tables(self) -> tuple[TableSpec, ...]:
        bounded = (self._ages,) if self._within is not None else ()
        return (self._coming, self._latest, *bounded)

    def passing(self, rows: pa.Table, floor: int, step: EpochStep) -> pa.Table:
        """Add new versions; those whose time is before `floor` now, in order."""
        return passing(rows, floor, step.tables[self._coming.name])

    def stored(self, keys: pa.Table, step: EpochStep) -> pa.Table:
        """The versions that counted before this epoch, of these keys."""
        rows = keys.select(self._side.identity)
        if rows.num_rows:
            _, first = key_numbers(rows)
            rows = rows.take(pa.array(first))
        values, present = step.tables[self._latest.name].get(rows)
        for name in values.column_names:
            rows = rows.append_column(name, values.column(name))
        return rows.filter(pa.array(present)).select(self._side.stored.names)

    def next(self, step: EpochStep) -> int:
        """The time of the first version that has not been passed."""
        return first_time(step.tables[self._coming.name])

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
        stored = self.stored(passed if presence else passed.filter(pa.array(dead)), step)
        parts = [stored.select(self._side.identity), passed.select(self._side.identity)]
        before = one_before(key_numbers(pa.concat_tables(parts))[0])[stored.num_rows :]
        ended = np.concatenate([np.zeros(stored.num_rows, np.bool_), dead])
        present = (before >= 0) & ~ended[before]
        return passed.filter(pa.array(present == dead if presence else present | ~dead))

    def next_old(self, step: EpochStep) -> int:
        """The last moment of the first version that gets too old; it may be replaced before."""
        if self._within is None:
            return MAX_TIME
        first = first_time(step.tables[self._ages.name])
        return first if first == MAX_TIME else first + self._within

    def settle(self, passed: pa.Table, floor: int, step: EpochStep) -> pa.Table:
        """Of the versions that were passed, in order, store the last of each key.

        Returns those that are dropped because they are too old.
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
            return self._side.stored.empty_table()
        return self._drop_old(floor - self._within, step)

    def _drop_old(self, before: int, step: EpochStep) -> pa.Table:
        """Delete versions from before this moment: no row will see them again."""
        old = step.tables[self._ages.name].scan(MIN_TIME, before)
        step.tables[self._ages.name].expire(before)
        versions = self.stored(old, step)
        versions = versions.filter(pa.array(numbers(versions[AT]) < before))
        step.tables[self._latest.name].delete(versions)
        return versions

    def rows(self, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """The versions that count, and those that the watermark has not passed."""
        specs = self._latest, self._coming
        return not_deleted([tables[spec.name].scan() for spec in specs], self._side)

    def deletes(self, rows: pa.Table) -> Mask:
        """Which versions delete their key."""
        if self._delete_column is None:
            return np.zeros(rows.num_rows, np.bool_)
        deleted: Mask = numbers(rows[self._delete_column].fill_null(False))
        return deleted


def passing(rows: pa.Table, floor: int, table: KeyedTable) -> pa.Table:
    """Stored and new rows whose time is before `floor`, in order; the table stores the others.

    The order is that of their times, and of their arrival at one moment.
    """
    at = numbers(rows[AT])
    later = rows.filter(pa.array(at >= floor))
    table.put(later.append_column(TIME, later[AT]))
    due = table.scan(MIN_TIME, floor).select(rows.column_names)
    table.expire(floor)
    rows = pa.concat_tables([due, rows.filter(pa.array(at < floor))])
    return rows.take(pa.array(np.lexsort([numbers(rows[n]) for n in (NUMBER, EPOCH, AT)])))
