"""Files as an input: one file, a glob, or a folder that is watched.

The files of a split are read end to end in the order of the list (see `listing.py`); an offset is
a position in that sequence, so no file is lost, none is read twice, and one that grows is read on.
Which split reads a file is decided when it is first seen (`file_splits.py`). A range carries the
parts of files that it covers, so a task needs no list of its own. Cuts lie between records. Only
this module scans folders; how a file is read is its layout's business.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from headrace.clock import Clock
from headrace.errors import InputError
from headrace.sources import formats
from headrace.sources.contract import (
    BEGINNING,
    Chunk,
    Decoded,
    InputRequest,
    Range,
    Source,
    even_cuts,
    refuse_shorter,
    refuse_unknown,
)
from headrace.sources.file_splits import (
    SplitChoice,
    check_splits,
    split_name,
    split_number,
    time_span,
)
from headrace.sources.guess import GuessedColumns, guessed_columns
from headrace.sources.layout import Extent, FileLayout, disappeared, unreadable
from headrace.sources.lines import LineNumbers, Lines
from headrace.sources.listing import Listing, Stretch
from headrace.sources.parquet import Parquet, own_schema
from headrace.sources.scan import PathPattern, ScannedFile, format_of, pattern_of

LEAST_LINES = 1_000  # of a split in an epoch: opening a file costs as much as reading them
GATHER_ROWS = 65_536  # small files are gathered into chunks of at least this

T = TypeVar("T")
Stamp = tuple[int, ...]

MANY = 500  # files: scanning more takes time, and is done for a tenth of the time at most
SETTLE = 10_000  # ms: a Parquet file without a footer is being written, for this long


class FilesSource(Source):
    def __init__(
        self,
        pattern: PathPattern,
        layout: FileLayout,
        schema: pa.Schema,
        clock: Clock,
        *,
        bounded: bool,
        home: Path | None,
        splits: str | int | None = None,
        time: str | None = None,
        guessed: GuessedColumns | None = None,
    ) -> None:
        self.schema, self.bounded, self.raw = schema, bounded, layout.raw
        self._pattern, self.layout, self._clock = pattern, layout, clock
        self.guessed = guessed
        self._time = time  # the column of event time
        self._choice = SplitChoice(splits, by_time=bounded and time is not None)
        self.least = LEAST_LINES if self.raw else layout.least
        self._home = home  # in the job's folder: where the list is stored
        self._listed: Listing | None = None
        self._complete = False  # all files of a bounded input are listed
        self._fresh: set[str] = set()  # splits that were scanned since their end was last read
        self._stamps: dict[str, Stamp] = {}  # of the last scan
        self._waiting: dict[str, tuple[Stamp, int]] = {}  # not ready, and since when
        self._rest_until = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {
            "_listed": None,
            "_complete": False,
            "_fresh": set(),
            "_stamps": {},
            "_waiting": {},
            "_rest_until": 0.0,
        }

    def identity(self) -> dict[str, str]:
        """The path; the files themselves are identified by the fingerprints in the list."""
        unit = "lines" if self.raw else "rows"  # what positions count
        return {"kind": "files", "place": self._pattern.place, "thing": unit}

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        listing = self._listing()
        positions = {split_number(split): at for split, at in offsets.items()}
        for split, at in positions.items():
            listing.check(at, split)
        if self.guessed is not None:
            self.guessed.check(sum(positions.values()))
        self._pattern.check()
        files = self._pattern.scan()
        if (
            not files
            and not any(positions.values())
            and (self.bounded or not self._pattern.watchable)
        ):
            raise InputError(
                "HR-INPUT-002",
                f"there are no files in {self._pattern.uri!r}",
                "Check the path; a folder that is still empty can be watched, "
                "but not read to its end.",
            )
        self._check_listed(listing, positions, files)
        new = [file for file in files if listing.last(file.name) is None]
        for file in new[:100]:
            self._attempt(file, lambda f: self.layout.begin(f.path, f.size, self.bounded))

    def _check_listed(
        self, listing: Listing, positions: Mapping[int, int], files: list[ScannedFile]
    ) -> None:
        """Files that were read are unchanged or removed; listed files still to be read exist."""
        for file in files:
            before = listing.last(file.name)
            if before is not None:
                self._attempt(file, partial(self._verify, before))
        for split in listing.splits():
            for stretch in listing.stretches(positions.get(split, 0), listing.end(split), split):
                if not os.path.exists(self.path(stretch)):
                    raise disappeared(self.path(stretch))

    def splits(self) -> list[str]:
        """Those that have files, as far as they are listed; the first is always there."""
        return [split_name(n) for n in self._listing().splits() or [0]]

    def discover(self) -> None:
        if self.guessed is not None:
            self.guessed.store()
        if not self._complete and time.monotonic() >= self._rest_until:
            began, listing = time.monotonic(), self._listing()
            fresh = self._new_extents(listing)
            if len(self._stamps) > MANY:
                self._rest_until = time.monotonic() + 9 * (time.monotonic() - began)
            listing.append(fresh)
            self._complete = self.bounded
        self._fresh = set(self.splits())

    def latest(self, split: str) -> int:
        if split not in self._fresh:
            self.discover()
        self._fresh.discard(split)
        return self._listing().end(split_number(split))

    def has_more(self, split: str, offset: int) -> bool:
        probe = copy.copy(self)  # this source records nothing of the scan
        probe._stamps, probe._waiting = {}, dict(self._waiting)
        listing = Listing(self._list_path)
        return listing.end(split_number(split)) != offset or bool(probe._new_extents(listing))

    def unsettled(self, split: str) -> bool:
        return bool(self._waiting)

    def stretches(self, split: str, start: int, end: int) -> list[Stretch]:
        return self._listing().stretches(start, end, split_number(split))

    def path(self, stretch: Stretch) -> str:
        return str(self._pattern.root / stretch.extent.path)

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Nothing is forgotten: a file stays in the list so that it is not read again."""
        return None

    def _new_extents(self, listing: Listing) -> list[Extent]:
        """What the files have more than is listed, each extent in the split that reads it."""
        fresh: list[Extent] = []
        for file in self._pattern.scan():
            if self._stamps.get(file.name) != file.stamp:
                extent = self._attempt(file, lambda f: self._extent(f, listing))
                if extent is not None:
                    fresh.append(extent)
                if file.name not in self._waiting:
                    self._stamps[file.name] = file.stamp
        if not fresh:
            return []
        known = {e.path: e for e in listing.files()}
        grown = [e for e in fresh if e.path in known]
        known |= {e.path: replace(known[e.path], end=e.end) for e in grown}
        new = [e for e in fresh if e.path not in known]
        return grown + self._choice.assign(new, list(known.values()), self._time_span)

    def _time_span(self, extent: Extent) -> tuple[int, int] | None:
        path = str(self._pattern.root / extent.path)
        try:
            return time_span(self.layout, path, extent, self._time) if self._time else None
        except FileNotFoundError:
            return None  # removed since it was listed
        except OSError as cause:
            raise unreadable(path, cause) from cause

    def _extent(self, file: ScannedFile, listing: Listing) -> Extent | None:
        """What is new in the file, if anything."""
        before = listing.last(file.name)
        if before is not None:
            self.layout.verify(file.path, before)
            start: int | None = before.end
        else:
            start = self._ready(file)
        if start is None:
            return None
        end = self.layout.reach(file.path, start, file.size, self.bounded)
        mark = self.layout.mark(file.path, end) if end > start else (0, 0)
        return Extent(file.name, start, end, mark) if end > start else None

    def _verify(self, before: Extent, file: ScannedFile) -> None:
        self.layout.verify(file.path, before)

    def _ready(self, file: ScannedFile) -> int | None:
        """Where to begin; None while the file is still being written."""
        now = self._clock.now()
        seen, since = self._waiting.get(file.name, (file.stamp, now))
        if seen != file.stamp:
            since = now
        late = now - since > SETTLE and not self.raw
        start = self.layout.begin(file.path, file.size, self.bounded or late)
        if start is None:
            self._waiting[file.name] = (file.stamp, since)
        else:
            self._waiting.pop(file.name, None)
        return start

    def _attempt(self, file: ScannedFile, act: Callable[[ScannedFile], T]) -> T | None:
        try:
            return act(file)
        except FileNotFoundError:
            return None  # removed since the scan
        except OSError as cause:
            raise unreadable(file.path, cause) from cause

    def _listing(self) -> Listing:
        if self._listed is None:
            self._listed = Listing(self._list_path)
        return self._listed

    @property
    def _list_path(self) -> Path | None:
        return self._home / "files" if self._home else None

    def encoding(self, names: Sequence[str]) -> Source:
        if not names or not isinstance(self.layout, Parquet):
            return self
        source = copy.copy(self)
        source.layout = replace(self.layout, encoded=tuple(names))
        return source

    def verify(self, stretch: Stretch) -> None:
        """Raise InputError if the file does not hold what the stretch was made from."""
        self.layout.verify(self.path(stretch), stretch.extent)

    def clamp(self, split: str, start: int, end: int, rows: int) -> int:
        if start >= end:
            return end
        units = max(1, int(rows * self._weight(split, start, end)))
        return self._aligned(split, start, start + units, end)

    def rows(self, split: str, start: int, end: int) -> int:
        refuse_shorter(self.in_words(split), start, end)
        if start == end:
            return 0
        return max(1, round((end - start) / self._weight(split, start, end)))

    def cut(self, split: str, start: int, end: int, pieces: int) -> list[Range]:
        bounds = even_cuts(start, end, pieces, self.layout.least)
        inner = {self._aligned(split, start, b, end) for b in bounds[1:-1]} - {end}
        edges = [start, *sorted(inner), end] if bounds else []
        return [Range(split, a, b, tuple(self.stretches(split, a, b))) for a, b in pairwise(edges)]

    def read(self, range: Range) -> Iterator[Chunk]:
        return _gathered(self._chunks(range.parts))

    def decode(self, chunk: pa.Table) -> Decoded:
        return self.layout.decode(chunk)

    def where(self, split: str, offset: int) -> str:
        for stretch in self.stretches(split, offset, offset + 1):
            extent, name = stretch.extent, _printable(stretch.extent.path)
            if not self.raw:
                return f"{name} row {extent.start + 1}"
            line = self._line(self.path(stretch), extent.start)
            return f"{name} {f'line {line}, ' if line else ''}byte {extent.start}"
        return super().where(split, offset)

    def _line(self, path: str, position: int) -> int | None:
        numbers = self.__dict__.setdefault("_numbers", {})
        try:
            line: int | None = numbers.setdefault(path, LineNumbers(path)).at(position)
        except OSError:
            return None  # the file was removed after it was read
        return line

    def _chunks(self, parts: tuple[Stretch, ...]) -> Iterator[Chunk]:
        for part in parts:
            path = self.path(part)
            try:
                self.verify(part)
                yield from self.layout.read(path, part.extent, part.at)
            except FileNotFoundError as cause:
                raise disappeared(path) from cause
            except OSError as cause:
                raise unreadable(path, cause) from cause

    def _weight(self, split: str, start: int, end: int) -> float:
        first = self.stretches(split, start, end)[0]
        try:
            return self.layout.weight(self.path(first), first.extent.start)
        except FileNotFoundError:
            return 1.0  # reading it will raise

    def _aligned(self, split: str, start: int, position: int, end: int) -> int:
        """A place between records at or after `position`, in (start, end]."""
        if position >= end:
            return end
        inside = self.stretches(split, position - 1, end)[0]
        shift = inside.at - inside.extent.start
        path, extent = self.path(inside), inside.extent
        try:
            return shift + self.layout.align(path, position - shift, start - shift, extent.end)
        except FileNotFoundError:
            return inside.at + extent.length


