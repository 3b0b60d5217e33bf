"""Segments: files of blocks of all partitions, named by their place in the log.

A segment begins with a snapshot of what the topic held when it was begun, so that older ones
may go and a search finds its segment without reading blocks. A view of a segment ends where
the caller says that it is published; within that, every block must be sound and follow the one
before, or reading stops with an error that names file and byte. Batches point into the memory
map: nothing is copied, and nothing that may be mapped is ever cut.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import LogError
from headrace.log.block import Header, batch_of, body_is_sound, header_at, pad
from headrace.log.contract import unreadable

MAGIC = b"HRS2"
_PREFIX = struct.Struct("<4sIIQ")


@lru_cache(maxsize=256)
def segment_path(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}.log"


def segments(folder: Path) -> list[int]:
    """The places at which the segments in a topic's folder begin, in order."""
    names = (name[:-4] for name in os.listdir(folder) if name.endswith(".log"))
    return sorted(int(n) for n in names if len(n) == 20 and n.isdecimal() and n.isascii())


@dataclass(frozen=True, slots=True)
class SegmentSnapshot:
    """What a topic held where a segment begins."""

    base: int
    generation: int
    opened: int
    time: int
    clock: int
    ends: tuple[int, ...]
    sizes: tuple[int, ...]
    seen: list[Any]
    start: int = 0  # where blocks begin; known once it was written


def pack_snapshot(topic: int, snapshot: SegmentSnapshot) -> bytes:
    body = json.dumps(
        {
            "base": snapshot.base,
            "generation": snapshot.generation,
            "opened": snapshot.opened,
            "time": snapshot.time,
            "clock": snapshot.clock,
            "ends": snapshot.ends,
            "sizes": snapshot.sizes,
            "seen": snapshot.seen,
        }
    ).encode()
    data = _PREFIX.pack(MAGIC, zlib.crc32(body), topic, len(body)) + body
    return data + bytes(pad(len(data)))


def read_snapshot(folder: Path, base: int, topic: int) -> SegmentSnapshot:
    """The snapshot of a segment; FileNotFoundError if that is not there."""
    path = segment_path(folder, base)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            prefix = file.read(_PREFIX.size)
            if len(prefix) < _PREFIX.size:
                raise missing(path, size, "the beginning of a segment is missing")
            magic, crc, owner, length = _PREFIX.unpack(prefix)
            body = file.read(min(length, size))
        if magic == MAGIC and len(body) < length:
            raise missing(path, size, "acknowledged records are missing")
        if magic != MAGIC or owner != topic or zlib.crc32(body) != crc:
            raise ValueError("checksum")
        data = json.loads(body)
        data |= {"ends": tuple(data["ends"]), "sizes": tuple(data["sizes"])}
        start = _PREFIX.size + length
        snapshot = SegmentSnapshot(**data, start=start + pad(start))
        if snapshot.base != base:
            raise ValueError("another segment")
        return snapshot
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise LogError(
            "HR-LOG-011",
            f"the beginning of segment '{path}' is damaged",
            "Restore the file from a copy: it says which records are in it, and which "
            "appends were made before.",
        ) from error


class SegmentView:
    """The first `limit` bytes of a segment, all of them published, mapped."""

    def __init__(self, folder: Path, base: int, topic: int, limit: int) -> None:
        self.path = segment_path(folder, base)
        self.base = base
        self.limit = limit
        self._topic = topic
        try:
            self.data = _map(self.path, limit)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise unreadable(self.path, error) from error
        self.view = memoryview(self.data)

    def header(self, pos: int) -> Header | None:
        """The header at `pos`, if a sound block of this topic begins there."""
        header = header_at(self.view, pos)
        return header if header is not None and header.topic == self._topic else None

    def headers(self, pos: int) -> Iterator[tuple[int, Header]]:
        """Positions and headers from `pos`, where a block begins, to the limit."""
        while pos < self.limit:
            header = self.header(pos)
            if header is None:
                raise self.damaged(pos, "the header of a block is damaged")
            yield pos, header
            pos += header.size

    def batch(self, pos: int, header: Header, schema: pa.Schema) -> pa.RecordBatch:
        if not body_is_sound(self.view, pos, header):
            raise self.damaged(pos, f"records {header.base} to {header.end - 1} are damaged")
        return batch_of(self.data, pos, header, schema)

    def damaged(self, pos: int, fact: str) -> LogError:
        return damaged(self.path, pos, fact)


