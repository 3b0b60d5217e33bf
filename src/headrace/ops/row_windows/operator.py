"""The operator for windows that are bounded by rows (see window/by_rows.py).

Windows that follow each other and have named aggregates live in partials; all others store
rows. A row counts in the epoch in which it comes; within an epoch rows are in the order of
event time, source and offset. Windows that are complete are emitted in the epoch in which they
become so, all others when the input ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.arrays import Column, Index, Mask, array, flat, integers, take
from headrace.chunk import HIDDEN, OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.named import Aggregate, part_names, partial, result, with_stored
from headrace.ops.contract import EpochStep, Operator
from headrace.ops.row_windows.ends import Pieces, ends_of
from headrace.ops.row_windows.sequence import KeyCounters, counter_fields
from headrace.ops.row_windows.store import Ordered, PackedRows, fitted, ordered
from headrace.ops.row_windows.stored_windows import StoredWindows
from headrace.ops.row_windows.work import AggregateWork, Ended, Fired, FunctionWork, WindowWork
from headrace.ops.tables import plain_view
from headrace.ops.window.by_rows import (
    LastRows,
    RowWindow,
    check,
    column_of,
    needs_time,
    untimed,
)
from headrace.ops.window.function import WindowFunction
from headrace.state.table import KeyedTable, TableSpec

Function = Mapping[str, Aggregate] | WindowFunction


class _Strategy(Protocol):
    """How windows are made of rows and state."""

    def tables(self) -> tuple[TableSpec, ...]:
        """The tables of its state."""

    def step(self, step: EpochStep) -> Iterator[Fired]:
        """Apply one epoch to the state; the windows that ended."""


class RowWindowOperator(Operator):
    def __init__(
        self,
        spec: RowWindow,
        function: Function,
        keys: Sequence[str],
        input: pa.Schema,
        output: pa.Schema,
    ) -> None:
        check(spec, input)
        self._spec, self._schema = spec, output
        key = pa.schema([input.field(k) for k in keys])
        columns = _read(function, input)
        self._strategy = _strategy_for(spec, function, columns, key, input, output)
        own = column_of(spec)
        self._columns = {*keys, *columns, *HIDDEN, *([own] if own else [])}

    def tables(self) -> tuple[TableSpec, ...]:
        return self._strategy.tables()

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """Open windows; where their rows are stored, the keys that have any."""
        if isinstance(self._strategy, PartialWindows):
            return self._strategy.view(tables, since, until)
        return plain_view(next(iter(tables.values())), since, until)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        if not needs_time(self._spec) or watermark <= MIN_TIME:
            return None
        self._refuse_untimed(rows)
        bound = watermark
        if isinstance(self._spec, LastRows):
            bound = watermark // self._spec.every * self._spec.every
        return np.asarray(rows.column(TIME).to_numpy() < bound)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """The columns that are needed."""
        self._refuse_untimed(rows)
        return rows.select([n for n in rows.column_names if n in self._columns])

    def _refuse_untimed(self, rows: pa.Table) -> None:
        if needs_time(self._spec) and TIME not in rows.column_names:
            raise untimed(self._spec)

    def step(self, step: EpochStep) -> None:
        chunks = []
        for fired in self._strategy.step(step):
            step.faults.extend(fired.faults)
            if len(fired.of):
                chunks.append(fired.chunk(self._schema))
        if chunks:
            step.out.append(pa.concat_tables(chunks))


def _strategy_for(
    spec: RowWindow,
    function: Function,
    columns: Sequence[str],
    key: pa.Schema,
    input: pa.Schema,
    output: pa.Schema,
) -> _Strategy:
    if isinstance(function, Mapping) and spec.tumbles:
        return PartialWindows(spec, function, key, input, numbered="pane" in output.names)
    if isinstance(function, Mapping):
        work: WindowWork = AggregateWork(function)
    else:
        work = FunctionWork(function, columns)
        columns = [c for c in columns if c not in key.names]
    rows = pa.schema([*(input.field(c) for c in columns), *_hidden(spec, function)])
    if isinstance(spec, LastRows):
        return TickWindows(spec, work, key, rows, input)
    return StoredWindows(spec, work, key, rows, input)


def _hidden(spec: RowWindow, function: Function) -> list[pa.Field]:
    """The columns of a row's place in the order, as far as they matter once it is stored."""
    ordered = not isinstance(function, Mapping) or any(a.ordered for a in function.values())
    names = [TIME, SOURCE, OFFSET] if ordered or isinstance(spec, LastRows) else [TIME]
    return [pa.field(n, HIDDEN[n]) for n in names]


