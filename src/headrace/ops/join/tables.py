"""Joins of two tables: a stream of what changes in the result.

The left table's rows are held by the key of the right one, to which they point. When a right
row changes, all left rows that point to it do; otherwise only the rows that changed are looked
at. Left rows come as changes of their table, or as they are where both have the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.chunk import HASH, TAKEN_BACK, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.groups import Index, Mask
from headrace.ops.agg.keys import key_numbers
from headrace.ops.contract import Step
from headrace.ops.join.changes import CHANGE, GIVEN, TAKEN, after, behind, when
from headrace.ops.join.columns import numbers
from headrace.ops.join.layout import Columns, Layout
from headrace.ops.join.pairs import shared_numbers
from headrace.ops.join.side import AT, Side
from headrace.ops.join.versions import Versions, in_turn, last_of_each
from headrace.ops.join.view import Held, existing, held_view
from headrace.ops.window.aligned import Times
from headrace.state.table import KeyedTable, TableSpec

HOWS = ("inner", "left", "semi", "anti")
BY_KEY = (*HOWS, "right", "full")  # where both tables have the same key
POINTING, CHANGING = "pointing", "changing"


@dataclass(frozen=True)
class TableJoin:
    how: str
    own: tuple[str, ...]  # the left table's key, where it points by other columns; else ()
    processing: bool
    timed: bool
    gone: tuple[str | None, str | None]
    columns: Columns
    rows: tuple[str, ...] = ()

    kind = "join"
    endless = True
    functions: tuple[Callable[..., Any], ...] = ()

    @property
    def needs_time(self) -> bool:
        return not self.processing

    @property
    def has_late(self) -> bool:
        return not self.processing

    def __str__(self) -> str:
        when = "processing" if self.processing else "event"
        return f"{self.how} of tables by {when} time"

    def shape(self) -> dict[str, Any]:
        return {"own": list(self.own), "processing": self.processing, "rows": list(self.rows)}

    def operator(
        self, keys: Sequence[Sequence[str]], inputs: Sequence[pa.Schema], output: pa.Schema
    ) -> TableJoinOperator:
        return TableJoinOperator(self, keys, inputs, output)


@dataclass(frozen=True, slots=True)
class _Changed:
    """Rows of one side, and for each thing that may change its row before and after; or -1."""

    rows: pa.Table
    old: Index
    new: Index
    at: Times  # when it changed, MIN_TIME if it did not

    @property
    def moved(self) -> Mask:
        return (self.at > MIN_TIME) & ((self.old >= 0) | (self.new >= 0))


class TableJoinOperator:
    version = 1

    def __init__(
        self, spec: TableJoin, keys: Sequence[Sequence[str]], inputs: Sequence[pa.Schema],
        output: pa.Schema,
    ) -> None:  # fmt: skip
        self._spec, self._layout = spec, Layout(spec.columns, output)
        self._left, self._right = (Side(k, s) for k, s in zip(keys, inputs, strict=True))
        self._versions = Versions(self._right, spec.gone[1], name="right ")
        self._mine = Versions(self._left, spec.gone[0], name="left ")
        own = [self._left.value.field(n) for n in spec.own]
        rest = [f for f in self._left.held if f.name not in (HASH, *self._left.key.names)]
        rest = [f for f in rest if f.name not in spec.own]
        self._pointing = TableSpec(POINTING, pa.schema([*self._left.key, *own]), pa.schema(rest))
        changes = pa.schema([f for f in self._left.held if f.name not in self._left.identity])
        self._changing = TableSpec(CHANGING, self._left.key, changes, timed=True, once=True)
        self._identity = [*self._left.identity, *spec.own]

    def tables(self) -> tuple[TableSpec, ...]:
        left = (self._pointing, self._changing) if self._spec.own else self._mine.tables()
        return (*left, *self._versions.tables())

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

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        return rows

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        return prepared

    def step(self, step: Step) -> None:
        floor = MAX_TIME if self._spec.processing else step.after
        left, right = step.inputs
        if not self._spec.own:  # else a row that points nowhere is a row
            left = self._left.keyed(left, step)
        right = self._right.keyed(right, step)
        arrived = [s.arrived(rows, step.epoch) for s, rows in
                   ((self._left, left), (self._right, right))]  # fmt: skip
        passed = self._versions.passing(arrived[1], floor, step)
        theirs = self._versions.last(passed)
        pointing = self._changed_left if self._spec.own else self._changed_versions
        minus, plus, held = pointing(arrived[0], theirs, floor, step)
        self._tell(minus, plus, held, theirs, step)
        self._versions.settle(passed, floor, step)
        first = step.tables[CHANGING].first_time() if self._spec.own else self._mine.next(step)
        step.next = after(min(self._versions.next(step), MAX_TIME if first is None else first))

    # the left side: rows taken back, rows given, and rows that point to what changed

    def _changed_left(
        self, arrived: pa.Table, theirs: pa.Table, floor: int, step: Step
    ) -> tuple[pa.Table, pa.Table, pa.Table]:
        table = step.tables[POINTING]
        held = table.match(numbers(theirs[HASH])).select(self._left.held.names)
        minus, plus = self._net(self._passing(arrived, floor, step))
        table.delete(minus.select(self._identity))
        table.put(plus)
        return minus, plus, self._left.solid(held)[0]

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
        given = _given(changes)
        minus, plus = first[~given[first]], last[given[last]]
        return changes.take(pa.array(minus)), changes.take(pa.array(plus))

    def _changed_versions(
        self, arrived: pa.Table, theirs: pa.Table, floor: int, step: Step
    ) -> tuple[pa.Table, pa.Table, pa.Table]:
        passed = self._mine.passing(arrived, floor, step)
        last = self._mine.last(passed)
        old, held = self._mine.known(last, step), self._mine.known(theirs, step)
        self._mine.settle(passed, floor, step)
        plus = last.filter(pa.array(~self._mine.deletes(last)))
        return _stamped(old, last, self._left.identity), plus, held

    # what changes in the result

    def _tell(
        self, minus: pa.Table, plus: pa.Table, held: pa.Table, theirs: pa.Table, step: Step
    ) -> None:
        parts = [held, minus, plus]
        rows = pa.concat_tables(parts).combine_chunks()
        alone = theirs.select(self._left.identity) if self._spec.how in ("right", "full") else None
        named = [p.select(self._identity) for p in parts] + ([] if alone is None else [alone])
        number = shared_numbers(named, self._identity)
        count = max((int(n.max(initial=-1)) for n in number), default=-1) + 1
        if not count:
            return
        left = _left_of(rows, number, count, step)
        keys, first = pa.concat_tables(named).combine_chunks(), np.empty(count, np.int64)
        every = np.concatenate(number)
        first[every] = np.arange(len(every))
        keys = keys.take(pa.array(first)).select(self._left.identity)
        self._differences(keys, left, self._right_of(keys, theirs, step), step)

    def _right_of(self, keys: pa.Table, theirs: pa.Table, step: Step) -> _Changed:
        """The right row of each key, before and after."""
        known = self._versions.known(keys, step)
        rows = pa.concat_tables([known, theirs]).combine_chunks()
        mine, old, new = shared_numbers([keys, known, theirs], self._right.identity)
        count = max(int(n.max(initial=-1)) for n in (mine, old, new)) + 1
        before, now, at = (np.full(count, v) for v in (-1, -1, MIN_TIME))
        before[old] = now[old] = np.arange(len(old))
        dead = self._versions.deletes(theirs)
        now[new] = np.where(dead, -1, len(old) + np.arange(len(new)))
        at[new] = when(theirs, step)
        return _Changed(rows, before[mine], now[mine], at[mine])

    def _differences(self, keys: pa.Table, left: _Changed, right: _Changed, step: Step) -> None:
        was, now = (self._shown(a >= 0, b >= 0) for a, b in
                    ((left.old, right.old), (left.new, right.new)))  # fmt: skip
        visible = self._spec.how not in ("semi", "anti")
        changed = (was != now) | left.moved | (right.moved & visible)
        for there, mine, theirs, at, change, source in (
            (was, left.old, right.old, _earlier(left.at, right.at), TAKEN, TAKEN_BACK),
            (now, left.new, right.new, np.maximum(left.at, right.at), GIVEN, -1),
        ):
            chosen = np.flatnonzero(there & changed)
            if len(chosen):
                parts = _taken(left.rows, mine[chosen]), _taken(right.rows, theirs[chosen])
                extra = [pa.repeat(change, len(chosen))]
                times = at[chosen] if self._spec.timed else None
                owners = keys.take(pa.array(chosen))
                step.out.append(self._layout.rows(parts, times, extra, owners, source))

    def _shown(self, left: Mask, right: Mask) -> Mask:
        """Whether there is a result for these."""
        match self._spec.how:
            case "inner" | "semi":
                return left & right
            case "left":
                return left
            case "right":
                return right
            case "anti":
                return left & ~right
        return left | right


def _earlier(left: Times, right: Times) -> Times:
    """When a result was no longer true: at the first change of its two rows.

    A left row that points elsewhere now is given by another task, which knows nothing of what
    changed here: so it must not be taken back later than when it moved.
    """
    return np.where((left > MIN_TIME) & (right > MIN_TIME), np.minimum(left, right),
                    np.maximum(left, right))  # fmt: skip


def _given(changes: pa.Table) -> Mask:
    given: Mask = numbers(pc.equal(changes[CHANGE], GIVEN))
    return given


def _left_of(rows: pa.Table, number: list[Index], count: int, step: Step) -> _Changed:
    """The left row of each number, before and after; held rows are the same, unless changed."""
    held, minus, plus = number[:3]
    old, new, at = (np.full(count, v) for v in (-1, -1, MIN_TIME))
    at[number[1]] = when(rows.slice(len(held), len(minus)), step)
    moved = when(rows.slice(len(held) + len(minus)), step)
    at[plus] = np.maximum(at[plus], moved)
    old[held] = new[held] = np.arange(len(held))
    old[minus], new[minus] = len(held) + np.arange(len(minus)), -1
    new[plus] = len(held) + len(minus) + np.arange(len(plus))
    return _Changed(rows, old, new, at)


def _stamped(old: pa.Table, new: pa.Table, identity: list[str]) -> pa.Table:
    """Old rows with the time at which they are replaced."""
    mine, theirs = shared_numbers([old, new], identity)
    place = np.zeros(int(theirs.max(initial=-1)) + 1, np.int64)
    place[theirs] = np.arange(len(theirs))
    times = numbers(new[AT])[place[mine]]
    return old.set_column(old.column_names.index(AT), AT, pa.array(times))


def _taken(rows: pa.Table, at: Index) -> pa.Table:
    return rows.take(pa.array(at, mask=at < 0))
