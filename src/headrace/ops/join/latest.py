"""Joins of a stream with a table: each row with the latest version of its key.

By event time a row waits until the watermark has passed its time, and then sees the version
that was the latest at that time: the result does not depend on the order of arrival. By
processing time it sees at once what has come so far. Right and full joins also emit the versions
that no row saw, when they have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, Times, numbers
from headrace.chunk import TIME
from headrace.clock import MAX_TIME, MIN_TIME, pretty
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.join.interval import passed
from headrace.ops.join.pairs import matches, shared_key_ids
from headrace.ops.join.sides import (
    AT,
    PLACE,
    Columns,
    JoinOutput,
    JoinSide,
    SideRows,
    null_keys,
    stored_view,
)
from headrace.ops.join.table_changes import Versions, in_turn, one_before
from headrace.ops.keys import key_numbers
from headrace.state.table import KeyedTable, TableSpec

HOWS = ("inner", "left", "right", "full", "semi", "anti")
WAITING = "waiting"


@dataclass(frozen=True)
class Latest(Spec):
    how: str
    processing: bool
    within: int | None  # how old a version may be, in ms; None: any age
    lateness: int
    timed: bool  # rows have event time
    gone: str | None  # the column of the table that says which rows delete
    columns: Columns
    rows: tuple[str, ...] = ()

    kind = "join"

    @property
    def endless(self) -> bool:
        return self.within is None

    @property
    def needs_time(self) -> bool:
        return not self.processing

    @property
    def has_late(self) -> bool:
        return not self.processing

    def __str__(self) -> str:
        when = "now" if self.processing else "at its time"
        old = f", at most {pretty(self.within)} old" if self.within is not None else ""
        late = f", lateness {pretty(self.lateness)}" if self.lateness else ""
        return f"{self.how} with the latest {when}{old}{late}"

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
        """For how long versions and rows stay."""
        age = {} if self.within is None else {"within": self.within}
        return {"lateness": self.lateness, **age}

    def operator(self, place: Place) -> LatestOperator:
        return LatestOperator(self, place.keys, place.inputs, place.output)


class LatestOperator(Operator):
    def __init__(
        self,
        spec: Latest,
        keys: Sequence[Sequence[str]],
        inputs: Sequence[pa.Schema],
        output: pa.Schema,
    ) -> None:
        self._spec, self._output = spec, JoinOutput(spec.columns, output)
        self._sides = [JoinSide(k, s) for k, s in zip(keys, inputs, strict=True)]
        left, right = self._sides
        self._versions = Versions(right, spec.gone, spec.within)
        self._waiting = TableSpec(
            WAITING, left.key, pa.schema([*left.value, *PLACE]), timed=True, once=True
        )
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
        waiting = tables[WAITING].scan().select(left.held.names)
        parts = [
            SideRows("left", left, waiting),
            SideRows("right", right, self._versions.rows(tables)),
        ]
        return stored_view(parts, since, until, self._spec.timed)

    def late(self, port: int, rows: pa.Table, watermark: int) -> Mask | None:
        floor = passed(watermark, self._spec.lateness)
        waits = floor > MIN_TIME and not self._spec.processing
        return numbers(rows[TIME]) < floor if waits else None

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        keep = port == 1 or self._outer  # of the table, they are emitted in `step`
        return rows if keep else self._sides[port].without_nulls(rows)

    def step(self, step: EpochStep) -> None:
        floor = passed(step.after, self._spec.lateness)
        inputs = [step.inputs[0], self._sides[1].keyed(step.inputs[1], step)]
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
        first = step.tables[WAITING].first_time()
        soon = MAX_TIME if first is None else first
        if self._unseen is not None:
            soon = min(soon, self._unseen.next(step))
        step.next = MAX_TIME if soon == MAX_TIME else soon + self._spec.lateness + 1

    def _due(self, left: pa.Table, floor: int, step: EpochStep) -> pa.Table:
        """The rows whose time has been passed; the others wait."""
        if self._spec.processing:
            return left
        at, table = numbers(left[AT]), step.tables[WAITING]
        later = left.filter(pa.array(at >= floor))
        table.put(later.append_column(TIME, later[AT]))
        due = table.scan(MIN_TIME, floor).select(left.column_names)
        table.expire(floor)
        return in_turn(pa.concat_tables([due, left.filter(pa.array(at < floor))]))

    def _join(self, due: pa.Table, new: pa.Table, step: EpochStep) -> None:
        asked = due.select(self._sides[0].identity)
        if self._unseen is not None:
            asked = pa.concat_tables([asked, new.select(self._sides[1].identity)])
        known = self._versions.known(asked, step)
        versions = pa.concat_tables([known, new]).combine_chunks()
        other = self._latest(due, versions, known.num_rows)
        self._emit(due, versions, other, step)
        if self._unseen is not None:
            self._emit_ended(self._unseen.passing(versions, known.num_rows, other, step), step)

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
        """Give versions alone, at the time at which they were over."""
        versions, over = ended
        if versions.num_rows:
            # By processing time, what ends a version may itself be behind the watermark.
            over = np.maximum(over + self._spec.lateness, step.before)
            times = over if self._spec.timed else None
            step.out.append(self._output.rows((None, versions), times))

    def _latest(self, due: pa.Table, versions: pa.Table, known: int) -> Index:
        """For each row the version that it sees, of which `known` were there before; or -1."""
        own, others = shared_key_ids([due, versions], self._sides[0].identity)
        nulls = null_keys(due, self._sides[0].key.names)
        if nulls is not None:
            own = np.where(nulls, -1, own)
        at, since = numbers(due[AT]), numbers(versions[AT])
        if self._spec.processing and len(at) and len(since):
            # what came before counts, whatever its time
            since = np.where(np.arange(len(since)) < known, min(at.min(), since.min()), since)
        within = self._spec.within
        low = np.full(len(at), MIN_TIME) if within is None else at - within
        found = matches(own, low, at, others, since).last()
        dead = np.append(self._versions.deletes(versions), False)
        return np.where(dead[found], -1, found)


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
EndedVersions = tuple[pa.Table, Times]  # versions, and when each was over


class UnmatchedVersions:
    def __init__(self, side: JoinSide, versions: Versions, within: int | None) -> None:
        self._side, self._versions, self._within = side, versions, within
        self.spec = TableSpec(UNSEEN, side.key, pa.schema([]))

    def passing(
        self, versions: pa.Table, known: int, seen: Index, step: EpochStep
    ) -> EndedVersions:
        """Take note of an epoch; the versions that are over because others took their place.

        `versions` are in order, of which `known` were there before; `seen` are those that rows
        saw, and -1.
        """
        if not versions.num_rows:
            return versions, np.zeros(0, np.int64)
        number, first = key_numbers(versions.select(self._side.identity))
        waited = self._waits(versions.slice(0, known), step)
        alone = ~self._versions.deletes(versions)
        alone[:known] = waited
        alone[seen[seen >= 0]] = False
        after = _one_after(number)
        was, now = np.zeros(len(first), np.bool_), np.zeros(len(first), np.bool_)
        was[number[:known]] = waited
        now[number[alone & (after < 0)]] = True
        keys = versions.select(self._side.identity).take(pa.array(first))
        self._table(step).put(keys.filter(pa.array(now & ~was)))
        self._table(step).delete(keys.filter(pa.array(was & ~now)))
        emitted, at = np.flatnonzero(alone & (after >= 0)), numbers(versions[AT])
        ends: Times = at[after[emitted]]
        if self._within is not None:
            ends = np.minimum(ends, at[emitted] + self._within)
        return versions.take(pa.array(emitted)), ends

    def aged(self, old: pa.Table, step: EpochStep) -> EndedVersions:
        """Of the versions that are too old now, those that no row saw."""
        old = old.filter(pa.array(self._waits(old, step)))
        self._table(step).delete(old.select(self._side.identity))
        return old, numbers(old[AT]) + (self._within or 0)

    def rest(self, step: EpochStep) -> EndedVersions:
        """At the end of the input, all that no row saw: they end where the watermarks ended."""
        keys = self._table(step).scan()
        self._table(step).delete(keys)
        rows = self._versions.known(keys, step)
        return rows, np.maximum(numbers(rows[AT]), step.newest)

    def next(self, step: EpochStep) -> int:
        """When the next version may be over, by what is known of it."""
        return min(self._versions.next(step), self._versions.next_old(step))

    def _waits(self, versions: pa.Table, step: EpochStep) -> Mask:
        """Which of these, the latest of their keys, no row has seen so far."""
        found: Mask = self._table(step).get(versions.select(self._side.identity))[1]
        return found

    def _table(self, step: EpochStep) -> KeyedTable:
        return step.tables[self.spec.name]


def _one_after(number: Index) -> Index:
    """For each row the next one with the same key number, or -1."""
    before, after = one_before(number), np.full(len(number), -1)
    there = np.flatnonzero(before >= 0)
    after[before[there]] = there
    return after
