"""Joins of a stream with a table: each row with the latest version of its key.

By event time a row waits until the watermark has passed its time, and then sees the version
that was the latest at that time: the result does not depend on the order of arrival. By
processing time it sees at once what has come so far. Right and full joins also emit the versions
that no row saw, when they have ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, Times, numbers
from headrace.chunk import TIME
from headrace.clock import MAX_TIME, MIN_TIME, pretty
from headrace.ops.contract import EpochStep, Operator, Place
from headrace.ops.join.pairs import matches, one_after, shared_key_ids
from headrace.ops.join.sides import (
    AT,
    Columns,
    EitherTimeJoin,
    JoinOutput,
    JoinSide,
    SideRows,
    first_time,
    join_sides,
    late_floor,
    late_rows,
    lateness_text,
    null_keys,
    stored_view,
    watermark_after,
)
from headrace.ops.join.table_changes import Versions, passing
from headrace.ops.keys import key_numbers
from headrace.state.table import KeyedTable, TableSpec

HOWS = ("inner", "left", "right", "full", "semi", "anti")
WAITING = "waiting"


@dataclass(frozen=True)
class Latest(EitherTimeJoin):
    how: str
    processing: bool
    within: int | None  # how old a version may be, in ms; None: any age
    lateness: int
    timed: bool  # rows have event time
    gone: str | None  # the column of the table that says which rows delete
    columns: Columns
    rows: tuple[str, ...] = ()

    kind = "join"
    table_ports = (1,)

    @property
    def endless(self) -> bool:
        return self.within is None

    def __str__(self) -> str:
        when = "now" if self.processing else "at its time"
        old = f", at most {pretty(self.within)} old" if self.within is not None else ""
        return f"{self.how} with the latest {when}{old}{lateness_text(self.lateness)}"

    @property
    def bound(self) -> str:
        return "table(..., unbounded=True)" + (
            "."
            if self.processing
            else '; otherwise say join(..., within="1h"): older rows of the table are forgotten.'
        )

    def shape(self) -> dict[str, Any]:
        bounded = self.within is not None
        outer = {"outer": "right"} if self.how in ("right", "full") else {}
        same = {"processing": self.processing, "bounded": bounded, "rows": list(self.rows)}
        return same | outer | {"deletes": self.gone is not None}

    @property
    def lengths(self) -> dict[str, int]:
        """For how long versions and rows are stored."""
        age = {} if self.within is None else {"within": self.within}
        return {"lateness": self.lateness, **age}

    def operator(self, place: Place) -> LatestOperator:
        return LatestOperator(self, place)


class LatestOperator(Operator):
    def __init__(self, spec: Latest, place: Place) -> None:
        self._spec, self._output = spec, JoinOutput(spec.columns, place.output)
        self._sides = join_sides(place)
        left, right = self._sides
        self._versions = Versions(right, spec.gone, spec.within)
        self._waiting = left.row_table(WAITING)
        self._outer = spec.how in ("left", "full", "anti")
        self._unseen: UnmatchedVersions | None = None
        if spec.how in ("right", "full"):
            self._unseen = UnmatchedVersions(right, self._versions, spec.within)

    def tables(self) -> tuple[TableSpec, ...]:
        unseen = () if self._unseen is None else (self._unseen.spec,)
        return (self._waiting, *self._versions.tables(), *unseen)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows that wait, and the table's."""
        left, right = self._sides
        waiting = tables[WAITING].scan().select(left.stored.names)
        parts = [
            SideRows("left", left, waiting),
            SideRows("right", right, self._versions.rows(tables)),
        ]
        return stored_view(parts, since, until, self._spec.timed)

    def late(self, port: int, rows: pa.Table, watermark: int) -> Mask | None:
        return late_rows(rows, watermark, self._spec.lateness, self._spec.processing)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        with_nulls = port == 1 or self._outer  # of the table, they are dead letters in `step`
        return rows if with_nulls else self._sides[port].without_nulls(rows)

    def step(self, step: EpochStep) -> None:
        floor = late_floor(step.after, self._spec.lateness)
        inputs = [step.inputs[0], self._sides[1].keyed(step.inputs[1], step, 1)]
        if self._spec.processing:
            floor = MAX_TIME  # whatever has come counts
        if not self._spec.timed:
            inputs = [rows and _without_time(rows) for rows in inputs]
        left, right = (s.arrived(r, step.epoch) for s, r in zip(self._sides, inputs, strict=True))
        due, new = self._due(left, floor, step), self._versions.passing(right, floor, step)
        if due.num_rows or (self._unseen is not None and new.num_rows):
            self._join(due, new, step)
        old = self._versions.settle(new, floor, step)
        if self._unseen is not None:
            self._emit_ended(self._unseen.aged(old, step), step)
            if step.after >= MAX_TIME:
                self._emit_ended(self._unseen.rest(step), step)
        if not self._spec.processing:
            self._look_ahead(step)

    def _look_ahead(self, step: EpochStep) -> None:
        first = first_time(step.tables[WAITING])
        if self._unseen is not None:
            first = min(first, self._unseen.next(step))
        step.next = watermark_after(first, self._spec.lateness)

    def _due(self, left: pa.Table, floor: int, step: EpochStep) -> pa.Table:
        """The rows whose time has been passed; the others wait."""
        return left if self._spec.processing else passing(left, floor, step.tables[WAITING])

    def _join(self, due: pa.Table, new: pa.Table, step: EpochStep) -> None:
        keys = due.select(self._sides[0].identity)
        if self._unseen is not None:
            keys = pa.concat_tables([keys, new.select(self._sides[1].identity)])
        stored = self._versions.stored(keys, step)
        versions = pa.concat_tables([stored, new]).combine_chunks()
        other = self._latest(due, versions, stored.num_rows)
        self._emit(due, versions, other, step)
        if self._unseen is not None:
            self._emit_ended(self._unseen.passing(versions, stored.num_rows, other, step), step)

    def _emit(self, due: pa.Table, versions: pa.Table, other: Index, step: EpochStep) -> None:
        met, how = other >= 0, self._spec.how
        if how in ("semi", "anti"):
            row = np.flatnonzero(met == (how == "semi"))
            seen: pa.Table | None = None
        else:
            row = np.arange(len(met)) if self._outer else np.flatnonzero(met)
            seen = versions.take(pa.array(other[row], mask=~met[row]))
        if len(row):
            times = numbers(due[AT])[row] + self._spec.lateness if self._spec.timed else None
            step.out.append(self._output.rows((due.take(pa.array(row)), seen), times))

    def _emit_ended(self, ended: EndedVersions, step: EpochStep) -> None:
        """Emit versions alone, with the times at which they ended."""
        versions, ends = ended
        if versions.num_rows:
            # By processing time, what ends a version may itself be behind the watermark.
            ends = np.maximum(ends + self._spec.lateness, step.before)
            times = ends if self._spec.timed else None
            step.out.append(self._output.rows((None, versions), times))

    def _latest(self, due: pa.Table, versions: pa.Table, stored: int) -> Index:
        """For each row the version that it sees, or -1; the first `stored` are not new."""
        ids, version_ids = shared_key_ids([due, versions], self._sides[0].identity)
        nulls = null_keys(due, self._sides[0].key.names)
        if nulls is not None:
            ids = np.where(nulls, -1, ids)
        at, since = numbers(due[AT]), numbers(versions[AT])
        if self._spec.processing and len(at) and len(since):
            # what came before counts, whatever its time
            since = np.where(np.arange(len(since)) < stored, min(at.min(), since.min()), since)
        within = self._spec.within
        low = np.full(len(at), MIN_TIME) if within is None else at - within
        last = matches(ids, low, at, version_ids, since).last()
        dead = np.append(self._versions.deletes(versions), False)
        return np.where(dead[last], -1, last)


