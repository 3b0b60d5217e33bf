"""Blocks: one Arrow record batch with a checksummed header of 64 bytes.

    header (64 bytes) | producer's name, padded to 64 | Arrow IPC message, padded to 64

A block is whole or it is nothing: the header has its own checksum and that of the body, and
says whose block it is (topic, partition, base offset), so that a misplaced one is seen. All
blocks written before one fsync are numbered by `part`: part 0 proves that whatever lies
before it had been synced. Nothing here opens a file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

ALIGN = 64
MAGIC = b"HRB1"
CONTINUES = 1  # flag: the same append goes on in the next block
BLOCK_ROWS = 256 * 1024
BLOCK_BYTES = 8 * 1024 * 1024

Buffer = Any  # bytes or pa.Buffer

_HEADER = struct.Struct("<4sHHIIqqqqIIII")
_CHECKED = struct.Struct("<60sI")
assert _HEADER.size == ALIGN


class Header(NamedTuple):
    magic: bytes
    flags: int
    name_length: int  # of the producer's name; 0: none
    body_crc: int
    rows: int
    body_length: int
    base: int
    time: int  # append time, milliseconds
    sequence: int
    topic: int
    partition: int
    part: int
    crc: int

    @property
    def size(self) -> int:
        return ALIGN + self.body_length

    @property
    def end(self) -> int:
        return self.base + self.rows

    @property
    def last(self) -> bool:
        """Whether its append is complete with this block."""
        return not self.flags & CONTINUES


class Stamp(NamedTuple):
    """What the blocks of one append share."""

    topic: int
    partition: int
    time: int
    producer: str = ""
    sequence: int = -1


def pad(length: int) -> int:
    return -length % ALIGN


def encode(
    table: pa.Table, base: int, stamp: Stamp, part: int
) -> Iterator[tuple[Header, list[Buffer]]]:
    """The blocks of one append, each as its header and the buffers to write."""
    name = stamp.producer.encode()
    end = base + table.num_rows
    for batch in _pieces(table):
        flags = CONTINUES if base + batch.num_rows < end else 0
        message = batch.serialize()
        body = [name + bytes(pad(len(name))), message, bytes(pad(message.size))]
        length, crc = sum(map(len, body)), 0
        for buffer in body:
            crc = zlib.crc32(buffer, crc)
        header = Header(
            MAGIC, flags, len(name), crc, batch.num_rows, length, base, stamp.time,
            stamp.sequence, stamp.topic, stamp.partition, part, 0,
        )  # fmt: skip
        packed = _HEADER.pack(*header)[:-4]
        yield header, [_CHECKED.pack(packed, zlib.crc32(packed)), *body]
        base, part = base + batch.num_rows, part + 1


def _pieces(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The table as batches that are neither huge nor tiny."""
    row_bytes = max(1, table.nbytes // max(1, table.num_rows))
    rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES // row_bytes))
    for start in range(0, table.num_rows, rows):
        yield from table.slice(start, rows).combine_chunks().to_batches()


def header_at(view: memoryview, pos: int) -> Header | None:
    """The header at `pos` if there is a valid one whose block ends within the view."""
    if pos + ALIGN > len(view):
        return None
    header = Header._make(_HEADER.unpack_from(view, pos))
    if header.magic != MAGIC or header.crc != zlib.crc32(view[pos : pos + ALIGN - 4]):
        return None
    return header if pos + header.size <= len(view) else None


def body_is_sound(view: memoryview, pos: int, header: Header) -> bool:
    body = view[pos + ALIGN : pos + header.size]
    return zlib.crc32(body) == header.body_crc


def batch_of(data: pa.Buffer, pos: int, header: Header, schema: pa.Schema) -> pa.RecordBatch:
    """The block's records, not copied: the batch keeps `data` alive."""
    skip = header.name_length + pad(header.name_length)
    message = data.slice(pos + ALIGN + skip, header.body_length - skip)
    return pa.ipc.read_record_batch(message, schema)


def producer_of(view: memoryview, pos: int, header: Header) -> str:
    return bytes(view[pos + ALIGN : pos + ALIGN + header.name_length]).decode()
