"""Compaction by key: of the segments that are closed only the newest record of each key stays.

    <topic>/<place>.compacted   what is left of all records before the segment at that place

A topic that is compacted has at most one such file that counts, the one with the largest place, and
after it the segments from there on. Records keep their offsets, so there are gaps between them. A
record whose other columns are all null deletes its key: it stays for a while, so that readers see
it, then it goes as well. In this order, by a holder of the lock `compact`:

    1. read the last such file and the closed segments, and find the newest offset of each key
    2. write what stays to a new file; sync it, and the folder: from now on it counts
    3. move the head past the segments, and remove them; remove the file from before

Readers take no lock: whichever file they find holds all that they may still see. A file is a
sequence of blocks with two more columns, offset and time; a checksummed list of them ends it.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import LogError
from headrace.files import TEMPORARY, sync_folder, temporary
from headrace.log import disk
from headrace.log.block import (
    BLOCK_BYTES,
    BLOCK_ROWS,
    Stamp,
    batch_of,
    body_is_sound,
    header_at,
    sparse_block,
)
from headrace.log.contract import APPEND_TIME, OFFSET, unreadable
from headrace.log.reader import TopicReader, with_columns
from headrace.log.segment import damaged, missing
from headrace.log.topic import Topic, load
from headrace.state.faults import point

MAGIC = b"HRC1"
_TRAILER = struct.Struct("<4sIIQ")
SUFFIX = ".compacted"
_EXTRA = [pa.field(OFFSET, pa.int64()), pa.field(APPEND_TIME, pa.int64())]

Chunk = tuple[np.ndarray, np.ndarray, pa.RecordBatch]  # offsets, times, records


class CompactedFile:
    """What is left of the records before a segment."""

    def __init__(self, topic: Topic, path: Path) -> None:
        self.topic, self.path = topic, path
        try:
            with pa.memory_map(str(path)) as file:
                self._data = file.read_buffer()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise unreadable(path, error) from error
        self._view = memoryview(self._data)
        self.size = len(self._view)
        listed = self._listed()
        self.place: int = listed["place"]
        self.ends: list[int] = listed["ends"]
        self._blocks: list[list[int]] = listed["blocks"]  # partition, position, first, last offset

    def _listed(self) -> dict[str, Any]:
        try:
            magic, crc, tag, length = _TRAILER.unpack(self._view[-_TRAILER.size :])
            body = self._view[-_TRAILER.size - length : -_TRAILER.size]
            if magic != MAGIC or tag != self.topic.tag or zlib.crc32(body) != crc:
                raise ValueError("checksum")
            listed: dict[str, Any] = json.loads(bytes(body))
            return listed
        except (ValueError, struct.error) as error:
            raise damaged(self.path, self.size, "the end of a compacted file is damaged") from error

    def read(self, topic: Topic, partition: int, start: int, end: int) -> Iterator[Chunk]:
        """Records [start, end) that are left, in the columns of `topic`."""
        for p, pos, first, last in self._blocks:
            if p != partition or last < start or first >= end:
                continue
            header = header_at(self._view, pos)
            if header is None or not body_is_sound(self._view, pos, header):
                raise damaged(self.path, pos, f"records {first} to {last} are damaged")
            stored = topic if header.version <= topic.version else load(topic.path) or topic
            if header.version > stored.version:
                raise damaged(self.path, pos, f"a block has columns of version {header.version}")
            schema = pa.schema([*_EXTRA, *stored.columns_of(header.version)])
            batch = batch_of(self._data, pos, header, schema)
            offsets = batch.column(0).to_numpy()
            low, high = np.searchsorted(offsets, [start, end])
            batch = batch.slice(low, high - low)
            records = with_columns(batch.select(range(2, batch.num_columns)), topic.columns)
            if batch.num_rows:
                yield batch.column(0).to_numpy(), batch.column(1).to_numpy(), records


def newest(topic: Topic) -> CompactedFile | None:
    """The file that counts; None if nothing was compacted yet."""
    while True:
        try:
            names = sorted(n for n in os.listdir(topic.path) if n.endswith(SUFFIX))
        except FileNotFoundError:
            return None
        if not names:
            return None
        with suppress(FileNotFoundError):  # a later one has taken its place
            return CompactedFile(topic, topic.path / names[-1])


def read(
    topic: Topic, reader: TopicReader, partition: int, start: int, end: int
) -> Iterator[Chunk]:
    """Records [start, end) that are left, from the compacted file and the segments after it."""
    at = start
    while at < end:
        file = newest(topic)
        boundary = 0 if file is None else file.ends[partition]
        if file is not None and at < boundary:
            stop = min(end, boundary)
            yield from file.read(topic, partition, at, stop)
            at = stop
            continue
        try:
            for first, table in reader.read(partition, at, end, times=True):
                offsets = np.arange(first, first + table.num_rows, dtype=np.int64)
                times = table[APPEND_TIME].to_numpy()
                records = table.drop_columns([APPEND_TIME]).combine_chunks().to_batches()
                yield offsets, times, records[0]
                at = first + table.num_rows
        except LogError as error:
            later = newest(topic)
            if error.code != "HR-LOG-007" or later is None or later.ends[partition] <= at:
                raise  # else it was compacted meanwhile


def offset_for_time(topic: Topic, partition: int, ms: int) -> int | None:
    """The first record in the compacted file that is not before a moment; None if none is."""
    file = newest(topic)
    if file is None:
        return None
    for offsets, times, _ in file.read(topic, partition, 0, file.ends[partition]):
        if times[-1] >= ms:
            return int(offsets[np.searchsorted(times, ms)])
    return None


# Compacting


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be compacted: all before the segment at `place`."""

    place: int
    ends: tuple[int, ...]


