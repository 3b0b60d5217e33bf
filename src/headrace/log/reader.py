"""Reading: a range of offsets as a stream of tables.

A reader takes no lock and looks at nothing beyond the head; below it every block is checked
when it is read. Only where the head cannot be trusted, once after a restart of the machine,
it has the log recovered first. The tables of a range hold each of its records exactly once and in
order, or reading ends with an error: HR-LOG-007 where retention was faster. Records that were
erased are left out: a table ends before them, and the next one begins after them.
"""

from __future__ import annotations

import dataclasses
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.errors import LogError
from headrace.log.block import BLOCK_BYTES, BLOCK_ROWS, ERASED, Header
from headrace.log.contract import APPEND_TIME, unreadable
from headrace.log.erased import erased, stretches
from headrace.log.head import Head
from headrace.log.recovery import recover
from headrace.log.segment import (
    SegmentSnapshot,
    SegmentView,
    before_offset,
    before_time,
    missing,
    read_snapshot,
    segment_path,
    segments,
)
from headrace.log.topic import Topic, load

_Block = tuple[SegmentView, int, Header]  # where a block is, and what it says of itself

_SMALL = 4096  # rows: smaller batches are joined, which is faster to process


class CatchUp(Protocol):
    """Publishes what lies beyond the head."""

    def __call__(self, *, wait: bool) -> None: ...


class _Overtaken(Exception):
    """A file has gone since the head was read: retention or a deletion, or it is lost."""

    def __init__(self, base: int) -> None:
        self.base = base


