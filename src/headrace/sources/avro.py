"""Avro object container files as records; the unit is the row.

The file's own schema gives the columns; those of the program are found by name and cast to its
types, as of Parquet. The blocks of a file are counted before it is offered, so one that ends within
a block, or has another marker, is an error and no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.connect.avro_columns import UnsupportedFile
from headrace.connect.avro_files import Container, container
from headrace.errors import InputError
from headrace.sources.columns import conform, fit, missing_column, plain
from headrace.sources.contract import Chunk, Decoded
from headrace.sources.layout import Extent, WholeFile, both_ends, changed
from headrace.sources.scan import PathPattern

LEAST = 1 << 12  # rows: fewer are not worth a task of their own


@dataclass(frozen=True, slots=True)
class AvroRows(WholeFile):
    schema: pa.Schema
    raw: bool = False
    least: int = LEAST

    def begin(self, path: str, size: int, whole: bool) -> int | None:
        try:
            with _readable(path):
                file = container(path)
        except InputError:
            if whole:
                raise
            return None  # it is being written
        fit(path, _columns(path, file, self.schema), self.schema)
        return 0

    def reach(self, path: str, start: int, size: int, whole: bool) -> int:
        with _readable(path):
            return container(path).count

    def align(self, path: str, position: int, start: int, end: int) -> int:
        """The end of the block: one that is cut in two is decoded twice."""
        with _readable(path):
            rows = container(path).rows
        return min(end, int(rows[np.searchsorted(rows, position)]))

    def read(self, path: str, extent: Extent, at: int) -> Iterator[Chunk]:
        with _readable(path):
            file = container(path)
            if file.count < extent.end:
                raise changed(path, "is shorter than what was read of it")
            fit(path, _columns(path, file, self.schema), self.schema)
            shift = at - extent.start
            for row, table in file.read(extent.start, extent.end, self.schema.names):
                last = row + table.num_rows
                yield conform(table, self.schema), np.arange(row + shift, last + shift)

    def decode(self, chunk: pa.Table) -> Decoded:
        raise TypeError("Avro gives typed chunks")

    def first_look(self, path: str, extent: Extent, column: str) -> list[pa.ChunkedArray]:
        return both_ends(self, path, extent, column)


def own_avro_schema(pattern: PathPattern) -> pa.Schema | None:
    """The columns of the oldest file; None if there are no files."""
    files = pattern.scan()
    if not files:
        return None
    with _readable(files[0].path):
        fields = container(files[0].path).fields()
    known = [_known(files[0].path, name, f) for name, f in fields.items()]
    return pa.schema([f.with_type(plain(f.type)) for f in known])


def _known(path: str, name: str, field: pa.Field | str) -> pa.Field:
    if isinstance(field, str):
        raise InputError(
            "HR-INPUT-006",
            f"column {name!r} of {path!r} is {field}",
            "Leave the column out: declare the others with schema=.",
        )
    return field


def _columns(path: str, file: Container, declared: pa.Schema) -> pa.Schema:
    """The declared columns as the file has them."""
    with _readable(path):
        fields = file.fields()
    for name in declared.names:
        if name not in fields:
            raise missing_column(path, name, list(fields))
    return pa.schema([_known(path, name, fields[name]) for name in declared.names])


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except ValueError as cause:
        repair = (
            "Write files under another name and rename them when they are complete; "
            "remove or repair this one."
        )
        hint = cause.hint if isinstance(cause, UnsupportedFile) else repair
        raise InputError(
            "HR-INPUT-071", f"{path!r} is not a readable Avro file: {cause}", hint
        ) from cause
