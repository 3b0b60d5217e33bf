"""The end of the log beyond its head, and where a topic really ends if its head is not trusted.

Beyond the head lie groups that were written and are not published yet. A group counts when all
its blocks are there; the rest of the file is what a writer left that died, or a group that is
being written. Only holders of a lock look there.

After a restart of the machine, or with a damaged head, the head is only a lower bound. Beyond it
lie groups that were synced, and perhaps a torn tail: part of a group that was never acknowledged.
Whole groups are published, in all their partitions, and the tail is cut, by a holder of both
locks. Damage that cannot be a torn tail, because something synced follows it, is an error, and
nothing is cut.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import LogError
from headrace.log import disk
from headrace.log.block import ALIGN, MAGIC, Header, Note, parse, unpack_notes
from headrace.log.head import Head, age, boot_id
from headrace.log.lock import locked
from headrace.log.producers import Seen
from headrace.log.segment import (
    SegmentSnapshot,
    damaged,
    missing,
    read_snapshot,
    rewrite_index,
    segment_path,
    segments,
)
from headrace.log.topic import Topic

_CHUNK = 1 << 20


@contextmanager
def opened(folder: Path, segment: int, flags: int = os.O_RDWR) -> Iterator[int]:
    """A segment's file, to be read and written if the flags say nothing else."""
    path = segment_path(folder, segment)
    try:
        fd = os.open(path, flags | os.O_CLOEXEC)
    except FileNotFoundError as error:
        if not folder.exists():
            raise
        raise missing(path, 0, "a segment is missing") from error
    try:
        yield fd
    finally:
        os.close(fd)


def producers(folder: Path, topic: int, head: Head) -> dict[str, int]:
    """Who has appended with a sequence up to `head`, and the largest of each; reads only."""
    fd = os.open(segment_path(folder, head.segment), os.O_RDONLY | os.O_CLOEXEC)
    try:
        return ProducerHistory(folder, topic).upto(fd, head).newest()
    finally:
        os.close(fd)


def follow(fd: int, topic: Topic, head: Head, *, bodies: bool = False) -> Head:
    """The head moved past every whole group that follows it in its segment, the file `fd`."""
    size = os.fstat(fd).st_size
    if size < head.position:
        path = segment_path(topic.path, head.segment)
        raise missing(path, size, "acknowledged records are missing")
    if size == head.position:
        return head
    reached, at, tag = head, head, topic.tag
    ends, sizes = list(head.ends), list(head.sizes)
    while (header := _header(fd, at.position, size, tag)) is not None:
        p = header.partition
        if header.generation < at.generation or p >= len(ends) or header.base != ends[p]:
            break
        if bodies and not is_sound(fd, at.position, header):
            break
        ends[p], sizes[p] = header.end, sizes[p] + header.size
        at = at._replace(
            position=at.position + header.size,
            generation=header.generation,
            time=header.time,
            clock=age(header.time),
        )
        if header.last:
            reached = at._replace(ends=tuple(ends), sizes=tuple(sizes))
    return reached


def _header(fd: int, pos: int, size: int, topic: int) -> Header | None:
    header = parse(os.pread(fd, ALIGN, pos))
    if header is None or header.topic != topic or pos + header.size > size:
        return None
    return header


def is_sound(fd: int, pos: int, header: Header) -> bool:
    return zlib.crc32(os.pread(fd, header.body_length, pos + ALIGN)) == header.body_crc


def check_torn(fd: int, path: Path, topic: int, head: Head) -> None:
    """Raise unless all beyond the head may have been lost by a crash before it was synced."""
    size, pos = os.fstat(fd).st_size, head.position
    while pos < size:
        data = os.pread(fd, _CHUNK + ALIGN, pos)
        at = data.find(MAGIC)
        while at >= 0:
            header = parse(data[at : at + ALIGN])
            if header is not None and header.topic == topic and header.synced > head.place:
                raise damaged(path, head.position, "a block is damaged, and synced ones follow it")
            at = data.find(MAGIC, at + 1)
        pos += _CHUNK


def has_blocks(path: Path, topic: int) -> bool:
    """Whether a file holds a sound block of the topic anywhere."""
    data = path.read_bytes()
    at = data.find(MAGIC)
    while at >= 0:
        header = parse(data[at : at + ALIGN])
        if header is not None and header.topic == topic:
            return True
        at = data.find(MAGIC, at + 1)
    return False


class ProducerHistory:
    """What this process knows of producers' appends: a snapshot, and the blocks after it."""

    def __init__(self, folder: Path, topic: int) -> None:
        self._folder, self._topic = folder, topic
        self._at = (-1, -1, 0)  # generation, segment, position
        self._seen = Seen()

    def upto(self, fd: int, head: Head) -> Seen:
        generation, segment, position = self._at
        same = (generation, segment) == (head.generation, head.segment)
        if not same or position > head.position:
            snapshot = read_snapshot(self._folder, head.segment, self._topic)
            self._seen, position = Seen.load(snapshot.seen), snapshot.start
        self._learn(fd, position, head)
        self._at = (head.generation, head.segment, head.position)
        return self._seen

    def _learn(self, fd: int, position: int, head: Head) -> None:
        path = segment_path(self._folder, head.segment)
        group: list[tuple[int, Note]] = []
        while position < head.position:
            header = _header(fd, position, head.position, self._topic)
            if header is None:
                raise damaged(path, position, "the header of a block is damaged")
            if header.notes_length:
                if not is_sound(fd, position, header):
                    fact = f"records {header.base} to {header.end - 1} are damaged"
                    raise damaged(path, position, fact)
                notes = os.pread(fd, header.notes_length, position + ALIGN)
                group += [(header.partition, note) for note in unpack_notes(notes)]
            if header.last and group:
                self._seen.note(group)
                group = []
            position += header.size


