"""What a folder of output files holds: records of published epochs, and snapshots of them.

One chain of records per output. A record adds the files of one epoch and names the epoch that
the record before it has, so a missing one is noticed; a snapshot names all files up to its
epoch and may replace several by one merged file. A file counts when a record or the newest
snapshot names it, so an epoch appears whole, and merging is one step too.

A snapshot has a *slot*, its epoch and a revision (0; going back makes the next ones). Slots
only grow, and if two drivers write the same slot, the first wins: the other's file is not created.
Whatever an old driver does late, a newer snapshot stays in force.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from headrace.errors import OutputError, StateError
from headrace.sinks.durable import damaged, folder_for, named, remove
from headrace.sinks.partitions import safe_place
from headrace.state.sealed import create_sealed, read_sealed, rewrite_sealed

FOLDER = "_commits"
KIND = "output-commit"
PLAIN, VERSION = 4, 5  # without folders and periods; with them
NEVER = -1  # the epoch before the first record
TRIES = 20  # merges remove files a few times a minute, never twenty times in a row

_NAME = re.compile(r"(\d{12,})\.([0-9a-f]+)\.(?:all\.(\d+)\.)?json")
_FILE = re.compile(r"(?:part-(\d{12,})|merged-(\d{12,})-(\d+))-([0-9a-f]{12})-.*")

T = TypeVar("T")


class Replaced(Exception):
    """A record or a file was removed because a newer snapshot replaced it."""


class Slot(NamedTuple):
    """The position of a snapshot, or of a file that one may name, in the order of a chain."""

    epoch: int
    revision: int


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A visible file of an output."""

    file: str
    rows: int
    bytes: int
    crc: int
    schema: str  # the digest of its columns
    epoch: int  # of its first rows
    last: int  # of its last ones
    timeline: str  # of all of them
    level: int = 0  # how often its rows have been merged
    folder: str = ""  # that of its partition, below the output's
    until: int = 0  # when the period ends in which it may be merged, in ms; 0: it has none

    @property
    def place(self) -> str:
        """Its name below the output's folder."""
        return f"{self.folder}/{self.file}" if self.folder else self.file


@dataclass(frozen=True, slots=True)
class Record:
    epoch: int
    chain: str
    parts: tuple[OutputFile, ...]
    before: int  # the epoch of the record, or snapshot, before this one
    token: int  # of the driver that wrote it
    job: str
    output: str
    timeline: str  # of the driver that wrote it
    revision: int | None = None  # of a snapshot: it stands for everything before it
    gone: tuple[str, ...] = ()  # places of files that this snapshot's merged files replace
    closed: int = 0  # the period that has ended, whose files this snapshot has merged

    @property
    def version(self) -> int:
        """Of its format: without folders and periods it is as earlier releases know it."""
        dated = self.closed or any(p.folder or p.until for p in self.parts)
        return VERSION if dated or any("/" in place for place in self.gone) else PLAIN


@dataclass(frozen=True, slots=True)
class Name:
    file: str
    epoch: int
    chain: str
    revision: int | None

    @property
    def is_snapshot(self) -> bool:
        return self.revision is not None

    @property
    def slot(self) -> Slot:
        return Slot(self.epoch, -1 if self.revision is None else self.revision)


class Commits:
    def __init__(self, target: Path) -> None:
        self.folder = target / FOLDER

    def names(self, chain: str | None = None) -> list[Name]:
        """The records there are, oldest first, a snapshot after its epoch's record.

        A folder is not listed in one moment: a snapshot could be missed and the records it
        replaces be gone. Two equal lists in a row cannot both have missed it.
        """
        last, names = None, self._names(chain)
        while names != last:
            last, names = names, self._names(chain)
        return names

    def _names(self, chain: str | None) -> list[Name]:
        matches = [_NAME.fullmatch(name) for name in self._list()]
        names = [Name(m[0], int(m[1]), m[2], int(m[3]) if m[3] else None) for m in matches if m]
        own = [n for n in names if chain in (None, n.chain)]
        return sorted(own, key=lambda n: (n.slot, n.chain))

    def chains(self) -> list[str]:
        return sorted({n.chain for n in self.names()})

    def of_job(self, job: str) -> dict[str, list[Record]]:
        """The records in force of each chain that a job has here."""
        chains = {chain: self.current(chain) for chain in self.chains()}
        return {chain: rs for chain, rs in chains.items() if rs and rs[-1].job == job}

    def current(self, chain: str) -> list[Record]:
        """The newest snapshot, if there is one, and the records after it."""
        return retried(self.folder, lambda: self.read_chain(in_force(self.names(chain))))

    def read_chain(self, names: list[Name]) -> list[Record]:
        """The records of `names`, which are in force; an error if one in between is missing."""
        records = [self.read(n) for n in names]
        for before, record in zip([None, *records], records, strict=False):
            previous = NEVER if before is None else before.epoch
            if record.revision is None and record.before != previous:
                raise OutputError(
                    "HR-OUTPUT-005",
                    f"a record of epoch {record.before} is missing in {str(self.folder)!r}",
                    "Restore the folder from a backup; only the job itself may remove "
                    "what is in it.",
                )
        return records

    def read(self, name: Name) -> Record:
        path = self.folder / name.file
        with named(path):
            body = _sealed(path)
        if body.pop("version", 1) not in (PLAIN, VERSION):
            raise OutputError(
                "HR-OUTPUT-007",
                f"{str(path)!r} was written by another version of Headrace",
                "Run the job with that version, or write to a new folder.",
            )
        parts = tuple(OutputFile(**p) for p in body.pop("parts"))
        record = Record(**{**body, "parts": parts, "gone": tuple(body["gone"])})
        for place in (*(p.place for p in parts), *record.gone):
            safe_place(place)
        if _file_of(record) != name.file:
            raise OutputError(
                "HR-OUTPUT-007",
                f"{str(path)!r} is a record of epoch {record.epoch}, under another name",
                "Restore the file from a backup.",
            )
        return record

    def write(self, record: Record) -> bool:
        """Add a record durably; False if one is there already, which stays."""
        path = folder_for(self.folder) / _file_of(record)
        with named(path):
            return create_sealed(path, KIND, _body_of(record))

    def rewrite(self, record: Record) -> None:
        """Put a record in the place of the one of its name, durably."""
        path = self.folder / _file_of(record)
        with named(path):
            rewrite_sealed(path, KIND, _body_of(record))

    def remove(self, names: Iterable[Name]) -> None:
        for name in names:
            remove(self.folder / name.file)

    def _list(self) -> list[str]:
        with named(self.folder):
            return [p.name for p in self.folder.iterdir()] if self.folder.is_dir() else []


