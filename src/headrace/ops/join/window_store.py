"""Rows of two inputs until their windows end: what window joins and `cogroup` share.

Rows are stored by time, and the windows that have rows by their end; a window leaves the store
when the watermark has passed its end, with all its rows. A row stays while a window that holds it
has not ended. Windows that merge (sessions) go another way: see the second half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, Times, numbers
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.expr import parsed
from headrace.hashing import hash_keys
from headrace.kernel import Kernel, SelectStep, compile_chain
from headrace.ops.contract import EpochStep, Place
from headrace.ops.general_windows.operator import GeneralWindowOperator
from headrace.ops.general_windows.stored_rows import ROWS
from headrace.ops.join.pairs import shared_key_ids
from headrace.ops.join.sides import (
    AT,
    NUMBER,
    SIDES,
    SideRows,
    arrived_rows,
    first_time,
    join_sides,
    null_keys,
    stored_view,
)
from headrace.ops.window.aligned import floor_of
from headrace.ops.window.assigners import GAP, Assigner, Session
from headrace.ops.window.function import RowTable, WindowedRows, WindowResults
from headrace.ops.window.trigger_base import Facts, Trigger
from headrace.ops.window.triggers import Windowing
from headrace.state.table import KeyedTable, TableSpec

WINDOWS = "windows"
_START = "$start"


class InputWindows(NamedTuple):
    """Rows of one input, once for each window that is over: its group is key and window."""

    rows: pa.Table
    group: Index
    start: Times
    end: Times

    def only(self, at: Index) -> InputWindows:
        return InputWindows(
            self.rows.take(pa.array(at)), self.group[at], self.start[at], self.end[at]
        )


class WindowStore:
    def __init__(self, assigner: Assigner, lateness: int, place: Place) -> None:
        self._assigner, self._lateness, self._sides = assigner, lateness, join_sides(place)
        self.wait = lateness  # from a window's end until it is over
        self._rows = [side.row_table(name) for name, side in zip(SIDES, self._sides, strict=True)]
        start = pa.schema([(_START, pa.int64())])
        self._windows = TableSpec(WINDOWS, start, pa.schema([]), timed=True)

    def tables(self) -> tuple[TableSpec, ...]:
        return (*self._rows, self._windows)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows of windows that are to come."""
        parts = [
            SideRows(name, side, tables[name].scan().select(side.stored.names))
            for name, side in zip(SIDES, self._sides, strict=True)
        ]
        return stored_view(parts, since, until)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        if watermark == MIN_TIME:
            return None
        reach = self._assigner.reach(numbers(rows[TIME]), rows)
        late: np.ndarray = reach < floor_of(watermark, self._lateness)
        return late

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        return rows

    def over(self, step: EpochStep) -> list[InputWindows] | None:
        """Store the rows that arrived; the rows of all windows that are over now."""
        self._add(step)
        ended = self._ended(step)
        self._expire(step)
        step.next = self._next(step)
        return ended

    def _add(self, step: EpochStep) -> None:
        """Store the rows that arrived, and which windows they open."""
        for spec, rows in zip(self._rows, arrived_rows(self._sides, step), strict=True):
            if rows.num_rows:
                at = numbers(rows[AT])
                step.tables[spec.name].put(rows.append_column(TIME, pa.array(at)))
                self._open(at, rows, step)

    def _open(self, at: Times, rows: pa.Table, step: EpochStep) -> None:
        """Every slot of the task knows every window: they are few, and slots may move."""
        placed = self._assigner.place(np.unique(at), rows)
        open_now = placed.end >= floor_of(step.before, self._lateness)
        bounds = np.unique(np.stack([placed.end[open_now], placed.start[open_now]], 1), axis=0)
        homes = np.array(step.homes, np.uint64)
        count, every = len(bounds), np.repeat(np.arange(len(bounds)), len(homes))
        ends, starts = bounds[every, 0], bounds[every, 1]
        columns = [pa.array(ends), pa.array(np.tile(homes, count)), pa.array(starts)]
        step.tables[WINDOWS].put(pa.table(columns, [TIME, HASH, _START]))

    def _ended(self, step: EpochStep) -> list[InputWindows] | None:
        """The rows of all windows that are over now, in order of group and time."""
        first, last = (floor_of(w, self._lateness) for w in (step.before, step.after))
        ended = step.tables[WINDOWS].scan(MIN_TIME, last)
        step.tables[WINDOWS].expire(last)
        if not ended.num_rows:
            return None
        since = int(numbers(ended[_START]).min())
        until = int(numbers(ended[TIME]).max())
        parts = []
        for side, spec in zip(self._sides, self._rows, strict=True):
            rows = step.tables[spec.name].scan(since, until).select(side.stored.names)
            placed = self._assigner.place(numbers(rows[AT]), rows)
            over = (placed.end >= first) & (placed.end < last)
            at = placed.row[over]
            parts.append((rows.take(pa.array(at)), placed.start[over], placed.end[over]))
        return _grouped(parts, self._sides[0].identity)

    def _expire(self, step: EpochStep) -> None:
        """Drop the rows that are in no window that is still to come."""
        passed = floor_of(step.after, self._lateness)
        if MIN_TIME < passed < MAX_TIME:  # the first window that still counts holds this time
            now = np.array([passed - 1])
            passed = int(self._assigner.place(now, self._sides[0].stored.empty_table()).start.min())
        for spec in self._rows:
            step.tables[spec.name].expire(min(passed, MAX_TIME))

    def _next(self, step: EpochStep) -> int:
        first = first_time(step.tables[WINDOWS])
        return first if first == MAX_TIME else first + self._lateness