def _read(function: Function, input: pa.Schema) -> list[str]:
    """The columns that windows are made of."""
    names = [n for n in input.names if n not in HIDDEN]
    if isinstance(function, Mapping):
        used = {str(a) for agg in function.values() for a in agg.arguments}
    else:
        used = {*function.columns}
    return [n for n in names if n in used]


# Windows that follow each other, with named aggregates: a partial per key is the whole state.
#
# An epoch's rows are cut where windows end, the pieces are aggregated in one pass, and a key's
# first piece is merged with the stored partial of its open window. Rows are never stored, and
# never gone through one by one.


WINDOWS = "windows"
_PIECE, _LOW, _HIGH = "__piece", "__low", "__high"


class PartialWindows:
    def __init__(
        self,
        spec: RowWindow,
        aggs: Mapping[str, Aggregate],
        key: pa.Schema,
        input: pa.Schema,
        numbered: bool,
    ) -> None:
        """`numbered`: a key is remembered between windows, for their numbers."""
        self._spec, self._aggs, self._key, self._numbered = spec, aggs, key, numbered
        self._parts = [part for name, agg in aggs.items() for part in part_names(name, agg)]
        partials = [f for name, agg in aggs.items() for f in agg.partial_fields(name, input)]
        self._columns = [_LOW, _HIGH, *self._parts]
        bounds = [pa.field(name, pa.int64()) for name in (_LOW, _HIGH)]
        value = pa.schema([*counter_fields(spec, input, with_rows=False), *bounds, *partials])
        self._table = TableSpec(WINDOWS, key, value)

    def tables(self) -> tuple[TableSpec, ...]:
        return (self._table,)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The open window of each key: what it would emit now."""
        stored = tables[WINDOWS].scan()
        stored = stored.filter(pa.array(KeyCounters.of(stored).since > 0))
        keys = stored.select(self._key.names)
        values = result(stored.select(self._parts), self._aggs)
        return pa.table([*keys.columns, *values.columns], [*self._key.names, *values.column_names])

    def step(self, step: EpochStep) -> Iterator[Fired]:
        table, arrived = step.tables[WINDOWS], step.arrived
        if arrived is not None:
            yield from self._apply(table, ordered(arrived, self._key))
        if step.after >= MAX_TIME:
            yield from self._finish(table)

    def _apply(self, table: KeyedTable, rows: Ordered) -> Iterator[Fired]:
        stored, present = table.get(rows.keys)
        counters = KeyCounters.of(stored)
        ends = ends_of(self._spec, rows, counters.since, counters.reference)
        cut = Pieces.cut(rows, ends)
        partials = self._merged(rows, cut, stored, counters.since > 0)
        closed = np.ones(len(cut.key), np.bool_)
        closed[cut.last] = ends.since == 0
        if closed.any():
            owners = rows.keys.take(pa.array(ends.key))
            number = counters.number[ends.key] + ends.number
            yield self._fired(owners, number, partials.filter(pa.array(closed)), at_end=False)
        after = counters.after(ends)
        open_partials = take([partials[n] for n in self._columns], cut.last, after.since > 0)
        self._put(table, rows.keys, present, after, open_partials)

    def _merged(self, rows: Ordered, cut: Pieces, stored: pa.Table, open: Mask) -> pa.Table:
        """The bounds and the partial of each piece, merged with what was stored of it."""
        goes_on = np.zeros(len(cut.key), np.bool_)
        goes_on[cut.first] = open
        fresh = self._fresh(rows, cut, stored)
        start = stored.take(pa.array(cut.key))
        merged = with_stored(fresh, start, goes_on & (cut.size > 0), self._aggs)
        low, high = _bounds(rows, cut, start, goes_on)
        return merged.append_column(_LOW, low).append_column(_HIGH, high)

    def _fresh(self, rows: Ordered, cut: Pieces, stored: pa.Table) -> pa.Table:
        """The partial of each piece's rows; the stored one where it has none."""
        numbers = np.empty(len(cut.piece), np.int32)
        numbers[rows.order] = cut.piece
        coded = pa.DictionaryArray.from_arrays(numbers, pa.array(np.arange(len(cut.key))))
        partials = partial(rows.rows.append_column(_PIECE, coded), [_PIECE], self._aggs)
        at = partials.num_rows + cut.key
        at[partials[_PIECE].to_numpy()] = np.arange(partials.num_rows)
        if partials.num_rows == len(at) and (at == np.arange(len(at))).all():
            return partials.select(self._parts)
        both = [pa.concat_arrays([flat(partials[n]), flat(stored[n])]) for n in self._parts]
        return pa.table(take(both, at), self._parts)

    def _fired(self, keys: pa.Table, number: Index, partials: pa.Table, at_end: bool) -> Fired:
        ended = Ended(keys, number, np.full(len(number), at_end))
        if not partials[_LOW].null_count:
            ended = ended.lasting(integers(partials[_LOW]), integers(partials[_HIGH]))
        values = result(partials.select(self._parts), self._aggs)
        return Fired(ended, values, np.arange(len(number)))

    def _put(
        self,
        table: KeyedTable,
        keys: pa.Table,
        present: Mask,
        counters: KeyCounters,
        partials: Sequence[Column],
    ) -> None:
        """Of a key without an open window only its number is stored, if `numbered`."""
        open, columns = counters.since > 0, {name: keys[name] for name in keys.column_names}
        columns |= counters.columns() | dict(zip(self._columns, partials, strict=True))
        if self._numbered or open.all():
            table.put(pa.table(columns))
            return
        table.put(pa.table(columns).filter(pa.array(open)))
        table.delete(keys.filter(pa.array(present & ~open)))

    def _finish(self, table: KeyedTable) -> Iterator[Fired]:
        """The input has ended: so do all windows that are open."""
        stored = table.scan()
        stored = stored.filter(pa.array(KeyCounters.of(stored).since > 0))
        count = stored.num_rows
        if not count:
            return
        keys, counters = stored.select(self._table.identity.names), KeyCounters.of(stored)
        yield self._fired(keys, counters.number, stored, at_end=True)
        nothing = [pa.nulls(count, stored[n].type) for n in self._columns]
        self._put(table, keys, np.ones(count, np.bool_), counters.ended(), nothing)


