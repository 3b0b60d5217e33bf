"""Where a partition really ends, when its head cannot be trusted.

After a restart of the machine (or with a damaged head) the head is only a lower bound.
Beyond it lie appends that were synced, and perhaps a torn tail: the part of an append that
was never acknowledged. Whole appends are kept. The tail is ignored by readers and cut by the
next appender, who holds every lock of the topic. Damage that cannot be a torn tail, because
something synced follows it, is an error and nothing is cut.
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.log import index, producers
from headrace.log.block import ALIGN
from headrace.log.head import Entry, Heads
from headrace.log.lock import all_locked
from headrace.log.segment import SegmentView, missing, segment_path, segments
from headrace.log.topic import Topic, load
from headrace.state.faults import point


def scan(topic: Topic, heads: Heads | None) -> list[Entry]:
    """The entries as the files show them; reads only."""
    known = heads.entries if heads is not None else (None,) * topic.partitions
    return [_scan(topic, p, entry) for p, entry in enumerate(known)]


def recover(topic: Topic) -> None:
    """Cut torn tails and write a head that can be trusted on this boot."""
    with all_locked(topic.folders()):
        heads, trusted = topic.head.read()
        if trusted:
            return  # somebody else was faster
        now = load(topic.path)
        if now is None or now.id != topic.id:
            raise FileNotFoundError(f"{topic.path} was replaced")
        entries = scan(topic, heads)
        for partition, entry in enumerate(entries):
            cut(topic.folder(partition), entry)
            view = _view(topic, partition, entry.segment, entry.position)
            index.rewrite(topic.folder(partition), view)
        topic.head.restart(entries)


def cut(folder: Path, entry: Entry) -> None:
    """Remove whatever lies beyond the entry; durable, so that it cannot come back."""
    path = segment_path(folder, entry.segment)
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size > entry.position:
            os.ftruncate(fd, entry.position)
            point("log.cut")
        os.fsync(fd)
    finally:
        os.close(fd)


def _scan(topic: Topic, partition: int, known: Entry | None) -> Entry:
    folder = topic.folder(partition)
    bases = segments(folder)
    entry = known if known is not None else _last_segment(folder, bases)
    if entry.segment not in bases:
        raise missing(segment_path(folder, entry.segment), 0, "a segment is missing")
    entry = _walk(_view(topic, partition, entry.segment, None), entry)
    for base in bases[bases.index(entry.segment) + 1 :]:
        if base != entry.end:  # a segment begins where the one before was acknowledged to end
            before = segment_path(folder, entry.segment)
            raise missing(before, entry.position, f"records {entry.end} to {base - 1} are missing")
        view = _view(topic, partition, base, None)
        entry = _walk(view, entry._replace(segment=base, position=0))
    return entry


def _last_segment(folder: Path, bases: list[int]) -> Entry:
    """Where to begin without any head: all older segments were synced when this one was made."""
    if not bases:
        return Entry()
    last = bases[-1]
    return Entry(last, 0, last, bases[0], producers.load(folder, last).time)


def _walk(view: SegmentView, entry: Entry) -> Entry:
    """The entry moved past every whole append that follows it in the view."""
    if view.limit < entry.position:
        raise missing(view.path, view.limit, "acknowledged records are missing")
    pos, offset = entry.position, entry.end
    while (header := view.header(pos)) is not None and header.base == offset:
        if not view.sound(pos, header):
            break
        pos, offset = pos + header.size, header.end
        if header.last:
            entry = entry._replace(position=pos, end=offset, time=header.time)
    strange = header is not None and header.base != offset
    if view.synced_block_from(pos if strange else pos + ALIGN):
        raise view.damaged(pos, "a block is damaged, and sound ones follow it")
    return entry


def _view(topic: Topic, partition: int, segment: int, limit: int | None) -> SegmentView:
    return SegmentView(topic.folder(partition), segment, topic.id, partition, limit)