def _grouped(parts: list[tuple[pa.Table, Times, Times]], identity: list[str]) -> list[InputWindows]:
    """Rows with the number of their key and window, which all inputs share."""
    keys = shared_key_ids([rows for rows, _, _ in parts], identity)
    bounds = np.concatenate([np.stack([end, start], 1) for _, start, end in parts])
    _, window = np.unique(bounds, axis=0, return_inverse=True)
    window = window.reshape(-1)
    most, windowed, at = int(window.max(initial=0)) + 1, [], 0
    for (rows, start, end), key in zip(parts, keys, strict=True):
        group = key * most + window[at : at + len(key)]
        at += len(key)
        windowed.append(InputWindows(rows, group, start, end))
    return [one.only(np.lexsort((numbers(one.rows[AT]), one.group))) for one in windowed]


# Rows of two inputs in windows that merge: sessions.
#
# Rows of both sides become rows of one schema, with a column that names their side, and go
# through the operator for general windows: all of them together form the sessions of a key.
# When one has ended and no late row can change it, its rows are split by side again. State,
# merging and lateness are that operator's; nothing is stored here.


_SIDE = "$side"
_OWN = "$own"  # zero, or what sets a row apart that has a null in its key
_SLOT = np.uint64(0xFFFFFFFF00000000)  # the part of a hash that says where a row is stored
_NOTHING = pa.schema([])


