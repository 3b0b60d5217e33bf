"""Joins of two tables: a stream of what changes in the result.

The left table's rows are held by the key of the right one, to which they point. When a right
row changes, all left rows that point to it do; otherwise only the rows that changed are looked
at. Left rows come as changes of their table, or as they are where both have the same key.
A right row that stands alone is a result of its key in the latter case; in the former one more,
beside those of the left rows that may point to it (`pointed.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, TAKEN_BACK, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.groups import Index, Mask
from headrace.ops.agg.keys import key_numbers
from headrace.ops.contract import Operator, Place, Spec, Step
from headrace.ops.join.before_after import Changed, Spans, earlier, left_of, shown, spans
from headrace.ops.join.changes import GIVEN, TAKEN, after, behind, given
from headrace.ops.join.columns import numbers
from headrace.ops.join.layout import Columns, Layout
from headrace.ops.join.pairs import shared_numbers
from headrace.ops.join.pointed import Pointed
from headrace.ops.join.side import AT, Side
from headrace.ops.join.versions import Versions, in_turn, last_of_each
from headrace.ops.join.view import Held, existing, held_view
from headrace.state.table import KeyedTable, TableSpec

HOWS = ("inner", "left", "right", "full", "semi", "anti")
POINTERS = {"right": "inner", "full": "left"}  # what is left of these without lone right rows
HIDE_RIGHT = ("semi", "anti")  # of a right row only whether it is there
LACK_LEFT, LACK_RIGHT = ("right", "full"), ("left", "full", *HIDE_RIGHT)  # in some results
POINTING, CHANGING = "pointing", "changing"
_Told = tuple[str, pa.Table]  # taken back or given, and the rows


class _Left(NamedTuple):
    """Left rows in an epoch: taken back, given, and those that point to what changed."""

    minus: pa.Table
    plus: pa.Table
    held: pa.Table
    spans: Spans


class _Right(NamedTuple):
    """The last version of each right row that changed in an epoch, so that it may be seen."""

    last: pa.Table
    spans: Spans


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
        self._spec, self._layout = spec, Layout(spec.columns, output)
        self._left, self._right = (Side(k, s) for k, s in zip(keys, inputs, strict=True))
        self._versions = Versions(self._right, spec.gone[1], name="right ")
        self._mine = Versions(self._left, spec.gone[0], name="left ")
        self._pointed = Pointed(self._left)
        self._how = POINTERS[spec.how] if spec.counts else spec.how
        names = [n for n in spec.own if n not in self._left.keys]  # it may point by some of them
        own = [self._left.value.field(n) for n in names]
        self._identity = [*self._left.identity, *names]
        rest = [f for f in self._left.held if f.name not in self._identity]
        self._pointing = TableSpec(POINTING, pa.schema([*self._left.key, *own]), pa.schema(rest))
        changes = pa.schema([f for f in self._left.held if f.name not in self._left.identity])
        self._changing = TableSpec(CHANGING, self._left.key, changes, timed=True, once=True)

    def tables(self) -> tuple[TableSpec, ...]:
        left = (self._pointing, self._changing) if self._spec.own else self._mine.tables()
        alone = (self._pointed.spec,) if self._spec.counts else ()
        return (*left, *self._versions.tables(), *alone)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows of both tables; of a left one that points, its changes that wait too."""
        if self._spec.own:
            names = POINTING, CHANGING
            mine = existing([tables[name].scan() for name in names], self._left)
        else:
            mine = self._mine.rows(tables)
        theirs = self._versions.rows(tables)
        parts = [Held("left", self._left, mine), Held("right", self._right, theirs)]
        return held_view(parts, since, until, self._spec.timed)

    def late(self, port: int, rows: pa.Table, watermark: int) -> Mask | None:
        derived = port == 0 and self._spec.own
        return None if derived else behind(rows, watermark, self._spec.processing)

    def step(self, step: Step) -> None:
        floor = MAX_TIME if self._spec.processing else step.after
        left, right = step.inputs
        if not self._spec.own:  # else a row that points nowhere is a row
            left = self._left.keyed(left, step)
        right = self._right.keyed(right, step)
        arrived = [
            s.arrived(rows, step.epoch) for s, rows in ((self._left, left), (self._right, right))
        ]
        passed = self._versions.passing(arrived[1], floor, step)
        theirs = self._changed_right(passed, step)
        told: list[_Told] = []
        if self._spec.own:
            changes = self._passing(arrived[0], floor, step)
            told += self._tell(self._changed_left(changes, theirs.last, step), theirs, step)
            told += self._tell_alone(changes, theirs, step) if self._spec.counts else []
        else:
            changed = self._changed_versions(arrived[0], theirs.last, floor, step)
            told += self._tell(changed, theirs, step)
        step.out += [rows for sign in (TAKEN, GIVEN) for of, rows in told if of == sign]
        self._versions.settle(passed, floor, step)
        first = step.tables[CHANGING].first_time() if self._spec.own else self._mine.next(step)
        step.next = after(min(self._versions.next(step), MAX_TIME if first is None else first))

    # the two sides

    def _changed_right(self, passed: pa.Table, step: Step) -> _Right:
        if self._how in LACK_RIGHT:
            passed = self._versions.real(passed, step, presence=self._how in HIDE_RIGHT)
        changed = spans(passed, self._right.identity, step)
        return _Right(self._versions.last(passed), changed)

    def _changed_left(self, changes: pa.Table, theirs: pa.Table, step: Step) -> _Left:
        table = step.tables[POINTING]
        held = table.match(numbers(theirs[HASH])).select(self._left.held.names)
        minus, plus = self._net(changes)
        table.delete(minus.select(self._identity))
        table.put(plus)
        changed = spans(changes, self._identity, step)
        return _Left(minus, plus, self._left.solid(held)[0], changed)

    def _passing(self, arrived: pa.Table, floor: int, step: Step) -> pa.Table:
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
        """Of several changes of a row, what is taken back first and what is given last."""
        if not changes.num_rows:
            return changes, changes
        _, first = key_numbers(changes.select(self._identity))
        last = last_of_each(changes, self._identity)
        gives = given(changes)
        minus, plus = first[~gives[first]], last[gives[last]]
        return changes.take(pa.array(minus)), changes.take(pa.array(plus))

    def _changed_versions(
        self, arrived: pa.Table, theirs: pa.Table, floor: int, step: Step
    ) -> _Left:
        passed = self._mine.passing(arrived, floor, step)
        real = self._mine.real(passed, step) if self._how in LACK_LEFT else passed
        last = self._mine.last(real)
        old, held = self._mine.known(last, step), self._mine.known(theirs, step)
        self._mine.settle(passed, floor, step)
        plus = last.filter(pa.array(~self._mine.deletes(last)))
        return _Left(old, plus, held, spans(real, self._left.identity, step))

    # what changes in the result

    def _tell(self, mine: _Left, theirs: _Right, step: Step) -> list[_Told]:
        parts = [mine.held, mine.minus, mine.plus]
        rows = pa.concat_tables(parts).combine_chunks()
        alone = self._how in LACK_LEFT
        more = [mine.spans.keys, *([theirs.last.select(self._left.identity)] if alone else [])]
        named = [p.select(self._identity) for p in parts] + more
        number = shared_numbers(named, self._identity)
        count = max(int(n.max(initial=-1)) for n in number) + 1
        if not count:
            return []
        left = left_of(rows, number[:3], count, (number[3], mine.spans))
        keys, first = pa.concat_tables(named).combine_chunks(), np.empty(count, np.int64)
        every = np.concatenate(number)
        first[every] = np.arange(len(every))
        keys = keys.take(pa.array(first)).select(self._left.identity)
        return self._differences(keys, left, self._right_of(keys, theirs, step), self._how)

    def _tell_alone(self, changes: pa.Table, theirs: _Right, step: Step) -> list[_Told]:
        """Right rows to which no left row points: they have no left row, before or after."""
        keys, before, now, at = self._pointed.count(changes, theirs.last, step)
        if not keys.num_rows:
            return []
        nobody, right = np.full(len(at), -1), self._right_of(keys, theirs, step)
        left = Changed(self._left.held.empty_table(), nobody, nobody, at, at)
        old, new = np.where(before, -1, right.old), np.where(now, -1, right.new)
        return self._differences(keys, left, replace(right, old=old, new=new), "right")

    def _right_of(self, keys: pa.Table, theirs: _Right, step: Step) -> Changed:
        """The right row of each key, before and after."""
        known, last = self._versions.known(keys, step), theirs.last
        rows = pa.concat_tables([known, last]).combine_chunks()
        named = [keys, known, last, theirs.spans.keys]
        mine, old, new, changed = shared_numbers(named, self._right.identity)
        count = max(int(n.max(initial=-1)) for n in (mine, old, new)) + 1
        before, now, since, at = (np.full(count, v) for v in (-1, -1, MIN_TIME, MIN_TIME))
        before[old] = now[old] = np.arange(len(old))
        dead = self._versions.deletes(last)
        now[new] = np.where(dead, -1, len(old) + np.arange(len(new)))
        since[changed], at[changed] = theirs.spans.since, theirs.spans.at
        return Changed(rows, before[mine], now[mine], since[mine], at[mine])

    def _differences(self, keys: pa.Table, left: Changed, right: Changed, how: str) -> list[_Told]:
        was, now = (
            shown(how, a >= 0, b >= 0) for a, b in ((left.old, right.old), (left.new, right.new))
        )
        told = []
        changed = (was != now) | left.moved | (right.moved & (how not in HIDE_RIGHT))
        for there, mine, theirs, at, change, source in (
            (was, left.old, right.old, earlier(left.since, right.since), TAKEN, TAKEN_BACK),
            (now, left.new, right.new, np.maximum(left.at, right.at), GIVEN, -1),
        ):
            chosen = np.flatnonzero(there & changed)
            if len(chosen):
                parts = _taken(left.rows, mine[chosen]), _taken(right.rows, theirs[chosen])
                extra = [pa.repeat(change, len(chosen))]
                times = at[chosen] if self._spec.timed else None
                owners = keys.take(pa.array(chosen))
                told.append((change, self._layout.rows(parts, times, extra, owners, source)))
        return told


def _taken(rows: pa.Table, at: Index) -> pa.Table:
    return rows.take(pa.array(at, mask=at < 0))
