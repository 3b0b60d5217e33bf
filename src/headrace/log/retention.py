"""What is done with both locks held: beginning a segment, and retention.

Whole segments go, oldest first, and never the last one. The head moves before a file is
removed, so a reader either finds a record or gets an error that it is gone.

A segment is as old as its last append, or as a later append with an earlier clock: so a clock that
once ran ahead does not retain a segment for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate

from headrace.log import disk
from headrace.log.consumer_groups import committed
from headrace.log.erased import erased_path
from headrace.log.head import Head
from headrace.log.recovery import ProducerHistory
from headrace.log.segment import (
    SegmentSnapshot,
    index_path,
    pack_snapshot,
    read_snapshot,
    segment_path,
    segments,
)
from headrace.log.topic import Topic
from headrace.state.faults import point


def is_full(topic: Topic, head: Head, now: int) -> bool:
    used, limit = head.position - head.start, topic.segment_ms
    if used == 0:
        return False
    late = limit is not None and abs(now - head.opened) >= limit
    return used >= topic.segment_bytes or late


def roll(topic: Topic, head: Head, memory: ProducerHistory, fd: int, now: int) -> Head:
    """Go on in a new segment, which knows what its predecessors knew; all of them are synced."""
    base = head.place
    snapshot = SegmentSnapshot(
        base,
        head.generation,
        now,
        head.time,
        head.clock,
        head.ends,
        head.sizes,
        memory.upto(fd, head).dump(),
    )
    data = pack_snapshot(topic.tag, snapshot)
    disk.new_file(segment_path(topic.path, base), data)
    disk.sync_folder(topic.path)
    index_path(topic.path, base).unlink(missing_ok=True)
    point("log.rolled")
    rolled = head._replace(segment=base, start=len(data), position=len(data), opened=now)
    return topic.head.publish(rolled, head.version)


def is_expired(topic: Topic, head: Head, now: int) -> bool:
    """Whether even the last segment holds nothing but expired records."""
    limit = topic.retention_ms
    return limit is not None and head.position > head.start and head.clock < now - limit


def forgets(topic: Topic) -> bool:
    return topic.retention_ms is not None or topic.retention_bytes is not None


def is_due(topic: Topic, head: Head, now: int) -> bool:
    """Whether retention has anything to remove."""
    bases = _bases(topic, head)
    return is_expired(topic, head, now) or _removable(topic, head, bases, now) != head.first


def expire(topic: Topic, head: Head, now: int) -> int:
    """Remove what retention allows; the number of segments."""
    if not forgets(topic):
        return 0
    bases = _bases(topic, head)
    return _remove(topic, head, bases, _removable(topic, head, bases, now))


def forget(topic: Topic, head: Head, before: Sequence[int]) -> int:
    """Remove what lies before these offsets, one per partition; the number of segments."""
    return _remove(topic, head, _bases(topic, head), first_with(topic, head, before))


def closed(topic: Topic, head: Head) -> list[int]:
    """The segments before the last one."""
    return [base for base in _bases(topic, head) if base < head.segment]


def drop(topic: Topic, head: Head, first: int) -> int:
    """Remove the segments before `first`; how many they are."""
    return _remove(topic, head, _bases(topic, head), max(first, head.first))


def first_with(topic: Topic, head: Head, offsets: Sequence[int]) -> int:
    """The first segment that holds any of these offsets or a later one."""
    first = head.first
    for base in _bases(topic, head)[1:]:
        ends = read_snapshot(topic.path, base, topic.tag).ends
        if any(end > offset for end, offset in zip(ends, offsets, strict=True)):
            break
        first = base
    return first


def _bases(topic: Topic, head: Head) -> list[int]:
    return [b for b in segments(topic.path) if head.first <= b <= head.segment]


def _remove(topic: Topic, head: Head, bases: list[int], first: int) -> int:
    """Remove the segments before `first`; how many they are."""
    if first == head.first:
        return 0
    oldest = read_snapshot(topic.path, first, topic.tag)
    moved = head._replace(first=first, earliest=oldest.ends, removed=oldest.sizes)
    moved = topic.head.publish(moved, moved.version)
    moved = topic.head.publish(moved, moved.version)  # neither slot may name a file that goes
    topic.head.sync()
    removed = [b for b in bases if b < first]
    with suppress(OSError):  # what is left costs space only
        for base in removed:
            disk.remove(index_path(topic.path, base))
            disk.remove(erased_path(topic.path, base))
            disk.remove(segment_path(topic.path, base))
    return len(removed)


def _keep_from(topic: Topic, head: Head, bases: list[int], now: int) -> int:
    """The first segment that retention does not remove."""
    after = [read_snapshot(topic.path, b, topic.tag) for b in bases[1:]]
    clocks = [s.clock for s in after]
    ages = list(accumulate(reversed([*clocks, min(head.clock, now)]), min))[::-1][: len(after)]
    total = sum(head.sizes)
    for base, following, age in zip(bases, after, ages, strict=False):
        big = topic.retention_bytes is not None and (
            total - sum(following.sizes) >= topic.retention_bytes * topic.partitions
        )
        old = topic.retention_ms is not None and age < now - topic.retention_ms
        if not big and not old:
            return base
    return bases[-1] if bases else head.first


def _removable(topic: Topic, head: Head, bases: list[int], now: int) -> int:
    """The same, with what consumer groups have not committed, if they are to be waited for."""
    first = _keep_from(topic, head, bases, now)
    if first == head.first or not topic.retention_groups:
        return first
    waiting = committed(topic.path.parent, topic.name, topic.id, head.earliest)
    return first if waiting is None else min(first, first_with(topic, head, waiting))
