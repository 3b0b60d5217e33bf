"""Retention: which old segments a partition may forget.

Whole segments go, oldest first, and never the last one. The head moves before a file is
removed, so a reader either finds a record or is told that it is gone.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

from headrace.log import producers
from headrace.log.head import Entry
from headrace.log.segment import segment_path, segments
from headrace.log.topic import Topic
from headrace.state.faults import point


def live_segments(folder: Path, entry: Entry) -> list[int]:
    """The segments from the earliest offset to the head."""
    bases = [b for b in segments(folder) if b <= entry.segment]
    return [b for b, after in zip(bases, [*bases[1:], None], strict=True)
            if after is None or after > entry.earliest]  # fmt: skip


def size_of(folder: Path, entry: Entry) -> int:
    """Bytes in the partition."""
    older = live_segments(folder, entry)[:-1]
    return sum(_size(folder, base) for base in older) + entry.position


def keep_from(topic: Topic, partition: int, entry: Entry, now: int) -> int:
    """The earliest offset that retention still wants."""
    folder = topic.folder(partition)
    bases = live_segments(folder, entry)
    left = size_of(folder, entry)
    for base, after in pairwise(bases):
        size = _size(folder, base)
        too_big = topic.retention_bytes is not None and left - size >= topic.retention_bytes
        if not too_big and not _too_old(topic, producers.load(folder, after).time, now):
            return base
        left -= size
    return bases[-1]


def is_expired(topic: Topic, entry: Entry, now: int) -> bool:
    """Whether even the last segment holds nothing that is wanted."""
    return entry.position > 0 and _too_old(topic, entry.time, now)


def _too_old(topic: Topic, last: int, now: int) -> bool:
    return topic.retention_ms is not None and last < now - topic.retention_ms


def _size(folder: Path, base: int) -> int:
    try:
        return os.stat(segment_path(folder, base)).st_size
    except FileNotFoundError:  # removed since it was listed
        return 0


def remove_below(folder: Path, earliest: int) -> int:
    """Remove the files of segments before `earliest`; the number of segments removed."""
    gone = [b for b in segments(folder) if b < earliest]
    for base in gone:
        for kind in ("index", "past", "log"):
            (folder / f"{base:020d}.{kind}").unlink(missing_ok=True)
            point("log.removed")
    return len(gone)
