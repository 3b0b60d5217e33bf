"""Which files an input has: the path as the user wrote it, and what is there now.

Hidden names (a leading "_" or ".") are never read, so writers can prepare files under them.
A path that exists is taken as it is, whatever characters it has; only then is it a glob. In
folders and globs a file goes by its real path, so it is there once, however many symbolic
links lead to it. Two hard links are two files: they cannot be told from a file and its copy.
"""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import InputError
from headrace.sources.formats import EXTENSIONS
from headrace.sources.layout import unreadable

PACKED = (".gz", ".bz2", ".zst", ".xz", ".zip", ".lz4")


@dataclass(frozen=True, slots=True)
class ScannedFile:
    name: str  # the file's identity: its path below the pattern's root, if it is there
    path: str
    size: int
    mtime: int
    stamp: tuple[int, ...]  # changes whenever the file is written to or replaced


@dataclass(frozen=True, slots=True)
class PathPattern:
    uri: str
    root: Path
    match: str | None = None  # a glob below the root, or one file's name
    single: bool = False  # `match` is a name
    suffixes: tuple[str, ...] | None = None  # which files of a folder; None is all
    bounded: bool = False

    @property
    def place(self) -> str:
        """The path as it was written, but absolute."""
        return str(self.root / self.match if self.match else self.root)

    @property
    def watchable(self) -> bool:
        """Files may still come."""
        return not self.single

    def check(self) -> None:
        target = self.root / self.match if self.single and self.match else self.root
        if not _exists(target):
            raise InputError(
                "HR-INPUT-002",
                f"{str(target)!r} does not exist",
                f"Check the path in {self.uri!r}; it is taken relative to {os.getcwd()!r}.",
            )
        mode = os.R_OK if self.single else os.R_OK | os.X_OK
        if not os.access(target, mode):
            raise unreadable(str(target), PermissionError(13, "Permission denied"))

    def scan(self) -> list[ScannedFile]:
        """The files there are, oldest first; of the same age, by name."""
        files = {}
        for name, identity in self._names():
            file = self._scan_file(name, identity)
            if file is not None:
                files[file.name] = file
        return sorted(files.values(), key=lambda f: (f.mtime, f.name))

    def _names(self) -> Iterator[tuple[str, str]]:
        """The names that match, each with the identity of its file."""
        if self.single and self.match:
            yield self.match, self.match
            return
        real_root = os.path.join(os.path.realpath(self.root), "")
        for name, real in files_below(str(self.root), Path(self.match or "*").parts):
            yield name, real.removeprefix(real_root)

    def _scan_file(self, name: str, identity: str) -> ScannedFile | None:
        path = self.root / identity
        self._refuse_packed(name, self.root / name)
        if not self._has_suffix(name):
            return None
        try:
            s = path.stat()
        except FileNotFoundError:
            return None
        except OSError as cause:
            raise unreadable(str(path), cause) from cause
        if not stat.S_ISREG(s.st_mode):
            return None
        self._refuse_merged(path)
        stamp = (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_dev, s.st_ino)
        return ScannedFile(identity, str(path), s.st_size, s.st_mtime_ns, stamp)

    def _has_suffix(self, name: str) -> bool:
        return self.suffixes is None or name.lower().endswith(self.suffixes)

    def _refuse_packed(self, name: str, path: Path) -> None:
        inner, packing = os.path.splitext(name.lower())
        if packing in PACKED and self._has_suffix(inner):
            raise InputError(
                "HR-INPUT-004",
                f"{str(path)!r} is compressed, which cannot be read in parts",
                "Unpack it first; Parquet is compressed inside.",
            )

    def _refuse_merged(self, path: Path) -> None:
        merged = path.name.startswith("merged-") and (path.parent / "_commits").is_dir()
        if merged and not self.bounded:
            raise InputError(
                "HR-INPUT-014",
                f"{str(path.parent)!r} is an output whose files are merged as it grows",
                "Write that output with merge=False, or pass it on through a log topic.",
            )


def pattern_of(path: str, uri: str, format: str | None, bounded: bool) -> PathPattern:
    """The pattern that `path` means: a file, a folder, or a glob."""
    if not path:
        raise InputError("HR-INPUT-001", f"{uri!r} names no path", 'Write "files:folder/*.json".')
    full = Path(os.path.abspath(os.path.expanduser(path)))
    if full.is_dir():
        return PathPattern(uri, full, suffixes=_suffixes(full, format), bounded=bounded)
    if full.exists() or not glob.has_magic(path):
        if path.endswith("/") or (not full.exists() and not full.suffix):
            return PathPattern(uri, full, bounded=bounded)  # a folder that is still to come
        return PathPattern(uri, full.parent, full.name, single=True, bounded=bounded)
    parts = full.parts
    plain = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root = Path(*parts[:plain])
    return PathPattern(uri, root, str(Path(*parts[plain:])), bounded=bounded)


def format_of(pattern: PathPattern) -> str | None:
    """The format according to the names of the files; None if they name none, or several."""
    names = [pattern.match] if pattern.match and "." in pattern.match else []
    names = names if names and pattern.single else [f.name for f in pattern.scan()] or names
    kinds = {EXTENSIONS.get(Path(n).suffix.lower()) for n in names}
    return kinds.pop() if len(kinds) == 1 else None


def _suffixes(folder: Path, format: str | None) -> tuple[str, ...] | None:
    """Without a declared format, a folder is read for the only format that its names have."""
    if format is not None:
        return None
    kinds = {EXTENSIONS.get(p.suffix.lower()) for p in folder.iterdir() if not hidden(p.name)}
    formats = kinds - {None}
    if len(formats) != 1:
        return None
    return tuple(ext for ext, kind in EXTENSIONS.items() if kind in formats)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as cause:
        raise unreadable(str(path), cause) from cause


# The files below a folder whose names fit a pattern; links are followed, loops are not.
#
# `**` stands for any number of folders. A folder that is reached in several ways is
# visited once, so a link to a folder above ends there. Names with a leading "_" or "." are never
# followed. A folder that may not be read is an error, not an empty one.


ANY_FOLDERS = "**"
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # there is nothing, or it was removed


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
            if _is_type(entry, folders=True):
                if part == ANY_FOLDERS or not last:
                    todo.append((real, name, at if part == ANY_FOLDERS else at + 1))
            elif last and _is_type(entry, folders=False):
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


def _is_type(entry: os.DirEntry[str], *, folders: bool) -> bool:
    try:
        return entry.is_dir() if folders else entry.is_file()
    except OSError as cause:
        if cause.errno in _GONE:
            return False
        raise unreadable(entry.path, cause) from cause
