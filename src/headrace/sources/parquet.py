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
from headrace.sources.columns import conform, fit, plain
from headrace.sources.contract import Chunk, Decoded
from headrace.sources.layout import Extent, WholeFile, both_ends
from headrace.sources.scan import PathPattern

CHUNK_ROWS = 524_288
LEAST = 1 << 14  # rows: fewer are not worth a task of their own
MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Parquet(WholeFile):
    schema: pa.Schema
    raw: bool = False
    least: int = LEAST
    encoded: tuple[str, ...] = ()  # columns to be left dictionary encoded, as they are stored

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

    def align(self, path: str, position: int, start: int, end: int) -> int:
        """The end of the row group if it is near: a group cut in two is decoded twice."""
        with _opened(path) as file:
            groups = _bounds(file)
        after = int(groups[np.searchsorted(groups, position)])
        near = after - position <= (position - start) // 2
        return min(end, after) if near else position

    def read(self, path: str, extent: Extent, at: int) -> Iterator[Chunk]:
        schema = _encoded(self.schema, self.encoded)
        with _opened(path, self.encoded) as file:
            groups = _bounds(file)
            first = int(np.searchsorted(groups, extent.start, side="right")) - 1
            last = int(np.searchsorted(groups, extent.end))
            row, shift = int(groups[first]), at - extent.start
            for batch in self._batches(path, file, list(range(first, last))):
                lo, hi = max(row, extent.start), min(row + batch.num_rows, extent.end)
                if lo < hi:
                    table = pa.Table.from_batches([batch.slice(lo - row, hi - lo)])
                    yield conform(table, schema), np.arange(lo + shift, hi + shift)
                row += batch.num_rows

    def _batches(
        self, path: str, file: pq.ParquetFile, groups: list[int]
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield from file.iter_batches(
                CHUNK_ROWS, row_groups=groups, columns=self.schema.names, use_threads=False
            )
        except (pa.ArrowException, OSError) as cause:
            raise _damaged(path, str(cause)) from cause

    def decode(self, chunk: pa.Table) -> Decoded:
        raise TypeError("Parquet gives typed chunks")

    def first_look(self, path: str, extent: Extent, column: str) -> list[pa.ChunkedArray]:
        """By the statistics of the row groups; without them, by the file's first and last rows."""
        with _opened(path) as file:
            stated = _statistics(file, column)
        if stated is not None:
            return [stated]
        return both_ends(self, path, extent, column)


def own_schema(pattern: PathPattern) -> pa.Schema | None:
    """The columns of the oldest file; None if there are no files."""
    files = pattern.scan()
    if not files:
        return None
    with _opened(files[0].path) as file:
        fields = [pa.field(f.name, plain(f.type), f.nullable) for f in file.schema_arrow]
    return pa.schema(fields)


def _bounds(file: pq.ParquetFile) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where each row group begins, and where the last one ends."""
    meta = file.metadata
    sizes = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def _statistics(file: pq.ParquetFile, column: str) -> pa.ChunkedArray | None:
    """The least and the greatest value of each row group; None if one does not state them."""
    meta = file.metadata
    places = [i for i in range(meta.num_columns) if meta.schema.column(i).path == column]
    if len(places) != 1:
        return None
    groups = [meta.row_group(i).column(places[0]).statistics for i in range(meta.num_row_groups)]
    if not groups or not all(g is not None and g.has_min_max for g in groups):
        return None
    try:
        return pa.chunked_array([pa.array([v for g in groups for v in (g.min, g.max)])])
    except (pa.ArrowException, ValueError, OverflowError):
        return None  # as of nanoseconds, or of years that Python's times do not have


def _encoded(schema: pa.Schema, names: tuple[str, ...]) -> pa.Schema:
    kinds = [pa.dictionary(pa.int32(), f.type) if f.name in names else f.type for f in schema]
    return pa.schema([f.with_type(k) for f, k in zip(schema, kinds, strict=True)])


def _opened(path: str, encoded: tuple[str, ...] = ()) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, memory_map=True, read_dictionary=list(encoded))
    except (pa.ArrowException, ValueError, OSError) as cause:
        if isinstance(cause, OSError) and cause.errno is not None:
            raise  # the disk or a permission, not what the file holds
        raise _damaged(path, str(cause).strip()) from cause


def _damaged(path: str, why: str) -> InputError:
    return InputError(
        "HR-INPUT-008",
        f"{path!r} is not a readable Parquet file: {why}",
        "Write files under another name and rename them when they are complete; "
        "remove or repair this one.",
    )
