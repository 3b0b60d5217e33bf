"""The files below a folder whose names fit a pattern; links are followed, loops are not.

`**` stands for any number of folders. A folder that is reached in several ways is looked
into once, so a link to a folder above ends there. Names with a leading "_" or "." are never
followed. What may not be looked into is an error, not an absence.
"""

from __future__ import annotations

import errno
import fnmatch
import os
from collections.abc import Iterator, Sequence

from headrace.sources.layout import unreadable

ANY_FOLDERS = "**"
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # there is nothing, or nothing any more


def hidden(name: str) -> bool:
    return name[:1] in ("_", ".")


def files_below(root: str, parts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The name of each file that fits, below `root`, and its real path."""
    seen: set[tuple[str, int]] = set()
    todo = [(os.path.realpath(root), "", 0)]  # a real folder, its name, the part that is next
    while todo:
        folder, below, at = todo.pop()
        if (folder, at) in seen:
            continue
        seen.add((folder, at))
        part, last = parts[at], at == len(parts) - 1
        if part == ANY_FOLDERS and not last:
            todo.append((folder, below, at + 1))
        for entry in _entries(folder):
            if hidden(entry.name) or not _fits(entry.name, part):
                continue
            name, real = os.path.join(below, entry.name), _real(entry)
            if _asked(entry, folders=True):
                if part == ANY_FOLDERS or not last:
                    todo.append((real, name, at if part == ANY_FOLDERS else at + 1))
            elif last and _asked(entry, folders=False):
                yield name, real


def _fits(name: str, part: str) -> bool:
    return part == ANY_FOLDERS or fnmatch.fnmatchcase(name, part)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as cause:
        if cause.errno in _GONE:
            return []
        raise unreadable(folder, cause) from cause


def _real(entry: os.DirEntry[str]) -> str:
    return os.path.realpath(entry.path) if entry.is_symlink() else entry.path


def _asked(entry: os.DirEntry[str], *, folders: bool) -> bool:
    try:
        return entry.is_dir() if folders else entry.is_file()
    except OSError as cause:
        if cause.errno in _GONE:
            return False
        raise unreadable(entry.path, cause) from cause
