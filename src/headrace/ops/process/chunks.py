"""Process functions over chunks: the user's code sees the rows of all keys of a task at once.

One call per task and epoch, with an Arrow table that is sorted by key, then time, split and
offset, and the state as columns, one row per key. If a call fails it is tried again with half of
the keys, and so on; the rows of a key on which it fails alone are dead letters. Timers that are due
come after the rows, a timer of each key at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, owned
from headrace.chunk import TIME
from headrace.isolate import by_halving
from headrace.ops.contract import EpochStep, Fault, Operator, Place
from headrace.ops.keys import key_schema
from headrace.ops.process.chunk_timers import (
    DueTimers,
    RowsBetweenTimers,
    TimerRequest,
    TimersByKey,
    armed_within,
    beyond,
    refuse_timer,
    timer_request,
)
from headrace.ops.process.column_state import Columns, ColumnState
from headrace.ops.process.function import (
    CLOCK,
    EVENT,
    NO_ON_TIMER,
    NO_TIME,
    KeyedProcess,
    own_attributes,
)
from headrace.ops.process.held_rows import HeldRows
from headrace.ops.process.key_state import KeyState, Timers, seen_by_key
from headrace.ops.process.rows_by_key import RowArranger, RowOrigins, RowsByKey
from headrace.ops.row_buffer import passed_by
from headrace.ops.user_metrics import UserMetrics, WithMetrics
from headrace.rows import fitted
from headrace.state.table import KeyedTable, TableSpec


@dataclass(slots=True)
class ChunkCall(WithMetrics):
    """What `on_chunk` and `on_timer` may read about their call, and request."""

    keys: pa.Table  # one row per key, in the order in which they are in the chunk
    index: np.ndarray  # for each row of the chunk the number of its key
    starts: np.ndarray  # the first row of each key
    times: np.ndarray | None  # of the rows, in ms; None without event time
    watermark: int
    clock: int
    outputs: Mapping[str, pa.Schema]
    by_clock: np.ndarray | None = None  # in on_timer: which timers were set by the clock
    no_timer: str = ""  # why timers cannot be set
    no_event_timer: str = ""
    metrics: UserMetrics = field(default_factory=UserMetrics)
    side_rows: list[tuple[str, Any]] = field(default_factory=list)
    timer_requests: list[TimerRequest] = field(default_factory=list)

    def emit(self, output: str, rows: Any) -> None:
        """Emit rows to a side output, in the form in which on_chunk returns them."""
        if output not in self.outputs:
            raise ValueError(f"there is no side output {output!r}")
        self.side_rows.append((output, _own(rows)))

    def timer(self, at: Any, keys: Any = None) -> None:
        """Call on_timer when the watermark passes `at`: ms for each key, null for none.

        With `keys` only for the keys with these numbers, `at` for each of them.
        """
        self._request(EVENT, at, keys, True)

    def cancel(self, at: Any, keys: Any = None) -> None:
        """Forget the timers at `at`."""
        self._request(EVENT, at, keys, False)

    def clock_timer(self, at: Any, keys: Any = None) -> None:
        """Call on_timer when the clock passes `at`."""
        self._request(CLOCK, at, keys, True)

    def cancel_clock(self, at: Any, keys: Any = None) -> None:
        """Forget the timers that the clock would have fired at `at`."""
        self._request(CLOCK, at, keys, False)

    def _request(self, domain: int, at: Any, keys: Any, arm: bool) -> None:
        refuse_timer(self.no_timer or (self.no_event_timer if domain == EVENT else ""))
        count = self.keys.num_rows
        self.timer_requests.append(timer_request(domain, at, keys, arm, count))


@dataclass(frozen=True, slots=True)
class _KeyedCalls:
    """One method for some keys: its rows, or a timer of each."""

    method: str
    ids: np.ndarray  # of the keys
    starts: np.ndarray  # the first row of each key, and the end of all
    places: np.ndarray  # the numbers of the rows among those of the epoch, or of the timers
    subject: pa.Table | pa.Array  # what the method is called with
    times: np.ndarray | None  # of the rows or timers; None without event time
    due: DueTimers | None  # None: rows

    def ttl_times(self, step: EpochStep) -> np.ndarray | None:
        """The event times of the calls; one by a timer of the clock has none."""
        if self.due is None or self.times is None:
            return self.times
        return np.where(self.due.by_clock, step.before, self.times)


@dataclass(slots=True)
class _ChunkResult:
    """The result of one call, for keys [lo, hi)."""

    lo: int
    hi: int
    out: list[tuple[pa.Table, np.ndarray]]
    sides: list[tuple[str, pa.Table, np.ndarray]]
    before: Columns
    after: Columns
    stamps: Columns
    call: ChunkCall


class ChunkOperator(Operator):
    version = 3

    def __init__(self, function: KeyedProcess, place: Place, *, order: str = "") -> None:
        self._held = HeldRows(place) if order else None
        self._function, self._schema, self._timed = function, place.output, place.timed
        self._by, self._key = list(place.key), key_schema(place.key, place.input)
        self._sides = type(function).sides()
        self._arranger = RowArranger(self._key, [place.key])
        self._values = KeyState(function, self._key)
        self._columns = ColumnState(function, self._values)
        self._timers = Timers(type(function).timed(), self._key, ordered=bool(order))

    def tables(self) -> tuple[TableSpec, ...]:
        held = () if self._held is None else self._held.tables()
        return (*self._values.tables(), *self._timers.tables(), *held)

    def late(self, port: int, rows: pa.Table, watermark: int) -> Mask | None:
        """With `order` the rows that the watermark has passed; without, none is late."""
        return None if self._held is None else passed_by(rows, watermark)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        return seen_by_key(tables, self._by, self._key, since, until)

    def side_views(self) -> Mapping[str, Sequence[str]]:
        return {} if self._held is None else self._held.side_views()

    def side_view(self, name: str, tables: Mapping[str, KeyedTable]) -> pa.Table:
        assert self._held is not None
        return self._held.side_view(name, tables)

    def step(self, step: EpochStep) -> None:
        if self._held is not None:
            step.inputs = self._held.due(step.inputs, step)
        limits = self._timers.limits(step)
        work = self._arranger.arrange(step.inputs, self._timers.due(step, limits))
        timers = TimersByKey(work.timers, limits)
        times = work.hidden.column(TIME).to_numpy() if self._timed else None
        turns = RowsBetweenTimers(work.starts, times)
        while self._turn(turns, times, work, timers, step):
            pass
        timers.store(self._timers, work.keys, step)
        self._values.expire_keys(step)
        self._timers.look_ahead(step)
        if self._held is not None:
            self._held.look_ahead(step)

    def _turn(
        self,
        turns: RowsBetweenTimers,
        times: np.ndarray | None,
        work: RowsByKey,
        timers: TimersByKey,
        step: EpochStep,
    ) -> bool:
        """The rows of each key up to its next timer, then a timer of each key that is before its
        next row; whether there were any."""
        ids, starts, places = turns.take(timers.first_by_event(len(work)))
        if len(ids):
            (rows,) = step.inputs
            subject = work.table(rows)
            if len(places) < len(work.indexes):
                subject = subject.take(pa.array(places))
            own = None if times is None else times[places]
            calls = _KeyedCalls("on_chunk", ids, starts, places, subject, own, None)
            self._run(calls, work, timers, step)
        due = timers.next_round(turns.next_times())
        if due is not None:
            if self._held is not None:  # in order nothing is emitted late
                due.emits = np.maximum(due.times, turns.last[due.keys])
            count = np.arange(len(due.keys) + 1)
            at = pa.array(due.times)
            calls = _KeyedCalls("on_timer", due.keys, count, count[:-1], at, due.times, due)
            self._run(calls, work, timers, step)
        return len(ids) > 0 or due is not None

    def _run(
        self, calls: _KeyedCalls, work: RowsByKey, timers: TimersByKey, step: EpochStep
    ) -> None:
        def call(lo: int, hi: int) -> _ChunkResult:
            return self._call(calls, work, lo, hi, step)

        def failed(lo: int, hi: int, error: Exception) -> None:
            places = range(calls.starts[lo], calls.starts[hi])
            if calls.due is None:
                records = [work.arrived(step.inputs, int(calls.places[i])) for i in places]
            else:
                due = calls.due
                records = [work.blamed(int(due.keys[i]), int(due.times[i])) for i in places]
            port = 0 if calls.due is None else -1
            step.faults.extend(Fault(record, error, port) for record in records)

        for result in by_halving(len(calls.ids), call, failed):
            self._apply(result, calls, work, timers, step)

    def _call(
        self, calls: _KeyedCalls, work: RowsByKey, lo: int, hi: int, step: EpochStep
    ) -> _ChunkResult:
        first, last = int(calls.starts[lo]), int(calls.starts[hi])
        starts = calls.starts[lo : hi + 1] - first
        keys = work.keys.take(pa.array(calls.ids[lo:hi]))
        at = _at(calls.ttl_times(step), first + starts[:-1])
        before, stamps = self._columns.load(keys, at, step)
        due, timed = calls.due, type(self._function).timed()
        call = ChunkCall(
            keys.select(self._key.names).rename_columns(self._by),
            np.repeat(np.arange(hi - lo), np.diff(starts)),
            starts[:-1],
            None if calls.times is None else calls.times[first:last],
            step.before if due is None else step.after,
            step.clock,
            self._sides,
            None if due is None else due.by_clock[first:last],
            "" if timed else NO_ON_TIMER,
            "" if self._timed else NO_TIME,
        )
        one: Any = copy.copy(self._function)
        one.__dict__ = {**own_attributes(self._function), **before}
        returned = getattr(one, calls.method)(calls.subject.slice(first, last - first), call)
        after = self._columns.fitted(before, one.__dict__, hi - lo)
        out = [_placed(returned, self._schema, call)] if returned is not None else []
        sides = [(n, *_placed(rows, self._sides[n], call)) for n, rows in call.side_rows]
        return _ChunkResult(lo, hi, out, sides, before, after, stamps, call)

    def _apply(
        self,
        result: _ChunkResult,
        calls: _KeyedCalls,
        work: RowsByKey,
        timers: TimersByKey,
        step: EpochStep,
    ) -> None:
        """Store and emit the result of one call."""
        lo, hi, call = result.lo, result.hi, result.call
        keys = work.keys.take(pa.array(calls.ids[lo:hi]))
        newest = _at(calls.ttl_times(step), calls.starts[lo + 1 : hi + 1] - 1)
        self._columns.store(keys, result.before, result.after, result.stamps, newest, step)
        step.metrics.update(call.metrics)
        past = np.zeros(hi - lo, np.bool_) if calls.due is None else beyond(calls.due, step)[lo:hi]
        for request in call.timer_requests:
            timers.apply(armed_within(request, past), calls.ids[lo:hi])
        for table, index in result.out:
            step.out.append(self._with_origin(table, index, result, calls, work, step))
        for name, table, index in result.sides:
            placed = self._with_origin(table, index, result, calls, work, step)
            step.sides.setdefault(name, []).append(placed)

    def _with_origin(
        self,
        table: pa.Table,
        index: np.ndarray,
        result: _ChunkResult,
        calls: _KeyedCalls,
        work: RowsByKey,
        step: EpochStep,
    ) -> pa.Table:
        """The rows with the hidden columns of the rows they came from, or of the timers."""
        at = calls.places[index + int(calls.starts[result.lo])]
        if calls.due is None:
            return work.placed(table, RowOrigins(at.tolist(), []), step, self._timed)
        ids, times, by_clock = calls.due.keys, calls.due.emits, calls.due.by_clock
        timers = zip(ids.tolist(), times.tolist(), by_clock.tolist(), strict=True)
        firings = [(key_id, None if clock else time) for key_id, time, clock in timers]
        return work.placed(table, RowOrigins((-1 - at).tolist(), firings), step, self._timed)


def _at(times: np.ndarray | None, places: np.ndarray) -> np.ndarray | None:
    return None if times is None else times[places]


def _own(rows: Any) -> Any:
    """Rows as they are now, whatever the call does with their memory afterwards."""
    if isinstance(rows, tuple) and len(rows) == 2:
        return _own(rows[0]), np.array(rows[1])
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    return owned(rows) if isinstance(rows, pa.Table) else rows


def _placed(returned: Any, schema: pa.Schema, call: ChunkCall) -> tuple[pa.Table, np.ndarray]:
    """A table of the declared columns, and for each row the row of the chunk it came from."""
    table, index = returned if isinstance(returned, tuple) else (returned, None)
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise ValueError(f"on_chunk returns a {type(table).__name__}, not an Arrow table")
    missing = [n for n in schema.names if n not in table.column_names]
    if missing:
        raise ValueError(f"on_chunk returns no column {missing[0]!r}")
    table = fitted(table, schema)
    if index is None:
        index = _implied_origins(table.num_rows, call)
    index = np.asarray(index, np.int64)
    rows = len(call.index)
    if len(index) != table.num_rows or ((index < 0) | (index >= rows)).any():
        raise ValueError(
            f"on_chunk returns {table.num_rows} rows and {len(index)} places among {rows} rows"
        )
    return table, index


def _implied_origins(count: int, call: ChunkCall) -> np.ndarray:
    """One row returned for each row, or one for each key: then it comes from the key's last."""
    rows, keys = len(call.index), call.keys.num_rows
    if count == rows:
        return np.arange(rows)
    if count == keys:
        return np.append(call.starts[1:], rows) - 1
    if count == 0:
        return np.zeros(0, np.int64)
    raise ValueError(
        f"on_chunk returns {count} rows for {rows} rows of {keys} keys: say which rows they come "
        "from: return table, numbers_of_rows"
    )
