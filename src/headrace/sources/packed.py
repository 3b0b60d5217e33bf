"""Compressed files of lines: read from their beginning to their end, as one piece.

The unit is the byte of what is inside. A compressed file is complete when it can be unpacked to its
end, checksums included. That is done once before any row of it is offered, so one that is cut short
or damaged is an error and no rows. Several members in one file (as of `cat a.gz b.gz`) are one
text. Files whose names do not say that they are compressed pass to `lines.py`.
"""

from __future__ import annotations

import bz2
import json
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Any

import pyarrow as pa

from headrace.errors import InputError
from headrace.sources import formats
from headrace.sources.contract import RAW, Chunk, Decoded
from headrace.sources.layout import CODECS, Extent, Mark, changed, fingerprint
from headrace.sources.lines import BOM, COLUMNS, Lines, split_lines

BLOCK = 1 << 20  # bytes that are unpacked at once
FILES = 4_096  # of which the length is remembered


def codec_of(name: str) -> str | None:
    """How a file is compressed, by its name."""
    return CODECS.get(os.path.splitext(name)[1].lower())


def head_of(path: str, size: int) -> bytes:
    """The first bytes of what a file holds."""
    if codec_of(path) is None:
        with open(path, "rb") as file:
            return file.read(size)
    head = b""
    for block in _unpacked(path):
        head += block
        if len(head) >= size:
            break
    return head[:size]


@dataclass(frozen=True, slots=True)
class PackedLines:
    """Lines of files some of which are compressed."""

    lines: Lines

    @property
    def raw(self) -> bool:
        return self.lines.raw

    @property
    def least(self) -> int:
        return self.lines.least

    def settles(self, path: str) -> bool:
        return codec_of(path) is not None

    def begin(self, path: str, size: int, whole: bool) -> int | None:
        if codec_of(path) is None:
            return self.lines.begin(path, size, whole)
        try:
            _length(path)
        except InputError:
            if whole:
                raise
            return None  # it is being written
        return self._first(path)

    def reach(self, path: str, start: int, size: int, whole: bool) -> int:
        return (
            self.lines.reach(path, start, size, whole) if codec_of(path) is None else _length(path)
        )

    def mark(self, path: str, end: int) -> Mark:
        return self.lines.mark(path, end if codec_of(path) is None else os.stat(path).st_size)

    def verify(self, path: str, extent: Extent) -> None:
        if codec_of(path) is None:
            return self.lines.verify(path, extent)
        if fingerprint(path, os.stat(path).st_size) != extent.mark:
            raise changed(path, "was changed after it was read")
        return None

    def weight(self, path: str, start: int) -> float:
        if codec_of(path) is None:
            return self.lines.weight(path, start)
        sample = head_of(path, BLOCK)
        return max(1.0, len(sample) / max(1, sample.count(b"\n")))

    def align(self, path: str, position: int, start: int, end: int) -> int:
        """A compressed file is not cut: each piece would be unpacked from the beginning."""
        return self.lines.align(path, position, start, end) if codec_of(path) is None else end

    def read(self, path: str, extent: Extent, at: int) -> Iterator[Chunk]:
        if codec_of(path) is None:
            yield from self.lines.read(path, extent, at)
            return
        schema, position, shift = self._chunk_schema(path), extent.start, at - extent.start
        for block in _whole_lines(_between(_unpacked(path), extent.start, extent.end)):
            values, starts = split_lines(block, keep_blank=self.lines.format == "text")
            if len(values):
                yield pa.Table.from_arrays([values], schema=schema), starts + position + shift
            position += len(block)
        if position < extent.end:
            raise changed(path, "is shorter than what was read of it")

    def decode(self, chunk: pa.Table) -> Decoded:
        return self.lines.decode(chunk)

    def first_look(self, path: str, extent: Extent, column: str) -> list[pa.ChunkedArray]:
        if codec_of(path) is None:
            return self.lines.first_look(path, extent, column)
        ends: list[pa.Table] = []
        for chunk, _ in self.read(path, extent, 0):
            ends = [*ends[:1], chunk]
        return [self.decode(chunk)[0][column] for chunk in ends]

    def _first(self, path: str) -> int:
        """Where the first record starts."""
        head = head_of(path, len(BOM))
        start = len(BOM) if head == BOM else 0
        line = self._header(path)
        if line:
            formats.check_csv_header(path, self.lines.columns_of(path, line), self.lines.schema)
        return start + len(line)

    def _header(self, path: str) -> bytes:
        """The header of a CSV file, after a byte order mark; empty if it has none."""
        if self.lines.format != "csv" or not self.lines.header:
            return b""
        size = BLOCK
        while True:
            head = head_of(path, size)
            line, newline, _ = head.removeprefix(BOM).partition(b"\n")
            if newline or len(head) < size:
                return line + newline
            size *= 2

    def _chunk_schema(self, path: str) -> pa.Schema:
        schema, line = pa.schema([(RAW, pa.binary())]), self._header(path)
        if not line:
            return schema
        columns = self.lines.columns_of(path, line)
        formats.check_csv_header(path, columns, self.lines.schema)
        return schema.with_metadata({COLUMNS: json.dumps(columns)})


