"""Chunks: Arrow tables that flow through a job, and their hidden columns.

A chunk is a `pyarrow.Table` of the user's columns plus some of these hidden ones:

    __t   int64    event time in milliseconds; absent when the stream has no time
    __s   int32    where the row came from: id of the source split; -1 for derived rows,
                   -2 for those that take others back: they come first at their time
    __o   int64    position within that: offset in the split; key hash for derived rows
    __h   uint64   hash of the stream's key; absent before `key_by`

`(__t, __s, __o)` is the order in which an operator that asks for order sees its rows.
"""

from __future__ import annotations

import pyarrow as pa

TIME, SOURCE, OFFSET, HASH = "__t", "__s", "__o", "__h"
WEIGHT = "__w"  # of a record as it is read, until it has the name that the user gave it
TAKEN_BACK = -2
HIDDEN: dict[str, pa.DataType] = {
    TIME: pa.int64(),
    SOURCE: pa.int32(),
    OFFSET: pa.int64(),
    HASH: pa.uint64(),
}


def visible(table: pa.Table) -> pa.Table:
    """The user's columns only."""
    return table.select([n for n in table.column_names if not n.startswith("__")])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column's values, also where the column is a dictionary of them."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without its dictionary, if it has one."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def hidden_columns(table: pa.Table) -> list[str]:
    return [n for n in table.column_names if n.startswith("__")]
