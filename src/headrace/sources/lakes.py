"""A table of a lake as an input: what it holds at a version, then the rows of each commit after it.

An offset is a step and a row in it, in one number that grows: a step is the snapshot of a version
(with which a job begins) or the commit of one. So a range can be read again for as long as the
lake has its versions. Where a job began is stored in its folder. Nothing here knows a library.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import InputError
from headrace.sources.columns import conform
from headrace.sources.contract import (
    BEGINNING,
    Chunk,
    InputRequest,
    Range,
    Source,
    damaged,
    even_cuts,
    refuse_shorter,
    write_durably,
)

SPLIT = "rows"
CHANGE, ADDED, GONE = "change", "+", "-"
CHUNK_ROWS = 524_288
LEAST = 16_384  # rows: fewer are not worth a task of their own
_BITS = 34  # of an offset, for the row in its step
_AFTER = (1 << _BITS) - 1  # the row of an offset that is after a commit, whatever it holds


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A file whose rows are a part of a step."""

    path: str
    rows: int
    change: str | None = None  # of all its rows; None if they are only added, or say it themselves
    values: tuple[tuple[str, Any], ...] = ()  # columns that are not in the file: partitions
    about: Any = None  # whatever else the kind needs to read it


@dataclass(frozen=True, slots=True)
class LakeStep:
    number: int
    pieces: tuple[LakeFile, ...]

    @property
    def rows(self) -> int:
        return sum(p.rows for p in self.pieces)


def snapshot_of(version: int) -> int:
    return 2 * version


def commit_of(version: int) -> int:
    return 2 * version + 1


def offset_of(step: int, row: int) -> int:
    return (step << _BITS) | row


def split_offset(offset: int) -> tuple[int, int]:
    return offset >> _BITS, offset & _AFTER


