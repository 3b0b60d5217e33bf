"""Parquet in and out for Bytewax, batch by batch, and when the first row came and the last went.

A partition reads its files in order, so the rows of a key that lie in one partition keep
theirs. Nothing is kept to start again from.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from bench.flows.stamps import ABOUT, stamp

_BATCH = 100_000  # rows read, and written, at a time: fewer batches are fewer calls per key


class _Part(StatefulSourcePartition[Any, None]):
    def __init__(self, files: list[Path], columns: list[str]) -> None:
        self._batches = self._read(files, columns)

    @staticmethod
    def _read(files: list[Path], columns: list[str]) -> Iterator[list[Any]]:
        stamp("began")
        for file in files:
            for batch in pq.ParquetFile(file).iter_batches(_BATCH, columns=columns):
                yield list(zip(*(column.to_pylist() for column in batch.columns), strict=True))

    def next_batch(self) -> list[Any]:
        return next(self._batches)  # its StopIteration is how a partition ends

    def snapshot(self) -> None:
        return None


class Files(FixedPartitionedSource[Any, None]):
    """All files of the folder, dealt out to so many partitions in turn; rows as tuples."""

    def __init__(self, *columns: str) -> None:
        self._columns = [*columns]

    def list_parts(self) -> list[str]:
        return [str(number) for number in range(ABOUT["parts"])]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> _Part:
        files = sorted(Path(ABOUT["folder"]).glob("*.parquet"))
        return _Part(files[int(for_part) :: ABOUT["parts"]], self._columns)


class _Out(StatelessSinkPartition[Any]):
    def __init__(self, schema: pa.Schema, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._schema, self._writer = schema, pq.ParquetWriter(path, schema)
        self._rows: list[Any] = []

    def write_batch(self, items: list[Any]) -> None:
        self._rows += items
        if len(self._rows) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        columns = zip(*self._rows, strict=True) if self._rows else ((),) * len(self._schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, self._schema, strict=True)]
        self._writer.write_table(pa.table(arrays, schema=self._schema))
        self._rows = []

    def close(self) -> None:
        self._flush()
        self._writer.close()
        stamp("ended")


class Out(DynamicSink[Any]):
    """Rows to a Parquet file for each worker."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Out:
        return _Out(self._schema, Path(ABOUT["place"]) / "out" / f"part-{worker_index}.parquet")
