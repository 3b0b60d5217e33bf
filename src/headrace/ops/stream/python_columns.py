"""Columns that Python functions compute of each row; all other columns stay as they are.

A row on which a function raises, or whose value does not fit its column's type, fails alone. Only
the columns that a function reads become Python objects.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.callables import title
from headrace.chunk import hidden_columns, visible
from headrace.isolate import by_halving, one_by_one
from headrace.ops.contract import ChunkSpec
from headrace.reads import columns_read
from headrace.rows import collector_paused, rows_of, table_of


class RowErrors(dict[int, BaseException]):
    """The first failure of each row of the chunk, by its number."""

    def put(self, number: int, error: Exception) -> None:
        self.setdefault(number, error)


@dataclass(frozen=True, eq=False)
class PythonColumns(ChunkSpec):
    """`names` are computed by `computed`, each of the row as it came."""

    names: tuple[str, ...]
    computed: tuple[Callable[[Any], Any], ...]

    kind = "with_columns"

    def __str__(self) -> str:
        pairs = zip(self.names, self.computed, strict=True)
        return ", ".join(f"{name.lstrip('$')} = {title(fn)}" for name, fn in pairs)

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return self.computed

    def leaves(self, columns: Collection[str]) -> bool:
        return not {*self.names}.intersection(columns)

    @collector_paused()
    def run(
        self, chunk: pa.Table, schema: pa.Schema
    ) -> tuple[pa.Table, list[tuple[int, BaseException]]]:
        """The rows with the columns that were computed; which failed, each with its error."""
        failed = RowErrors()
        values = [
            _called(fn, schema.field(name), visible(chunk), failed)
            for name, fn in zip(self.names, self.computed, strict=True)
        ]
        fields = pa.schema([schema.field(name) for name in self.names])
        rows = list(zip(*values, strict=True))
        made = _table(rows, fields, failed)
        if failed:
            good = [i for i in range(chunk.num_rows) if i not in failed]
            chunk = chunk.take(pa.array(good, pa.int64()))
        columns = [
            (made if name in self.names else chunk).column(name)
            for name in (*schema.names, *hidden_columns(chunk))
        ]
        names = [*schema.names, *hidden_columns(chunk)]
        return pa.table(columns, names=names), sorted(failed.items(), key=lambda pair: pair[0])


def _called(
    fn: Callable[[Any], Any], field: pa.Field, rows: pa.Table, failed: RowErrors
) -> list[Any]:
    """What the function returns for each row, copied where it may change; None if it raises."""
    seen = rows.select(columns_read(fn, rows.column_names))
    changeable = pa.types.is_nested(field.type) or pa.types.is_binary(field.type)
    values: list[Any] = [None] * rows.num_rows
    for number, row in _rows(seen, failed):
        try:
            value = fn(row)
            values[number] = copy.deepcopy(value) if changeable else value
        except Exception as error:
            failed.put(number, error)
    return values


def _rows(seen: pa.Table, failed: RowErrors) -> Iterable[tuple[int, Any]]:
    """Rows for the user's functions, by number; a row may hold a time that Python does not have."""
    try:
        return enumerate(rows_of(seen))
    except ValueError:
        return one_by_one(
            range(seen.num_rows),
            lambda number: rows_of(seen.slice(number, 1))[0],
            failed.put,
            caught=ValueError,
        )


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema, failed: RowErrors) -> pa.Table:
    """The rows that did not fail as columns; one that does not fit its type fails, too."""
    where = [i for i in range(len(rows)) if i not in failed]
    try:
        return table_of([rows[i] for i in where], schema)
    except Exception:
        for _ in by_halving(
            len(where),
            lambda first, last: table_of([rows[i] for i in where[first:last]], schema),
            lambda first, _, error: failed.put(where[first], error),
        ):
            pass
        return table_of([row for i, row in enumerate(rows) if i not in failed], schema)