def open_files(o: InputRequest) -> Source:
    refuse_unknown(o, ("header", "delimiter", "null", "splits"))
    formats.check_null(o)
    options = {name: value for name, value in o.options.items() if name != "splits"}
    splits = o.options.get("splits")
    check_splits(splits, o.uri)
    pattern = pattern_of(o.rest, o.uri, o.format, o.bounded)
    format = o.format or format_of(pattern)
    if format is None:
        pattern.check()
        files = pattern.scan()  # says what is compressed
        fact = "the file names in {!r} do not say" if files else "there are no files in {!r} to say"
        raise InputError(
            "HR-INPUT-004",
            f"{fact.format(o.uri)} which format they have",
            f'Pass format="json"; known: {", ".join(formats.FORMATS)}.',
        )
    if format == "parquet" and o.schema is None:
        pattern.check()  # a folder that is missing rather than a schema
    own = own_schema(pattern) if format == "parquet" and o.schema is None else None
    is_guess = format == "csv" and (o.schema is None or o.guessed)
    if is_guess and o.schema is None:
        own = guessed_columns(pattern, o.uri, options)
    schema = own if own is not None else formats.needed_schema(o, format)
    guess = GuessedColumns(o.home, o.uri, schema) if is_guess else None
    formats.check_schema(format, schema)
    layout: FileLayout = (
        Parquet(schema)
        if format == "parquet"
        else Lines(format, schema, **options, used=o.used if is_guess else None)
    )
    return FilesSource(
        pattern, layout, schema, o.clock,
        bounded=o.bounded, home=o.home, splits=splits, time=o.time, guessed=guess,
    )  # fmt: skip


def _printable(name: str) -> str:
    """A file's name as text: bytes that are not UTF-8 are escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


def _gathered(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The same rows, with small chunks joined into larger ones."""
    pending: list[Chunk] = []
    for chunk in chunks:
        if pending and not pending[0][0].schema.equals(chunk[0].schema, check_metadata=True):
            yield _joined(pending)
            pending = []
        pending.append(chunk)
        if sum(len(offsets) for _, offsets in pending) >= GATHER_ROWS:
            yield _joined(pending)
            pending = []
    if pending:
        yield _joined(pending)


def _joined(chunks: list[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    tables, offsets = zip(*chunks, strict=True)
    return pa.concat_tables(tables), np.concatenate(offsets)
