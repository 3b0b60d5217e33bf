"""The user's row functions over a chunk: rows made once, all fused steps in one pass.

The loop over rows is a bare one, a whole chunk per step and no check per row. A row on which a
function raises is set aside with its error, and the loop continues with the next, so no function
is called twice for a row. Results that do not fit the declared columns are found by halving,
without another call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import Any

import pyarrow as pa

from headrace.chunk import hidden_columns, visible
from headrace.errors import StepError
from headrace.isolate import by_halving, one_by_one
from headrace.plan.nodes import Python
from headrace.reads import columns_read
from headrace.rows import (
    NO_COPY,
    RowCopier,
    collector_paused,
    fitted,
    row_class,
    row_copier,
    rows_of,
    table_of,
    values_of,
)

_AT_ONCE = 4_000  # rows whose objects fit into a processor's cache

_REUSED = "the function returned one object for several rows: return a new one for each"
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
        results, faults = _run_slice(steps, chunk.slice(at, _AT_ONCE))
        tables.append(results)
        failed.extend(replace(f, index=at + f.index) for f in faults)
    return pa.concat_tables(tables or [_run_slice(steps, chunk)[0]]), failed


@collector_paused()
def _run_slice(steps: Sequence[Python], chunk: pa.Table) -> tuple[pa.Table, list[Failed]]:
    seen = visible(chunk)
    if steps[0].kind in ("map", "flat_map"):
        seen = seen.select(columns_read(steps[0].function.fn, seen.column_names))
    failed = Failures()
    rows, where = _rows(steps[0], seen, failed)
    where, results = _through(steps, where, rows, failed)
    origin = (rows, seen) if not failed else _origin(where, rows, seen)
    where, values = _fitting(steps[-1], where, results, origin, failed)
    hidden = chunk.select(hidden_columns(chunk))
    if where != range(chunk.num_rows):
        hidden = hidden.take(pa.array(where, pa.int64()))
    for name in hidden.column_names:
        values = values.append_column(name, hidden.column(name))
    return values, [failed[i] for i in sorted(failed)]


class Failures(dict[int, Failed]):
    """The first failure of each row of the chunk, by its index."""

    def add(self, index: int, step: Python, error: BaseException) -> None:
        self.setdefault(index, Failed(index, step.name, error))

    def without(self, where: Where, rows: list[Any]) -> tuple[Where, list[Any]]:
        """The rows that came from no failed one: a record is dead as a whole, or not at all."""
        if not self:
            return where, rows
        good = [index not in self for index in where]
        return list(compress(where, good)), list(compress(rows, good))


def _rows(step: Python, seen: pa.Table, failed: Failures) -> tuple[list[Any], Where]:
    """Rows for the user's functions; a row may hold a time that Python does not have."""
    where = range(seen.num_rows)
    try:
        return rows_of(seen), where
    except ValueError:
        rows = one_by_one(
            where,
            lambda index: rows_of(seen.slice(index, 1))[0],
            lambda index, error: failed.add(index, step, error),
            caught=ValueError,
        )
        good = dict(rows)
        return list(good.values()), list(good)


def _origin(where: Where, rows: list[Any], seen: pa.Table) -> tuple[list[Any], pa.Table] | None:
    """The rows that are left, and their columns."""
    if len(rows) < seen.num_rows:
        return None
    return [rows[i] for i in where], seen.take(pa.array(where, pa.int64()))


def _through(
    steps: Sequence[Python], where: Where, rows: list[Any], failed: Failures
) -> tuple[Where, list[Any]]:
    """All steps over all rows; what a step returns is a row again for the step after."""
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        where, rows = ROW_KINDS[step.kind](step, where, rows, failed)
        if after is not None and step.kind in ("map", "flat_map"):
            where, rows = _each(_row_maker(step), step, where, rows, failed)
    return where, rows


def _row_maker(step: Python) -> Callable[[Any], Any]:
    names = tuple(step.schema.names)
    make = row_class(names)._make
    return lambda row: make(values_of(row, names))


