"""The end of the log beyond its head: what was written and is not published yet.

Only holders of a lock look there. A group counts when all its blocks are there; the rest of
the file is what a writer left that died, or a group that another writes at this moment.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.log.block import ALIGN, MAGIC, Header, Note, parse, unpack_notes
from headrace.log.head import Head, age
from headrace.log.seen import Seen
from headrace.log.segment import damaged, missing, read_snapshot, segment_path

_CHUNK = 1 << 20


@contextmanager
def opened(folder: Path, segment: int) -> Iterator[int]:
    """A segment's file, to be read and written."""
    path = segment_path(folder, segment)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
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
        return Memory(folder, topic).upto(fd, head).newest()
    finally:
        os.close(fd)


def follow(fd: int, path: Path, topic: int, head: Head, *, bodies: bool = False) -> Head:
    """The head moved past every whole group that follows it in its segment."""
    size = os.fstat(fd).st_size
    if size < head.position:
        raise missing(path, size, "acknowledged records are missing")
    if size == head.position:
        return head
    reached, at = head, head
    ends, sizes = list(head.ends), list(head.sizes)
    while (header := _header(fd, at.position, size, topic)) is not None:
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


class Memory:
    """What this process knows of producers' appends: a snapshot, and the blocks after it."""

    def __init__(self, folder: Path, topic: int) -> None:
        self._folder, self._topic = folder, topic
        self._at = (-1, -1, 0)  # generation, segment, position
        self._seen = Seen()

    def upto(self, fd: int, head: Head) -> Seen:
        generation, segment, position = self._at
        known = (generation, segment) == (head.generation, head.segment)
        if not known or position > head.position:
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
