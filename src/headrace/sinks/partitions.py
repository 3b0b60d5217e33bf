"""Output files by the values of columns: which rows go into which folder, and back.

The columns by which files are partitioned are metadata of the columns that are stored with them,
so every file is read as it was written. They are not in the files: a folder's name holds the
values. Rows are divided by arrays, not one by one; their order within a folder stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.chunk import plain_column, plain_type
from headrace.errors import OutputError
from headrace.partition_paths import (
    LONGEST,
    can_partition,
    column_of,
    folder_of,
    is_column,
    values_of,
)
from headrace.schema import ddl_type
from headrace.sinks.durable import safe_name

MOST = 1_000  # folders that a task writes to at once, unless the program says more
_SHORT = 1 << 16  # numbers of 16 bits are sorted without comparing them
_BY = b"headrace.partition_by"  # metadata of columns


def partitioned(schema: pa.Schema, by: Sequence[str]) -> pa.Schema:
    """The columns, with a note of those by which their files are partitioned."""
    if not by:
        return schema
    return schema.with_metadata({**(schema.metadata or {}), _BY: json.dumps(list(by))})


def partition_columns(schema: pa.Schema) -> list[str]:
    """The columns by which files of these are partitioned."""
    return list(json.loads((schema.metadata or {}).get(_BY, b"[]")))


def file_columns(schema: pa.Schema) -> pa.Schema:
    """The columns that are in the files."""
    by = partition_columns(schema)
    if not by:
        return schema
    metadata = {k: v for k, v in schema.metadata.items() if k != _BY}
    return pa.schema([f for f in schema if f.name not in by], metadata or None)


def check_partitions(output: str, schema: pa.Schema) -> None:
    """Raise OutputError unless files of these columns can be partitioned as they say."""
    by = partition_columns(schema)
    for name in by:
        if name not in schema.names:
            raise OutputError(
                "HR-OUTPUT-008",
                f"output {output!r} has no column {name!r}, which partition_by names",
                f"It has: {', '.join(schema.names)}.",
            )
        if not is_column(name) or len(name.encode()) > LONGEST // 2:
            raise OutputError(
                "HR-OUTPUT-006",
                f"files cannot be partitioned by {name!r} (output {output!r}), which cannot be "
                "part of a folder's name",
                "Rename the column in a select: readers skip names that begin with _ or ., and "
                "differ in how they read others.",
            )
        if not can_partition(schema.field(name).type):
            raise OutputError(
                "HR-OUTPUT-006",
                f"files cannot be partitioned by {name!r} (output {output!r}): it is "
                f"{ddl_type(plain_type(schema.field(name).type))}, whose values not every reader "
                "would take from a folder's name as they were",
                "Partition by texts, whole numbers, dates or booleans: make one of it in a select, "
                "for instance the date or the hour of a time.",
            )
    if by and len(by) == len(schema):
        raise OutputError(
            "HR-OUTPUT-006",
            f"output {output!r} is partitioned by all of its columns, and nothing is left for "
            "its files",
            "Partition by fewer columns.",
        )


def by_folder(rows: pa.Table, by: Sequence[str], most: int) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each folder, without the columns that its name holds."""
    if not by:
        yield "", rows
        return
    found = groups(rows, by)
    if len(found.starts) > most:
        raise OutputError(
            "HR-OUTPUT-072",
            f"rows of {len(found.starts):,} folders are to be written at once, of columns "
            f"{', '.join(map(repr, by))}: more than {most:,}, and each is a file",
            "Partition by fewer columns, or by coarser values (a day, not a time); or pass "
            f"max_partitions={len(found.starts)}, if there are to be so many.",
        )
    yield from zip(_folders(by, found.values()), found.rows(), strict=True)


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows that are equal in some columns: where each group begins in an order of the rows."""

    table: pa.Table
    by: Sequence[str]
    columns: Sequence[pa.ChunkedArray]  # those of `by`, plain
    order: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]

    def values(self) -> list[pa.ChunkedArray]:
        """Of each column in `by`: the value of each group."""
        return [column.take(self.order[self.starts]) for column in self.columns]

    def rows(self) -> Iterator[pa.Table]:
        """The rows of each group in their order, without the columns in `by`."""
        rest = self.table.drop_columns(list(self.by))
        if len(self.starts) > 1:
            rest = rest.take(pa.array(self.order))
        for start, end in pairwise([*self.starts, len(self.order)]):
            yield rest.slice(start, end - start)


def groups(rows: pa.Table, by: Sequence[str]) -> Groups:
    codes, columns = _codes(rows, by)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order].astype(np.int64), prepend=-1))
    return Groups(rows, by, columns, order, starts)


def _codes(
    rows: pa.Table, by: Sequence[str]
) -> tuple[npt.NDArray[np.int64 | np.uint16], list[pa.ChunkedArray]]:
    """A number for each row, equal where the columns are; and the columns, plain."""
    codes, count, values = np.zeros(rows.num_rows, np.int64), 1, []
    for name in by:
        column = plain_column(rows.column(name))
        own, size = _numbered(column)
        codes, count = codes * size + own, count * size
        if count > _SHORT:
            codes, count = _numbered(pa.chunked_array([pa.array(codes)]))
        values.append(column)
    return (codes.astype(np.uint16) if count <= _SHORT else codes), values


def _numbered(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], int]:
    """A number for each value, null included; and how many there are."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    whole = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    numbers = whole.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers, max(1, len(whole.dictionary))


def _folders(by: Sequence[str], values: Sequence[pa.ChunkedArray]) -> list[str]:
    parts = []
    for name, column in zip(by, values, strict=True):
        try:
            texts = column.cast(pa.string()).to_pylist()
            parts.append([folder_of(name, text) for text in texts])
        except ValueError as cause:
            raise OutputError(
                "HR-OUTPUT-071",
                f"files are partitioned by {name!r}, which is {cause}",
                "Replace such values in the program, for instance by select or where.",
            ) from cause
    return ["/".join(folder) for folder in zip(*parts, strict=True)]


def safe_place(place: str) -> str:
    """The place of an output file below its output's folder; OutputError if it is none."""
    folder, _, file = place.rpartition("/")
    safe_name(file)
    if folder and not all(
        "=" in part and is_column(part.partition("=")[0]) for part in folder.split("/")
    ):
        safe_name(place)
    return place


def with_values(rows: pa.Table, folder: str, schema: pa.Schema) -> pa.Table:
    """The rows of a file with the columns that its folder's name holds, in the order of `schema`.

    ValueError if the name holds others.
    """
    by = partition_columns(schema)
    found = dict(values_of(folder)) if folder else {}
    if list(found) != by:
        raise ValueError(f"{folder!r} does not name the values of {', '.join(map(repr, by))}")
    for name in by:
        field = schema.field(name)
        column = column_of(found[name], plain_type(field.type), rows.num_rows)
        rows = rows.append_column(pa.field(name, column.type, field.nullable), column)
    return rows.select(schema.names) if by else rows
