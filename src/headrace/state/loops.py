"""Rows that go back to an earlier step: a file for each epoch that sent some.

The driver adds the file of an epoch when it publishes the epoch; the epochs after it read the
files, in order. A place in a loop is the epoch and the number of a row in its file, as one number.
A file's name has all that is needed to notice that one is missing or was changed: the epoch before
it that has a file, its rows, its checksum and the timeline.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from headrace import files
from headrace.files import file_name
from headrace.state.faults import point
from headrace.state.sealed import corrupt, make_folder, missing, named_failures

FOLDER = "loops"  # at rest, as the names of the files are
ROW_BITS = 32
_ROWS = (1 << ROW_BITS) - 1
_NAME = re.compile(r"(\d{12})-(\d{12})-(\d+)-([0-9a-f]{8})-([0-9a-f]+)\.arrow")


@dataclass(frozen=True, slots=True)
class LoopFile:
    epoch: int
    before: int  # the epoch of the file before it; 0 if there is none
    rows: int
    crc: int
    timeline: str

    @property
    def name(self) -> str:
        checks = f"{self.rows}-{self.crc:08x}-{self.timeline}"
        return f"{self.epoch:012d}-{self.before:012d}-{checks}.arrow"


class LoopFolder:
    """The files of one loop of the job in `folder`."""

    def __init__(self, folder: str | Path, name: str) -> None:
        self.path = Path(folder) / FOLDER / file_name(name)

    def files(self) -> list[LoopFile]:
        """Those that there are, the oldest first."""
        if not self.path.is_dir():
            return []
        with named_failures(self.path):
            names = sorted(p.name for p in self.path.iterdir())
        found = [_parsed(m) for name in names if (m := _NAME.fullmatch(name))]
        for file, after in pairwise(found):
            if after.before != file.epoch:
                raise missing(self.path / f"{after.before:012d}-….arrow")
        return found

    def add(self, epoch: int, timeline: str, rows: pa.Table) -> None:
        """The rows of an epoch, durably; that they are there already changes nothing."""
        there = self.files()
        if any(file.epoch >= epoch for file in there):
            return
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        data = sink.getvalue().to_pybytes()
        before = there[-1].epoch if there else 0
        file = LoopFile(epoch, before, rows.num_rows, zlib.crc32(data), timeline)
        make_folder(self.path)
        with named_failures(self.path):
            files.replace_durably(self.path / file.name, data)
        point("loop.added")

    def read(self, file: LoopFile) -> pa.Table:
        path = self.path / file.name
        with named_failures(path):
            data = path.read_bytes()
        if zlib.crc32(data) != file.crc:
            raise corrupt(path, "its checksum does not match")
        rows: pa.Table = pa.ipc.open_file(data).read_all()
        return rows

    def start(self) -> int:
        """The earliest place that can be read."""
        there = self.files()
        return place_of(there[0].epoch, 0) if there and there[0].before else 0

    def end(self) -> int:
        """After the last row."""
        there = self.files()
        return place_of(there[-1].epoch, there[-1].rows) if there else 0

    def parts(self, start: int, end: int) -> Iterator[tuple[LoopFile, int, int]]:
        """The files between two places, each with the rows of it that lie between them."""
        there = self.files()
        (first, skipped), (last, upto) = _split(start), _split(end)
        if start < end and (not _begins(there, first) or there[-1].epoch < last):
            raise missing(self.path / f"{first:012d}-….arrow")
        for file in there:
            lo = skipped if file.epoch == first else 0
            hi = min(file.rows, upto) if file.epoch == last else file.rows
            if first <= file.epoch <= last and lo < hi:
                yield file, lo, hi

    def forget(self, place: int) -> None:
        """Remove what lies before a place, but for the file in which it is."""
        for file in self.files()[:-1]:
            if file.epoch < _split(place)[0]:
                self._remove(file)

    def go_back(self, epoch: int) -> int:
        """Remove the rows of the epochs after this one; returns how many there were."""
        after = [file for file in self.files() if file.epoch > epoch]
        for file in reversed(after):
            self._remove(file)
        return sum(file.rows for file in after)

    def _remove(self, file: LoopFile) -> None:
        path = self.path / file.name
        with named_failures(path):
            path.unlink(missing_ok=True)


def place_of(epoch: int, row: int) -> int:
    return epoch << ROW_BITS | row


def _split(place: int) -> tuple[int, int]:
    return place >> ROW_BITS, place & _ROWS


def _begins(there: list[LoopFile], first: int) -> bool:
    """Whether the file of epoch `first` is there, which is never forgotten while it is read; or for
    0, the very first file."""
    return bool(there) and (any(f.epoch == first for f in there) if first else not there[0].before)


def _parsed(match: re.Match[str]) -> LoopFile:
    epoch, before, rows, crc, timeline = match.groups()
    return LoopFile(int(epoch), int(before), int(rows), int(crc, 16), timeline)
