"""The list of files read: files end to end, in the order in which they were first seen.

A position in that sequence is one integer that means the same for ever. The sequence is a fold
over an append-only list of extents, each a part of one file, one checksummed line per extent; a
position is offered only after the line that covers it is durable. A line counts only if it
continues where its file was left, so two drivers that append at once still fold the same
sequence. A torn last line was never offered and is cut off before the next is written; opening a
list changes nothing. Knows nothing of formats.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import InputError
from headrace.files import sync, sync_folder
from headrace.sources.contract import damaged, write_durably
from headrace.sources.layout import Extent
from headrace.state.sealed import make_folder

MANY_LINES = 10_000
_WHAT = "the list of files read"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the sequence that lies in one file: positions from `at` on."""

    at: int
    extent: Extent


class Listing:
    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._folded = 0  # bytes of the file that are folded already
        self._starts: list[int] = []  # where each extent begins in the sequence
        self._extents: list[Extent] = []
        self._last: dict[str, Extent] = {}  # the newest extent of each file
        self.end = 0
        self._lines = 0 if path is None else self._fold_new_lines(path)
        self._compacted = path is None  # since it was opened

    def last(self, path: str) -> Extent | None:
        """The newest extent of the file: where to go on reading it."""
        return self._last.get(path)

    def append(self, extents: Sequence[Extent]) -> None:
        """Append `extents` to the sequence; durable when this returns."""
        if self._path is None:
            for extent in extents:
                self._fold(extent)
        elif extents:
            self._compact(self._path)
            _append(self._path, b"".join(map(_line, extents)))
            self._fold_new_lines(self._path)

    def check(self, position: int) -> None:
        """Raise InputError if the list does not reach to `position`, up to which it was read."""
        if position > self.end:
            raise self._ends_before(position)

    def stretches(self, start: int, end: int) -> list[Stretch]:
        """The sequence from `start` to `end`, file by file."""
        if end > self.end and self._path is not None:
            self._fold_new_lines(self._path)  # another process has read further
        self.check(end)
        stretches: list[Stretch] = []
        i = max(0, bisect_right(self._starts, start) - 1)
        while i < len(self._starts) and self._starts[i] < end:
            stretches.append(_sliced(self._starts[i], self._extents[i], start, end))
            i += 1
        return [s for s in stretches if s.extent.length]

    def _fold(self, extent: Extent) -> None:
        before = self._last.get(extent.path)
        if extent.length <= 0 or (before is not None and before.end != extent.start):
            return  # listed already by another driver
        self._last[extent.path] = extent
        if self._extents and self._extents[-1].path == extent.path:
            tail = self._extents[-1]
            self._extents[-1] = Extent(tail.path, tail.start, extent.end, extent.mark)
        else:
            self._starts.append(self.end)
            self._extents.append(extent)
        self.end += extent.length

    def _fold_new_lines(self, path: Path) -> int:
        """Fold what was appended since; how many lines that was."""
        self._refuse_shorter(path)
        if not path.exists():
            return 0
        with _readable(path), path.open("rb") as file:
            file.seek(self._folded)
            fresh = file.read()
        lines = fresh[: fresh.rfind(b"\n") + 1].splitlines(keepends=True)
        for line in lines:
            self._fold(_parse(line, path))
            self._folded += len(line)
        return len(lines)

    def _refuse_shorter(self, path: Path) -> None:
        if self._folded and (not path.exists() or path.stat().st_size < self._folded):
            raise damaged(_WHAT, path, "has become shorter")

    def _ends_before(self, position: int) -> InputError:
        how = f"ends at {self.end}, but the job has read up to {position}"
        return damaged(_WHAT, self._path or Path("files"), how)

    def _compact(self, path: Path) -> None:
        """Before the first append: cut off a torn line, and rewrite a long list as a short one."""
        self._refuse_shorter(path)
        if self._compacted:
            return
        make_folder(path.parent)
        self._lines += self._fold_new_lines(path)  # of another driver
        if path.exists() and path.stat().st_size > self._folded:
            os.truncate(path, self._folded)
        # A file that grew often has many lines where one would do.
        if self._lines > MANY_LINES and self._lines > 4 * len(self._extents):
            write_durably(path, b"".join(map(_line, self._extents)))
            self._folded = path.stat().st_size
        self._compacted = True


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what the system says of the list, but that it is missing, into an InputError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as cause:
        raise damaged(_WHAT, path, f"cannot be read: {cause.strerror or cause}") from cause


def _sliced(at: int, extent: Extent, start: int, end: int) -> Stretch:
    first = max(start, at)
    last = min(end, at + extent.length)
    moved = Extent(extent.path, extent.start + first - at, extent.start + last - at, extent.mark)
    return Stretch(first, moved)


def _line(extent: Extent) -> bytes:
    body = json.dumps([extent.path, extent.start, extent.end, *extent.mark]).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _parse(line: bytes, path: Path) -> Extent:
    check, _, body = line.rstrip(b"\n").partition(b" ")
    if check != b"%08x" % zlib.crc32(body):
        raise damaged(_WHAT, path, "is damaged")
    name, start, end, covered, crc = json.loads(body)
    return Extent(name, start, end, (covered, crc))


def _append(path: Path, content: bytes) -> None:
    fresh = not path.exists()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    before = os.fstat(handle).st_size
    try:
        if os.write(handle, content) != len(content):
            raise OSError(errno.ENOSPC, "short write", str(path))
        sync(handle)
    except OSError as cause:
        os.ftruncate(handle, before)  # half a line would read as damage
        raise InputError(
            "HR-INPUT-003",
            f"cannot add to the list of files read, {str(path)!r}: {cause.strerror}",
            "Free some space or fix the permissions, then start again.",
        ) from cause
    finally:
        os.close(handle)
    if fresh:
        sync_folder(path.parent)
