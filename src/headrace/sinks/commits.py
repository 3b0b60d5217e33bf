"""What a folder of output files holds: records of published epochs, and snapshots of them.

One chain of records per output. A record adds the files of one epoch; a snapshot names all
files up to its epoch and may replace several by one merged file. A file counts when a record
or the newest snapshot names it, so an epoch appears whole, and merging is one step too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.errors import StateError
from headrace.sinks.durable import folder_for, named
from headrace.sinks.staging import safe_name
from headrace.state.files import create_sealed, read_sealed

FOLDER = "_commits"
KIND = "output-commit"
_NAME = re.compile(r"(\d{12,})\.([0-9a-f]+)\.(all\.)?json")


class Replaced(Exception):
    """A record, or a file, is gone because a newer snapshot has taken its place."""


@dataclass(frozen=True, slots=True)
class Part:
    """A visible file of an output."""

    file: str
    rows: int
    bytes: int
    epoch: int
    level: int = 0  # how often its rows have been merged


@dataclass(frozen=True, slots=True)
class Record:
    epoch: int
    chain: str
    whole: bool  # a snapshot: stands for everything before it
    parts: tuple[Part, ...]
    gone: tuple[str, ...] = ()  # replaced by this snapshot's merged files
    job: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class Name:
    file: str
    epoch: int
    chain: str
    whole: bool


class Commits:
    def __init__(self, target: Path) -> None:
        self._folder = target / FOLDER

    def names(self, chain: str | None = None) -> list[Name]:
        """The records there are, oldest first, a snapshot after its epoch's record."""
        found = [_NAME.fullmatch(name) for name in self._list()]
        names = [Name(m[0], int(m[1]), m[2], bool(m[3])) for m in found if m]
        mine = [n for n in names if chain in (None, n.chain)]
        return sorted(mine, key=lambda n: (n.epoch, n.whole, n.chain))

    def settled(self) -> list[Name]:
        """The records there are, in a list that was not made while they changed.

        A folder is not listed in one moment: a snapshot could be missed and the records it
        replaces be gone. Two equal lists in a row cannot both have missed it.
        """
        last, names = None, self.names()
        while names != last:
            last, names = names, self.names()
        return names

    def chains(self) -> list[str]:
        return sorted({n.chain for n in self.names()})

    def current(self, chain: str) -> list[Record]:
        """The newest snapshot, if there is one, and the records after it."""
        return [self.read(n) for n in in_force(self.names(chain))]

    def read(self, name: Name) -> Record:
        path = self._folder / name.file
        with named(path):
            body = _sealed(path)
        parts = tuple(Part(**p) for p in body.pop("parts"))
        for part in parts:
            safe_name(part.file)
        return Record(**{**body, "parts": parts, "gone": tuple(body["gone"])})

    def write(self, record: Record) -> None:
        """Add a record durably; one that is there already stays."""
        path = folder_for(self._folder) / _file_of(record)
        body: dict[str, Any] = asdict(record)
        with named(path):
            create_sealed(path, KIND, body)

    def remove(self, names: Iterable[Name]) -> None:
        for name in names:
            with named(self._folder / name.file):
                (self._folder / name.file).unlink(missing_ok=True)

    def _list(self) -> list[str]:
        with named(self._folder):
            return [p.name for p in self._folder.iterdir()] if self._folder.is_dir() else []


def _sealed(path: Path) -> dict[str, Any]:
    try:
        return read_sealed(path, KIND)
    except StateError as cause:
        if path.exists():
            raise
        raise Replaced(path.name) from cause


def in_force(names: list[Name]) -> list[Name]:
    """Of one chain's names, oldest first: the newest snapshot and what came after it."""
    snapshot = max((i for i, n in enumerate(names) if n.whole), default=0)
    return names[snapshot:]


def parts_of(records: Iterable[Record]) -> Iterator[Part]:
    """The files that records in force name, each once, in order of epoch."""
    seen = {part.file: part for record in records for part in record.parts}
    yield from sorted(seen.values(), key=lambda p: (p.epoch, p.file))


def _file_of(record: Record) -> str:
    return f"{record.epoch:012d}.{record.chain}.{'all.' if record.whole else ''}json"
