"""Clean-up of a job's folder: old manifests, then the files that no manifest refers to.

A file in `runs/` or `staged/` is referred to if its path or its name is anywhere in the JSON of a
manifest that is retained, or of a savepoint. Others are deleted once they are older than the
oldest retained manifest: a running task may just have written them. Manifests are deleted before
files, and files only when all expired manifests are gone, so a manifest that exists has all its
files. While a savepoint is being created, or one cannot be read, no file is deleted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.files import TEMPORARY
from headrace.state.faults import point
from headrace.state.resends import FOLDER as RESENDS
from headrace.state.savepoints import FOLDER as SAVEPOINTS
from headrace.state.savepoints import Pins, Savepoint
from headrace.state.sealed import named_failures

RUNS, STAGED = "runs", "staged"


class Pruner:
    """Deletes; caches the names in each retained manifest, since manifests never change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._named: dict[int, frozenset[str]] = {}
        self._pins = Pins(folder)
        self._pinned: tuple[Sequence[Savepoint | None], frozenset[str]] = ((), frozenset())

    def prune(
        self,
        epochs: Sequence[int],
        keep: int,
        most: int,
        path_of: Callable[[int], Path],
        read: Callable[[int], Mapping[str, Any]],
    ) -> list[str]:
        with self._pins.held() as savepoints:
            if savepoints is None:
                return []
            return self._prune(epochs, keep, most, path_of, read, savepoints)

    def _prune(
        self,
        epochs: Sequence[int],
        keep: int,
        most: int,
        path_of: Callable[[int], Path],
        read: Callable[[int], Mapping[str, Any]],
        savepoints: Sequence[Savepoint | None],
    ) -> list[str]:
        old, retained = epochs[:-keep], epochs[-keep:]
        paths = [path_of(epoch) for epoch in old[:most]]
        removed = [self._remove(path, "prune.manifest") for path in paths]
        if len(old) >= most or not retained or None in savepoints:
            return removed
        named = self._names(retained, read) | self._names_pinned(savepoints)
        with named_failures(path_of(retained[0])):
            before = path_of(retained[0]).stat().st_mtime_ns
        for path in self._leftovers(named, before):
            if len(removed) >= most:
                break
            removed.append(self._remove(path, "prune.file"))
        return removed

    def _names(
        self, retained: Sequence[int], read: Callable[[int], Mapping[str, Any]]
    ) -> frozenset[str]:
        for epoch in retained:
            if epoch not in self._named:
                self._named[epoch] = frozenset(strings_in(read(epoch)["body"]))
        self._named = {epoch: self._named[epoch] for epoch in retained}
        return frozenset().union(*self._named.values())

    def _names_pinned(self, savepoints: Sequence[Savepoint | None]) -> frozenset[str]:
        if list(self._pinned[0]) != list(savepoints):
            named = (
                strings_in(one.manifest.to_json()["body"]) for one in savepoints if one is not None
            )
            self._pinned = savepoints, frozenset(text for texts in named for text in texts)
        return self._pinned[1]

    def _leftovers(self, named: frozenset[str], before: int) -> Iterator[Path]:
        for path in (*self._unnamed(named), *self._temporary()):
            with suppress(FileNotFoundError):  # another process was quicker
                if path.stat().st_mtime_ns < before:
                    yield path

    def _unnamed(self, named: frozenset[str]) -> Iterator[Path]:
        for folder in (self._folder / RUNS, self._folder / STAGED):
            for path in files_in(folder):
                relative = path.relative_to(self._folder).as_posix()
                if relative not in named and path.name not in named:
                    yield path

    def _temporary(self) -> Iterator[Path]:
        """What a crash left of a sealed file that was not finished."""
        for name in (".", "epochs", "fence", SAVEPOINTS, RESENDS):
            yield from (self._folder / name).glob(f"{TEMPORARY}*")

    def _remove(self, path: Path, step: str) -> str:
        with named_failures(path):
            path.unlink(missing_ok=True)
        point(step)
        return str(path.relative_to(self._folder))


def files_in(folder: Path) -> Iterator[Path]:
    for where, _, names in os.walk(folder):
        yield from (Path(where) / name for name in names)


def strings_in(value: Any) -> Iterator[str]:
    """Every string in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for inner in value.values():
            yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)
