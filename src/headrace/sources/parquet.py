"""Parquet files as records; the unit is the row.

Only the columns of the schema are read, cast to its types. A Parquet file is complete when
its footer is there; a footer that does not fit the schema names the file and the column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import InputError
from headrace.sources.contract import Chunk, Decoded
from headrace.sources.layout import changed, checksum, size_of
from headrace.sources.listing import Extent, Mark

CHUNK_ROWS = 524_288
TAIL = 1 << 13
MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Parquet:
    schema: pa.Schema
    raw: bool = False
    least: int = 1 << 14

    def begin(self, path: str, size: int, whole: bool) -> int | None:
        with open(path, "rb") as file:
            file.seek(max(0, size - len(MAGIC)))
            if file.read() != MAGIC or size < 12:
                if whole:
                    raise _damaged(path, "it has no Parquet footer")
                return None
        with _opened(path) as file_:
            fit(path, file_.schema_arrow, self.schema)
        return 0

    def reach(self, path: str, start: int, size: int, whole: bool) -> int:
        with _opened(path) as file:
            return int(file.metadata.num_rows)

    def mark(self, path: str, end: int) -> Mark:
        size = size_of(path)
        return size, checksum(path, max(0, size - TAIL), TAIL)

    def verify(self, path: str, extent: Extent) -> None:
        if size_of(path) != extent.mark[0] or self.mark(path, extent.end) != extent.mark:
            raise changed(path, "was replaced after it was read")

    def weight(self, path: str, start: int) -> float:
        return 1.0

    def align(self, path: str, position: int, start: int, end: int) -> int:
        """The end of the row group if it is near: a group cut in two is decoded twice."""
        with _opened(path) as file:
            groups = _bounds(file)
        after = int(groups[np.searchsorted(groups, position)])
        near = after - position <= (position - start) // 2
        return min(end, after) if near else position

    def read(self, path: str, extent: Extent, at: int) -> Iterator[Chunk]:
        with _opened(path) as file:
            groups = _bounds(file)
            first = int(np.searchsorted(groups, extent.start, side="right")) - 1
            last = int(np.searchsorted(groups, extent.end))
            row = int(groups[first])
            for batch in file.iter_batches(
                CHUNK_ROWS, row_groups=list(range(first, last)), columns=self.schema.names
            ):
                lo, hi = max(row, extent.start), min(row + batch.num_rows, extent.end)
                if lo < hi:
                    table = pa.Table.from_batches([batch.slice(lo - row, hi - lo)])
                    shift = at - extent.start
                    yield conform(path, table, self.schema), np.arange(lo + shift, hi + shift)
                row += batch.num_rows

    def decode(self, chunk: pa.Table) -> Decoded:
        raise TypeError("Parquet gives typed chunks")


def fit(path: str, found: pa.Schema, wanted: pa.Schema) -> None:
    """Raise InputError unless `found` has every wanted column in a type that can be cast."""
    for field in wanted:
        if found.get_field_index(field.name) < 0:
            raise missing_column(path, field.name, found.names)
        kind = found.field(field.name).type
        if not _castable(kind, field.type):
            raise wrong_type(path, field, kind, "")


def conform(path: str, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The schema's columns in its order and types; nothing lost in a cast, or InputError."""
    columns = []
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            column = _cast(path, column, field)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(path: str, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    times = pa.types.is_timestamp(column.type) and pa.types.is_timestamp(field.type)
    try:
        return column.cast(field.type, safe=not times)  # time finer than a microsecond is cut
    except (pa.ArrowException, ValueError) as cause:
        raise wrong_type(path, field, column.type, f": {cause}") from cause


def _castable(kind: pa.DataType, wanted: pa.DataType) -> bool:
    if kind == wanted or pa.types.is_null(kind):
        return True
    if _family(kind) != _family(wanted):
        return False
    try:
        pa.array([], kind).cast(wanted)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _family(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return _family(kind.value_type)
    families = {
        "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
        "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        "bytes": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
        "time": (pa.types.is_timestamp, pa.types.is_date),
        "list": (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    }
    for name, tests in families.items():
        if any(test(kind) for test in tests):
            return name
    return str(kind.id)


def missing_column(path: str, name: str, found: list[str]) -> InputError:
    return InputError(
        f"{path!r} has no column {name!r}", code="HR-INPUT-005",
        hint=f"It has: {', '.join(found)}. Change the schema, or keep this file out of the input.",
    )  # fmt: skip


def wrong_type(path: str, field: pa.Field, kind: pa.DataType, why: str) -> InputError:
    return InputError(
        f"column {field.name!r} of {path!r} is {kind}, which is not {field.type}{why}",
        code="HR-INPUT-006",
        hint="Declare the type that the file has and cast in the program.",
    )


def _bounds(file: pq.ParquetFile) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where each row group begins, and where the last one ends."""
    meta = file.metadata
    sizes = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def _opened(path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, memory_map=True)
    except (pa.ArrowException, ValueError) as cause:
        raise _damaged(path, str(cause)) from cause


def _damaged(path: str, why: str) -> InputError:
    return InputError(
        f"{path!r} is not a readable Parquet file: {why}", code="HR-INPUT-008",
        hint="Write files under another name and rename them when they are complete; "
        "remove or repair this one.",
    )  # fmt: skip