class SessionStore:
    """`separate_nulls`: a row with a null in its key has a session of its own."""

    def __init__(
        self, window: Session, lateness: int, place: Place, *, separate_nulls: bool
    ) -> None:
        self._window, self._inputs, self._separate_nulls = window, place.inputs, separate_nulls
        self.wait = lateness + window.slack  # from the end that it shows until it is over
        differs = [] if isinstance(window.gap, int) else [pa.field(GAP, pa.int64())]
        inputs = tuple(pa.schema([*schema, *differs]) for schema in place.inputs)
        self._sides = join_sides(replace(place, inputs=inputs))
        key = [*self._sides[0].key, pa.field(_OWN, pa.int64())]
        values = [
            f.with_name(_column(port, f.name))
            for port, side in enumerate(self._sides)
            for f in side.value
            if f.name != GAP
        ]
        self._schema = pa.schema([*key, pa.field(_SIDE, pa.int8()), *differs, *values])
        self._captured = _CapturedWindows()
        self._operator = GeneralWindowOperator(
            Windowing(window, _WhenForgotten(), lateness),
            {},
            (self._captured, None),
            [f.name for f in key],
            self._schema,
            _NOTHING,
        )

    def tables(self) -> tuple[TableSpec, ...]:
        return self._operator.tables()

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows of sessions that are not over."""
        stored = tables[ROWS].scan()
        parts = [
            SideRows(SIDES[port], side, self._of_side(port, stored, [*side.key.names, AT]))
            for port, side in enumerate(self._sides)
        ]
        return stored_view(parts, since, until)

    def _of_side(self, port: int, both: RowTable, shared: Sequence[str]) -> pa.Table:
        """The rows of one side among those of both: columns that both share, and its own."""
        names = {n: n for n in shared}
        names |= {_column(port, n): n for n in self._sides[port].value.names}
        rows = both.select([_SIDE, *names])
        rows = rows.filter(pa.array(numbers(rows[_SIDE]) == port))
        return rows.select(list(names)).rename_columns(list(names.values()))

    # where the rows are

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        return self._operator.late(0, self.prepare(port, rows), watermark)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """Rows with the gap after each, if it differs; raises if there is a row without."""
        gap, schema = self._window.gap, self._inputs[port]
        if isinstance(gap, int):
            return rows
        returned, bad = _gaps(gap.sql(), schema).run(rows.select(schema.names))
        if bad:
            raise ValueError(bad[0][1])
        return rows.append_column(GAP, returned.column(GAP))

    # one epoch

    def over(self, step: EpochStep) -> list[InputWindows] | None:
        """Store the rows that arrived; the rows of all sessions that are over now."""
        parts = [
            self._as_one(port, rows, step.epoch)
            for port, rows in enumerate(step.inputs)
            if rows is not None and rows.num_rows
        ]
        inner = replace(step, inputs=[pa.concat_tables(parts) if parts else None])
        self._captured.windows = None
        self._operator.step(inner)
        step.next = inner.next
        windows = self._captured.windows
        return None if windows is None else [self._placed(port, windows) for port in (0, 1)]

    def _as_one(self, port: int, rows: pa.Table, epoch: int) -> pa.Table:
        """Rows of one side in the form that both share."""
        side = self._sides[port]
        rows, count = side.arrived(rows, epoch), rows.num_rows
        own = self._own(port, rows, epoch)
        columns = {n: rows.column(n) for n in side.key.names}
        columns |= {_column(port, n): rows.column(n) for n in side.value.names}
        columns |= {_OWN: pa.array(own), _SIDE: pa.array(np.full(count, port, np.int8))}
        arrays = [columns.get(f.name, pa.nulls(count, f.type)) for f in self._schema]
        table = pa.Table.from_arrays(arrays, self._schema.names).cast(self._schema)
        hashes = _spread(numbers(rows[HASH]), own)
        return table.append_column(HASH, pa.array(hashes)).append_column(TIME, rows[AT])

    def _own(self, port: int, rows: pa.Table, epoch: int) -> np.ndarray:
        """A number that no other row has, for those that are equal to none."""
        nulls = null_keys(rows, self._sides[port].key.names) if self._separate_nulls else None
        if nulls is None:
            return np.zeros(rows.num_rows, np.int64)
        return np.where(nulls, (epoch << 32) + 2 * numbers(rows[NUMBER]) + port + 1, 0)

    def _placed(self, port: int, windows: WindowedRows) -> InputWindows:
        side = numbers(windows.rows.select([_SIDE])[_SIDE]) == port
        shared = [HASH, *self._sides[port].key.names]
        rows = self._of_side(port, windows.rows, shared).combine_chunks()
        group = windows.numbers[side]
        return InputWindows(rows, group, windows.begins[group], windows.ends[group])


def store_of(
    window: Assigner, lateness: int, place: Place, *, separate_nulls: bool
) -> WindowStore | SessionStore:
    """What holds the rows of two inputs until their windows are over."""
    if isinstance(window, Session):
        return SessionStore(window, lateness, place, separate_nulls=separate_nulls)
    return WindowStore(window, lateness, place)


class _WhenForgotten(Trigger):
    """A window fires only when no late row can change it any more."""

    def ready(self, f: Facts) -> Mask:
        return np.zeros(len(f), np.bool_)


class _CapturedWindows:
    """A function over windows that returns nothing and holds them for the join."""

    schema = _NOTHING
    columns: Sequence[str] = ()  # it is handed whole rows
    windows: WindowedRows | None = None

    def over(self, windows: WindowedRows) -> WindowResults:
        self.windows = windows
        return WindowResults(_NOTHING.empty_table(), np.zeros(0, np.int64))


@lru_cache(maxsize=64)
def _gaps(text: str, schema: pa.Schema) -> Kernel:
    """Compiled once per process."""
    gap = parsed(text).cast("bigint")
    return compile_chain([SelectStep(columns=((GAP, gap),))], schema)


def _column(port: int, name: str) -> str:
    """What a column of one side is called among those of both."""
    return name if name == GAP else f"{port}.{name}"


def _spread(hashes: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Rows with their own session get distinct hashes in the same slot: a search finds few."""
    if not own.any():
        return hashes
    mixed = (hashes & _SLOT) | (hash_keys([pa.array(own)]) & ~_SLOT)
    return np.where(own > 0, mixed, hashes)