def _without_time(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([TIME]) if TIME in rows.column_names else rows


# Versions of a table that no row of the stream has seen: right and full joins emit them alone.
#
# A version has ended when a later one of its key replaces it, when its key is deleted, when it is
# too old, or when the input has ended; only then is it certain that no row saw it. Of the current
# versions, the keys of those that no row has seen are stored: a set that is written where it
# changes and read for the keys of an epoch, whole only at the end of the input.
# Times here are event times without lateness.


UNSEEN = "unseen"
EndedVersions = tuple[pa.Table, Times]  # versions, and when each ended


class UnmatchedVersions:
    def __init__(self, side: JoinSide, versions: Versions, within: int | None) -> None:
        self._side, self._versions, self._within = side, versions, within
        self.spec = TableSpec(UNSEEN, side.key, pa.schema([]))

    def passing(
        self, versions: pa.Table, stored: int, seen: Index, step: EpochStep
    ) -> EndedVersions:
        """Record an epoch; the versions that ended because others replaced them.

        `versions` are in order, the first `stored` not new; `seen` are those that rows saw,
        and -1.
        """
        if not versions.num_rows:
            return versions, np.zeros(0, np.int64)
        ids, first = key_numbers(versions.select(self._side.identity))
        stored_unseen = self._are_unseen(versions.slice(0, stored), step)
        unseen = ~self._versions.deletes(versions)
        unseen[:stored] = stored_unseen
        unseen[seen[seen >= 0]] = False
        after = one_after(ids)
        was, now = np.zeros(len(first), np.bool_), np.zeros(len(first), np.bool_)
        was[ids[:stored]] = stored_unseen
        now[ids[unseen & (after < 0)]] = True
        keys = versions.select(self._side.identity).take(pa.array(first))
        self._table(step).put(keys.filter(pa.array(now & ~was)))
        self._table(step).delete(keys.filter(pa.array(was & ~now)))
        ended, at = np.flatnonzero(unseen & (after >= 0)), numbers(versions[AT])
        ends: Times = at[after[ended]]
        if self._within is not None:
            ends = np.minimum(ends, at[ended] + self._within)
        return versions.take(pa.array(ended)), ends

    def aged(self, old: pa.Table, step: EpochStep) -> EndedVersions:
        """Of the versions that are too old now, those that no row saw."""
        old = old.filter(pa.array(self._are_unseen(old, step)))
        self._table(step).delete(old.select(self._side.identity))
        return old, numbers(old[AT]) + (self._within or 0)

    def rest(self, step: EpochStep) -> EndedVersions:
        """At the end of the input, all that no row saw: they end where the watermarks ended."""
        keys = self._table(step).scan()
        self._table(step).delete(keys)
        rows = self._versions.stored(keys, step)
        return rows, np.maximum(numbers(rows[AT]), step.newest)

    def next(self, step: EpochStep) -> int:
        """When the next version may end, as far as the state says."""
        return min(self._versions.next(step), self._versions.next_old(step))

    def _are_unseen(self, versions: pa.Table, step: EpochStep) -> Mask:
        """Which of these, the latest of their keys, no row has seen so far."""
        unseen: Mask = self._table(step).get(versions.select(self._side.identity))[1]
        return unseen

    def _table(self, step: EpochStep) -> KeyedTable:
        return step.tables[self.spec.name]
