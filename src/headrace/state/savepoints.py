"""Savepoints: manifests that the user has named, pinned with all that a restore needs.

    <folder>/savepoints/<name>.json   a copy of the manifest of an epoch

A savepoint pins the runs that its manifest names, and of inputs that store rows in the job's
folder the rows from its offsets on. Whoever removes such things looks at the savepoints first,
under a shared lock of `job.json`; whoever creates one holds that lock alone, and sees that nothing
is gone yet. A savepoint that cannot be read pins everything: what it needs is not known.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.errors import StateError, did_you_mean
from headrace.files import close_lock, take_lock
from headrace.state import sealed
from headrace.state.faults import point
from headrace.state.manifest import Manifest

FOLDER, _KIND = "savepoints", "savepoint"  # at rest
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A named manifest."""

    name: str
    created: int
    slots: int
    manifest: Manifest

    def to_json(self) -> dict[str, Any]:
        manifest = self.manifest.to_json()
        facts = {"name": self.name, "created": self.created, "slots": self.slots}
        return {**facts, "manifest": manifest}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Savepoint:
        manifest = Manifest.from_json(content["manifest"])
        return Savepoint(content["name"], content["created"], content["slots"], manifest)


class SavepointFolder:
    """The savepoints of the job in `folder`."""

    def __init__(self, folder: str | Path) -> None:
        self.job = Path(folder)
        self.path = self.job / FOLDER

    def names(self) -> list[str]:
        """The names there are, also of savepoints that are damaged."""
        if not self.path.is_dir():
            return []
        with sealed.named_failures(self.path):
            files = sorted(os.listdir(self.path))
        stems = (file.removesuffix(_SUFFIX) for file in files if file.endswith(_SUFFIX))
        return [stem for stem in stems if _NAME.fullmatch(stem)]

    def read(self, name: str) -> Savepoint:
        """A savepoint by its name; an error if there is none, or if it is damaged."""
        if name not in (names := self.names()):
            raise StateError(
                "HR-SAVEPOINT-002",
                f"there is no savepoint {name!r} in {str(self.job)!r}",
                did_you_mean(name, names)
                + (f"There are: {', '.join(names)}." if names else "None was created yet."),
            )
        path = self._path(name)
        content = sealed.read_sealed(path, _KIND)
        try:
            savepoint = Savepoint.from_json(content)
        except (KeyError, TypeError, ValueError) as error:
            raise sealed.corrupt(path, f"it does not say {error}") from error
        if savepoint.name != name:
            raise sealed.corrupt(path, f"it is the savepoint {savepoint.name!r}")
        return savepoint

    def refuse(self, name: str) -> None:
        """Raise StateError unless a savepoint of this name can be created."""
        if not _NAME.fullmatch(name):
            raise StateError(
                "HR-SAVEPOINT-001",
                f"{name!r} cannot be the name of a savepoint",
                "A name has letters, digits, '-', '_' and '.', begins with a letter or a digit, "
                "and is no longer than 80.",
            )
        if name in self.names():
            raise StateError(
                "HR-SAVEPOINT-003",
                f"there is a savepoint {name!r} in {str(self.job)!r} already",
                "Choose another name; or delete the old one with `headrace savepoint delete`.",
            )

    def add(self, savepoint: Savepoint) -> None:
        """Store a savepoint durably; what it needs must be pinned already, by `creating`."""
        self.refuse(savepoint.name)
        sealed.make_folder(self.path)
        point("savepoint.checked")
        if not sealed.create_sealed(self._path(savepoint.name), _KIND, savepoint.to_json()):
            self.refuse(savepoint.name)

    def rewrite(self, savepoint: Savepoint) -> None:
        """Put a savepoint in the place of the one of its name: the same, in other files."""
        sealed.rewrite_sealed(self._path(savepoint.name), _KIND, savepoint.to_json())

    def remove(self, name: str) -> None:
        """Remove a savepoint, which may be damaged; what it alone has pinned is tidied away."""
        if name not in self.names():
            self.read(name)
        with sealed.named_failures(self._path(name)):
            self._path(name).unlink(missing_ok=True)
        point("savepoint.removed")

    def _path(self, name: str) -> Path:
        return self.path / f"{name}{_SUFFIX}"


def without_outputs(manifest: Manifest) -> Manifest:
    """What a savepoint stores: what was staged for outputs is published, and not needed again."""
    return replace(manifest, outputs={}, epoch_counts={}, timing={})


Held = Mapping[str, Any]  # by split: the offset from which on rows are pinned; others: all rows


class Pins:
    """What the savepoints of a folder pin; reads those that it has not read yet."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = SavepointFolder(folder)
        self._read: dict[tuple[str, int, int], Savepoint | None] = {}

    @contextmanager
    def held(self) -> Iterator[Sequence[Savepoint | None] | None]:
        """The savepoints, None for a damaged one, while no other can be created.

        None at all if one is being created now: then nothing may be removed.
        """
        lock = _locked(self._folder.job, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if lock is None:
            yield None
            return
        try:
            yield self._savepoints()
        finally:
            close_lock(lock)

    def _savepoints(self) -> list[Savepoint | None]:
        now = dict[tuple[str, int, int], Savepoint | None]()
        for name in self._folder.names():
            with suppress(FileNotFoundError):  # deleted meanwhile
                stat = (self._folder.path / f"{name}{_SUFFIX}").stat()
                key = (name, stat.st_mtime_ns, stat.st_ino)
                now[key] = self._read[key] if key in self._read else self._try(name)
        self._read = now
        return list(now.values())

    def _try(self, name: str) -> Savepoint | None:
        try:
            return self._folder.read(name)
        except StateError:
            return None


def held_offsets(savepoints: Sequence[Savepoint | None], input: str) -> Held | None:
    """From which offsets on the rows of an input, by its id, are pinned; None if none are."""
    if not savepoints:
        return None
    all_held = [_offsets(one.manifest, input) if one is not None else {} for one in savepoints]
    splits = set[str].intersection(*(set(held) for held in all_held))
    return {split: min(held[split] for held in all_held) for split in splits}


def _offsets(manifest: Manifest, input: str) -> dict[str, int]:
    names = {name for name, facts in manifest.reads.items() if facts.id == input}
    return {s.name: s.at for s in manifest.splits if s.input in names and isinstance(s.at, int)}


@contextmanager
def creating(folder: str | Path) -> Iterator[None]:
    """While nothing is removed from the job's folder that a savepoint may need."""
    lock = _locked(Path(folder), fcntl.LOCK_EX)
    try:
        yield
    finally:
        if lock is not None:
            close_lock(lock)


def _locked(folder: Path, how: int) -> int | None:
    """A lock of the job's file; None if another has it and we do not wait."""
    path = folder / "job.json"
    with sealed.named_failures(path):
        return take_lock(path, how, os.O_RDONLY)
