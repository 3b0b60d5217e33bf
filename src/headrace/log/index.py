"""The sparse index of a segment: where to begin looking for an offset or a time.

A file of (offset, position, append time) triples, one for every 64 KB or so. It is a hint:
whoever uses an entry checks that such a block begins there, so a damaged, stale or missing
index costs time and never gives a wrong answer. It is not synced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from headrace.errors import LogError
from headrace.log.block import Header
from headrace.log.segment import SegmentView

SPACING = 64 * 1024
_ENTRY = np.dtype([("offset", "<i8"), ("position", "<i8"), ("time", "<i8")])

Point = tuple[int, int, int]  # offset, position, time


def index_path(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}.index"


def load(folder: Path, base: int) -> np.ndarray:
    try:
        data = index_path(folder, base).read_bytes()
    except OSError:
        return np.empty(0, _ENTRY)
    return np.frombuffer(data[: len(data) // _ENTRY.itemsize * _ENTRY.itemsize], _ENTRY)


def extend(folder: Path, base: int, points: Iterable[Point]) -> None:
    data = np.array(list(points), _ENTRY).tobytes()
    if not data:
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    fd = os.open(index_path(folder, base), flags, 0o644)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def rewrite(folder: Path, view: SegmentView) -> None:
    """Make the index anew from the headers of the blocks."""
    index_path(folder, view.base).unlink(missing_ok=True)
    points: list[Point] = []
    due = SPACING
    with suppress(LogError):  # whoever reads the damaged block will say so
        for pos, header in view.headers(0, view.base):
            if pos >= due:
                points.append((header.base, pos, header.time))
                due = pos + SPACING
    extend(folder, view.base, points)


def before_offset(folder: Path, view: SegmentView, offset: int) -> tuple[int, int]:
    """A (position, offset) where a block begins, at or before the one that holds `offset`."""
    index = load(folder, view.base)
    at = int(np.searchsorted(index["offset"], offset, side="right")) - 1
    return _checked(view, index[: at + 1], lambda header: header.base <= offset)


def before_time(folder: Path, view: SegmentView, ms: int) -> tuple[int, int]:
    """A (position, offset) where a block begins, at or before the first one not before `ms`."""
    index = load(folder, view.base)
    at = int(np.searchsorted(index["time"], ms, side="left")) - 1
    return _checked(view, index[: at + 1], lambda header: header.time < ms)


def _checked(
    view: SegmentView, index: np.ndarray, fits: Callable[[Header], bool]
) -> tuple[int, int]:
    for offset, pos, _ in reversed(index.tolist()):
        header = view.header(pos) if 0 <= pos < view.limit else None
        if header is not None and header.base == offset and fits(header):
            return pos, offset
    return 0, view.base
