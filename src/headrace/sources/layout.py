"""How one file is measured, marked and read: by `lines`, `packed`, `parquet` and `avro`.

Units are the layout's own: bytes of text, rows of Parquet and Avro. A layout is a picklable value;
it never writes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from headrace.errors import InputError
from headrace.sources.contract import Chunk, Decoded

CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}  # of files of lines
Mark = tuple[int, int]  # how many bytes a file's fingerprint covers, and their checksum


@dataclass(frozen=True, slots=True)
class Extent:
    """`[start, end)` of a file, in the file's own units (bytes of text, rows of Parquet)."""

    path: str
    start: int
    end: int
    mark: Mark
    split: int = 0  # the number of the split that reads the file

    @property
    def length(self) -> int:
        return self.end - self.start


class FileLayout(Protocol):
    @property
    def raw(self) -> bool: ...

    @property
    def least(self) -> int:
        """A range shorter than this is not worth a task."""
        ...

    def settles(self, path: str) -> bool:
        """Whether the file is read only when it is complete, and does not grow after that."""
        ...

    def begin(self, path: str, size: int, whole: bool) -> int | None:
        """Where the first record starts; None while the file is not ready to be read."""
        ...

    def reach(self, path: str, start: int, size: int, whole: bool) -> int:
        """Where the last complete record ends; if the file is `whole`, at its end."""
        ...

    def mark(self, path: str, end: int) -> Mark:
        """A fingerprint that changes when what was read of the file is replaced."""
        ...

    def verify(self, path: str, extent: Extent) -> None:
        """Raise InputError if the file no longer holds what `extent` was made from."""
        ...

    def weight(self, path: str, start: int) -> float:
        """Units per record near `start`."""
        ...

    def align(self, path: str, position: int, start: int, end: int) -> int:
        """A good place to cut at or after `position`, at most `end`; start < position < end."""
        ...

    def read(self, path: str, extent: Extent, at: int) -> Iterator[Chunk]:
        """The records of the extent; the first unit has position `at`."""
        ...

    def decode(self, chunk: pa.Table) -> Decoded: ...

    def first_look(self, path: str, extent: Extent, column: str) -> list[pa.ChunkedArray]:
        """Some values of the column, its least and greatest among them if the file is sorted."""
        ...


ENDS = 1 << 12  # bytes at the beginning and at the end that a fingerprint covers


def fingerprint(path: str, length: int) -> Mark:
    """Of the first `length` bytes: changes with their first and their last few thousand.

    So it changes when bytes are added or removed anywhere among them, since the last ones move.
    """
    with open(path, "rb") as file:
        crc = zlib.crc32(file.read(min(ENDS, length)))
        file.seek(max(ENDS, length - ENDS))
        return length, zlib.crc32(file.read(max(0, length - file.tell())), crc)


def disappeared(path: str) -> InputError:
    return changed(path, "has disappeared before it was read to its end")


def changed(path: str, how: str) -> InputError:
    return InputError(
        "HR-INPUT-007",
        f"the file {path!r} {how}",
        "Give new data a new file name, and keep a file until the job has read it; "
        "restore the file to go on.",
    )


def unreadable(path: str, cause: OSError) -> InputError:
    return InputError(
        "HR-INPUT-003",
        f"cannot read {path!r}: {(cause.strerror or str(cause)).lower()}",
        "Give the user that runs the job permission to read it.",
    )


LOOK = 1_000  # rows at both ends of a file that show which times it holds


class WholeFile:
    """What layouts have in common whose files are written once, and are then as they stay."""

    __slots__ = ()

    def settles(self, path: str) -> bool:
        return True

    def mark(self, path: str, end: int) -> Mark:
        return fingerprint(path, os.stat(path).st_size)

    def verify(self, path: str, extent: Extent) -> None:
        if self.mark(path, extent.end) != extent.mark:
            raise changed(path, "was changed after it was read")

    def weight(self, path: str, start: int) -> float:
        return 1.0


def both_ends(layout: FileLayout, path: str, extent: Extent, column: str) -> list[pa.ChunkedArray]:
    """The values of a column in the first and the last rows."""
    first = replace(extent, end=min(extent.end, extent.start + LOOK))
    last = replace(extent, start=max(extent.start, extent.end - LOOK))
    return [c[column] for part in (first, last) for c, _ in layout.read(path, part, 0)]
