"""Erasing records from a topic: their bytes go, and all others stay where they are.

Segments are never cut, and a block has its place for good. So the records that are erased are
left out, with zeros in their place, in a copy of the segment that takes its place in one step:

    1. begin a new segment, so that all records are in closed ones
    2. of each segment that has such records: note their offsets beside it (`erased.py`), durably
    3. write the copy under a hidden name, sync it, and rename it; readers that have the old one
       mapped go on with it

Behind the records of a block there may be bytes of others (`headrace.spare_bytes`): zeros as well,
in blocks of which no record is erased, too.

It may be repeated after a crash at any point. A topic that is compacted is compacted without them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.errors import LogError
from headrace.files import temporary
from headrace.log import compaction, disk, retention
from headrace.log.block import ALIGN, ERASED, Header, message_of, seal
from headrace.log.compaction import Hits
from headrace.log.erased import all_erased, store_erased
from headrace.log.open_topics import OpenTopic
from headrace.log.reader import with_columns
from headrace.log.segment import SegmentView, read_snapshot, segment_path
from headrace.spare_bytes import has_spare
from headrace.state.faults import point

Bytes = np.ndarray


def count(opened: OpenTopic, hits: Hits, spare: int = 0) -> int:
    """How many records would go; the last `spare` of each partition stay."""
    head = opened.reader.head()
    if head is None:
        return 0
    return sum(
        int(hits(records).sum())
        for partition, end in enumerate(head.ends)
        for records in _records(opened, partition, head.earliest[partition], end - spare)
    )


def _records(opened: OpenTopic, partition: int, start: int, end: int) -> Iterator[pa.Table]:
    if opened.topic.compacted:
        left = compaction.read(opened.topic, opened.reader, partition, 0, end)
        yield from (pa.Table.from_batches([records]) for _, _, records in left)
    elif start < end:
        yield from (records for _, records in opened.reader.read(partition, start, end, False))


def spare_blocks(opened: OpenTopic) -> int:
    """How many blocks have bytes of records that are not theirs."""
    topic, head = opened.topic, opened.reader.head()
    if head is None:
        return 0
    bases, found = [*retention.closed(topic, head), head.segment], 0
    for base, end in zip(bases, [*bases[1:], head.place], strict=True):
        view = SegmentView(topic.path, base, topic.tag, end - base)
        for pos, header in view.headers(read_snapshot(topic.path, base, topic.tag).start):
            found += has_spare(view.batch(pos, header, topic.columns_of(header.version)))
    return found


def erase_compacted(opened: OpenTopic, hits: Hits, now: int) -> None:
    """The caller holds the lock for compaction."""
    topic = opened.topic
    head, _ = opened.writer.closed(now)
    ends = read_snapshot(topic.path, head.segment, topic.tag).ends
    plan = compaction.Plan(head.segment, ends)
    compaction.compact(topic, opened.reader, plan, now, without=hits)
    opened.writer.drop(head.segment)
    compaction.clean(topic)


def erase(opened: OpenTopic, hits: Hits, now: int, spare: int) -> None:
    """The caller holds the lock for compaction, so nobody else erases."""
    head, bases = opened.writer.closed(now)
    for base, end in zip(bases, [*bases[1:], head.segment], strict=True):
        _erase_in(opened, base, end - base, hits, [e - spare for e in head.ends])


def _erase_in(opened: OpenTopic, base: int, size: int, hits: Hits, upto: Sequence[int]) -> None:
    """What was noted before is overwritten again: a crash may have come in between."""
    topic = opened.topic
    view = SegmentView(topic.path, base, topic.tag, size)
    start = read_snapshot(topic.path, base, topic.tag).start
    copy = np.frombuffer(bytearray(view.view), np.uint8)
    noted = all_erased(topic, base)
    offsets: dict[int, list[np.ndarray]] = {}
    for pos, header in view.headers(start):
        stored = topic.columns_of(header.version)
        batch = view.batch(pos, header, stored)
        records = with_columns(batch, topic.columns)
        numbers = np.arange(header.base, header.end)
        found = hits(pa.Table.from_batches([records])) & (numbers < upto[header.partition])
        gone = np.isin(numbers, noted.get(header.partition, ()))
        if (found & ~gone).any():
            offsets.setdefault(header.partition, []).append(numbers[found & ~gone])
        if (found | gone).any():
            left = np.flatnonzero(~(found | gone))
            _overwrite(copy, pos, header._replace(magic=ERASED), stored, left)
        elif has_spare(batch):
            _overwrite(copy, pos, header, stored, np.arange(batch.num_rows))
    if offsets:
        store_erased(topic, base, {p: np.concatenate(found) for p, found in offsets.items()})
        point("log.erase.noted")
    if copy.tobytes() != view.view:
        _replace(opened, base, copy)


def _replace(opened: OpenTopic, base: int, content: Bytes) -> None:
    fresh = temporary(segment_path(opened.topic.path, base))
    try:
        disk.new_file(fresh, content.tobytes())
        point("log.erase.written")
        opened.writer.replace(base, fresh)
        point("log.erase.counts")
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def _overwrite(
    content: Bytes, pos: int, header: Header, schema: pa.Schema, rows: np.ndarray
) -> None:
    """Zeros for all but these rows of a block, which gets this header, with a new checksum."""
    start, length = message_of(header)
    message = content[pos + start : pos + start + length]
    old = message.copy()
    message[_body_of(old) :] = 0
    batch = pa.ipc.read_record_batch(pa.py_buffer(old), schema)
    for column in batch.columns:
        _Copying(old, message).copy(column, rows)
    body = content[pos + ALIGN : pos + header.size]
    changed = header._replace(body_crc=zlib.crc32(body.tobytes()))
    content[pos : pos + ALIGN] = np.frombuffer(seal(changed), np.uint8)


def _body_of(message: Bytes) -> int:
    """Where the columns begin in an Arrow message: after what says how long they are."""
    return 8 + int(message[4:8].view(np.int32)[0])


class _Copying(NamedTuple):
    """From a message to another one that has room for the same: only what some rows have."""

    old: Bytes
    new: Bytes

    def copy(self, array: pa.Array, rows: np.ndarray) -> None:
        """The values of these rows, and all that is inside of them."""
        kind, buffers = array.type, array.buffers()
        if pa.types.is_null(kind):
            return
        if buffers[0] is not None:
            self._all(buffers[0])
        if pa.types.is_struct(kind):
            for i in range(kind.num_fields):
                self.copy(array.field(i), rows)
        elif pa.types.is_fixed_size_list(kind):
            ends = np.arange(len(array) + 1) * kind.list_size
            self.copy(array.values, _within(ends, rows))
        elif any(of(kind) for of in (pa.types.is_map, pa.types.is_list, pa.types.is_large_list)):
            self._all(buffers[1])
            inner = _within(array.offsets.to_numpy(), rows)
            for part in (array.keys, array.items) if pa.types.is_map(kind) else (array.values,):
                self.copy(part, inner)
        else:
            self._copy_leaves(array, rows)

    def _copy_leaves(self, array: pa.Array, rows: np.ndarray) -> None:
        kind, buffers = array.type, array.buffers()
        wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        if wide or pa.types.is_string(kind) or pa.types.is_binary(kind):
            self._all(buffers[1])
            ends = np.frombuffer(buffers[1], np.int64 if wide else np.int32, len(array) + 1)
            self._some(buffers[2], _within(ends, rows))
        elif pa.types.is_boolean(kind):
            self._all(buffers[1])
            left_out = np.setdiff1d(np.arange(len(array)), rows)
            bits = ~(np.uint8(1) << (left_out % 8).astype(np.uint8))
            np.bitwise_and.at(self.new[self._place(buffers[1])], left_out // 8, bits)
        elif not pa.types.is_nested(kind) and _width(kind):
            width = _width(kind)
            self._some(buffers[1], (rows[:, None] * width + np.arange(width)).ravel())
        else:
            raise LogError(
                "HR-LOG-033",
                f"records with a column of type {kind} cannot be erased",
                "Remove the topic, or wait until retention removes its records.",
            )

    def _place(self, buffer: pa.Buffer) -> slice:
        at = buffer.address - self.old.ctypes.data
        if at < 0 or at + buffer.size > len(self.old):
            raise AssertionError("a column was copied")
        return slice(at, at + buffer.size)

    def _all(self, buffer: pa.Buffer) -> None:
        self.new[self._place(buffer)] = self.old[self._place(buffer)]

    def _some(self, buffer: pa.Buffer | None, at: np.ndarray) -> None:
        if buffer is not None and len(at):
            place = self._place(buffer)
            self.new[place][at] = self.old[place][at]


def _width(kind: pa.DataType) -> int:
    """Bytes of a value; 0 if they have no fixed width."""
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return 0


def _within(ends: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The places of all that is inside of these rows."""
    first = ends[rows].astype(np.int64)
    count = ends[rows + 1] - first
    return np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())


def clean(folder: Path) -> None:
    """Remove copies that a process that died has left; the caller holds the lock."""
    for path in folder.glob(".new-*"):
        with suppress(OSError):
            path.unlink(missing_ok=True)