def damaged(path: Path, pos: int, fact: str) -> LogError:
    return LogError(
        "HR-LOG-008",
        f"{fact}: file '{path}', byte {pos}",
        "Restore the file from a copy, or read from a later offset.",
    )


def missing(path: Path, pos: int, fact: str) -> LogError:
    return LogError(
        "HR-LOG-009",
        f"{fact}: file '{path}', byte {pos}",
        "Restore the file from a copy. Nothing was changed, and nothing is appended "
        "until it is back.",
    )


def _map(path: Path, limit: int) -> pa.Buffer:
    """The bytes; they outlive the file's descriptor."""
    with pa.memory_map(str(path)) as file:
        size = file.size()
        if size < limit:
            raise missing(path, size, "acknowledged records are missing")
        return file.read_buffer(limit)


# The sparse index of a segment: a file of (partition, offset, position, append time), some for
# every 64 KB, not synced. It is a hint: whoever uses an entry checks that such a block begins
# there, so a damaged, stale or missing index costs time and never gives a wrong answer.


SPACING = 64 * 1024
_ENTRY = np.dtype([("partition", "<i8"), ("offset", "<i8"), ("position", "<i8"), ("time", "<i8")])

Point = tuple[int, int, int, int]  # partition, offset, position, time


def index_path(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}.index"


def load_index(folder: Path, base: int, partition: int) -> np.ndarray:
    try:
        data = index_path(folder, base).read_bytes()
    except OSError:
        return np.empty(0, _ENTRY)
    whole = len(data) // _ENTRY.itemsize * _ENTRY.itemsize
    entries = np.frombuffer(data[:whole], _ENTRY)
    entries = entries[entries["partition"] == partition]
    return np.sort(entries, order="position", kind="stable")


def read_index(path: Path) -> set[tuple[int, int, int]]:
    """Partition, offset and position of all entries; what is not a whole entry at the end is not
    there, and a file that cannot be read has none."""
    try:
        data = path.read_bytes()
    except OSError:
        return set()
    entries = np.frombuffer(data[: len(data) // _ENTRY.itemsize * _ENTRY.itemsize], _ENTRY)
    return {(p, offset, at) for p, offset, at, _ in entries.tolist()}


def extend_index(folder: Path, base: int, points: Sequence[Point], end: int) -> None:
    """Note those blocks of a group, which ends at `end`, that begin or cross a stripe."""
    if not points or points[0][2] // SPACING == end // SPACING:
        return
    chosen: dict[tuple[int, int], Point] = {}
    for point in points:
        chosen.setdefault((point[0], point[2] // SPACING), point)
    with suppress(OSError):
        _append_points(index_path(folder, base), list(chosen.values()))


def _append_points(path: Path, points: list[Point]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, np.array(points, _ENTRY).tobytes())
    finally:
        os.close(fd)


def rewrite_index(folder: Path, base: int, start: int, limit: int, topic: int) -> None:
    """Make the index of a segment anew from the headers of its blocks."""
    chosen: dict[tuple[int, int], Point] = {}
    with suppress(LogError, OSError):  # whoever reads the damaged block will say so
        index_path(folder, base).unlink(missing_ok=True)
        view = SegmentView(folder, base, topic, limit)
        for pos, h in view.headers(start):
            if pos >= SPACING:
                chosen.setdefault((h.partition, pos // SPACING), (h.partition, h.base, pos, h.time))
        if chosen:
            _append_points(index_path(folder, base), list(chosen.values()))


def before_offset(folder: Path, view: SegmentView, partition: int, offset: int) -> int | None:
    """A position where a block of the partition begins that holds `offset` or an earlier one."""
    index = load_index(folder, view.base, partition)
    return _checked(view, index[index["offset"] <= offset], lambda h: h.base <= offset)


def before_time(folder: Path, view: SegmentView, partition: int, ms: int) -> int | None:
    """A position where a block of the partition begins that was appended before `ms`."""
    index = load_index(folder, view.base, partition)
    return _checked(view, index[index["time"] < ms], lambda h: h.time < ms)


def _checked(view: SegmentView, index: np.ndarray, fits: Callable[[Header], bool]) -> int | None:
    for partition, offset, pos, _ in reversed(index.tolist()):
        header = view.header(pos) if 0 <= pos < view.limit else None
        same = header is not None and (header.partition, header.base) == (partition, offset)
        if header is not None and same and fits(header):
            return int(pos)
    return None
