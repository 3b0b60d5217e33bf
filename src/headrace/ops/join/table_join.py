"""Joins of two tables: the changelog of the result.

The left table's rows are stored by the key of the right one, to which they refer. When a right
row changes, all left rows that refer to it are read; otherwise only the rows that changed.
Left rows come as the changelog of their table, or as they are where both have the same key. A
right row without a left one is a result of its key in the latter case; in the former one more,
in addition to those of left rows that refer to it (`changed_rows.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, numbers
from headrace.chunk import HASH, TAKEN_BACK
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import EpochStep, Operator, Place
from headrace.ops.join.changed_rows import (
    ChangedRows,
    ChangeSpans,
    ReferenceCounts,
    earlier,
    has_result,
    left_of,
    spans,
)
from headrace.ops.join.pairs import last_of_each, shared_key_ids
from headrace.ops.join.sides import (
    Columns,
    EitherTimeJoin,
    JoinOutput,
    SideRows,
    first_time,
    join_sides,
    late_rows,
    not_deleted,
    stored_view,
    watermark_after,
)
from headrace.ops.join.table_changes import INSERT, RETRACT, Versions, inserts, passing
from headrace.ops.keys import key_numbers
from headrace.state.table import KeyedTable, TableSpec

HOWS = ("inner", "left", "right", "full", "semi", "anti")
WITHOUT_LONE_RIGHT = {"right": "inner", "full": "left"}  # these without unmatched right rows
HIDE_RIGHT = ("semi", "anti")  # of a right row only whether it is there
LACK_LEFT, LACK_RIGHT = ("right", "full"), ("left", "full", *HIDE_RIGHT)  # in some results
POINTING, CHANGING = "pointing", "changing"
_Change = tuple[str, pa.Table]  # retracted or emitted, and the rows


class _LeftChanges(NamedTuple):
    """Left rows in an epoch: retracted, emitted, and stored ones that refer to what changed."""

    minus: pa.Table
    plus: pa.Table
    stored: pa.Table
    spans: ChangeSpans


class _RightChanges(NamedTuple):
    """The last version of each right row that changed in an epoch, so that it may be seen."""

    last: pa.Table
    spans: ChangeSpans


@dataclass(frozen=True)
class TableJoin(EitherTimeJoin):
    how: str
    own: tuple[str, ...]  # the left table's key, where it refers by other columns; else ()
    processing: bool
    timed: bool
    gone: tuple[str | None, str | None]
    columns: Columns
    rows: tuple[str, ...] = ()

    kind = "join"
    endless = True
    table_ports = (0, 1)

    def __str__(self) -> str:
        when = "processing" if self.processing else "event"
        return f"{self.how} of tables by {when} time"

    @property
    def counts(self) -> bool:
        """Whether it must know how many left rows refer to a right one."""
        return bool(self.own) and self.how in WITHOUT_LONE_RIGHT

    @property
    def bound(self) -> str:
        return "table(..., unbounded=True)."

    def shape(self) -> dict[str, Any]:
        return {
            "how": self.how,
            "own": list(self.own),
            "processing": self.processing,
            "deletes": [gone is not None for gone in self.gone],
            "rows": list(self.rows),
        }

    @property
    def own_key(self) -> tuple[str, ...]:
        return self.own

    def operator(self, place: Place) -> TableJoinOperator:
        return TableJoinOperator(self, place)


class TableJoinOperator(Operator):
    def __init__(self, spec: TableJoin, place: Place) -> None:
        self._spec, self._output = spec, JoinOutput(spec.columns, place.output)
        self._left, self._right = join_sides(place)
        self._versions = Versions(self._right, spec.gone[1], name="right ")
        self._left_versions = Versions(self._left, spec.gone[0], name="left ")
        self._references = ReferenceCounts(self._left)
        self._how = WITHOUT_LONE_RIGHT[spec.how] if spec.counts else spec.how
        names = [n for n in spec.own if n not in self._left.keys]  # it may refer by some of them
        own = [self._left.value.field(n) for n in names]
        self._identity = [*self._left.identity, *names]
        rest = [f for f in self._left.stored if f.name not in self._identity]
        self._pointing = TableSpec(POINTING, pa.schema([*self._left.key, *own]), pa.schema(rest))
        self._changing = self._left.row_table(CHANGING)

    def tables(self) -> tuple[TableSpec, ...]:
        left = (self._pointing, self._changing) if self._spec.own else self._left_versions.tables()
        references = (self._references.spec,) if self._spec.counts else ()
        return (*left, *self._versions.tables(), *references)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows of both tables; of a left one that refers, its changes that wait too."""
        if self._spec.own:
            names = POINTING, CHANGING
            left = not_deleted([tables[name].scan() for name in names], self._left)
        else:
            left = self._left_versions.rows(tables)
        right = self._versions.rows(tables)
        parts = [SideRows("left", self._left, left), SideRows("right", self._right, right)]
        return stored_view(parts, since, until, self._spec.timed)

    def late(self, port: int, rows: pa.Table, watermark: int) -> Mask | None:
        derived = port == 0 and self._spec.own
        if derived:
            return None
        return late_rows(rows, watermark, processing=self._spec.processing)

    def step(self, step: EpochStep) -> None:
        floor = MAX_TIME if self._spec.processing else step.after
        left, right = step.inputs
        if not self._spec.own:  # else a row that refers to nothing is a row
            left = self._left.keyed(left, step)
        right = self._right.keyed(right, step, 1)
        arrived = [
            s.arrived(rows, step.epoch) for s, rows in ((self._left, left), (self._right, right))
        ]
        passed = self._versions.passing(arrived[1], floor, step)
        others = self._changed_right(passed, step)
        emitted: list[_Change] = []
        if self._spec.own:
            # The left table may be ahead of the right one, so its changes wait.
            changes = passing(arrived[0], floor, step.tables[CHANGING])
            emitted += self._changes(self._changed_left(changes, others.last, step), others, step)
            emitted += self._one_sided_changes(changes, others, step) if self._spec.counts else []
            first = first_time(step.tables[CHANGING])
        else:
            changed = self._changed_versions(arrived[0], others.last, floor, step)
            emitted += self._changes(changed, others, step)
            first = self._left_versions.next(step)
        step.out += [rows for sign in (RETRACT, INSERT) for of, rows in emitted if of == sign]
        self._versions.settle(passed, floor, step)
        step.next = watermark_after(min(self._versions.next(step), first))

    # the two sides

    def _changed_right(self, passed: pa.Table, step: EpochStep) -> _RightChanges:
        if self._how in LACK_RIGHT:
            passed = self._versions.real(passed, step, presence=self._how in HIDE_RIGHT)
        changed = spans(passed, self._right.identity, step)
        return _RightChanges(self._versions.last(passed), changed)

    def _changed_left(self, changes: pa.Table, others: pa.Table, step: EpochStep) -> _LeftChanges:
        table = step.tables[POINTING]
        stored = table.match(numbers(others[HASH])).select(self._left.stored.names)
        minus, plus = self._net(changes)
        table.delete(minus.select(self._identity))
        table.put(plus)
        changed = spans(changes, self._identity, step)
        return _LeftChanges(minus, plus, self._left.split_nulls(stored)[0], changed)

    def _net(self, changes: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Of several changes of a row, what is retracted first and what is emitted last."""
        if not changes.num_rows:
            return changes, changes
        _, first = key_numbers(changes.select(self._identity))
        last = last_of_each(changes, self._identity)
        is_insert = inserts(changes)
        minus, plus = first[~is_insert[first]], last[is_insert[last]]
        return changes.take(pa.array(minus)), changes.take(pa.array(plus))

    def _changed_versions(
        self, arrived: pa.Table, others: pa.Table, floor: int, step: EpochStep
    ) -> _LeftChanges:
        versions = self._left_versions
        passed = versions.passing(arrived, floor, step)
        real = versions.real(passed, step) if self._how in LACK_LEFT else passed
        last = versions.last(real)
        minus, stored = versions.stored(last, step), versions.stored(others, step)
        versions.settle(passed, floor, step)
        plus = last.filter(pa.array(~versions.deletes(last)))
        return _LeftChanges(minus, plus, stored, spans(real, self._left.identity, step))

    # what changes in the result

    def _changes(self, left: _LeftChanges, right: _RightChanges, step: EpochStep) -> list[_Change]:
        parts = [left.stored, left.minus, left.plus]
        rows = pa.concat_tables(parts).combine_chunks()
        lone_right = self._how in LACK_LEFT
        more = [left.spans.keys, *([right.last.select(self._left.identity)] if lone_right else [])]
        tables = [p.select(self._identity) for p in parts] + more
        ids = shared_key_ids(tables, self._identity)
        count = max(int(n.max(initial=-1)) for n in ids) + 1
        if not count:
            return []
        left_rows = left_of(rows, ids[:3], count, (ids[3], left.spans))
        keys, first = pa.concat_tables(tables).combine_chunks(), np.empty(count, np.int64)
        every = np.concatenate(ids)
        first[every] = np.arange(len(every))
        keys = keys.take(pa.array(first)).select(self._left.identity)
        return self._differences(keys, left_rows, self._right_of(keys, right, step), self._how)

    def _one_sided_changes(
        self, changes: pa.Table, others: _RightChanges, step: EpochStep
    ) -> list[_Change]:
        """Right rows to which no left row refers: they have no left row, before or after."""
        keys, before, now, at = self._references.count(changes, others.last, step)
        if not keys.num_rows:
            return []
        none, right = np.full(len(at), -1), self._right_of(keys, others, step)
        left = ChangedRows(self._left.stored.empty_table(), none, none, at, at)
        old, new = np.where(before, -1, right.old), np.where(now, -1, right.new)
        return self._differences(keys, left, replace(right, old=old, new=new), "right")

    def _right_of(self, keys: pa.Table, others: _RightChanges, step: EpochStep) -> ChangedRows:
        """The right row of each key, before and after."""
        stored, last = self._versions.stored(keys, step), others.last
        rows = pa.concat_tables([stored, last]).combine_chunks()
        tables = [keys, stored, last, others.spans.keys]
        ids, old, new, changed = shared_key_ids(tables, self._right.identity)
        count = max(int(n.max(initial=-1)) for n in (ids, old, new)) + 1
        before, now, since, at = (np.full(count, v) for v in (-1, -1, MIN_TIME, MIN_TIME))
        before[old] = now[old] = np.arange(len(old))
        dead = self._versions.deletes(last)
        now[new] = np.where(dead, -1, len(old) + np.arange(len(new)))
        since[changed], at[changed] = others.spans.since, others.spans.at
        return ChangedRows(rows, before[ids], now[ids], since[ids], at[ids])

    def _differences(
        self, keys: pa.Table, left: ChangedRows, right: ChangedRows, how: str
    ) -> list[_Change]:
        was, now = (
            has_result(how, a >= 0, b >= 0)
            for a, b in ((left.old, right.old), (left.new, right.new))
        )
        emitted = []
        changed = (was != now) | left.moved | (right.moved & (how not in HIDE_RIGHT))
        for result, own, others, at, change, source in (
            (was, left.old, right.old, earlier(left.since, right.since), RETRACT, TAKEN_BACK),
            (now, left.new, right.new, np.maximum(left.at, right.at), INSERT, -1),
        ):
            chosen = np.flatnonzero(result & changed)
            if len(chosen):
                parts = _rows_at(left.rows, own[chosen]), _rows_at(right.rows, others[chosen])
                extra = [pa.repeat(change, len(chosen))]
                times = at[chosen] if self._spec.timed else None
                owners = keys.take(pa.array(chosen))
                emitted.append((change, self._output.rows(parts, times, extra, owners, source)))
        return emitted


def _rows_at(rows: pa.Table, at: Index) -> pa.Table:
    """These rows; nulls for -1."""
    return rows.take(pa.array(at, mask=at < 0))
