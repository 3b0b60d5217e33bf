"""The state of a process function over chunks: each value a column, one row for each key.

The tables are those of functions over rows, so a class may change from one to the other without
losing its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import flat, owned_array
from headrace.clock import MIN_TIME
from headrace.ops.contract import EpochStep
from headrace.ops.process.function import KeyedProcess
from headrace.ops.process.key_state import VALUES, KeyState, stamp_of
from headrace.ops.process.state_kinds import ValueState
from headrace.rows import table_of
from headrace.schema import ddl_type
from headrace.values import array_of, as_type

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
            column = stored.column(name).combine_chunks()
            columns[name] = column if current.all() else _or_start(column, current, declared)
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


def _or_start(column: pa.Array, current: np.ndarray, declared: ValueState) -> pa.Array:
    """The stored values, and a new start where there is none."""
    start = declared.stored(declared.start())
    starts = flat(table_of([(start,)], pa.schema([("value", declared.type)])).column(0))
    at = np.where(current, np.arange(len(column)), len(column))
    return pa.concat_arrays([column, starts]).take(pa.array(at))


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
        returned = flat(returned)
    try:
        array = (
            as_type(returned, kind) if isinstance(returned, pa.Array) else array_of(returned, kind)
        )
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"self.{name} does not hold {ddl_type(kind)}: {error}") from error
    array = owned_array(array)
    if len(array) != count:
        raise ValueError(f"self.{name} has {len(array)} values for {count} keys")
    return array