def _each(
    fn: Callable[[Any], Any],
    step: Python,
    where: Where,
    rows: list[Any],
    failed: Failures,
    copier: RowCopier = NO_COPY,
) -> tuple[Where, list[Any]]:
    """What the function returns for each row, and of which rows; those on which it raises fail."""
    results: list[Any] = []
    rest = iter(rows)
    lost: list[int] = []  # places among `rows`
    while len(results) + len(lost) < len(rows):
        try:
            results.extend(copier.each(map(fn, rest)))  # what was made before it raises stays
            if len(results) + len(lost) < len(rows):
                raise RuntimeError("the function raised StopIteration")
        except Exception as error:
            lost.append(len(results) + len(lost))
            failed.add(where[lost[-1]], step, error)
    for place in copier.reused(results):
        failed.add(where[place], step, ValueError(_REUSED))
    if not lost:
        return failed.without(where, results)
    failed_at = set(lost)
    return failed.without([index for i, index in enumerate(where) if i not in failed_at], results)


def _fitting(
    step: Python,
    where: Where,
    results: list[Any],
    origin: tuple[list[Any], pa.Table] | None,
    failed: Failures,
) -> tuple[Where, pa.Table]:
    """What was made as columns, without the rows that do not fit them."""
    try:
        return where, table_of(results, step.schema, origin)
    except Exception:
        parts = by_halving(
            len(results),
            lambda first, last: table_of(results[first:last], step.schema),
            lambda first, _, error: failed.add(where[first], step, error),
        )
        good = pa.concat_tables([step.schema.empty_table(), *parts])
        where, results = failed.without(where, results)
        return where, good if len(results) == good.num_rows else table_of(results, step.schema)


def _map(step: Python, where: Where, rows: list[Any], failed: Failures) -> tuple[Where, list[Any]]:
    return _each(step.function.fn, step, where, rows, failed, row_copier(step.schema))


def _flat_map(
    step: Python, where: Where, rows: list[Any], failed: Failures
) -> tuple[Where, list[Any]]:
    fn, copier = step.function.fn, row_copier(step.schema)
    where, lists = _each(lambda row: _listed(fn(row), copier), step, where, rows, failed)
    indexes: list[int] = []
    for index, results in zip(where, lists, strict=True):
        indexes.extend([index] * len(results))
    return indexes, list(chain.from_iterable(lists))


def _listed(result: Iterable[Any] | None, copier: RowCopier) -> list[Any]:
    return copier.all(() if result is None else result)


def _filter(
    step: Python, where: Where, rows: list[Any], failed: Failures
) -> tuple[Where, list[Any]]:
    fn = step.function.fn
    judged, keep = _each(lambda row: bool(fn(row)), step, where, rows, failed)
    if judged is not where:
        where, rows = failed.without(where, rows)
    return list(compress(where, keep)), list(compress(rows, keep))


def _tap(step: Python, where: Where, rows: list[Any], failed: Failures) -> tuple[Where, list[Any]]:
    seen, _ = _each(step.function.fn, step, where, rows, failed)
    return (where, rows) if seen is where else failed.without(where, rows)


ROW_KINDS = {"map": _map, "flat_map": _flat_map, "filter": _filter, "tap": _tap}


def run_batches(step: Python, chunk: pa.Table) -> pa.Table:
    """A user's function from table to table; hidden columns stay if the rows do."""
    result = step.function.fn(visible(chunk))
    if not isinstance(result, pa.Table):
        raise TypeError(f"expected a pyarrow.Table, got {type(result).__name__}")
    table = fitted(result, step.schema, chunk)
    if table.num_rows == chunk.num_rows:
        for name in hidden_columns(chunk):
            table = table.append_column(name, chunk.column(name))
        return table
    if step.timed:
        raise StepError(
            "HR-STEP-003",
            f"step {step.name!r}: map_batches returned {table.num_rows:,} rows for "
            f"{chunk.num_rows:,}, so their event times are unknown",
            "On a stream with event time return one row for each row, in the same order; to drop "
            "rows use where, to add some flat_map.",
            site=step.site,
        )
    return table
