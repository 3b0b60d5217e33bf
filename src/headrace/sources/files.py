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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import InputError
from headrace.sources import formats
from headrace.sources.arrivals import Arrivals, attempt
from headrace.sources.avro import AvroRows, own_avro_schema
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
)
from headrace.sources.folder_columns import (
    InFolders,
    below,
    folder_columns,
    of_files,
    refuse_unnamed,
    with_folder_columns,
)
from headrace.sources.guess import GuessedColumns, guessed_columns
from headrace.sources.layout import Extent, FileLayout, disappeared, unreadable
from headrace.sources.lines import LineNumbers, Lines
from headrace.sources.listing import Listing, Stretch
from headrace.sources.packed import PackedLines, codec_of
from headrace.sources.parquet import Parquet, own_schema
from headrace.sources.scan import PathPattern, ScannedFile, format_of, pattern_of, refuse_nowhere

LEAST_LINES = 1_000  # of a split in an epoch: opening a file costs as much as reading them
GATHER_ROWS = 65_536  # small files are gathered into chunks of at least this

CHOICES = {"watch": ("list", "notify"), "order": ("time", "name")}  # the first is the default
OWN_SCHEMA = {"parquet": own_schema, "avro": own_avro_schema}  # of files that have columns


class FilesSource(Source):
    because = "files are read again from a position"

    def __init__(
        self,
        pattern: PathPattern,
        layout: FileLayout,
        schema: pa.Schema,
        arrivals: Arrivals,
        *,
        bounded: bool,
        home: Path | None,
        guessed: GuessedColumns | None = None,
    ) -> None:
        self.schema, self.bounded, self.raw = schema, bounded, layout.raw
        self._pattern, self.layout, self._arrivals = pattern, layout, arrivals
        self.guessed = guessed
        self.least = LEAST_LINES if self.raw else layout.least
        self._home = home  # in the job's folder: where the list is stored
        self._listed: Listing | None = None
        self._complete = False  # all files of a bounded input are listed
        self._fresh: set[str] = set()  # splits that were scanned since their end was last read

    def __getstate__(self) -> dict[str, Any]:
        anew: dict[str, Any] = {"_listed": None, "_complete": False, "_fresh": set()}
        return self.__dict__ | anew | {"_arrivals": copy.copy(self._arrivals)}

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
            attempt(file, lambda f: self.layout.begin(f.path, f.size, self.bounded))

    def _check_listed(
        self, listing: Listing, positions: Mapping[int, int], files: list[ScannedFile]
    ) -> None:
        """Files that were read are unchanged or removed; listed files still to be read exist."""
        for file in files:
            before = listing.last(file.name)
            if before is not None:
                attempt(file, partial(self._verify, before))
        for split in listing.splits():
            for stretch in listing.stretches(positions.get(split, 0), listing.end(split), split):
                if not os.path.exists(self.path(stretch)):
                    raise disappeared(self.path(stretch))

    def _verify(self, before: Extent, file: ScannedFile) -> None:
        self.layout.verify(file.path, before)

    def splits(self) -> list[str]:
        """Those that have files, as far as they are listed; the first is always there."""
        return [split_name(n) for n in self._listing().splits() or [0]]

    def discover(self) -> None:
        if self.guessed is not None:
            self.guessed.store()
        if not self._complete and self._arrivals.take(self._listing()):
            self._complete = self.bounded
        self._fresh = set(self.splits())

    def latest(self, split: str) -> int:
        if split not in self._fresh:
            self.discover()
        self._fresh.discard(split)
        return self._listing().end(split_number(split))

    def has_more(self, split: str, offset: int) -> bool:
        listing = Listing(self._list_path)
        return listing.end(split_number(split)) != offset or self._arrivals.any(listing)

    def gather(self) -> None:
        self._arrivals.at_once()

    def unsettled(self, split: str) -> bool:
        return self._arrivals.unsettled()

    def stretches(self, split: str, start: int, end: int) -> list[Stretch]:
        return self._listing().stretches(start, end, split_number(split))

    def path(self, stretch: Stretch) -> str:
        return str(self._pattern.root / stretch.extent.path)

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Nothing is forgotten: a file stays in the list so that it is not read again."""
        return None

    def lost(self, split: str, end: int) -> str:
        for stretch in self.stretches(split, 0, end):
            if not os.path.exists(self.path(stretch)):
                return f"the file {self.path(stretch)!r} is not there any more"
        return ""

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
        if codec_of(path) is not None:
            return None  # the position is one of what the file holds
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


def check_files(o: InputRequest) -> None:
    refuse_unknown(o, ("header", "delimiter", "null", "splits", "partition_by", *CHOICES))
    formats.check_null(o)
    check_splits(o.options.get("splits"), o.uri)
    for name in CHOICES:
        _chosen(o, name)
    refuse_nowhere(o.rest, o.uri)
    by = folder_columns(o)
    if o.format is not None and o.schema is not None:
        formats.check_schema(o.format, of_files(o.uri, o.schema, by) if by else o.schema)


def open_files(o: InputRequest) -> Source:
    check_files(o)
    ours = ("splits", "partition_by", *CHOICES)
    options = {name: value for name, value in o.options.items() if name not in ours}
    splits = o.options.get("splits")
    watch, order = (_chosen(o, name) for name in CHOICES)
    pattern, by = pattern_of(o.rest, o.uri, o.format, o.bounded), folder_columns(o)
    if by:
        pattern = below(pattern, by)
    else:
        refuse_unnamed(pattern)
    format = o.format or format_of(pattern)
    if format is None:
        pattern.check()
        files = pattern.scan()  # says what is compressed
        fact = "the file names in {!r} do not say" if files else "there are no files in {!r} to say"
        raise InputError(
            "HR-INPUT-004",
            f"{fact.format(o.uri)} which format they have",
            f'Pass format="json"; known: {", ".join(formats.IN_FILES)}.',
        )
    own = None
    if format in OWN_SCHEMA and o.schema is None:
        pattern.check()  # a folder that is missing rather than a schema
        own = OWN_SCHEMA[format](pattern)
    is_guess = format == "csv" and (o.schema is None or o.guessed)
    if is_guess and o.schema is None:
        own = guessed_columns(pattern, o.uri, options)
    schema = own if own is not None else formats.needed_schema(o, format)
    if by and o.schema is None:
        schema = with_folder_columns(schema, by)
    held = of_files(o.uri, schema, by) if by else schema
    guess = GuessedColumns(o.home, o.uri, held) if is_guess else None
    formats.check_schema(format, held)
    layout: FileLayout
    if format in OWN_SCHEMA:
        layout = Parquet(held) if format == "parquet" else AvroRows(held)
    else:
        layout = PackedLines(Lines(format, held, **options, used=o.used if is_guess else None))
    if by:
        layout = InFolders(layout, schema, by)
    choice = SplitChoice(splits, by_time=o.bounded and o.time is not None and order is None)
    arrivals = Arrivals(
        pattern, layout, o.clock, choice, time=o.time, order=order, notified=watch == "notify"
    )
    return FilesSource(
        pattern, layout, schema, arrivals, bounded=o.bounded, home=o.home, guessed=guess
    )


def _chosen(o: InputRequest, option: str) -> str | None:
    value: str | None = o.options.get(option)
    if value is None or value in CHOICES[option]:
        return value
    known = " or ".join(f'{option}="{v}"' for v in CHOICES[option])
    raise InputError(
        "HR-INPUT-013",
        f"{o.uri!r} has {option}={value!r}",
        f"Write {known}.",
    )


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