def _bounds(
    rows: Ordered, cut: Pieces, stored: pa.Table, goes_on: Mask
) -> tuple[pa.Array, pa.Array]:
    """The earliest and the latest time in each piece; an epoch's rows are in order of time."""
    count = len(cut.key)
    if not rows.timed:
        return pa.nulls(count, pa.int64()), pa.nulls(count, pa.int64())
    some = cut.size > 0
    stop = np.cumsum(cut.size)
    low, high = np.full(count, MAX_TIME), np.full(count, -MAX_TIME)
    low[some], high[some] = rows.times((stop - cut.size)[some]), rows.times(stop[some] - 1)
    low[goes_on] = np.minimum(low, integers(stored[_LOW]))[goes_on]
    high[goes_on] = np.maximum(high, integers(stored[_HIGH]))[goes_on]
    return array(low, pa.int64()), array(high, pa.int64())


# The last rows of a key, looked at by the clock of event time.
#
# A row waits in a timed table for the first tick after it. When the watermark passes a tick,
# the keys that have rows waiting for it are found by a scan of that time, and only those are
# read; a key that got nothing since its last tick is not emitted again. Its counters count,
# instead of rows, how often rows came.


WAITING = "waiting"


class TickWindows(StoredWindows):
    def __init__(
        self, spec: LastRows, work: WindowWork, key: pa.Schema, rows: pa.Schema, input: pa.Schema
    ) -> None:
        super().__init__(spec, work, key, rows, input)
        self._every = spec.every
        self._waiting = PackedRows(WAITING, key, rows, timed=True)

    def tables(self) -> tuple[TableSpec, ...]:
        return (*super().tables(), self._waiting.spec)

    def step(self, step: EpochStep) -> Iterator[Fired]:
        table, arrived = step.tables[WAITING], step.arrived
        if arrived is not None:
            self._wait(step, ordered(arrived, self._key))
        due = table.scan(MIN_TIME, step.after + 1)
        if due.num_rows:
            yield from self._tick(step, ordered(self._waiting.unpacked(due, keyed=True), self._key))
        table.expire(step.after + 1)
        first = table.first_time()
        step.next = MAX_TIME if first is None else first

    def _wait(self, step: EpochStep, rows: Ordered) -> None:
        """Put rows aside, those of a key that wait for the same tick together."""
        counters = self._counters(step, rows.keys)
        ends = ends_of(self._spec, rows, np.zeros_like(counters.since), None)
        self._write(step, rows.keys, replace(counters, since=counters.since + 1))
        stop = rows.starts[ends.key] + ends.after
        start = np.append(0, stop[:-1])
        ticks = (rows.times(start) // self._every + 1) * self._every
        owners = rows.keys.take(pa.array(ends.key)).append_column(TIME, pa.array(ticks))
        new = fitted(rows.rows, self._store.rows).take(pa.array(rows.order))
        self._waiting.add(step.tables[WAITING], owners, counters.since[ends.key], new, stop - start)

    def _tick(self, step: EpochStep, rows: Ordered) -> Iterator[Fired]:
        counters = self._counters(step, rows.keys)
        ends = ends_of(self._spec, rows, np.zeros_like(counters.since), None)
        last = np.append(ends.key[1:] != ends.key[:-1], True)
        at_end = last & (step.after >= MAX_TIME)
        yield from self._fire(step, rows, replace(ends, since=counters.since), counters, at_end)
