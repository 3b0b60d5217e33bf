"""Segments: files of blocks, named by their first offset, read through a memory map.

A view of a segment ends where the caller says that it is acknowledged; within that, every
block must be sound and follow the one before, or reading stops with an error that names file
and byte. Batches point into the map: nothing is copied.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from headrace.errors import LogError
from headrace.log.block import ALIGN, Header, batch_of, body_is_sound, header_at, producer_of
from headrace.log.contract import unreadable


def segment_path(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}.log"


def segments(folder: Path) -> list[int]:
    """First offsets of the segments in a partition's folder, in order."""
    return sorted(int(n[:-4]) for n in os.listdir(folder) if n.endswith(".log"))


class SegmentView:
    """The first `limit` bytes of a segment (all of it when None), mapped."""

    def __init__(
        self, folder: Path, base: int, topic: int, partition: int, limit: int | None = None
    ) -> None:
        self.path = segment_path(folder, base)
        self.base = base
        self._owner = (topic, partition)
        try:
            self.limit, self.data = _map(self.path, limit)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise unreadable(self.path, error) from error
        self.view = memoryview(self.data)

    def header(self, pos: int) -> Header | None:
        """The header at `pos`, if a sound block of this partition begins there."""
        header = header_at(self.view, pos)
        ours = header is not None and (header.topic, header.partition) == self._owner
        return header if ours else None

    def headers(self, pos: int, offset: int) -> Iterator[tuple[int, Header]]:
        """Positions and headers from `pos`, where `offset` begins, to the limit."""
        while pos < self.limit:
            header = self.header(pos)
            if header is None:
                raise self.damaged(pos, "the header of a block is damaged")
            if header.base != offset:
                raise self.damaged(pos, f"a block begins at offset {header.base}, not {offset}")
            yield pos, header
            pos, offset = pos + header.size, header.end

    def batch(self, pos: int, header: Header, schema: pa.Schema) -> pa.RecordBatch:
        if not self.sound(pos, header):
            raise self.damaged(pos, f"records {header.base} to {header.end - 1} are damaged")
        return batch_of(self.data, pos, header, schema)

    def sound(self, pos: int, header: Header) -> bool:
        return body_is_sound(self.view, pos, header)

    def producer(self, pos: int, header: Header) -> str:
        if not self.sound(pos, header):
            raise self.damaged(pos, f"records {header.base} to {header.end - 1} are damaged")
        return producer_of(self.view, pos, header)

    def synced_block_from(self, pos: int) -> bool:
        """Whether a block at or after `pos` proves that all before it had been synced."""
        headers = map(self.header, range(pos, self.limit, ALIGN))
        return any(h is not None and h.part == 0 for h in headers)

    def damaged(self, pos: int, fact: str) -> LogError:
        return LogError(
            f"{fact}: file '{self.path}', byte {pos}", code="HR-LOG-008",
            hint="Restore the file from a copy, or read from a later offset.",
        )  # fmt: skip


def missing(path: Path, pos: int, fact: str) -> LogError:
    return LogError(
        f"{fact}: file '{path}', byte {pos}", code="HR-LOG-009",
        hint="Restore the file from a copy. To give up what is missing, remove the file "
        "'head' in the topic's folder: the next append then cuts the log where it ends.",
    )  # fmt: skip


def _map(path: Path, limit: int | None) -> tuple[int, pa.Buffer]:
    """How many bytes, and the bytes; they outlive the file's descriptor."""
    with pa.memory_map(str(path)) as file:
        size = file.size()
        limit = size if limit is None else limit
        if size < limit:
            raise missing(path, size, "acknowledged records are missing")
        return limit, file.read_buffer(limit)
