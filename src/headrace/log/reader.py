"""Reading: a range of offsets as a stream of tables.

A reader takes no lock. It trusts the head, or, where the head cannot be trusted, what a scan
of the files shows; below that every block is checked when it is read. The tables of a range
hold each of its records exactly once and in order, or the reading ends with an error.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from headrace.clock import MAX_TIME
from headrace.errors import LogError
from headrace.log import index, retention
from headrace.log.block import BLOCK_BYTES, BLOCK_ROWS, Header
from headrace.log.contract import APPEND_TIME
from headrace.log.head import Entry, Heads
from headrace.log.recovery import scan
from headrace.log.segment import SegmentView, missing, segment_path
from headrace.log.topic import Topic, load

_Block = tuple[SegmentView, int, Header]  # where a block is, and what it says of itself

_SMALL = 4096  # rows: smaller batches are joined, for the sake of whoever reads them


class TopicReader:
    """Reads one topic from this process; remembers only hints."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self._head = topic.head
        self._scanned: tuple[object, list[Entry]] | None = None
        self._left_off: dict[int, tuple[int, int, int]] = {}  # partition: offset, segment, position

    def entries(self) -> Sequence[Entry] | None:
        """The ends of the partitions now; None if this is no longer the topic of that name."""
        heads, trusted = self._head.read()
        if heads is not None and trusted:
            return heads.entries if heads.topic == self.topic.id else None
        now = load(self.topic.path)
        return self._scan(heads) if now is not None and now.id == self.topic.id else None

    def _scan(self, heads: Heads | None) -> Sequence[Entry]:
        """As `recovery.scan`, again only when a file has changed."""
        shape = (heads, [_shape(self.topic, p) for p in range(self.topic.partitions)])
        if self._scanned is None or self._scanned[0] != shape:
            self._scanned = (shape, scan(self.topic, heads))
        heads, trusted = self._head.read()
        if heads is not None and trusted:  # an appender came in between: its head decides
            return heads.entries
        return self._scanned[1]

    def read(
        self, partition: int, start: int, end: int, times: bool
    ) -> Iterator[tuple[int, pa.Table]]:
        """Records [start, end), which the caller has checked to be there."""
        schema = self.topic.columns
        for run in _gathered(self._blocks(partition, start, end)):
            batches = [view.batch(pos, header, schema) for view, pos, header in run]
            table = _joined(batches, schema)
            if times:
                table = table.append_column(APPEND_TIME, _times([h for _, _, h in run]))
            first = run[0][2].base
            skip = max(0, start - first)
            yield first + skip, table.slice(skip, min(end, run[-1][2].end) - first - skip)

    def offset_for_time(self, partition: int, ms: int, entry: Entry) -> int:
        """The first offset appended at or after `ms`; the end if there is none."""
        folder = self.topic.folder(partition)
        bases = retention.live_segments(folder, entry)
        at = bisect_left(bases, ms, key=lambda base: self._first_time(partition, base, entry))
        if at > 0:
            view = self._view(partition, bases[at - 1], entry)
            for _, header in view.headers(*index.before_time(folder, view, ms)):
                if header.time >= ms:
                    return max(header.base, entry.earliest)
        return max(bases[at], entry.earliest) if at < len(bases) else entry.end

    def _first_time(self, partition: int, base: int, entry: Entry) -> int:
        view = self._view(partition, base, entry)
        return next((header.time for _, header in view.headers(0, base)), MAX_TIME)

    def _blocks(self, partition: int, offset: int, end: int) -> Iterator[_Block]:
        """The blocks that hold [offset, end), each checked to follow the one before."""
        while offset < end:
            reached = offset
            view, pos, at = self._seek(partition, offset)
            for found, header in view.headers(pos, at):
                if header.end > reached:
                    reached = header.end
                    self._left_off[partition] = (reached, view.base, found + header.size)
                    yield view, found, header
                if reached >= end:
                    return
            if reached == offset:
                raise missing(view.path, view.limit, f"record {offset} is missing")
            offset = reached

    def _seek(self, partition: int, offset: int) -> tuple[SegmentView, int, int]:
        """The segment that holds `offset`, and a (position, offset) there to begin at."""
        entries = self.entries()
        if entries is None or offset < entries[partition].earliest:
            raise gone(self.topic, partition, offset, entries[partition] if entries else None)
        entry, folder = entries[partition], self.topic.folder(partition)
        known, base, pos = self._left_off.get(partition, (-1, 0, 0))
        if known == offset and base == entry.segment and pos < entry.position:
            return self._view(partition, base, entry), pos, offset
        bases = retention.live_segments(folder, entry)
        if not bases or offset < bases[0]:
            raise missing(segment_path(folder, offset), 0, f"record {offset} is missing")
        view = self._view(partition, bases[bisect_right(bases, offset) - 1], entry)
        return view, *index.before_offset(folder, view, offset)

    def _view(self, partition: int, base: int, entry: Entry) -> SegmentView:
        limit = entry.position if base == entry.segment else None  # older ones are complete
        folder = self.topic.folder(partition)
        try:
            return SegmentView(folder, base, self.topic.id, partition, limit)
        except FileNotFoundError as error:
            entries = self.entries()
            now = entries[partition] if entries is not None else None
            if now is None or base < now.earliest:
                raise gone(self.topic, partition, base, now) from error
            raise missing(segment_path(folder, base), 0, "a segment is missing") from error


def gone(topic: Topic, partition: int, offset: int, entry: Entry | None) -> LogError:
    """The error for an offset that the partition does not hold."""
    if entry is None:
        return LogError(
            f"topic '{topic.name}' was deleted while it was read", code="HR-LOG-002",
            hint="Create it again, or stop the reader.",
        )  # fmt: skip
    return LogError(
        f"offset {offset} is outside partition {partition} of topic '{topic.name}', "
        f"which holds [{entry.earliest}, {entry.end})", code="HR-LOG-007",
        hint=f"Read from {entry.earliest} (the earliest kept) to {entry.end} (the latest).",
    )  # fmt: skip


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


def _times(headers: Sequence[Header]) -> pa.Array:
    times = np.array([h.time for h in headers], np.int64)
    return pa.array(np.repeat(times, [h.rows for h in headers]))


def _shape(topic: Topic, partition: int) -> list[tuple[str, int]]:
    folder = topic.folder(partition)
    return [(path.name, path.stat().st_size) for path in sorted(folder.glob("*.log"))]
