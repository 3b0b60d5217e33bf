"""Rows that Spark has computed, stored in the job's folder: once, whole, in the order of batches.

Tasks write Parquet files under unique names; the record of a batch, which names its files, is
created last, by one process, and never changed. What no record names does not exist. The first
record of a number stands: a batch that is computed again, after a crash, changes nothing.
Offsets count rows, over all batches. Nothing here knows about Spark.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.files import close_lock, sync, sync_folder
from headrace.sources.contract import Chunk, damaged
from headrace.sources.stored_rows import storing_lock
from headrace.state.faults import point
from headrace.state.sealed import create_sealed, make_folder, numbered, read_sealed

FOLDER = "spark"  # at rest, in the input's folder
FILE_ROWS = 4_000_000  # rows of a file
GROUP_ROWS = 262_144  # rows that are read at once
STORED = "file string, n bigint, size bigint"  # what a task answers: the files it has written
_ANSWER = pa.schema([("file", pa.string()), ("n", pa.int64()), ("size", pa.int64())])
_KIND = "spark batch"
_NUMBER = re.compile(r"(\d{20})")
_WHAT = "a file of rows that Spark has stored"


@dataclass(frozen=True, slots=True)
class RowsFile:
    """A file and the offset of its first row."""

    file: str
    start: int
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class RowsWriter:
    """In a task of Spark: writes its rows to files, and answers with their names.

    The columns are those of `schema` in its order, whatever Spark calls them.
    """

    folder: str
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder, writer, path, rows = Path(self.folder), None, Path(), 0
        written: list[tuple[str, int, int]] = []
        try:
            for batch in batches:
                named = pa.Table.from_batches([batch]).rename_columns(self.schema.names)
                table = named.cast(self.schema)
                if writer is None:
                    path, rows = folder / f"{uuid.uuid4().hex}.parquet", 0
                    writer = pq.ParquetWriter(path, self.schema, write_page_checksum=True)
                writer.write_table(table, row_group_size=GROUP_ROWS)
                rows += table.num_rows
                if rows >= FILE_ROWS:
                    writer.close()
                    writer = None
                    written.append((path.name, rows, _synced(path)))
        finally:
            if writer is not None:
                writer.close()
        if writer is not None:
            written.append((path.name, rows, _synced(path)))
        if written:
            sync_folder(folder)
            point("spark.rows.written")
            answer = [dict(zip(_ANSWER.names, one, strict=True)) for one in written]
            yield pa.RecordBatch.from_pylist(answer, schema=_ANSWER)


def _synced(path: Path) -> int:
    handle = os.open(path, os.O_RDONLY)
    try:
        sync(handle)
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    number: int
    start: int
    end: int
    files: tuple[RowsFile, ...]


class SparkRows:
    """The batches that are stored. `home` is the input's own folder."""

    def __init__(self, home: Path) -> None:
        self.folder = home / FOLDER
        self.rows, self.checkpoint = self.folder / "rows", self.folder / "checkpoint"
        self._records = self.folder / "batches"
        self._batches: list[StoredBatch] | None = None  # those that are known
        self._lock: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_batches": None, "_lock": None}

    @property
    def begun(self) -> bool:
        return self._records.is_dir()

    def begin(self) -> None:
        make_folder(self.rows)
        make_folder(self._records)

    def batches(self) -> list[StoredBatch]:
        """All that are there now; those that were stored since the last call are looked up."""
        if self._batches is None:
            numbers = numbered(self._records, _NUMBER) if self.begun else []
            self._batches = [self._read(n) for n in numbers]
            self._refuse_gaps(self._batches)
        while self.begun and self._path(self.next).exists():
            found = self._read(self.next)
            self._refuse_gaps([*self._batches[-1:], found])
            self._batches.append(found)
        return self._batches

    @property
    def next(self) -> int:
        """The number of the batch that comes next, as far as they are known."""
        return self._batches[-1].number + 1 if self._batches else 0

    @property
    def last(self) -> int:
        """The number of the last batch; -1 if there is none."""
        batches = self.batches()
        return batches[-1].number if batches else -1

    @property
    def start(self) -> int:
        batches = self.batches()
        return batches[0].start if batches else 0

    @property
    def end(self) -> int:
        batches = self.batches()
        return batches[-1].end if batches else 0

    def add(self, number: int, answers: list[tuple[str, int, int]]) -> bool:
        """Store batch `number`: the files that tasks have written; False if it was there."""
        self.batches()
        if number < self.next:
            return False
        start = self.end
        if number > self.next:
            raise damaged(
                "what Spark has stored of the input",
                self.folder,
                f"ends with batch {self.last}, but Spark goes on with batch {number}",
            )
        point("spark.batch.answered")
        content = {"start": start, "files": [list(a) for a in answers]}
        create_sealed(self._path(number), _KIND, content)
        self.batches()
        return True

    def files(self, start: int, end: int) -> tuple[RowsFile, ...]:
        """The files with the rows [start, end)."""
        found = [f for b in self.batches() if b.start < end and b.end > start for f in b.files]
        return tuple(f for f in found if f.start < end and f.start + f.rows > start)

    def read(self, files: tuple[RowsFile, ...], start: int, end: int) -> Iterator[Chunk]:
        for file in files:
            yield from self._file(file, start, end)

    def _file(self, file: RowsFile, start: int, end: int) -> Iterator[Chunk]:
        path = self.rows / file.file
        try:
            size = path.stat().st_size
            if size != file.size:
                raise damaged(_WHAT, path, f"has {size} bytes, not {file.size}")
            with pq.ParquetFile(path, page_checksum_verification=True) as opened:
                at = file.start
                for group in range(opened.num_row_groups):
                    rows = opened.metadata.row_group(group).num_rows
                    if at < end and at + rows > start:
                        first, last = max(start, at), min(end, at + rows)
                        table = opened.read_row_group(group).slice(first - at, last - first)
                        yield table, np.arange(first, last, dtype=np.int64)
                    at += rows
        except (OSError, pa.ArrowException) as cause:
            raise damaged(_WHAT, path, f"cannot be read: {cause}") from cause

    def forget(self, before: int) -> None:
        """Remove batches whose rows all lie before `before`; the last one stays."""
        batches = self.batches()
        gone = [b for b in batches[:-1] if b.end <= before]
        for batch in gone:  # the record first: what no record names does not exist
            self._path(batch.number).unlink(missing_ok=True)
            for file in batch.files:
                (self.rows / file.file).unlink(missing_ok=True)
        self._batches = batches[len(gone) :]

    def sweep(self) -> None:
        """Remove files that no record names; only while nobody else stores."""
        self._batches = None
        named = {f.file for b in self.batches() for f in b.files}
        for path in self.rows.iterdir():
            if path.name not in named:
                path.unlink(missing_ok=True)

    def lock(self) -> bool:
        """Whether this is the one process that may store."""
        if self._lock is None:
            self._lock = storing_lock(self.folder)
        return self._lock is not None

    def unlock(self) -> None:
        if self._lock is not None:
            close_lock(self._lock)
            self._lock = None

    def check_checkpoint(self) -> str:
        """Why the checkpoint of Spark does not go with what is stored; empty if it does."""
        planned, done = (self._newest(name) for name in ("offsets", "commits"))
        if planned < self.last:
            return f"batch {self.last} is stored, but its checkpoint knows of none after {planned}"
        if done > self.last:
            return f"its checkpoint has finished batch {done}, but only {self.last} is stored"
        return ""

    def _newest(self, log: str) -> int:
        folder = self.checkpoint / log
        names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        return max((int(n) for n in names if n.isdecimal()), default=-1)

    def _path(self, number: int) -> Path:
        return self._records / f"{number:020d}"

    def _read(self, number: int) -> StoredBatch:
        content = read_sealed(self._path(number), _KIND)
        start = at = int(content["start"])
        files = []
        for name, rows, size in content["files"]:
            files.append(RowsFile(name, at, rows, size))
            at += rows
        return StoredBatch(number, start, at, tuple(files))

    def _refuse_gaps(self, batches: list[StoredBatch]) -> None:
        for before, after in pairwise(batches):
            if (after.number, after.start) != (before.number + 1, before.end):
                how = f"has batch {before.number}, and then {after.number}"
                raise damaged("what Spark has stored of the input", self._records, how)
