"""The files below a folder whose names fit a pattern; links are followed, loops are not.

`**` stands for any number of folders. A folder that is reached in several ways is
visited once, so a link to a folder above ends there. Names with a leading "_" or "." are never
followed. A folder that may not be read is an error, not an empty one.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from headrace.sources.layout import unreadable

ANY_FOLDERS = "**"
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # there is nothing, or it was removed


class Found(NamedTuple):
    name: str  # below the folder that is walked, by way of links
    real: str  # its real path


class WalkedFolder(NamedTuple):
    """A folder that is walked, and which part of the pattern its entries must fit."""

    real: str
    name: str
    at: int


class FolderEntry(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    def is_symlink(self) -> bool: ...

    def is_dir(self) -> bool: ...

    def is_file(self) -> bool: ...


class FolderWalk:
    """One walk; `enter` is told of each folder before its entries are read."""

    def __init__(
        self, parts: Sequence[str], enter: Callable[[WalkedFolder], None] = lambda place: None
    ) -> None:
        self._parts, self._enter = parts, enter
        self._todo: list[WalkedFolder] = []
        self._seen: set[tuple[str, int]] = set()
        self.linked = False  # there was a symbolic link that fits

    def below(self, root: str) -> Iterator[Found]:
        """All files."""
        self._todo.append(WalkedFolder(os.path.realpath(root), "", 0))
        return self._rest()

    def again(self, place: WalkedFolder, name: str) -> Iterator[Found]:
        """What a place has under one name now: a file, or those of a folder."""
        found = self._step(place, _Named(name, os.path.join(place.real, name)))
        if found is not None:
            yield found
        yield from self._rest()

    def _rest(self) -> Iterator[Found]:
        while self._todo:
            place = self._todo.pop()
            if (place.real, place.at) in self._seen:
                continue
            self._seen.add((place.real, place.at))
            if self._parts[place.at] == ANY_FOLDERS and place.at < len(self._parts) - 1:
                self._todo.append(place._replace(at=place.at + 1))
            self._enter(place)
            for entry in _entries(place.real):
                found = self._step(place, entry)
                if found is not None:
                    yield found

    def _step(self, place: WalkedFolder, entry: FolderEntry) -> Found | None:
        """The file that the entry is; a folder is walked later."""
        part, last = self._parts[place.at], place.at == len(self._parts) - 1
        if hidden(entry.name) or not _fits(entry.name, part):
            return None
        name, real = os.path.join(place.name, entry.name), entry.path
        if entry.is_symlink():
            self.linked, real = True, os.path.realpath(real)
        if _is_type(entry, folders=True):
            if part == ANY_FOLDERS or not last:
                at = place.at if part == ANY_FOLDERS else place.at + 1
                self._todo.append(WalkedFolder(real, name, at))
        elif last and _is_type(entry, folders=False):
            return Found(name, real)
        return None


class _Named(NamedTuple):
    """An entry by its path, as `os.scandir` gives them."""

    name: str
    path: str

    def is_symlink(self) -> bool:
        return os.path.islink(self.path)

    def is_dir(self) -> bool:
        return stat.S_ISDIR(os.stat(self.path).st_mode)

    def is_file(self) -> bool:
        return stat.S_ISREG(os.stat(self.path).st_mode)


def hidden(name: str) -> bool:
    return name[:1] in ("_", ".")


def _fits(name: str, part: str) -> bool:
    return part in ("*", ANY_FOLDERS) or fnmatch.fnmatchcase(name, part)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as cause:
        if cause.errno in GONE:
            return []
        raise unreadable(folder, cause) from cause


def _is_type(entry: FolderEntry, *, folders: bool) -> bool:
    try:
        return entry.is_dir() if folders else entry.is_file()
    except OSError as cause:
        if cause.errno in GONE:
            return False
        raise unreadable(entry.path, cause) from cause
