"""The list of files read: for each split its files end to end, in the order of the list.

A position in that sequence is one integer that means the same for ever. The sequences are a fold
over an append-only list of extents, each a part of one file in one split, one checksummed line
per extent; a position is offered only after the line that covers it is durable. A line counts
only if it continues where its file was left, so two drivers that append at once still fold the
same sequences, whichever split each has chosen for a file. A torn last line was never offered and
is cut off before the next is written; opening a list changes nothing. Knows nothing of formats.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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


@dataclass(slots=True)
class SplitSequence:
    """The extents of one split, end to end."""

    starts: list[int] = field(default_factory=list)  # where each extent begins
    extents: list[Extent] = field(default_factory=list)
    end: int = 0

    def append(self, extent: Extent) -> None:
        if self.extents and self.extents[-1].path == extent.path:
            self.extents[-1] = replace(self.extents[-1], end=extent.end, mark=extent.mark)
        else:
            self.starts.append(self.end)
            self.extents.append(extent)
        self.end += extent.length

    def stretches(self, start: int, end: int) -> list[Stretch]:
        stretches: list[Stretch] = []
        i = max(0, bisect_right(self.starts, start) - 1)
        while i < len(self.starts) and self.starts[i] < end:
            stretches.append(_sliced(self.starts[i], self.extents[i], start, end))
            i += 1
        return [s for s in stretches if s.extent.length]


class Listing:
    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._folded = 0  # bytes of the file that are folded already
        self._splits: dict[int, SplitSequence] = {}
        self._last: dict[str, Extent] = {}  # the newest extent of each file
        self._first: dict[str, int] = {}  # where each file was begun
        self._lines = 0 if path is None else self._fold_new_lines(path)
        self._compacted = path is None  # since it was opened

    def last(self, path: str) -> Extent | None:
        """The newest extent of the file: where to go on reading it."""
        return self._last.get(path)

    def count(self) -> int:
        """How many files are listed."""
        return len(self._last)

    def files(self) -> list[Extent]:
        """What is listed of every file, as one extent."""
        return [replace(e, start=self._first[path]) for path, e in self._last.items()]

    def splits(self) -> list[int]:
        """The splits that have files."""
        return sorted(self._splits)

    def end(self, split: int = 0) -> int:
        """How far the split's sequence goes."""
        return self._splits[split].end if split in self._splits else 0

    def append(self, extents: Sequence[Extent]) -> None:
        """Append `extents` to the sequences of their splits; durable when this returns."""
        if self._path is None:
            for extent in extents:
                self._fold(extent)
        elif extents:
            self._compact(self._path)
            _append(self._path, b"".join(map(_line, extents)))
            self._fold_new_lines(self._path)

    def check(self, position: int, split: int = 0) -> None:
        """Raise InputError if the split does not reach to `position`, up to which it was read."""
        if position > self.end(split):
            how = f"ends at {self.end(split)}, but the job has read up to {position}"
            raise damaged(_WHAT, self._path or Path("files"), how)

    def stretches(self, start: int, end: int, split: int = 0) -> list[Stretch]:
        """The split's sequence from `start` to `end`, file by file."""
        if end > self.end(split) and self._path is not None:
            self._fold_new_lines(self._path)  # another process has read further
        self.check(end, split)
        return self._splits[split].stretches(start, end) if split in self._splits else []

    def _fold(self, extent: Extent) -> None:
        before = self._last.get(extent.path)
        if extent.length <= 0 or (before is not None and before.end != extent.start):
            return  # listed already by another driver
        if before is not None and before.split != extent.split:
            extent = replace(extent, split=before.split)
        self._last[extent.path] = extent
        self._first.setdefault(extent.path, extent.start)
        self._splits.setdefault(extent.split, SplitSequence()).append(extent)

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
        extents = [e for split in self._splits.values() for e in split.extents]
        if self._lines > MANY_LINES and self._lines > 4 * len(extents):
            write_durably(path, b"".join(map(_line, extents)))
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
    start, stop = extent.start + first - at, extent.start + last - at
    return Stretch(first, replace(extent, start=start, end=stop))


def _line(extent: Extent) -> bytes:
    split = [extent.split] if extent.split else []  # the first split's lines do not name it
    body = json.dumps([extent.path, extent.start, extent.end, *extent.mark, *split]).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _parse(line: bytes, path: Path) -> Extent:
    check, _, body = line.rstrip(b"\n").partition(b" ")
    if check != b"%08x" % zlib.crc32(body):
        raise damaged(_WHAT, path, "is damaged")
    name, start, end, covered, crc, *split = json.loads(body)
    return Extent(name, start, end, (covered, crc), *split)


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