def _body_of(record: Record) -> dict[str, Any]:
    body: dict[str, Any] = {"version": record.version, **asdict(record)}
    if record.version == PLAIN:
        for later in (body, *body["parts"]):
            for name in ("closed", "folder", "until"):
                later.pop(name, None)
    return body


def _sealed(path: Path) -> dict[str, Any]:
    try:
        return read_sealed(path, KIND)
    except StateError as cause:
        if path.exists():
            raise
        raise Replaced(path.name) from cause


def retried(place: Path, work: Callable[[], T]) -> T:
    """The result of `work`, repeated while what it reads is replaced."""
    for _ in range(TRIES):
        try:
            return work()
        except (Replaced, FileNotFoundError) as replaced:
            missing = replaced
    raise OutputError(
        "HR-OUTPUT-005",
        f"files that the records in {str(place)!r} name are gone: {missing}",
        "Restore them from a backup; only the job itself may remove output files.",
    )


def in_force(names: list[Name]) -> list[Name]:
    """Of one chain's names, oldest first: the newest snapshot and what came after it."""
    snapshot = max((i for i, n in enumerate(names) if n.is_snapshot), default=0)
    return names[snapshot:]


def parts_of(records: Iterable[Record]) -> Iterator[OutputFile]:
    """The files that records in force name, each once, in order of epoch."""
    seen = {part.file: part for record in records for part in record.parts}
    yield from sorted(seen.values(), key=lambda p: (p.epoch, p.file))


def reached(records: Iterable[Record]) -> dict[str, int]:
    """By timeline: the last epoch of which there are rows."""
    epochs = dict[str, int]()
    for part in parts_of(records):
        epochs[part.timeline] = max(part.last, epochs.get(part.timeline, part.last))
    return epochs


def owner_of(file: str) -> tuple[str, Slot] | None:
    """The chain whose output file has that name, and its slot; None for any other file."""
    match = _FILE.fullmatch(file.rpartition("/")[2])
    if match is None:
        return None
    part, merged, revision, chain = match.groups()
    return chain, Slot(int(part or merged), int(revision or 0))


def newest_period(parts: Iterable[OutputFile]) -> int:
    """When the period of the newest rows ends; 0 if they have none."""
    return max(((p.last, p.until) for p in parts), default=(0, 0))[1]


def shown_files(target: Path) -> list[str]:
    """The places of files that a globbing reader finds, also in the folders of partitions."""
    with named(target):
        return sorted(_shown(target, "")) if target.is_dir() else []


def _shown(folder: Path, below: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    if below and any(e.name == FOLDER for e in entries):
        return  # an output of its own
    for entry in entries:
        if entry.name[0] in "._":
            continue
        if not entry.is_dir():
            yield below + entry.name
        elif "=" in entry.name:
            yield from _shown(folder / entry.name, f"{below}{entry.name}/")


def _file_of(record: Record) -> str:
    infix = "" if record.revision is None else f"all.{record.revision}."
    return f"{record.epoch:012d}.{record.chain}.{infix}json"


# The epochs of the rows in a merged file: runs of (epoch, rows) in a sealed file of its own,
# written before the snapshot that names the merged file and removed after it. Rows are merged in
# order, so a few numbers are enough; they make going back exact.


SPANS = "output-rows"
SPANS_SUFFIX = ".rows"

Spans = list[tuple[int, int]]  # (epoch, rows), in order of rows


def spans_of(folder: Path, part: OutputFile) -> Spans:
    if not part.level:
        return [(part.epoch, part.rows)]
    path = folder / f"{part.file}{SPANS_SUFFIX}"
    if not path.exists():
        raise Replaced(path.name)
    with named(path):
        spans = [(epoch, rows) for epoch, rows in read_sealed(path, SPANS)["spans"]]
    if sum(rows for _, rows in spans) != part.rows:
        raise damaged(path, f"it does not tell the epochs of {part.rows} rows")
    return spans


def store_spans(folder: Path, file: str, spans: Iterable[tuple[int, int]]) -> None:
    runs = groupby(spans, key=lambda span: span[0])
    joined = [(epoch, sum(rows for _, rows in run)) for epoch, run in runs]
    path = folder_for(folder) / f"{file}{SPANS_SUFFIX}"
    with named(path):
        create_sealed(path, SPANS, {"spans": joined})
