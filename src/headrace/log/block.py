"""Blocks: records of one partition as an Arrow batch, with a checksummed header of 64 bytes.

    header (64 bytes) | notes of producers, padded to 64 | Arrow IPC message, padded to 64

The blocks that are committed together, of whatever partitions, follow each other in one file;
all but the last carry the flag CONTINUES. That is the commit record: a group whose last block
is not there was never committed. A header says whose block it is (topic, partition, base
offset), and `synced`: up to where the log was known to be on disk when the block was written,
so that damage before that point is never taken for an append that was cut short.
Nothing here opens a file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

ALIGN = 64
MAGIC = b"HRB2"
CONTINUES = 1  # flag: the group goes on in the next block
BLOCK_ROWS = 256 * 1024
BLOCK_BYTES = 8 * 1024 * 1024

Buffer = Any  # bytes or pa.Buffer

_HEADER = struct.Struct("<4sHHIIIIqqqqII")
_NOTE = struct.Struct("<qqqI")
assert _HEADER.size == ALIGN


class Header(NamedTuple):
    magic: bytes
    flags: int
    partition: int
    notes_length: int  # of what producers wrote; 0: nobody may retry
    body_crc: int
    rows: int
    topic: int
    body_length: int
    base: int
    time: int  # append time, milliseconds; never goes back in a topic
    synced: int  # all before this place of the log was on disk
    generation: int
    crc: int

    @property
    def size(self) -> int:
        return ALIGN + self.body_length

    @property
    def end(self) -> int:
        return self.base + self.rows

    @property
    def last(self) -> bool:
        """Whether its group is complete with this block."""
        return not self.flags & CONTINUES


class Stamp(NamedTuple):
    """What the blocks of one group share."""

    topic: int
    generation: int
    time: int
    synced: int


class Note(NamedTuple):
    """An append that may be retried: these records of the block's partition are its own."""

    producer: str
    sequence: int
    first: int
    end: int


class Part(NamedTuple):
    """The records that a group adds to one partition."""

    partition: int
    base: int
    table: pa.Table
    notes: Sequence[Note]


def pad(length: int) -> int:
    return -length % ALIGN


def encode(parts: Sequence[Part], stamp: Stamp) -> Iterator[tuple[Header, list[Buffer]]]:
    """The blocks of one group, each as its header and the buffers to write."""
    for i, part in enumerate(parts):
        base, end = part.base, part.base + part.table.num_rows
        for batch in _pieces(part.table):
            whole = base + batch.num_rows == end
            flags = 0 if whole and i == len(parts) - 1 else CONTINUES
            yield _block(batch, base, flags, part, pack_notes(part.notes) if whole else b"", stamp)
            base += batch.num_rows


def _block(
    batch: pa.RecordBatch, base: int, flags: int, part: Part, notes: bytes, stamp: Stamp
) -> tuple[Header, list[Buffer]]:
    message = batch.serialize()
    body = [notes + bytes(pad(len(notes))), message, bytes(pad(message.size))]
    length, crc = sum(map(len, body)), 0
    for buffer in body:
        crc = zlib.crc32(buffer, crc)
    header = Header(
        MAGIC, flags, part.partition, len(notes), crc, batch.num_rows, stamp.topic, length,
        base, stamp.time, stamp.synced, stamp.generation, 0,
    )  # fmt: skip
    packed = _HEADER.pack(*header)[:-4]
    return header, [packed + zlib.crc32(packed).to_bytes(4, "little"), *body]


def _pieces(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The table as batches that are neither huge nor tiny."""
    row_bytes = max(1, table.nbytes // max(1, table.num_rows))
    rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES // row_bytes))
    for start in range(0, table.num_rows, rows):
        yield from table.slice(start, rows).combine_chunks().to_batches()


def parse(raw: bytes | memoryview) -> Header | None:
    """The header in these 64 bytes, if there is a sound one."""
    if len(raw) < ALIGN:
        return None
    header = Header._make(_HEADER.unpack_from(raw))
    sound = header.magic == MAGIC and header.crc == zlib.crc32(raw[: ALIGN - 4])
    return header if sound else None


def header_at(view: memoryview, pos: int) -> Header | None:
    """The header at `pos` if there is a sound one whose block ends within the view."""
    header = parse(view[pos : pos + ALIGN])
    return header if header is not None and pos + header.size <= len(view) else None


def body_is_sound(view: memoryview, pos: int, header: Header) -> bool:
    body = view[pos + ALIGN : pos + header.size]
    return zlib.crc32(body) == header.body_crc


def batch_of(data: pa.Buffer, pos: int, header: Header, schema: pa.Schema) -> pa.RecordBatch:
    """The block's records, not copied: the batch keeps `data` alive."""
    skip = header.notes_length + pad(header.notes_length)
    message = data.slice(pos + ALIGN + skip, header.body_length - skip)
    return pa.ipc.read_record_batch(message, schema)


def pack_notes(notes: Sequence[Note]) -> bytes:
    packed = []
    for note in notes:
        name = note.producer.encode()
        packed += [_NOTE.pack(note.sequence, note.first, note.end, len(name)), name]
    return b"".join(packed)


def unpack_notes(data: bytes) -> list[Note]:
    notes, at = [], 0
    while at < len(data):
        sequence, first, end, length = _NOTE.unpack_from(data, at)
        at += _NOTE.size
        notes.append(Note(data[at : at + length].decode(), sequence, first, end))
        at += length
    return notes
