"""One partition's end, as its appender sees it between locking and publishing the head.

`begin` stands at the published head; `add` writes blocks beyond it, where no reader looks;
`entry` is the head to publish once `sync` has returned; `settle` does what may follow, and
`close` forgets what was not published. The caller holds the partition's lock throughout.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from headrace.log import index, producers, retention
from headrace.log.block import Buffer, Stamp, encode
from headrace.log.contract import Ack
from headrace.log.head import Entry
from headrace.log.lock import sync_folder, write_synced
from headrace.log.producers import Past
from headrace.log.recovery import cut
from headrace.log.segment import SegmentView, missing, segment_path
from headrace.log.topic import Topic
from headrace.state.faults import point


class PartitionWriter:
    def __init__(self, topic: Topic, number: int) -> None:
        self.topic = topic
        self.number = number
        self.folder = topic.folder(number)
        self.entry = Entry()
        self._begun = self._published = Entry()
        self._based = Entry()  # up to where producers' past must be known
        self._now = 0
        self._fd = -1
        self._part = 0
        self._new: dict[str, tuple[int, Ack]] = {}  # what producers appended since `begin`
        self._past: tuple[Entry, Past] | None = None  # producers' past, and up to where
        self._points: list[index.Point] = []
        self._indexed = (-1, 0)  # segment, position of the last index entry
        self._opened_at = (-1, 0)  # segment, time of its first block

    def begin(self, entry: Entry, now: int) -> None:
        self.entry = self._begun = self._published = self._based = entry
        self._now, self._part = now, 0
        self._new, self._points = {}, []
        self._cut()
        if self._is_full():
            self.roll()

    def add(self, table: pa.Table, producer: str | None, sequence: int) -> Ack:
        """Write one append, unless its producer has made it before."""
        if producer is not None:
            seen = self._seen(producer, sequence)
            if seen is not None:
                return seen
        first = self.entry.end
        stamp = Stamp(
            self.topic.id, self.number, max(self._now, self.entry.time), producer or "", sequence
        )
        for header, buffers in encode(table, first, stamp, self._part):
            self._write(buffers)
            self._point(header.base)
            position = self.entry.position + header.size
            self.entry = self.entry._replace(position=position, end=header.end, time=stamp.time)
            self._part += 1
            point("log.block")
        ack = Ack(first, self.entry.end)
        if producer is not None and table.num_rows:
            self._new[producer] = (sequence, ack)
        return ack

    def expire(self) -> None:
        """Move the earliest offset to what retention still wants."""
        if retention.is_expired(self.topic, self.entry, self._now):
            self.roll()
        earliest = retention.keep_from(self.topic, self.number, self.entry, self._now)
        self.entry = self.entry._replace(earliest=max(earliest, self.entry.earliest))

    def roll(self) -> None:
        """Go on in a new segment, which knows what its predecessors knew."""
        base = self.entry.end
        past = self._known()
        producers.save(self.folder, base, Past(self.entry.time, past.last))
        index.index_path(self.folder, base).unlink(missing_ok=True)
        write_synced(segment_path(self.folder, base), b"")
        sync_folder(self.folder)
        point("log.rolled")
        self.entry = self._based = self.entry._replace(segment=base, position=0)
        self._past = (self.entry, past)
        if self.topic.retention_ms is not None or self.topic.retention_bytes is not None:
            self.expire()

    @property
    def wrote(self) -> bool:
        return self._fd >= 0

    @property
    def changed(self) -> bool:
        return self.entry != self._begun

    @property
    def forgets(self) -> bool:
        return self.entry.earliest > self._begun.earliest

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def published(self) -> None:
        self._published = self.entry

    def settle(self) -> int:
        """After the head is published; the number of segments removed."""
        if self._new:
            past = self._known()
            past.last.update(self._new)
            self._past = (self.entry, past)
        index.extend(self.folder, self.entry.segment, self._points)
        return retention.remove_below(self.folder, self.entry.earliest) if self.forgets else 0

    def undo(self) -> None:
        """Give back the space of what was not published, if that can be done now."""
        with suppress(OSError):
            cut(self.folder, self._published)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _cut(self) -> None:
        path = segment_path(self.folder, self.entry.segment)
        size = path.stat().st_size if path.exists() else -1
        if size > self.entry.position:
            cut(self.folder, self.entry)
        elif size < self.entry.position:
            raise missing(path, max(0, size), "acknowledged records are missing")

    def _is_full(self) -> bool:
        entry, limit = self.entry, self.topic.segment_ms
        if entry.position == 0:
            return False
        if entry.position >= self.topic.segment_bytes:
            return True
        if limit is not None and self._now - self._first_time() >= limit:
            return True
        return segment_path(self.folder, entry.end).exists()  # made by an appender that died

    def _first_time(self) -> int:
        if self._opened_at[0] != self.entry.segment:
            _, header = next(self._view(self.entry).headers(0, self.entry.segment))
            self._opened_at = (self.entry.segment, header.time)
        return self._opened_at[1]

    def _seen(self, producer: str, sequence: int) -> Ack | None:
        new = Past(last=self._new).seen(producer, sequence)
        return new or self._known().seen(producer, sequence)

    def _known(self) -> Past:
        """What producers appended before `begin`: a snapshot, and the blocks after it."""
        entry = self._based
        known, past = self._past or (None, None)
        ahead = known is None or known.segment != entry.segment or known.position > entry.position
        if known is None or past is None or ahead:
            known = Entry(entry.segment, 0, entry.segment)
            past = producers.load(self.folder, entry.segment)
        if known.position < entry.position:
            _learn(past, self._view(entry), known)
        self._past = (entry, past)
        return past

    def _view(self, entry: Entry) -> SegmentView:
        return SegmentView(self.folder, entry.segment, self.topic.id, self.number, entry.position)

    def _write(self, buffers: Sequence[Buffer]) -> None:
        if self._fd < 0:
            path = segment_path(self.folder, self.entry.segment)
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        rest = [memoryview(b) for b in buffers]
        while rest:
            written = os.writev(self._fd, rest)
            while rest and written >= len(rest[0]):
                written -= len(rest.pop(0))
            if rest:
                rest[0] = rest[0][written:]

    def _point(self, offset: int) -> None:
        """Remember the block to be written for the index, if it is time for an entry."""
        segment, last = self._indexed
        if segment != self.entry.segment:
            known = index.load(self.folder, self.entry.segment)
            last = int(known["position"][-1]) if len(known) else 0
        if self.entry.position - last >= index.SPACING:
            last = self.entry.position
            self._points.append((offset, last, self.entry.time))
        self._indexed = (self.entry.segment, last)


def _learn(past: Past, view: SegmentView, since: Entry) -> None:
    first = None
    for pos, header in view.headers(since.position, since.end):
        first = header.base if first is None else first
        if header.last:
            if header.name_length:
                name = view.producer(pos, header)
                past.note(name, header.sequence, Ack(first, header.end))
            first = None
