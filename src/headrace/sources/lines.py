"""Text files as records: one line, one record; the unit is the byte.

A line is complete when its newline is there, or when the input is bounded at its end, or, in
JSON, when it is a whole object. Lines are split with NumPy; no Python per line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.kernel import is_document
from headrace.sources import formats
from headrace.sources.contract import RAW, Chunk, Decoded
from headrace.sources.layout import Extent, Mark, changed, fingerprint

BLOCK = 1 << 20
LEAST = 1 << 18  # bytes: fewer are not worth a task of their own
PROBE = 1 << 16
COUNTED = 1 << 28  # bytes of a file whose lines are counted, to say where a bad one is
BOM = b"\xef\xbb\xbf"
COLUMNS = b"columns"  # metadata of a raw chunk: the order of a CSV file's columns


def null_texts(null: object) -> tuple[str, ...]:
    """The texts that the option null= names."""
    return (null,) if isinstance(null, str) else tuple(null)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Lines:
    format: str
    schema: pa.Schema
    header: bool = True
    delimiter: str = ","
    null: str | Sequence[str] = ()  # texts of a CSV file that stand for null
    used: tuple[str, ...] | None = None  # the columns that must fit; None: all
    raw: bool = True
    least: int = LEAST

    def settles(self, path: str) -> bool:
        return False

    def begin(self, path: str, size: int, whole: bool) -> int | None:
        head = _pread(path, 0, PROBE)
        start = len(BOM) if head.startswith(BOM) else 0
        if self.format != "csv" or not self.header:
            return start
        line = _first_line(path, start, size)
        if not line.endswith(b"\n") and not whole:
            return None
        if not line:
            return start  # an empty file has no rows, and needs no header
        formats.check_csv_header(path, self.columns_of(path, line), self.schema)
        return start + len(line)

    def columns_of(self, path: str, header: bytes) -> list[str]:
        return formats.csv_header(path, header.decode("utf-8", "replace"), self.delimiter)

    def reach(self, path: str, start: int, size: int, whole: bool) -> int:
        end = size if whole else _last_line_end(path, start, size)
        if self.format == "json" and end < size and _is_object(_pread(path, end, size - end)):
            return size
        return end

    def mark(self, path: str, end: int) -> Mark:
        return fingerprint(path, end)

    def verify(self, path: str, extent: Extent) -> None:
        if os.stat(path).st_size < max(extent.end, extent.mark[0]):
            raise changed(path, "is shorter than what was read of it")
        if fingerprint(path, extent.mark[0]) != extent.mark:
            raise changed(path, "was changed after it was read")

    def weight(self, path: str, start: int) -> float:
        sample = _pread(path, start, PROBE)
        return max(1.0, len(sample) / max(1, sample.count(b"\n")))

    def align(self, path: str, position: int, start: int, end: int) -> int:
        at = position - 1  # a newline just before is an end too
        while at < end:
            block = _pread(path, at, min(PROBE, end - at))
            newline = block.find(b"\n")
            if newline >= 0:
                return at + newline + 1
            if not block:
                break
            at += len(block)
        return end

    def read(self, path: str, extent: Extent, at: int) -> Iterator[Chunk]:
        schema = self._chunk_schema(path)
        position, want = extent.start, BLOCK
        while position < extent.end:
            block = _pread(path, position, min(want, extent.end - position))
            last = position + len(block) >= extent.end
            if not block:
                raise changed(path, "is shorter than what was read of it")
            whole = len(block) if last else block.rfind(b"\n") + 1
            if not whole:  # a line longer than the block
                want *= 2
                continue
            values, starts = split_lines(block[:whole], keep_blank=self.format == "text")
            if len(values):
                base = at + position - extent.start
                yield pa.Table.from_arrays([values], schema=schema), starts + base
            position, want = position + whole, BLOCK

    def decode(self, chunk: pa.Table) -> Decoded:
        columns, schema = (chunk.schema.metadata or {}).get(COLUMNS), self.schema
        if self.used is not None:
            schema = pa.schema([f for f in schema if f.name in self.used])
        return formats.decode(
            self.format,
            chunk.column(RAW),
            schema,
            columns=json.loads(columns) if columns else self.schema.names,
            style=formats.CsvStyle(self.delimiter, null_texts(self.null)),
        )

    def first_look(self, path: str, extent: Extent, column: str) -> list[pa.ChunkedArray]:
        """By the lines at both ends of the file."""
        found = []
        for part in self._both_ends(path, extent):
            for chunk, _ in self.read(path, part, 0):
                found.append(self.decode(chunk)[0][column])
        return found

    def _both_ends(self, path: str, extent: Extent) -> list[Extent]:
        if extent.length <= 2 * PROBE:
            return [extent]
        first = self.align(path, extent.start + PROBE, extent.start, extent.end)
        last = self.align(path, extent.end - PROBE, extent.start, extent.end)
        if last >= extent.end:  # its last line is longer than that
            return [extent] if first >= last else [replace(extent, end=first), extent]
        return [replace(extent, end=first), replace(extent, start=last)]

    def _chunk_schema(self, path: str) -> pa.Schema:
        schema = pa.schema([(RAW, pa.binary())])
        if self.format != "csv" or not self.header:
            return schema
        start = len(BOM) if _pread(path, 0, len(BOM)) == BOM else 0
        columns = self.columns_of(path, _first_line(path, start, os.stat(path).st_size))
        formats.check_csv_header(path, columns, self.schema)  # the program may have changed since
        return schema.with_metadata({COLUMNS: json.dumps(columns)})


def split_lines(
    block: bytes, keep_blank: bool = False
) -> tuple[pa.BinaryArray, npt.NDArray[np.int64]]:
    """The lines of `block` without their ends, and where each begins."""
    octets = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(octets == ord("\n"))
    if not len(ends) or ends[-1] != len(block) - 1:
        ends = np.append(ends, len(block))
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    stops = ends - ((ends > starts) & (octets[ends - 1] == ord("\r")))
    # Every line is a value and its line end the next one, so that lines are separated without
    # copying bytes; the values at even positions are the lines.
    bounds = np.empty(2 * len(ends) + 1, np.int32)
    bounds[0:-1:2], bounds[1::2], bounds[-1] = starts, stops, len(block)
    pieces = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * len(ends), [None, pa.py_buffer(bounds), pa.py_buffer(block)]
    )
    keep = np.arange(len(ends)) if keep_blank else np.flatnonzero(stops > starts)
    return pieces.take(pa.array(keep * 2)), starts[keep].astype(np.int64)


class LineNumbers:
    """Which line of a file a byte is in; every block of the file is counted once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._before = [0]  # line ends before each block
        self._last = (0, 0)  # the last position asked for, and the line ends before it

    def at(self, position: int) -> int | None:
        """Counted from 1; None so far into the file that counting would take long."""
        if position > COUNTED:
            return None
        block = position // BLOCK
        for i in range(len(self._before) - 1, block):
            ends = _pread(self._path, i * BLOCK, BLOCK).count(b"\n")
            self._before.append(self._before[i] + ends)
        base = (block * BLOCK, self._before[block])
        start, ends = max(base, self._last) if self._last[0] <= position else base
        ends += _pread(self._path, start, position - start).count(b"\n")
        self._last = (position, ends)
        return ends + 1


def _pread(path: str, position: int, length: int) -> bytes:
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.pread(handle, length, position)
    finally:
        os.close(handle)


def _first_line(path: str, start: int, size: int) -> bytes:
    length = PROBE
    while True:
        line, newline, _ = _pread(path, start, length).partition(b"\n")
        if newline or length >= size - start:
            return line + newline
        length *= 2


def _last_line_end(path: str, start: int, size: int) -> int:
    end = size
    while end > start:
        lo = max(start, end - PROBE)
        newline = _pread(path, lo, end - lo).rfind(b"\n")
        if newline >= 0:
            return lo + newline + 1
        end = lo
    return start


def _is_object(line: bytes) -> bool:
    """Whether the line is a whole document, as it will be decoded."""
    return line.lstrip()[:1] == b"{" and line.rstrip()[-1:] == b"}" and is_document(line)
