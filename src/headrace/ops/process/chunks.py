"""Process functions over chunks: the user's code sees the rows of all keys of a task at once.

One call per task and epoch, with an Arrow table that is sorted by key, then time, split and
offset, and the state as columns, one row per key. If a call fails it is tried again with half of
the keys, and so on; the rows of a key on which it fails alone are dead letters.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.chunk import TIME
from headrace.clock import MIN_TIME
from headrace.isolate import by_halving
from headrace.ops.contract import EpochStep, Fault, Operator, Place
from headrace.ops.keys import key_schema
from headrace.ops.process.function import KeyedProcess, own_attributes
from headrace.ops.process.key_state import VALUES, KeyState, Timers, seen_by_key, stamp_of
from headrace.ops.process.rows_by_key import RowArranger, RowOrigins, RowsByKey
from headrace.ops.process.state_kinds import ValueState
from headrace.rows import fitted, table_of
from headrace.schema import ddl_type
from headrace.state.table import KeyedTable, TableSpec
from headrace.values import array_of, as_type


@dataclass(slots=True)
class ChunkCall:
    """What `on_chunk` may read about its call, and request."""

    keys: pa.Table  # one row per key, in the order in which they are in the chunk
    index: np.ndarray  # for each row of the chunk the number of its key
    starts: np.ndarray  # the first row of each key
    times: np.ndarray | None  # of the rows, in ms; None without event time
    watermark: int
    clock: int
    outputs: Mapping[str, pa.Schema]
    counts: Counter[str] = field(default_factory=Counter)
    side_rows: list[tuple[str, Any]] = field(default_factory=list)

    def count(self, name: str, n: int = 1) -> None:
        """Add `n` to a figure of your own, that the run shows."""
        self.counts[name] += int(n)

    def emit(self, output: str, rows: Any) -> None:
        """Emit rows to a side output, in the form in which on_chunk returns them."""
        if output not in self.outputs:
            raise ValueError(f"there is no side output {output!r}")
        self.side_rows.append((output, rows))


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
    counts: Counter[str]


class ChunkOperator(Operator):
    version = 3

    def __init__(self, function: KeyedProcess, place: Place) -> None:
        self._function, self._schema, self._timed = function, place.output, place.timed
        self._by, self._key = list(place.key), key_schema(place.key, place.input)
        self._sides = type(function).sides()
        self._arranger = RowArranger(self._key, [place.key])
        self._values = KeyState(function, self._key)
        self._columns = ColumnState(function, self._values)
        self._no_timers = Timers(False, self._key)

    def tables(self) -> tuple[TableSpec, ...]:
        return self._values.tables()

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        return seen_by_key(tables, self._by, self._key, since, until)

    def step(self, step: EpochStep) -> None:
        work = self._arranger.arrange(step.inputs, self._no_timers.due(step))
        if len(work):
            (rows,) = step.inputs
            self._run(work, work.table(rows), step)
        self._values.expire_keys(step)

    def _run(self, work: RowsByKey, rows: pa.Table, step: EpochStep) -> None:
        def call(lo: int, hi: int) -> _ChunkResult:
            return self._call(work, rows, lo, hi, step)

        def failed(lo: int, hi: int, error: Exception) -> None:
            rows_of_key = range(work.starts[lo], work.starts[hi])
            step.faults.extend(Fault(work.arrived(step.inputs, i), error) for i in rows_of_key)

        for result in by_halving(len(work), call, failed):
            self._apply(result, work, step)

    def _call(
        self, work: RowsByKey, rows: pa.Table, lo: int, hi: int, step: EpochStep
    ) -> _ChunkResult:
        first, last = work.starts[lo], work.starts[hi]
        starts = np.array(work.starts[lo : hi + 1], np.int64) - first
        keys = work.keys.slice(lo, hi - lo)
        times = self._times(work)
        times = None if times is None else times[first:last]
        before, stamps = self._columns.load(keys, _at(times, starts[:-1]), step)
        call = ChunkCall(
            keys.select(self._key.names).rename_columns(self._by),
            np.repeat(np.arange(hi - lo), np.diff(starts)),
            starts[:-1],
            times,
            step.before,
            step.clock,
            self._sides,
        )
        one: Any = copy.copy(self._function)
        one.__dict__ = {**own_attributes(self._function), **before}
        returned = one.on_chunk(rows.slice(first, last - first), call)
        after = self._columns.fitted(before, one.__dict__, hi - lo)
        out = [_placed(returned, self._schema, call)] if returned is not None else []
        sides = [(n, *_placed(rows, self._sides[n], call)) for n, rows in call.side_rows]
        return _ChunkResult(lo, hi, out, sides, before, after, stamps, call.counts)

    def _times(self, work: RowsByKey) -> np.ndarray | None:
        return work.hidden.column(TIME).to_numpy() if self._timed else None

    def _apply(self, result: _ChunkResult, work: RowsByKey, step: EpochStep) -> None:
        """Store and emit the result of one call."""
        first = work.starts[result.lo]
        ends = np.array(work.starts[result.lo + 1 : result.hi + 1], np.int64) - 1
        keys = work.keys.slice(result.lo, result.hi - result.lo)
        newest = _at(self._times(work), ends)
        self._columns.store(keys, result.before, result.after, result.stamps, newest, step)
        step.counts.update(result.counts)
        for table, index in result.out:
            step.out.append(self._with_origin(table, index + first, work, step))
        for name, table, index in result.sides:
            placed = self._with_origin(table, index + first, work, step)
            step.sides.setdefault(name, []).append(placed)

    def _with_origin(
        self, table: pa.Table, index: np.ndarray, work: RowsByKey, step: EpochStep
    ) -> pa.Table:
        return work.placed(table, RowOrigins(index.tolist(), []), step, self._timed)


def _at(times: np.ndarray | None, places: np.ndarray) -> np.ndarray | None:
    return None if times is None else times[places]


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


# The state of a process function over chunks: each value a column, one row for each key.
#
# The tables are those of functions over rows, so a class may change from one to the other without
# losing its state.


Columns = dict[str, pa.Array]


class ColumnState:
    def __init__(self, function: KeyedProcess, values: KeyState) -> None:
        self._declared, self._values = type(function).values, values

    def load(
        self, keys: pa.Table, first: np.ndarray | None, step: EpochStep
    ) -> tuple[Columns, Columns]:
        """The values of each key, and when they were last written; `first`: its first row."""
        if not self._declared:
            return {}, {}
        stored, present = step.tables[VALUES].get(keys)
        stamps = {n: stored.column(stamp_of(n)).combine_chunks() for n in self._values.with_ttl}
        columns = {}
        for name, declared in self._declared.items():
            current = present
            if name in stamps:
                current = present & ~_over(declared, stamps[name], first, step)
            column, start = stored.column(name).combine_chunks(), _start(declared)
            columns[name] = (
                column if current.all() else pc.if_else(pa.array(current), column, start)
            )
        return columns, stamps

    def fitted(self, before: Columns, after: Mapping[str, Any], count: int) -> Columns:
        """The values after a call, as columns of their types; refuses what does not fit."""
        return {
            name: before[name]
            if after.get(name, before[name]) is before[name]
            else _fitted(name, declared.type, after[name], count)
            for name, declared in self._declared.items()
        }

    def store(
        self,
        keys: pa.Table,
        before: Columns,
        after: Columns,
        stamps: Columns,
        newest: np.ndarray | None,
        step: EpochStep,
    ) -> None:
        if not self._declared:
            return
        rows = keys
        for name, column in after.items():
            rows = rows.append_column(name, column)
        for name, declared in self._values.with_ttl.items():
            written = after[name] is not before[name]
            at = _written(declared, stamps[name], newest, step) if written else stamps[name]
            rows = rows.append_column(stamp_of(name), at)
        self._values.write(rows, keys.column_names, step)


def _start(declared: ValueState) -> pa.Scalar:
    return table_of([(declared.default,)], pa.schema([("value", declared.type)])).column(0)[0]


def _over(
    declared: ValueState, stamps: pa.Array, first: np.ndarray | None, step: EpochStep
) -> np.ndarray:
    """Which values have outlived their TTL when the first row of their key comes."""
    written, now = _times_of(stamps), _now(declared, first, step)
    over: np.ndarray = (written == MIN_TIME) | (written + (declared.ttl or 0) <= now)
    return over


def _written(
    declared: ValueState, stamps: pa.Array, newest: np.ndarray | None, step: EpochStep
) -> pa.Array:
    """When an assigned value was last written: with the newest row of its key."""
    return pa.array(np.maximum(_times_of(stamps), _now(declared, newest, step)), pa.int64())


def _times_of(stamps: pa.Array) -> np.ndarray:
    times: np.ndarray = stamps.fill_null(MIN_TIME).to_numpy(zero_copy_only=False)
    return times


def _now(declared: ValueState, times: np.ndarray | None, step: EpochStep) -> Any:
    """The clock, or the time of each key's row, which is not before the watermark."""
    if declared.by_clock:
        return step.clock
    return step.before if times is None else np.maximum(times, step.before)


def _fitted(name: str, kind: pa.DataType, returned: Any, count: int) -> pa.Array:
    if isinstance(returned, pa.ChunkedArray):
        returned = returned.combine_chunks()
    try:
        array = (
            as_type(returned, kind) if isinstance(returned, pa.Array) else array_of(returned, kind)
        )
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"self.{name} does not hold {ddl_type(kind)}: {error}") from error
    if len(array) != count:
        raise ValueError(f"self.{name} has {len(array)} values for {count} keys")
    return array
