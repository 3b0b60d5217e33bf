"""Joins of two tables: the changelog of the result.

The left table's rows are stored by the key of the right one, to which they refer. When a right
row changes, all left rows that refer to it are looked at; otherwise only the rows that changed.
Left rows come as the changelog of their table, or as they are where both have the same key. A
right row without a left one is a result of its key in the latter case; in the former one more,
in addition to those of left rows that refer to it (`changed_rows.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, numbers
from headrace.chunk import HASH, TAKEN_BACK, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.join.changed_rows import (
    ChangedRows,
    ChangeSpans,
    ReferenceCounts,
    earlier,
    has_result,
    left_of,
    spans,
)
from headrace.ops.join.pairs import shared_key_ids
from headrace.ops.join.sides import (
    AT,
    Columns,
    JoinOutput,
    JoinSide,
    SideRows,
    not_deleted,
    stored_view,
)
from headrace.ops.join.table_changes import (
    GIVEN,
    TAKEN,
    Versions,
    after,
    behind,
    in_turn,
    inserts,
    last_of_each,
)
from headrace.ops.keys import key_numbers
from headrace.state.table import KeyedTable, TableSpec

HOWS = ("inner", "left", "right", "full", "semi", "anti")
POINTERS = {"right": "inner", "full": "left"}  # what is left of these without lone right rows
HIDE_RIGHT = ("semi", "anti")  # of a right row only whether it is there
LACK_LEFT, LACK_RIGHT = ("right", "full"), ("left", "full", *HIDE_RIGHT)  # in some results
POINTING, CHANGING = "pointing", "changing"
_Change = tuple[str, pa.Table]  # retracted or emitted, and the rows


class _LeftChanges(NamedTuple):
    """Left rows in an epoch: retracted, emitted, and those that refer to what changed."""

    minus: pa.Table
    plus: pa.Table
    held: pa.Table
    spans: ChangeSpans


class _RightChanges(NamedTuple):
    """The last version of each right row that changed in an epoch, so that it may be seen."""

    last: pa.Table
    spans: ChangeSpans


@dataclass(frozen=True)
class TableJoin(Spec):
    how: str
    own: tuple[str, ...]  # the left table's key, where it points by other columns; else ()
    processing: bool
    timed: bool
    gone: tuple[str | None, str | None]
    columns: Columns
    rows: tuple[str, ...] = ()

    kind = "join"
    endless = True

    @property
    def needs_time(self) -> bool:
        return not self.processing

    @property
    def has_late(self) -> bool:
        return not self.processing

    def __str__(self) -> str:
        when = "processing" if self.processing else "event"
        return f"{self.how} of tables by {when} time"

    @property
    def counts(self) -> bool:
        """Whether it must know how many left rows point to a right one."""
        return bool(self.own) and self.how in POINTERS

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
        return TableJoinOperator(self, place.keys, place.inputs, place.output)


class TableJoinOperator(Operator):
    def __init__(
        self,
        spec: TableJoin,
        keys: Sequence[Sequence[str]],
        inputs: Sequence[pa.Schema],
        output: pa.Schema,
    ) -> None:
        self._spec, self._output = spec, JoinOutput(spec.columns, output)
        self._left, self._right = (JoinSide(k, s) for k, s in zip(keys, inputs, strict=True))
        self._versions = Versions(self._right, spec.gone[1], name="right ")
        self._own_versions = Versions(self._left, spec.gone[0], name="left ")
        self._pointed = ReferenceCounts(self._left)
        self._how = POINTERS[spec.how] if spec.counts else spec.how
        names = [n for n in spec.own if n not in self._left.keys]  # it may point by some of them
        own = [self._left.value.field(n) for n in names]
        self._identity = [*self._left.identity, *names]
        rest = [f for f in self._left.held if f.name not in self._identity]
        self._pointing = TableSpec(POINTING, pa.schema([*self._left.key, *own]), pa.schema(rest))
        changes = pa.schema([f for f in self._left.held if f.name not in self._left.identity])
        self._changing = TableSpec(CHANGING, self._left.key, changes, timed=True, once=True)

    def tables(self) -> tuple[TableSpec, ...]:
        left = (self._pointing, self._changing) if self._spec.own else self._own_versions.tables()
        alone = (self._pointed.spec,) if self._spec.counts else ()
        return (*left, *self._versions.tables(), *alone)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows of both tables; of a left one that points, its changes that wait too."""
        if self._spec.own:
            names = POINTING, CHANGING
            own = not_deleted([tables[name].scan() for name in names], self._left)
        else:
            own = self._own_versions.rows(tables)
        others = self._versions.rows(tables)
        parts = [SideRows("left", self._left, own), SideRows("right", self._right, others)]
        return stored_view(parts, since, until, self._spec.timed)

    def late(self, port: int, rows: pa.Table, watermark: int) -> Mask | None:
        derived = port == 0 and self._spec.own
        return None if derived else behind(rows, watermark, self._spec.processing)

    def step(self, step: EpochStep) -> None:
        floor = MAX_TIME if self._spec.processing else step.after
        left, right = step.inputs
        if not self._spec.own:  # else a row that points nowhere is a row
            left = self._left.keyed(left, step)
        right = self._right.keyed(right, step)
        arrived = [
            s.arrived(rows, step.epoch) for s, rows in ((self._left, left), (self._right, right))
        ]
        passed = self._versions.passing(arrived[1], floor, step)
        others = self._changed_right(passed, step)
        emitted: list[_Change] = []
        if self._spec.own:
            changes = self._passing(arrived[0], floor, step)
            emitted += self._changes(self._changed_left(changes, others.last, step), others, step)
            emitted += self._one_sided_changes(changes, others, step) if self._spec.counts else []
        else:
            changed = self._changed_versions(arrived[0], others.last, floor, step)
            emitted += self._changes(changed, others, step)
        step.out += [rows for sign in (TAKEN, GIVEN) for of, rows in emitted if of == sign]
        self._versions.settle(passed, floor, step)
        first = (
            step.tables[CHANGING].first_time() if self._spec.own else self._own_versions.next(step)
        )
        step.next = after(min(self._versions.next(step), MAX_TIME if first is None else first))

    # the two sides

    def _changed_right(self, passed: pa.Table, step: EpochStep) -> _RightChanges:
        if self._how in LACK_RIGHT:
            passed = self._versions.real(passed, step, presence=self._how in HIDE_RIGHT)
        changed = spans(passed, self._right.identity, step)
        return _RightChanges(self._versions.last(passed), changed)

    def _changed_left(self, changes: pa.Table, others: pa.Table, step: EpochStep) -> _LeftChanges:
        table = step.tables[POINTING]
        held = table.match(numbers(others[HASH])).select(self._left.held.names)
        minus, plus = self._net(changes)
        table.delete(minus.select(self._identity))
        table.put(plus)
        changed = spans(changes, self._identity, step)
        return _LeftChanges(minus, plus, self._left.solid(held)[0], changed)

    def _passing(self, arrived: pa.Table, floor: int, step: EpochStep) -> pa.Table:
        """The changes whose time is before `floor` now, in order.

        The left table may be ahead of the right one, so its changes wait here.
        """
        table, at = step.tables[CHANGING], numbers(arrived[AT])
        later = arrived.filter(pa.array(at >= floor))
        table.put(later.append_column(TIME, later[AT]))
        due = table.scan(MIN_TIME, floor).select(arrived.column_names)
        table.expire(floor)
        return in_turn(pa.concat_tables([due, arrived.filter(pa.array(at < floor))]))

    def _net(self, changes: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Of several changes of a row, what is retracted first and what is emitted last."""
        if not changes.num_rows:
            return changes, changes
        _, first = key_numbers(changes.select(self._identity))
        last = last_of_each(changes, self._identity)
        gives = inserts(changes)
        minus, plus = first[~gives[first]], last[gives[last]]
        return changes.take(pa.array(minus)), changes.take(pa.array(plus))

    def _changed_versions(
        self, arrived: pa.Table, others: pa.Table, floor: int, step: EpochStep
    ) -> _LeftChanges:
        passed = self._own_versions.passing(arrived, floor, step)
        real = self._own_versions.real(passed, step) if self._how in LACK_LEFT else passed
        last = self._own_versions.last(real)
        old, held = self._own_versions.known(last, step), self._own_versions.known(others, step)
        self._own_versions.settle(passed, floor, step)
        plus = last.filter(pa.array(~self._own_versions.deletes(last)))
        return _LeftChanges(old, plus, held, spans(real, self._left.identity, step))

    # what changes in the result

    def _changes(self, mine: _LeftChanges, others: _RightChanges, step: EpochStep) -> list[_Change]:
        parts = [mine.held, mine.minus, mine.plus]
        rows = pa.concat_tables(parts).combine_chunks()
        alone = self._how in LACK_LEFT
        more = [mine.spans.keys, *([others.last.select(self._left.identity)] if alone else [])]
        named = [p.select(self._identity) for p in parts] + more
        number = shared_key_ids(named, self._identity)
        count = max(int(n.max(initial=-1)) for n in number) + 1
        if not count:
            return []
        left = left_of(rows, number[:3], count, (number[3], mine.spans))
        keys, first = pa.concat_tables(named).combine_chunks(), np.empty(count, np.int64)
        every = np.concatenate(number)
        first[every] = np.arange(len(every))
        keys = keys.take(pa.array(first)).select(self._left.identity)
        return self._differences(keys, left, self._right_of(keys, others, step), self._how)

    def _one_sided_changes(
        self, changes: pa.Table, others: _RightChanges, step: EpochStep
    ) -> list[_Change]:
        """Right rows to which no left row points: they have no left row, before or after."""
        keys, before, now, at = self._pointed.count(changes, others.last, step)
        if not keys.num_rows:
            return []
        none, right = np.full(len(at), -1), self._right_of(keys, others, step)
        left = ChangedRows(self._left.held.empty_table(), none, none, at, at)
        old, new = np.where(before, -1, right.old), np.where(now, -1, right.new)
        return self._differences(keys, left, replace(right, old=old, new=new), "right")

    def _right_of(self, keys: pa.Table, others: _RightChanges, step: EpochStep) -> ChangedRows:
        """The right row of each key, before and after."""
        known, last = self._versions.known(keys, step), others.last
        rows = pa.concat_tables([known, last]).combine_chunks()
        named = [keys, known, last, others.spans.keys]
        own, old, new, changed = shared_key_ids(named, self._right.identity)
        count = max(int(n.max(initial=-1)) for n in (own, old, new)) + 1
        before, now, since, at = (np.full(count, v) for v in (-1, -1, MIN_TIME, MIN_TIME))
        before[old] = now[old] = np.arange(len(old))
        dead = self._versions.deletes(last)
        now[new] = np.where(dead, -1, len(old) + np.arange(len(new)))
        since[changed], at[changed] = others.spans.since, others.spans.at
        return ChangedRows(rows, before[own], now[own], since[own], at[own])

    def _differences(
        self, keys: pa.Table, left: ChangedRows, right: ChangedRows, how: str
    ) -> list[_Change]:
        was, now = (
            has_result(how, a >= 0, b >= 0)
            for a, b in ((left.old, right.old), (left.new, right.new))
        )
        emitted = []
        changed = (was != now) | left.moved | (right.moved & (how not in HIDE_RIGHT))
        for there, own, others, at, change, source in (
            (was, left.old, right.old, earlier(left.since, right.since), TAKEN, TAKEN_BACK),
            (now, left.new, right.new, np.maximum(left.at, right.at), GIVEN, -1),
        ):
            chosen = np.flatnonzero(there & changed)
            if len(chosen):
                parts = _taken(left.rows, own[chosen]), _taken(right.rows, others[chosen])
                extra = [pa.repeat(change, len(chosen))]
                times = at[chosen] if self._spec.timed else None
                owners = keys.take(pa.array(chosen))
                emitted.append((change, self._output.rows(parts, times, extra, owners, source)))
        return emitted


def _taken(rows: pa.Table, at: Index) -> pa.Table:
    return rows.take(pa.array(at, mask=at < 0))