def _length(path: str) -> int:
    """How many bytes the file holds, unpacked; an InputError if it cannot be unpacked."""
    s = os.stat(path)
    return _measured(path, s.st_size, s.st_mtime_ns, s.st_ino)


@lru_cache(maxsize=FILES)
def _measured(path: str, size: int, mtime: int, number: int) -> int:
    return sum(len(block) for block in _unpacked(path))


def _unpacked(path: str) -> Iterator[bytes]:
    codec = CODECS[os.path.splitext(path)[1].lower()]
    try:
        if not os.stat(path).st_size:
            raise ValueError("it is empty")
        with open(path, "rb") as file:
            yield from _members(file, _MAKE[codec]) if codec in _MAKE else _frames(file, codec)
    except (pa.ArrowException, ValueError, zlib.error, OSError) as cause:
        if isinstance(cause, OSError) and cause.errno is not None:
            raise  # the disk or a permission, not what the file holds
        raise InputError(
            "HR-INPUT-070",
            f"{path!r} cannot be unpacked as {codec}: {str(cause).lower()}",
            "It is cut short or damaged. Write files under another name and rename them when they "
            "are complete; replace or remove this one.",
        ) from cause


def _frames(file: IO[bytes], codec: str) -> Iterator[bytes]:
    with pa.input_stream(file, compression=codec) as stream:
        while block := stream.read(BLOCK):
            yield block


# Arrow cannot read an empty member of bzip2; and Python's own files take what follows the last
# member for nothing, even if it is a member that is damaged.


def _members(file: IO[bytes], make: Callable[[], Any]) -> Iterator[bytes]:
    data, member = file.read(BLOCK), make()
    while True:
        block = member.decompress(data, BLOCK)
        if block:
            yield block
        if member.eof:
            data = member.unused_data or file.read(BLOCK)
            if not data:
                return
            member = make()
            continue
        data = getattr(member, "unconsumed_tail", b"")
        if not data and getattr(member, "needs_input", True):
            data = file.read(BLOCK)
            if not data and not block:
                raise ValueError("it ends too early")


_MAKE = {"gzip": lambda: zlib.decompressobj(wbits=31), "bz2": bz2.BZ2Decompressor}


def _between(blocks: Iterator[bytes], start: int, end: int) -> Iterator[bytes]:
    position = 0
    for block in blocks:
        lo, hi = max(0, start - position), min(len(block), end - position)
        if lo < hi:
            yield block[lo:hi]
        position += len(block)
        if position >= end:
            return


def _whole_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces that end with a line; only the last may end without its newline."""
    rest: list[bytes] = []
    for block in blocks:
        cut = block.rfind(b"\n") + 1
        if cut:
            yield b"".join([*rest, block[:cut]])
            rest = []
        if cut < len(block):
            rest.append(block[cut:])
    if rest:
        yield b"".join(rest)