class LakeSource(Source):
    """A kind of lake adds `what`, `identity`, `check_table`, `newest`, `load` and `tables`."""

    because = "versions of the table are read again"
    raw = False
    least = LEAST

    def __init__(self, o: InputRequest, schema: pa.Schema) -> None:
        self.schema, self.bounded = schema, o.bounded
        self._home, self._options = o.home, dict(o.options)
        self._changes = bool(o.options.get("changes", False))
        self._begin: int | None = None  # the offset with which the job began, once it is known
        self._end: tuple[int, int] | None = None  # a version, and the offset after its last row
        self._steps: dict[int, LakeStep] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_steps": {}, "_end": None}

    # what a kind of lake adds

    @property
    @abstractmethod
    def what(self) -> str:
        """The table in words, for messages."""

    @abstractmethod
    def check_table(self) -> None:
        """Raise InputError if the table cannot be read, or does not fit the schema."""

    def check_history(self, version: int) -> None:
        """Raise InputError if a version that was read is not what the table has grown from."""

    @abstractmethod
    def newest(self, known: int | None) -> int:
        """The newest version; at least `known`, and cheap if it is that."""

    @abstractmethod
    def load(self, number: int) -> LakeStep:
        """The files of a step, in an order that is the same for ever."""

    @abstractmethod
    def tables(self, piece: LakeFile, start: int, end: int) -> Iterator[pa.Table]:
        """Rows of a file, with all columns of the schema; in a task."""

    # the contract

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        self.check_table()
        self._stored()
        for offset in offsets.values():
            number, row = split_offset(offset)
            self.check_history(number // 2)
            newest = self.newest(None)
            if number // 2 > newest:
                refuse_shorter(self.what, offset, offset_of(commit_of(newest), 0))
            if row != _AFTER:
                refuse_shorter(self.what, offset, offset_of(number, self.step(number).rows))

    def discover(self) -> None:
        """Store where the job begins, before it has read anything."""
        if self._home is not None and self._stored() is None:
            path = self._home / "begin"
            write_durably(path, json.dumps({"begin": self.start(SPLIT)}).encode())

    def _stored(self) -> int | None:
        path = None if self._home is None else self._home / "begin"
        if path is None or not path.exists():
            return None
        try:
            return int(json.loads(path.read_bytes())["begin"])
        except (ValueError, KeyError, TypeError) as cause:
            raise damaged("where the input began", path, "is damaged") from cause

    def splits(self) -> list[str]:
        return [SPLIT]

    def start(self, split: str) -> int:
        if self._begin is None:
            self._begin = self._stored()
        if self._begin is None:
            self._begin = self._beginning()
        return self._begin

    def _beginning(self) -> int:
        version = self._options.get("version")
        if self._options.get("start") == "latest":
            return offset_of(commit_of(self.newest(None)), _AFTER)
        return offset_of(snapshot_of(self.newest(None) if version is None else version), 0)

    def latest(self, split: str) -> int:
        begin = self.start(split)
        if self.bounded and self._end is not None:
            return self._end[1]
        first = split_offset(begin)[0]
        if self.bounded and self._options.get("version") is not None:
            self._end = first // 2, offset_of(first, self.step(first).rows)
        elif self._end is None or self.newest(self._end[0]) > self._end[0]:
            self._end = self._follow(begin, first)
        return self._end[1]

    def _follow(self, begin: int, first: int) -> tuple[int, int]:
        """The newest version, and the end of the last step up to it that has rows."""
        known = (first // 2, None) if self._end is None else self._end
        newest = self.newest(None if self._end is None else known[0])
        for version in range(newest, known[0], -1):
            step = self.step(commit_of(version))
            if step.rows:
                return newest, offset_of(step.number, step.rows)
        if known[1] is not None:
            return newest, known[1]
        row = split_offset(begin)[1]
        return newest, begin if row == _AFTER else offset_of(first, self.step(first).rows)

    def step(self, number: int) -> LakeStep:
        if number not in self._steps:
            self._steps[number] = self.load(number)
        return self._steps[number]

    def _between(self, start: int, end: int) -> Iterator[tuple[LakeStep, int, int]]:
        """The steps of a range, and of each the rows from and to."""
        refuse_shorter(self.in_words(SPLIT), start, end)
        (first, row), (last, stop) = split_offset(start), split_offset(end)
        if first == last:
            if row < stop != _AFTER:
                yield self.step(first), row, stop
            return
        if row != _AFTER and row < self.step(first).rows:
            yield self.step(first), row, self.step(first).rows
        for version in range(first // 2 + 1, last // 2 + 1):
            step = self.step(commit_of(version))
            upto = stop if step.number == last else step.rows
            if upto:
                yield step, 0, upto

    def rows(self, split: str, start: int, end: int) -> int:
        return sum(hi - lo for _, lo, hi in self._between(start, end))

    def clamp(self, split: str, start: int, end: int, rows: int) -> int:
        left = max(1, rows)
        for step, lo, hi in self._between(start, end):
            if hi - lo >= left:
                return offset_of(step.number, lo + left)
            left -= hi - lo
        return end

    def cut(self, split: str, start: int, end: int, pieces: int) -> list[Range]:
        runs = list(self._between(start, end))
        total = sum(hi - lo for _, lo, hi in runs)
        bounds = [start]
        for cut in even_cuts(0, total, pieces, LEAST)[1:-1]:
            bounds.append(self.clamp(split, start, end, cut))
        bounds.append(end)
        return [Range(split, a, b, tuple(self._parts(a, b))) for a, b in pairwise(bounds) if total]

    def _parts(self, start: int, end: int) -> Iterator[tuple[LakeFile, int, int, int]]:
        """Files, the rows of each from and to, and the offset of the first of them."""
        for step, lo, hi in self._between(start, end):
            row = 0
            for piece in step.pieces:
                a, b = max(lo, row), min(hi, row + piece.rows)
                if a < b:
                    yield piece, a - row, b - row, offset_of(step.number, a)
                row += piece.rows

    def read(self, range: Range) -> Iterator[Chunk]:
        for piece, start, end, offset in range.parts:
            at = offset
            for table in self.tables(piece, start, end):
                typed = conform(table, self.schema)
                yield typed, np.arange(at, at + table.num_rows, dtype=np.int64)
                at += table.num_rows
            if at - offset != end - start:
                raise InputError(
                    "HR-LAKE-013",
                    f"{piece.path!r} of {self.what} has {at - offset} rows, not {end - start}, "
                    "between those that the table's log says it has",
                    "The table was damaged: restore it, or repair its log.",
                )

    def commit(self, offsets: Mapping[str, int]) -> None:
        for offset in offsets.values():
            done = split_offset(offset)[0]
            self._steps = {n: s for n, s in self._steps.items() if n >= done}

    def in_words(self, split: str) -> str:
        return self.what

    def where(self, split: str, offset: int) -> str:
        number, row = split_offset(offset)
        place = "" if row == _AFTER else f" row {row}"
        return f"{self.what} version {number // 2}{place}"

    # errors that lakes share

    def rewritten(self, version: int, how: str) -> InputError:
        return InputError(
            "HR-LAKE-011",
            f"version {version} of {self.what} {how}: rows that were read are not in it any more",
            'Read the changes of the table (changes=True, as rows with "+" and "-"), or start '
            "with a new job folder, from what the table holds now.",
        )

    def made_again(self) -> InputError:
        return InputError(
            "HR-INPUT-016",
            f"{self.what} was deleted and made again while it was read",
            "Its rows are others than those that the job has read: start with a new job "
            "folder, or read it as an input of another name.",
        )

    def unreadable(self, why: str) -> InputError:
        return InputError(
            "HR-LAKE-014",
            f"{self.what} {why}, which is not supported as an input",
            "Rewrite the table without it, or read a copy of the table.",
        )

    def expired(self, what: str) -> InputError:
        return InputError(
            "HR-LAKE-012",
            f"{what} of {self.what} is gone before it was read",
            "Keep versions for longer than the job may be behind (vacuum and expiry remove them); "
            "to go on from what the table holds now, start with a new job folder.",
        )


def parquet_rows(
    file: pq.ParquetFile, columns: list[str], start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Rows of a file, from and to; only row groups that hold some of them are read."""
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    first = max(0, int(np.searchsorted(bounds, start, side="right")) - 1)
    groups = list(range(first, int(np.searchsorted(bounds, end))))
    row = int(bounds[first])
    for batch in file.iter_batches(CHUNK_ROWS, row_groups=groups, columns=columns):
        lo, hi = max(row, start), min(row + batch.num_rows, end)
        if lo < hi:
            yield batch.slice(lo - row, hi - lo)
        row += batch.num_rows


def check_input_options(o: InputRequest) -> None:
    version = o.options.get("version")
    if version is not None and (type(version) is not int or version < 0):
        raise InputError(
            "HR-INPUT-013", f"{o.uri!r} has version={version!r}", "Give the number of a version."
        )
    start = o.options.get("start", "snapshot")
    if start not in ("snapshot", "latest") or (start == "latest" and version is not None):
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has start={start!r}" + ("" if version is None else " and a version"),
            'Pass start="snapshot" (what the table holds, then what is added) or "latest" (only '
            "what is added from now on); or version=.",
        )
    if type(o.options.get("changes", False)) is not bool:
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has changes={o.options['changes']!r}",
            "Pass changes=True to read what is retracted as well.",
        )


def read_schema(o: InputRequest, what: str, there: pa.Schema) -> pa.Schema:
    """The columns to be read: those that are declared, else those of the table."""
    changes = o.options.get("changes", False)
    if changes and CHANGE in there.names:
        raise InputError(
            "HR-INPUT-013",
            f"{what} has a column {CHANGE!r} of its own, so changes=True cannot add one",
            "Read it without changes=True, or rename the column in the table.",
        )
    if o.schema is None:
        return there.append(pa.field(CHANGE, pa.string())) if changes else there
    if changes and CHANGE not in o.schema.names:
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has changes=True, but its schema no column {CHANGE!r}",
            f'Add "{CHANGE} string": it says which rows are retracted.',
        )
    return o.schema
