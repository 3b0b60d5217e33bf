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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

ALIGN = 64
MAGIC = b"HRB2"
ERASED = b"HRB3"  # some of its records are erased: which, is in a file beside the segment
CONTINUES = 1  # flag: the group goes on in the next block
_VERSION = 4  # the flags above this bit: the version of the columns
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
    def version(self) -> int:
        """Which columns the records have: a later version has more."""
        return self.flags >> _VERSION

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
    version: int = 0


class Note(NamedTuple):
    """An append that may be retried: these records of the block's partition are its own."""

    producer: str
    sequence: int
    first: int
    end: int


class Body(NamedTuple):
    """Records as they are stored."""

    rows: int
    message: Buffer
    padding: bytes
    crc: int


@dataclass(frozen=True, slots=True)
class Packed:
    """Records of one partition as they are stored, made before they are appended."""

    schema: pa.Schema
    bodies: Sequence[Body]

    def __len__(self) -> int:
        return sum(body.rows for body in self.bodies)

    def table(self) -> pa.Table:
        batches = [pa.ipc.read_record_batch(b.message, self.schema) for b in self.bodies]
        return pa.Table.from_batches(batches, self.schema)


class PartitionRecords(NamedTuple):
    """The records that a group adds to one partition."""

    partition: int
    base: int
    records: pa.Table | Packed
    notes: Sequence[Note]


def pad(length: int) -> int:
    return -length % ALIGN


def encode(
    parts: Sequence[PartitionRecords], stamp: Stamp
) -> Iterator[tuple[Header, list[Buffer]]]:
    """The blocks of one group, each as its header and the buffers to write."""
    for i, part in enumerate(parts):
        base, end = part.base, part.base + len(part.records)
        for body in _bodies(part.records):
            whole = base + body.rows == end
            flags = 0 if whole and i == len(parts) - 1 else CONTINUES
            flags |= stamp.version << _VERSION
            notes = pack_notes(part.notes) if whole else b""
            yield _block(body, base, flags, part.partition, notes, stamp)
            base += body.rows


def sparse_block(batch: pa.RecordBatch, base: int, partition: int, stamp: Stamp) -> list[Buffer]:
    """A block by itself, of records whose offsets are among its columns: `base` is the first."""
    return _block(_body(batch), base, stamp.version << _VERSION, partition, b"", stamp)[1]


def packed(table: pa.Table) -> Packed:
    """The records as blocks."""
    return Packed(table.schema, list(_bodies(table)))


def packed_if_small(table: pa.Table) -> pa.Table | Packed:
    """The records as one block; as they are if there are too many for one."""
    if table.num_rows > BLOCK_ROWS or table.get_total_buffer_size() > BLOCK_BYTES:
        return table
    batches = (table if _whole(table) else table.combine_chunks()).to_batches()
    return Packed(table.schema, [_body(batches[0])]) if len(batches) == 1 else table


def _bodies(records: pa.Table | Packed) -> Iterable[Body]:
    return records.bodies if isinstance(records, Packed) else map(_body, _pieces(records))


def _whole(table: pa.Table) -> bool:
    return all(column.num_chunks == 1 for column in table.itercolumns())


def _body(batch: pa.RecordBatch) -> Body:
    message = batch.serialize()
    padding = bytes(pad(message.size))
    return Body(batch.num_rows, message, padding, zlib.crc32(padding, zlib.crc32(message)))


def _block(
    body: Body, base: int, flags: int, partition: int, notes: bytes, stamp: Stamp
) -> tuple[Header, list[Buffer]]:
    before = notes + bytes(pad(len(notes)))
    crc = body.crc
    if notes:
        crc = zlib.crc32(body.padding, zlib.crc32(body.message, zlib.crc32(before)))
    header = Header(
        MAGIC,
        flags,
        partition,
        len(notes),
        crc,
        body.rows,
        stamp.topic,
        len(before) + body.message.size + len(body.padding),
        base,
        stamp.time,
        stamp.synced,
        stamp.generation,
        0,
    )
    return header, [seal(header) + before, body.message, body.padding]


def seal(header: Header) -> bytes:
    """The header as it is stored, with its checksum."""
    packed = _HEADER.pack(*header)[:-4]
    return packed + zlib.crc32(packed).to_bytes(4, "little")


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
    sound = header.magic in (MAGIC, ERASED) and header.crc == zlib.crc32(raw[: ALIGN - 4])
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
    start, length = message_of(header)
    return pa.ipc.read_record_batch(data.slice(pos + start, length), schema)


def message_of(header: Header) -> tuple[int, int]:
    """Where in a block its records begin, and how many bytes they are with their padding."""
    skip = header.notes_length + pad(header.notes_length)
    return ALIGN + skip, header.body_length - skip


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
