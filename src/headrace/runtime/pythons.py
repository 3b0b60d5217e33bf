"""The user's row functions over a chunk: rows made once, all fused steps in one pass.

A row on which a function raises, or whose result does not fit the declared columns, is set
aside with its error; the others go on. The loop per row is the user's wish, not ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HIDDEN, hidden_columns, row_class, rows_of, table_of, values_of, visible
from headrace.plan.nodes import Python


@dataclass(frozen=True, slots=True)
class Failed:
    """Row `index` of the chunk failed in `step`."""

    index: int
    step: str
    error: BaseException


def run_rows(steps: Sequence[Python], chunk: pa.Table) -> tuple[pa.Table, list[Failed]]:
    """Run fused row steps over a chunk; hidden columns follow the row they came from."""
    failed: list[Failed] = []
    pairs: Iterable[tuple[int, Any]] = enumerate(rows_of(visible(chunk)))
    for i, step in enumerate(steps):
        last = i == len(steps) - 1
        pairs = _one(step, pairs, failed, shape=not last)
    indexes: list[int] = []
    rows: list[Any] = []
    for index, row in pairs:
        indexes.append(index)
        rows.append(row)
    values, kept = _columns(rows, indexes, steps[-1], failed)
    hidden = chunk.select(hidden_columns(chunk))
    if len(kept) != chunk.num_rows or failed or any(s.kind == "flat_map" for s in steps):
        hidden = hidden.take(pa.array(np.asarray(kept, dtype=np.int64)))
    for name in hidden.column_names:
        values = values.append_column(name, hidden.column(name))
    return values, failed


def _one(
    step: Python, pairs: Iterable[tuple[int, Any]], failed: list[Failed], shape: bool
) -> Iterator[tuple[int, Any]]:
    """Apply one step; `shape` makes what it gives a row again, for the step after."""
    fn = step.function.fn
    keep = _KINDS[step.kind]
    names = tuple(step.schema.names)
    make = row_class(names)._make
    reshape = shape and step.kind in ("map", "flat_map")
    for index, row in pairs:
        try:
            given = list(keep(fn, row))
            if reshape:
                given = [make(values_of(g, names)) for g in given]
        except Exception as error:
            failed.append(Failed(index, step.name, error))
            continue
        for one in given:
            yield index, one


def _map(fn: Callable[[Any], Any], row: Any) -> Iterable[Any]:
    return (fn(row),)


def _flat_map(fn: Callable[[Any], Any], row: Any) -> Iterable[Any]:
    return fn(row) or ()


def _filter(fn: Callable[[Any], Any], row: Any) -> Iterable[Any]:
    return (row,) if fn(row) else ()


def _tap(fn: Callable[[Any], Any], row: Any) -> Iterable[Any]:
    fn(row)
    return (row,)


_KINDS = {"map": _map, "flat_map": _flat_map, "filter": _filter, "tap": _tap}


def _columns(
    rows: list[Any], indexes: list[int], step: Python, failed: list[Failed]
) -> tuple[pa.Table, list[int]]:
    """The rows as a table; where one does not fit the schema, that row alone is set aside."""
    try:
        return table_of(rows, step.schema), indexes
    except (pa.ArrowException, ValueError, TypeError, AttributeError, OverflowError):
        fitting, kept = [], []
        for index, row in zip(indexes, rows, strict=True):
            try:
                table_of([row], step.schema)
            except Exception as error:
                failed.append(Failed(index, step.name, error))
            else:
                fitting.append(row)
                kept.append(index)
        return table_of(fitting, step.schema), kept


def run_batches(step: Python, chunk: pa.Table) -> pa.Table:
    """A user's function from table to table; hidden columns stay if the rows do."""
    given = step.function.fn(visible(chunk))
    if not isinstance(given, pa.Table):
        raise TypeError(f"expected a pyarrow.Table, got {type(given).__name__}")
    table = given.select(step.schema.names).cast(step.schema)
    if table.num_rows == chunk.num_rows:
        for name in hidden_columns(chunk):
            table = table.append_column(name, chunk.column(name))
        return table
    if not step.timed:
        return table
    times = [n for n in HIDDEN if n in given.column_names]
    if not times:
        raise ValueError(
            f"{step.name!r} changed the number of rows from {chunk.num_rows} to {table.num_rows}, "
            "so the event time of its rows is unknown"
        )
    return table.append_column(times[0], given.column(times[0]))
