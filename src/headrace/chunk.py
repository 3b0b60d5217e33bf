"""Chunks: Arrow tables that flow through a job, their hidden columns, and rows for Python.

A chunk is a `pyarrow.Table` of the user's columns plus some of these hidden ones:

    __t   int64    event time in milliseconds; absent when the stream has no time
    __s   int32    where the row came from: id of the source split; -1 for derived rows
    __o   int64    position within that: offset in the split; key hash for derived rows
    __h   uint64   hash of the stream's key; absent before `key_by`

`(__t, __s, __o)` is the order in which an operator that asks for order sees its rows.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

TIME, SOURCE, OFFSET, HASH = "__t", "__s", "__o", "__h"
HIDDEN: dict[str, pa.DataType] = {
    TIME: pa.int64(), SOURCE: pa.int32(), OFFSET: pa.int64(), HASH: pa.uint64(),
}  # fmt: skip


def visible(table: pa.Table) -> pa.Table:
    """The user's columns only."""
    return table.select([n for n in table.column_names if not n.startswith("__")])


def hidden_columns(table: pa.Table) -> list[str]:
    return [n for n in table.column_names if n.startswith("__")]


@lru_cache(maxsize=256)
def row_class(names: tuple[str, ...]) -> type[Any]:
    """The named tuple that user functions see as a row of these columns."""
    safe = [n if n.isidentifier() and not n.startswith("_") else f"c{i}" for i, n in enumerate(names)]
    return namedtuple("Row", safe, rename=True)


def rows_of(table: pa.Table) -> list[Any]:
    """The table as named tuples, column by column: no dictionary per row."""
    names = tuple(table.column_names)
    make = row_class(names)._make
    columns = [column.to_pylist() for column in table.columns]
    return [make(values) for values in zip(*columns, strict=True)] if columns else []


def values_of(row: object, names: Sequence[str]) -> Sequence[Any]:
    """A row that a user function returned, as values in the order of `names`."""
    if isinstance(row, tuple):
        fields = getattr(row, "_fields", None)
        if fields is None or tuple(fields) == tuple(names):
            return row
        return [getattr(row, n) for n in names]
    if isinstance(row, Mapping):
        return [row.get(n) for n in names]
    if dataclasses.is_dataclass(row):
        return [getattr(row, n) for n in names]
    return (row,)


def table_of(rows: Iterable[object], schema: pa.Schema) -> pa.Table:
    """Rows that a user function returned (tuples, dicts, dataclasses) as a table."""
    names = schema.names
    columns = list(zip(*(values_of(row, names) for row in rows), strict=True))
    if not columns:
        return schema.empty_table()
    if len(columns) != len(names):
        raise ValueError(f"a row has {len(columns)} values, expected {len(names)}: {', '.join(names)}")
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
