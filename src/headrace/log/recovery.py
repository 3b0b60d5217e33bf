"""Where a topic really ends, when its head cannot be trusted.

After a restart of the machine (or with a damaged head) the head is only a lower bound. Beyond
it lie groups that were synced, and perhaps a torn tail: the part of a group that was never
acknowledged. Whole groups are published, in all their partitions; the tail is cut. All of it
is done by a holder of both locks. Damage that cannot be a torn tail, because something synced
follows it, is an error and nothing is cut.
"""

from __future__ import annotations

from headrace.errors import LogError
from headrace.log import disk, index
from headrace.log.head import Head, boot_id
from headrace.log.lock import locked
from headrace.log.segment import (
    Snapshot,
    damaged,
    missing,
    read_snapshot,
    segment_path,
    segments,
)
from headrace.log.tail import check_torn, follow, has_blocks, opened
from headrace.log.topic import Topic, load


def recover(topic: Topic, patience: float, *, distrust: bool = False) -> None:
    """Write a head that can be trusted on this boot; with `distrust`, whatever it says now."""
    with locked(topic.sync_lock, patience):
        head, trusted = topic.head.read()
        if trusted and not distrust:
            return  # somebody else was faster
        now = load(topic.path)
        if now is None or now.id != topic.id:
            raise FileNotFoundError(f"{topic.path} was replaced")
        if head is not None and head.boot == boot_id() and not distrust and _heal(topic, head):
            return
        with locked(topic.write_lock, patience):
            found = scan(topic, head)
            index.rewrite(topic.path, found, topic.tag)
            generation = found.generation + 1
            topic.head.restart(found._replace(generation=generation, since=found.place))


def _heal(topic: Topic, head: Head) -> bool:
    """Go on from the slot that is sound, on the same boot, while others may be writing."""
    with opened(topic.path, head.segment) as fd:
        path = segment_path(topic.path, head.segment)
        end = follow(fd, path, topic.tag, head)
        if segment_path(topic.path, end.place).exists():  # the other slot was further
            return False
        disk.sync(fd)
    topic.head.restart(end)
    return True


def scan(topic: Topic, head: Head | None) -> Head:
    """The head as the files show it; their torn tail is cut."""
    bases = segments(topic.path)
    if head is None:
        head = _without_head(topic, bases)
    if head.segment not in bases:
        raise missing(segment_path(topic.path, head.segment), 0, "a segment is missing")
    published = head
    while True:
        following = [b for b in bases if b > head.segment]
        with opened(topic.path, head.segment) as fd:
            path = segment_path(topic.path, head.segment)
            head = follow(fd, path, topic.tag, head, bodies=True)
            check_torn(fd, path, topic.tag, head)
            if not following:
                known = published.position if published.segment == head.segment else head.start
                disk.cut(fd, path, head.position, known)
                disk.sync(fd)
                return head
        head, bases = _next(topic, head, following[0]), following


def _next(topic: Topic, head: Head, base: int) -> Head:
    """The head at the beginning of the next segment, which was made when all before was synced."""
    path = segment_path(topic.path, head.segment)
    if base != head.place:
        if path.stat().st_size > head.position:
            raise damaged(path, head.position, "a block is damaged, and a segment follows it")
        raise missing(path, head.position, "acknowledged records are missing")
    try:
        return _at(read_snapshot(topic.path, base, topic.tag), head)
    except LogError:
        new = segment_path(topic.path, base)
        if new.is_dir() or has_blocks(new, topic.tag):
            raise
        disk.remove(new)  # its appender died while it was made
        return head


def _at(snapshot: Snapshot, head: Head) -> Head:
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
