"""The sparse index of a segment: where to begin looking for an offset or a time.

A file of (partition, offset, position, append time), some for every 64 KB. It is a hint:
whoever uses an entry checks that such a block begins there, so a damaged, stale or missing
index costs time and never gives a wrong answer. It is not synced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from headrace.errors import LogError
from headrace.log.block import Header
from headrace.log.head import Head
from headrace.log.segment import SegmentView

SPACING = 64 * 1024
_ENTRY = np.dtype([("partition", "<i8"), ("offset", "<i8"), ("position", "<i8"), ("time", "<i8")])

Point = tuple[int, int, int, int]  # partition, offset, position, time


def index_path(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}.index"


def load_index(folder: Path, base: int, partition: int) -> np.ndarray:
    try:
        data = index_path(folder, base).read_bytes()
    except OSError:
        return np.empty(0, _ENTRY)
    whole = len(data) // _ENTRY.itemsize * _ENTRY.itemsize
    entries = np.frombuffer(data[:whole], _ENTRY)
    entries = entries[entries["partition"] == partition]
    return np.sort(entries, order="position", kind="stable")


def extend_index(folder: Path, base: int, points: Sequence[Point], end: int) -> None:
    """Note those blocks of a group, which ends at `end`, that begin or cross a stripe."""
    if not points or points[0][2] // SPACING == end // SPACING:
        return
    chosen: dict[tuple[int, int], Point] = {}
    for point in points:
        chosen.setdefault((point[0], point[2] // SPACING), point)
    with suppress(OSError):
        _append_points(index_path(folder, base), list(chosen.values()))


def _append_points(path: Path, points: list[Point]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, np.array(points, _ENTRY).tobytes())
    finally:
        os.close(fd)


def rewrite_index(folder: Path, head: Head, topic: int) -> None:
    """Make the index of the last segment anew from the headers of its blocks."""
    chosen: dict[tuple[int, int], Point] = {}
    with suppress(LogError, OSError):  # whoever reads the damaged block will say so
        index_path(folder, head.segment).unlink(missing_ok=True)
        view = SegmentView(folder, head.segment, topic, head.position)
        for pos, h in view.headers(head.start):
            if pos >= SPACING:
                chosen.setdefault((h.partition, pos // SPACING), (h.partition, h.base, pos, h.time))
        if chosen:
            _append_points(index_path(folder, head.segment), list(chosen.values()))


def before_offset(folder: Path, view: SegmentView, partition: int, offset: int) -> int | None:
    """A position where a block of the partition begins that holds `offset` or an earlier one."""
    index = load_index(folder, view.base, partition)
    return _checked(view, index[index["offset"] <= offset], lambda h: h.base <= offset)


def before_time(folder: Path, view: SegmentView, partition: int, ms: int) -> int | None:
    """A position where a block of the partition begins that was appended before `ms`."""
    index = load_index(folder, view.base, partition)
    return _checked(view, index[index["time"] < ms], lambda h: h.time < ms)


def _checked(view: SegmentView, index: np.ndarray, fits: Callable[[Header], bool]) -> int | None:
    for partition, offset, pos, _ in reversed(index.tolist()):
        header = view.header(pos) if 0 <= pos < view.limit else None
        same = header is not None and (header.partition, header.base) == (partition, offset)
        if header is not None and same and fits(header):
            return int(pos)
    return None