class TopicReader:
    """Reads one topic from this process; remembers only hints."""

    def __init__(self, topic: Topic, patience: float, catch_up: CatchUp) -> None:
        self.topic = topic
        self._patience = patience
        self._catch_up = catch_up
        self._head_file = topic.head
        self._snapshots: dict[int, SegmentSnapshot] = {}
        self._newest = 0  # the place of the last head
        self._newest_topic = topic  # as it was found when a block had later columns
        self._left_off: dict[int, tuple[int, int, int]] = {}  # partition: offset, segment, position

    def head(self) -> Head | None:
        """What is published now; None if this is no longer the topic of that name."""
        head = self._trusted()
        if head is not None and self._is_behind(head):
            head = self._caught_up(head)
        if head is not None:
            self._newest = head.place
        return head

    def _is_behind(self, head: Head) -> bool:
        """Whether anything lies beyond the head: an append in flight, or it is an old copy."""
        try:
            if os.stat(segment_path(self.topic.path, head.segment)).st_size > head.position:
                return True
        except FileNotFoundError:
            return True
        except OSError as error:
            raise unreadable(segment_path(self.topic.path, head.segment), error) from error
        return os.path.exists(f"{self.topic.path}/{head.place:020d}.log")

    def _caught_up(self, old: Head) -> Head | None:
        """The head once all that is whole has been published."""
        try:
            self._catch_up(wait=old.place < self._newest)
        except FileNotFoundError:
            return self._trusted()  # deleted meanwhile
        except OSError as error:  # a folder that we may only read
            head = self._trusted()
            if head is not None and segments(self.topic.path)[-1] > head.segment:
                raise unreadable(self.topic.path, error) from error
            return head
        return self._trusted()

    def _trusted(self) -> Head | None:
        head, trusted = self._head_file.read()
        while not trusted:
            if not self.topic.is_current():
                return None
            try:
                recover(self.topic, self._patience)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise unreadable(self.topic.path, error) from error
            head, trusted = self._head_file.read()
        return head

    def read(
        self, partition: int, start: int, end: int, times: bool
    ) -> Iterator[tuple[int, pa.Table]]:
        """Records [start, end), which the caller has checked to be there."""
        schema = self.topic.columns
        with self.of_this_topic():
            for run in _gathered(self._blocks(partition, start, end)):
                batches = [self._batch(block, schema) for block in run]
                table = _joined(batches, schema)
                if times:
                    table = table.append_column(APPEND_TIME, _times([h for _, _, h in run]))
                first = run[0][2].base
                skip = max(0, start - first)
                table = table.slice(skip, min(end, run[-1][2].end) - first - skip)
                bases = {view.base for view, _, header in run if header.magic == ERASED}
                if not bases:
                    yield first + skip, table
                    continue
                gone = [span for base in bases for span in erased(self.topic, base, partition)]
                yield from stretches(first + skip, table, gone)

    def _batch(self, block: _Block, schema: pa.Schema) -> pa.RecordBatch:
        """A block's records in these columns, whichever it was written with."""
        view, pos, header = block
        stored = self._newest_topic
        if header.version > stored.version:  # columns were added since the topic was opened
            stored = load(self.topic.path) or stored
            if stored.id != self.topic.id or header.version > stored.version:
                raise view.damaged(pos, f"a block has columns of version {header.version}")
            self._newest_topic = stored
        batch = view.batch(pos, header, stored.columns_of(header.version))
        return batch if header.version == self.topic.version else with_columns(batch, schema)

    def offset_for_time(self, partition: int, ms: int) -> int:
        """The first offset appended at or after `ms`; the end if there is none."""
        with self.of_this_topic():
            while True:
                head = self._head(partition, None)
                try:
                    return self._at_time(partition, ms, head)
                except _Overtaken as overtaken:
                    self._explain(partition, head.earliest[partition], overtaken)

    @contextmanager
    def of_this_topic(self) -> Iterator[None]:
        """What seems damaged may be a file of another topic, made since under the same name."""
        try:
            yield
        except LogError as error:
            if error.code not in ("HR-LOG-008", "HR-LOG-009", "HR-LOG-011"):
                raise
            if self.topic.is_current():
                raise
            raise out_of_range(self.topic, 0, 0, None) from error

    def _at_time(self, partition: int, ms: int, head: Head) -> int:
        bases = self._bases(head)
        lasts = [self._snapshot(base).time for base in bases[1:]] + [head.time]
        for at in range(bisect_left(lasts, ms), len(bases)):
            view = self._view(bases, at, head)
            begin = before_time(self.topic.path, view, partition, ms)
            for _, header in view.headers(self._start(bases[at]) if begin is None else begin):
                if header.partition == partition and header.time >= ms:
                    return header.base
        return head.ends[partition]

    def _blocks(self, partition: int, offset: int, end: int) -> Iterator[_Block]:
        """The blocks that hold [offset, end), each checked to follow the one before."""
        while offset < end:
            reached = offset
            view, pos, at = self._seek(partition, offset)
            for position, header in view.headers(pos):
                if header.partition != partition:
                    continue
                if header.base != at:
                    fact = f"a block begins at offset {header.base}, not {at}"
                    raise view.damaged(position, fact)
                at = header.end
                if at > reached:
                    reached = at
                    self._left_off[partition] = (reached, view.base, position + header.size)
                    yield view, position, header
                if reached >= end:
                    return
            if reached == offset:
                raise missing(view.path, view.limit, f"record {offset} is missing")
            offset = reached

    def _seek(self, partition: int, offset: int) -> tuple[SegmentView, int, int]:
        """The segment that holds `offset`, and a (position, offset) there to begin at."""
        while True:
            head = self._head(partition, offset)
            try:
                return self._locate(partition, offset, head)
            except _Overtaken as overtaken:
                self._explain(partition, offset, overtaken)

    def _locate(self, partition: int, offset: int, head: Head) -> tuple[SegmentView, int, int]:
        left_off, base, pos = self._left_off.get(partition, (-1, 0, 0))
        if left_off == offset and base == head.segment and pos < head.position:
            return self._view([base], 0, head), pos, offset
        bases = self._bases(head)
        at = bisect_right(bases, offset, key=lambda b: self._snapshot(b).ends[partition]) - 1
        view = self._view(bases, max(0, at), head)
        begin = before_offset(self.topic.path, view, partition, offset)
        if begin is None:
            snapshot = self._snapshot(view.base)
            return view, snapshot.start, snapshot.ends[partition]
        header = view.header(begin)
        assert header is not None
        return view, begin, header.base

    def _head(self, partition: int, offset: int | None) -> Head:
        head = self.head()
        if head is None or (offset is not None and offset < head.earliest[partition]):
            raise out_of_range(self.topic, partition, offset or 0, head)
        return head

    def _bases(self, head: Head) -> list[int]:
        """The segments from the oldest to the newest."""
        try:
            existing = segments(self.topic.path)
        except FileNotFoundError as error:
            raise _Overtaken(head.first) from error
        bases = [b for b in existing if head.first <= b <= head.segment]
        if not bases or bases[0] != head.first:
            raise _Overtaken(head.first)
        if bases[-1] != head.segment:
            raise _Overtaken(head.segment)
        return bases

    def _snapshot(self, base: int) -> SegmentSnapshot:
        snapshot = self._snapshots.get(base)
        if snapshot is None:
            try:
                snapshot = read_snapshot(self.topic.path, base, self.topic.tag)
            except FileNotFoundError as error:
                raise _Overtaken(base) from error
            self._snapshots[base] = snapshot = dataclasses.replace(snapshot, seen=[])
        return snapshot

    def _start(self, base: int) -> int:
        return self._snapshot(base).start

    def _view(self, bases: Sequence[int], at: int, head: Head) -> SegmentView:
        base = bases[at]
        limit = head.position if base == head.segment else bases[at + 1] - base
        try:
            return SegmentView(self.topic.path, base, self.topic.tag, limit)
        except FileNotFoundError as error:
            raise _Overtaken(base) from error

    def _explain(self, partition: int, offset: int, overtaken: _Overtaken) -> None:
        """Return if another try makes sense; else raise what has become of the records."""
        head = self.head()
        if head is None or offset < head.earliest[partition]:
            raise out_of_range(self.topic, partition, offset, head) from overtaken
        if overtaken.base >= head.first:
            path = segment_path(self.topic.path, overtaken.base)
            raise missing(path, 0, "a segment is missing") from overtaken