def compact(topic: Topic, reader: TopicReader, plan: Plan, now: int) -> None:
    """Write the file of a plan; the caller holds the lock, and removes the segments afterwards."""
    target = topic.path / f"{plan.place:020d}{SUFFIX}"
    fresh = temporary(target)
    try:
        _write(topic, reader, plan, now, fresh)
        point("log.compact.written")
        os.rename(fresh, target)
        sync_folder(topic.path)
        point("log.compact.counts")
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def clean(topic: Topic) -> None:
    """Remove files that do not count any more, and what a process that died has left."""
    names = os.listdir(topic.path)
    files = sorted(n for n in names if n.endswith(SUFFIX))
    left = [n for n in names if n.startswith(TEMPORARY)]
    with suppress(OSError):  # what is left costs space only
        for name in [*files[:-1], *left]:
            disk.remove(topic.path / name)


def _write(topic: Topic, reader: TopicReader, plan: Plan, now: int, path: Path) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    blocks: list[list[int]] = []
    at = 0
    stamp = Stamp(topic.tag, 0, now, plan.place, topic.version)
    try:
        for partition, end in enumerate(plan.ends):
            keep = _kept(topic, reader, partition, end, now)
            for batch in _pieces(topic, reader, partition, end, keep):
                offsets = batch.column(0)
                first, last = offsets[0].as_py(), offsets[-1].as_py()
                blocks.append([partition, at, first, last])
                at = disk.write(fd, sparse_block(batch, first, partition, stamp), at)
        listed = {"place": plan.place, "ends": plan.ends, "blocks": blocks}
        body = json.dumps(listed).encode()
        trailer = _TRAILER.pack(MAGIC, zlib.crc32(body), topic.tag, len(body))
        disk.write(fd, [body, trailer], at)
        disk.sync(fd)
    finally:
        os.close(fd)


def _kept(topic: Topic, reader: TopicReader, partition: int, end: int, now: int) -> np.ndarray:
    """The offsets of the records that stay, in order."""
    column = topic.key_column
    keys: list[pa.Array] = []
    offsets: list[np.ndarray] = []
    expired: list[np.ndarray] = []
    before = now - (topic.tombstone_ms or 0)
    for numbers, times, records in read(topic, reader, partition, 0, end):
        keys.append(records.column(column))
        offsets.append(numbers)
        expired.append(numbers[_deletes(topic, records) & (times < before)])
    if not keys:
        return np.empty(0, np.int64)
    table = pa.table({"key": pa.chunked_array(keys), "offset": np.concatenate(offsets)})
    last = table.group_by("key").aggregate([("offset", "max")])["offset_max"].to_numpy()
    return np.setdiff1d(np.sort(last), np.concatenate(expired))


def _deletes(topic: Topic, records: pa.RecordBatch) -> np.ndarray:
    """Which records delete their key: all other columns are null, and there are others."""
    deletes = np.full(records.num_rows, len(topic.columns) > 1)
    for name, column in zip(records.schema.names, records.columns, strict=True):
        if name != topic.key_column:
            deletes &= column.is_null().to_numpy(zero_copy_only=False)
    return deletes


def _pieces(
    topic: Topic, reader: TopicReader, partition: int, end: int, keep: np.ndarray
) -> Iterator[pa.RecordBatch]:
    """The records that stay, with their offsets and times, in blocks of a good size."""
    schema = pa.schema([*_EXTRA, *topic.columns])
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for offsets, times, records in read(topic, reader, partition, 0, end):
        stays = np.isin(offsets, keep, assume_unique=True)
        if not stays.any():
            continue
        left = pc.filter(records, pa.array(stays))
        extra = [pa.array(offsets[stays]), pa.array(times[stays])]
        batch = pa.RecordBatch.from_arrays([*extra, *left.columns], schema=schema)
        if waiting and (rows + batch.num_rows > BLOCK_ROWS or size + batch.nbytes > BLOCK_BYTES):
            yield _one(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def is_due(topic: Topic, dirty: int) -> bool:
    """Whether the segments to compact, `dirty` bytes, are worth writing everything again."""
    file = newest(topic)
    return dirty > 0 and (file is None or dirty >= file.size)


def check_there(topic: Topic, earliest: int, file: CompactedFile | None, partition: int) -> None:
    """Raise if segments are gone and the file that holds what is left of them is too."""
    if earliest > (0 if file is None else file.ends[partition]):
        raise missing(topic.path, 0, "a compacted file is missing")
