"""What a process function over chunks keeps: each value a column, one row for each key.

The same tables as for functions over rows, so a class may go from one to the other and keep
its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import MIN_TIME
from headrace.ops.contract import Step
from headrace.ops.process.kept import Kept
from headrace.ops.process.keyed import KeyedProcess
from headrace.ops.process.values import VALUES, KeyValues, stamp_of
from headrace.rows import table_of
from headrace.schema import ddl_type
from headrace.values import array_of, as_type

Columns = dict[str, pa.Array]


class ColumnValues:
    def __init__(self, function: KeyedProcess, values: KeyValues) -> None:
        self._declared, self._values = type(function).values, values

    def load(self, keys: pa.Table, first: np.ndarray | None, step: Step) -> tuple[Columns, Columns]:
        """The values of each key, and when they were last written; `first`: its first row."""
        if not self._declared:
            return {}, {}
        held, known = step.tables[VALUES].get(keys)
        stamps = {n: held.column(stamp_of(n)).combine_chunks() for n in self._values.lived}
        found = {}
        for name, declared in self._declared.items():
            there = known
            if name in stamps:
                there = known & ~_over(declared, stamps[name], first, step)
            column, start = held.column(name).combine_chunks(), _start(declared)
            found[name] = column if there.all() else pc.if_else(pa.array(there), column, start)
        return found, stamps

    def fitted(self, before: Columns, after: Mapping[str, Any], count: int) -> Columns:
        """What was left in the object, as columns of their types; refuses what does not fit."""
        return {
            name: before[name] if after.get(name, before[name]) is before[name]
            else _fitted(name, declared.type, after[name], count)
            for name, declared in self._declared.items()
        }  # fmt: skip

    def store(
        self, keys: pa.Table, before: Columns, after: Columns, stamps: Columns,
        newest: np.ndarray | None, step: Step,
    ) -> None:  # fmt: skip
        if not self._declared:
            return
        rows = keys
        for name, column in after.items():
            rows = rows.append_column(name, column)
        for name, declared in self._values.lived.items():
            written = after[name] is not before[name]
            at = _written(declared, stamps[name], newest, step) if written else stamps[name]
            rows = rows.append_column(stamp_of(name), at)
        self._values.write(rows, keys.column_names, step)


def _start(declared: Kept) -> pa.Scalar:
    return table_of([(declared.default,)], pa.schema([("value", declared.type)])).column(0)[0]


def _over(declared: Kept, stamps: pa.Array, first: np.ndarray | None, step: Step) -> np.ndarray:
    """Whose value has not been written for too long when its key's first row comes."""
    written = stamps.fill_null(MIN_TIME).to_numpy(zero_copy_only=False)
    now: Any = step.clock
    if not declared.by_clock:
        now = step.before if first is None else np.maximum(first, step.before)
    over: np.ndarray = (written == MIN_TIME) | (written + (declared.ttl or 0) <= now)
    return over


def _written(declared: Kept, stamps: pa.Array, newest: np.ndarray | None, step: Step) -> pa.Array:
    """When an assigned value was last written: with the newest row of its key."""
    before = stamps.fill_null(MIN_TIME).to_numpy(zero_copy_only=False)
    now: Any = step.clock
    if not declared.by_clock:
        now = step.before if newest is None else np.maximum(newest, step.before)
    return pa.array(np.maximum(before, now), pa.int64())


def _fitted(name: str, kind: pa.DataType, given: Any, count: int) -> pa.Array:
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    try:
        array = as_type(given, kind) if isinstance(given, pa.Array) else array_of(given, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"self.{name} does not hold {ddl_type(kind)}: {error}") from error
    if len(array) != count:
        raise ValueError(f"self.{name} has {len(array)} values for {count} keys")
    return array