# Recovery: a head that can be trusted is written again.


def recover(topic: Topic, patience: float, *, distrust: bool = False) -> None:
    """Write a head that can be trusted on this boot; with `distrust`, whatever it says now."""
    with locked(topic.sync_lock, patience):
        head, trusted = topic.head.read()
        if trusted and not distrust:
            return  # somebody else was faster
        topic.check_current()
        if head is not None and head.boot == boot_id() and not distrust and _heal(topic, head):
            return
        with locked(topic.write_lock, patience):
            end = scan(topic, head)
            rewrite_index(topic.path, end.segment, end.start, end.position, topic.tag)
            generation = end.generation + 1
            topic.head.restart(end._replace(generation=generation, since=end.place))


def _heal(topic: Topic, head: Head) -> bool:
    """Go on from the slot that is sound, on the same boot, while others may be writing."""
    with opened(topic.path, head.segment) as fd:
        end = follow(fd, topic, head)
        if segment_path(topic.path, end.place).exists():  # the other slot was further
            return False
        disk.sync(fd)
    topic.head.restart(end)
    return True


def scan(topic: Topic, head: Head | None) -> Head:
    """The head as the files show it; their torn tail is cut."""
    found = survey(topic, head)
    for path in found.unmade:
        disk.remove(path)
    with opened(topic.path, found.head.segment) as fd:
        path = segment_path(topic.path, found.head.segment)
        disk.cut(fd, path, found.head.position, found.floor)
        disk.sync(fd)
    return found.head


@dataclass(frozen=True, slots=True)
class Survey:
    """Where a topic ends, as its files show it, and what a crash has left beyond."""

    head: Head
    floor: int  # what is published of the last segment
    torn: int  # bytes beyond the head
    unmade: tuple[Path, ...]  # segments whose appender died while they were made


def survey(topic: Topic, head: Head | None) -> Survey:
    """Look for the end, from `head` on or without one; changes nothing."""
    bases, unmade = segments(topic.path), list[Path]()
    if head is None:
        head = _without_head(topic, bases)
    if head.segment not in bases:
        raise missing(segment_path(topic.path, head.segment), 0, "a segment is missing")
    published = head
    while True:
        with opened(topic.path, head.segment, os.O_RDONLY) as fd:
            path = segment_path(topic.path, head.segment)
            head = follow(fd, topic, head, bodies=True)
            check_torn(fd, path, topic.tag, head)
            torn = os.fstat(fd).st_size - head.position
        bases = [b for b in bases if b > head.segment]
        snapshot = None
        while bases and snapshot is None:
            snapshot = _next(topic, head, bases[0])
            if snapshot is None:
                unmade.append(segment_path(topic.path, bases.pop(0)))
        if snapshot is None:
            floor = published.position if published.segment == head.segment else head.start
            return Survey(head, floor, torn, tuple(unmade))
        head = _at(snapshot, head)


def _next(topic: Topic, head: Head, base: int) -> SegmentSnapshot | None:
    """How the next segment begins, which was made when all before was synced; None if its appender
    died while it was made."""
    path = segment_path(topic.path, head.segment)
    if base != head.place:
        if path.stat().st_size > head.position:
            raise damaged(path, head.position, "a block is damaged, and a segment follows it")
        raise missing(path, head.position, "acknowledged records are missing")
    try:
        return read_snapshot(topic.path, base, topic.tag)
    except LogError:
        new = segment_path(topic.path, base)
        if new.is_dir() or has_blocks(new, topic.tag):
            raise
        return None


def _at(snapshot: SegmentSnapshot, head: Head) -> Head:
    return head._replace(
        generation=max(head.generation, snapshot.generation),
        segment=snapshot.base,
        start=snapshot.start,
        opened=snapshot.opened,
        position=snapshot.start,
        time=snapshot.time,
        clock=snapshot.clock,
        ends=snapshot.ends,
        sizes=snapshot.sizes,
    )


def _without_head(topic: Topic, bases: list[int]) -> Head:
    """Where to begin without any head: all older segments were synced when the last was made."""
    if not bases:
        raise missing(segment_path(topic.path, 0), 0, "a segment is missing")
    try:
        last = read_snapshot(topic.path, bases[-1], topic.tag)
    except LogError:
        if len(bases) == 1 or has_blocks(segment_path(topic.path, bases[-1]), topic.tag):
            raise
        last = read_snapshot(topic.path, bases[-2], topic.tag)
    first = read_snapshot(topic.path, bases[0], topic.tag)
    none = (0,) * topic.partitions
    empty = Head(0, b"", 0, 0, first.base, 0, 0, 0, 0, 0, 0, none, none, first.ends, first.sizes)
    return _at(last, empty)
