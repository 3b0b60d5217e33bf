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
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

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
        found = SegmentSnapshot(**data, start=start + pad(start))
        if found.base != base:
            raise ValueError("another segment")
        return found
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
