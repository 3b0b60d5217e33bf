"""The user's row functions over a chunk: rows made once, all fused steps in one pass.

The loop per row is the user's wish, not ours, so it is a bare one: a whole chunk per step
and no check per row. Only when something raises is the chunk gone through again row by row;
then a row on which a function raises, or whose result does not fit the declared columns, is
set aside with its error, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import Any

import pyarrow as pa

from headrace.apart import Apart, apart
from headrace.chunk import HIDDEN, hidden_columns, visible
from headrace.plan.nodes import Python
from headrace.reads import columns_read
from headrace.rows import collector_paused, fitted, row_class, rows_of, table_of, values_of

_AT_ONCE = 4_000  # rows whose objects fit into a processor's cache

Where = Sequence[int]  # for each row, the row of the chunk that it came from


@dataclass(frozen=True, slots=True)
class Failed:
    """Row `index` of the chunk failed in `step`."""

    index: int
    step: str
    error: BaseException


def run_rows(steps: Sequence[Python], chunk: pa.Table) -> tuple[pa.Table, list[Failed]]:
    """Run fused row steps over a chunk; hidden columns follow the row they came from."""
    tables: list[pa.Table] = []
    failed: list[Failed] = []
    for at in range(0, chunk.num_rows, _AT_ONCE):
        made, faults = _run_slice(steps, chunk.slice(at, _AT_ONCE))
        tables.append(made)
        failed.extend(replace(f, index=at + f.index) for f in faults)
    return pa.concat_tables(tables or [_run_slice(steps, chunk)[0]]), failed


@collector_paused()
def _run_slice(steps: Sequence[Python], chunk: pa.Table) -> tuple[pa.Table, list[Failed]]:
    seen = visible(chunk)
    if steps[0].kind in ("map", "flat_map"):
        seen = seen.select(columns_read(steps[0].function.fn, seen.column_names))
    rows = rows_of(seen)
    failed: list[Failed] = []
    try:
        where, given = _through(steps, range(len(rows)), rows)
        values = table_of(given, steps[-1].schema, (rows, seen))
    except Exception:
        where, given = _one_by_one(steps, rows_of(visible(chunk)), failed)
        values = table_of(given, steps[-1].schema)
    hidden = chunk.select(hidden_columns(chunk))
    if where != range(chunk.num_rows):
        hidden = hidden.take(pa.array(where, pa.int64()))
    for name in hidden.column_names:
        values = values.append_column(name, hidden.column(name))
    return values, failed


def _through(steps: Sequence[Python], where: Where, rows: list[Any]) -> tuple[Where, list[Any]]:
    """All steps over all rows; what a step gives is a row again for the step after."""
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        where, rows = _KINDS[step.kind](step, where, rows)
        if after is not None and step.kind in ("map", "flat_map"):
            names = tuple(step.schema.names)
            make = row_class(names)._make
            rows = [make(values_of(row, names)) for row in rows]
    return where, rows


def _one_by_one(
    steps: Sequence[Python], rows: list[Any], failed: list[Failed]
) -> tuple[Where, list[Any]]:
    """The same, a row at a time, to find out which rows fail, and in which step."""
    where: list[int] = []
    given: list[Any] = []
    for index, row in enumerate(rows):
        found: list[Any] = [row]
        for step, after in zip(steps, [*steps[1:], None], strict=True):
            try:
                _, found = _through([step], [index] * len(found), found)
                table_of(found, step.schema)
                if after is not None:
                    names = tuple(step.schema.names)
                    found = [row_class(names)._make(values_of(r, names)) for r in found]
            except Exception as error:
                failed.append(Failed(index, step.name, error))
                found = []
                break
        where.extend([index] * len(found))
        given.extend(found)
    return where, given


def _map(step: Python, where: Where, rows: list[Any]) -> tuple[Where, list[Any]]:
    fn = step.function.fn
    return where, [fn(row) for row in rows]


def _flat_map(step: Python, where: Where, rows: list[Any]) -> tuple[Where, list[Any]]:
    fn, kept = step.function.fn, apart(step.schema)
    indexes: list[int] = []
    found: list[Any] = []
    for index, row in zip(where, rows, strict=True):
        given = _listed(fn(row), kept)
        found.extend(given)
        indexes.extend([index] * len(given))
    return indexes, found


def _listed(given: Iterable[Any] | None, kept: Apart) -> list[Any]:
    """A generator may go on changing what it has yielded, and yield it again.

    By its first row it is judged whether it does: so those that yield tuples pay nothing.
    """
    if isinstance(given, list):
        return given
    rest = iter(() if given is None else given)
    for first in rest:
        if isinstance(first, kept.plain):
            return [first, *rest]
        return kept.all(chain((first,), rest))
    return []


def _filter(step: Python, where: Where, rows: list[Any]) -> tuple[Where, list[Any]]:
    fn = step.function.fn
    keep = [bool(fn(row)) for row in rows]
    return list(compress(where, keep)), list(compress(rows, keep))


def _tap(step: Python, where: Where, rows: list[Any]) -> tuple[Where, list[Any]]:
    fn = step.function.fn
    for row in rows:
        fn(row)
    return where, rows


_KINDS = {"map": _map, "flat_map": _flat_map, "filter": _filter, "tap": _tap}


def run_batches(step: Python, chunk: pa.Table) -> pa.Table:
    """A user's function from table to table; hidden columns stay if the rows do."""
    given = step.function.fn(visible(chunk))
    if not isinstance(given, pa.Table):
        raise TypeError(f"expected a pyarrow.Table, got {type(given).__name__}")
    table = fitted(given, step.schema)
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