def out_of_range(topic: Topic, partition: int, offset: int, head: Head | None) -> LogError:
    """The error for an offset that the partition does not hold."""
    if head is None:
        return LogError(
            "HR-LOG-002",
            f"topic '{topic.name}' was deleted while it was read",
            "Create it again, or stop the reader.",
        )
    earliest, end = head.earliest[partition], head.ends[partition]
    return LogError(
        "HR-LOG-007",
        f"offset {offset} is outside partition {partition} of topic '{topic.name}', "
        f"which holds [{earliest}, {end})",
        f"Read from {earliest} (the earliest stored) to {end} (the latest).",
    )


def _gathered(blocks: Iterator[_Block]) -> Iterator[list[_Block]]:
    """Neighbouring blocks in runs that make one table of a good size."""
    run: list[_Block] = []
    rows = size = 0
    for block in blocks:
        header = block[2]
        if run and (rows + header.rows > BLOCK_ROWS or size + header.size > BLOCK_BYTES):
            yield run
            run, rows, size = [], 0, 0
        run.append(block)
        rows, size = rows + header.rows, size + header.size
    if run:
        yield run


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    table = pa.Table.from_batches(batches, schema)
    small = len(batches) > 1 and table.num_rows < _SMALL * len(batches)
    return table.combine_chunks() if small else table


def with_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with nulls for columns that were added later, without those it should not have."""
    arrays = [
        batch.column(i) if i < batch.num_columns else pa.nulls(batch.num_rows, field.type)
        for i, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _times(headers: Sequence[Header]) -> pa.Array:
    times = np.array([h.time for h in headers], np.int64)
    return pa.array(np.repeat(times, [h.rows for h in headers]))
