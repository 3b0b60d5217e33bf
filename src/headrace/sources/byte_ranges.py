"""Sources that read stretches of files by position on a tape: what files and sockets share.

An offset is a position on the tape; a range carries the stretches that it covers, so a task
needs no list of its own. Cuts lie between records. Scanning and spooling are not done here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from headrace.sources.contract import Chunk, Decoded, Range, Source, even_cuts, refuse_shorter
from headrace.sources.layout import Layout, gone, unreadable
from headrace.sources.lines import LineNumbers
from headrace.sources.listing import Stretch
from headrace.sources.parquet import Parquet

GATHER_ROWS = 65_536  # small files are gathered into chunks of at least this


class TapeSource(Source):
    layout: Layout

    def encoding(self, names: Sequence[str]) -> Source:
        if not names or not isinstance(self.layout, Parquet):
            return self
        twin = copy.copy(self)
        twin.layout = replace(self.layout, encoded=tuple(names))
        return twin

    def stretches(self, start: int, end: int) -> list[Stretch]:
        """The files that lie on the tape from `start` to `end`."""
        raise TypeError(f"{type(self).__name__} has no tape")

    def path(self, stretch: Stretch) -> str:
        """Where the file of a stretch lies."""
        raise TypeError(f"{type(self).__name__} has no tape")

    def verify(self, stretch: Stretch) -> None:
        """Raise InputError if the file does not hold what the stretch was made from."""
        self.layout.verify(self.path(stretch), stretch.extent)

    def clamp(self, split: str, start: int, end: int, rows: int) -> int:
        if start >= end:
            return end
        wanted = max(1, int(rows * self._weight(start, end)))
        return self._aligned(start, start + wanted, end)

    def rows(self, split: str, start: int, end: int) -> int:
        refuse_shorter(split, start, end)
        if start == end:
            return 0
        return max(1, round((end - start) / self._weight(start, end)))

    def cut(self, split: str, start: int, end: int, pieces: int) -> list[Range]:
        bounds = even_cuts(start, end, pieces, self.layout.least)
        inner = {self._aligned(start, b, end) for b in bounds[1:-1]} - {end}
        edges = [start, *sorted(inner), end] if bounds else []
        return [Range(split, a, b, tuple(self.stretches(a, b))) for a, b in pairwise(edges)]

    def read(self, range: Range) -> Iterator[Chunk]:
        return _gathered(self._chunks(range.parts))

    def decode(self, chunk: pa.Table) -> Decoded:
        return self.layout.decode(chunk)

    def where(self, split: str, offset: int) -> str:
        for stretch in self.stretches(offset, offset + 1):
            extent = stretch.extent
            if not self.raw:
                return f"{extent.path} row {extent.start + 1}"
            line = self._line(self.path(stretch), extent.start)
            return f"{extent.path} {f'line {line}, ' if line else ''}byte {extent.start}"
        return super().where(split, offset)

    def _line(self, path: str, position: int) -> int | None:
        numbers = self.__dict__.setdefault("_numbers", {})
        try:
            found: int | None = numbers.setdefault(path, LineNumbers(path)).at(position)
        except OSError:
            return None  # the file is gone; it was read before
        return found

    def _chunks(self, parts: tuple[Stretch, ...]) -> Iterator[Chunk]:
        for part in parts:
            path = self.path(part)
            try:
                self.verify(part)
                yield from self.layout.read(path, part.extent, part.at)
            except FileNotFoundError as cause:
                raise gone(path) from cause
            except OSError as cause:
                raise unreadable(path, cause) from cause

    def _weight(self, start: int, end: int) -> float:
        first = self.stretches(start, end)[0]
        try:
            return self.layout.weight(self.path(first), first.extent.start)
        except FileNotFoundError:
            return 1.0  # reading it will say so

    def _aligned(self, start: int, position: int, end: int) -> int:
        """A place between records at or after `position`, in (start, end]."""
        if position >= end:
            return end
        inside = self.stretches(position - 1, end)[0]
        shift = inside.at - inside.extent.start
        path, extent = self.path(inside), inside.extent
        try:
            return shift + self.layout.align(path, position - shift, start - shift, extent.end)
        except FileNotFoundError:
            return inside.at + extent.length


def _gathered(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The same rows, small chunks joined to larger ones."""
    held: list[Chunk] = []
    for chunk in chunks:
        if held and not held[0][0].schema.equals(chunk[0].schema, check_metadata=True):
            yield _joined(held)
            held = []
        held.append(chunk)
        if sum(len(offsets) for _, offsets in held) >= GATHER_ROWS:
            yield _joined(held)
            held = []
    if held:
        yield _joined(held)


def _joined(chunks: list[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    tables, offsets = zip(*chunks, strict=True)
    return pa.concat_tables(tables), np.concatenate(offsets)
