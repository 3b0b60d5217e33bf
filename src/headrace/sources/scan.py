"""Which files an input has: the path as the user wrote it, and what is there now.

Hidden names (a leading "_" or ".") are never read, so writers can prepare files under them.
A path that exists is taken as it is, whatever characters it has; only then is it a glob. In
folders and globs a file goes by its real path, so it is there once, however many symbolic
links lead to it. Two hard links are two files: they cannot be told from a file and its copy.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headrace.errors import InputError
from headrace.sources.formats import EXTENSIONS
from headrace.sources.layout import CODECS, unreadable
from headrace.sources.walk import GONE, FolderWalk, Found, WalkedFolder, hidden

PACKED = (".gz", ".bz2", ".zst", ".xz", ".zip", ".lz4")
LINES = ("json", "csv", "text", "bytes")  # formats whose files may be compressed


class ScannedFile(NamedTuple):
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
    format: str | None = None  # if it is declared

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
        return sorted(self.all_files(self.walk()), key=by_time)

    def walk(self, enter: Callable[[WalkedFolder], None] = lambda place: None) -> FolderWalk:
        return FolderWalk(Path(self.match or "*").parts, enter)

    def all_files(self, walk: FolderWalk) -> list[ScannedFile]:
        """The files there are, in no order."""
        if self.single:
            file = self.file(self.match or "")
            return [file] if file is not None else []
        return self.scanned(walk.below(str(self.root)))

    def scanned(self, found: Iterable[Found]) -> list[ScannedFile]:
        """What was found, each file once."""
        root = os.path.join(os.path.realpath(self.root), "")
        files = {}
        for name, real in found:
            file = self._scan_file(name, real.removeprefix(root))
            if file is not None:
                files[file.name] = file
        return list(files.values())

    def file(self, name: str) -> ScannedFile | None:
        """The file of this name that no link leads to, if it is there."""
        return self._scan_file(name, name)

    def _scan_file(self, name: str, identity: str) -> ScannedFile | None:
        path = os.path.join(str(self.root), identity)
        self._refuse_packed(name)
        if not self._has_suffix(name):
            return None
        try:
            s = os.stat(path)
        except OSError as cause:
            if cause.errno in GONE:
                return None
            raise unreadable(path, cause) from cause
        if not stat.S_ISREG(s.st_mode):
            return None
        self._refuse_merged(path)
        stamp = (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_dev, s.st_ino)
        return ScannedFile(identity, path, s.st_size, s.st_mtime_ns, stamp)

    def _has_suffix(self, name: str) -> bool:
        return self.suffixes is None or _unpacked_name(name).endswith(self.suffixes)

    def _refuse_packed(self, name: str) -> None:
        inner, packing = os.path.splitext(name.lower())
        if packing not in PACKED or not self._has_suffix(inner):
            return
        format = self.format or EXTENSIONS.get(os.path.splitext(inner)[1])
        if packing not in CODECS or format not in (None, *LINES):
            raise InputError(
                "HR-INPUT-004",
                f"{str(self.root / name)!r} is compressed in a way that cannot be read",
                f"Unpack it first: files of lines may be {', '.join(CODECS)}; Parquet and Avro are "
                "compressed inside.",
            )

    def _refuse_merged(self, path: str) -> None:
        home, name = os.path.split(path)
        if not name.startswith("merged-") or self.bounded:
            return
        while "=" in os.path.basename(home) and not os.path.isdir(os.path.join(home, "_commits")):
            home = os.path.dirname(home)  # of a partition
        if os.path.isdir(os.path.join(home, "_commits")):
            raise InputError(
                "HR-INPUT-014",
                f"{home!r} is an output whose files are merged as it grows, or were written again "
                "when a key was forgotten",
                "Write that output with merge=False, or pass it on through a log topic; after a "
                "`headrace forget` only a topic can be read on.",
            )


def by_time(file: ScannedFile) -> tuple[int, str]:
    return file.mtime, file.name


def by_name(file: ScannedFile) -> str:
    return file.name


def refuse_nowhere(path: str, uri: str) -> None:
    if not path:
        raise InputError("HR-INPUT-001", f"{uri!r} names no path", 'Write "files:folder/*.json".')


def pattern_of(path: str, uri: str, format: str | None, bounded: bool) -> PathPattern:
    """The pattern that `path` means: a file, a folder, or a glob."""
    refuse_nowhere(path, uri)
    full = Path(os.path.abspath(os.path.expanduser(path)))
    if full.is_dir():
        suffixes = _suffixes(full, format)
        return PathPattern(uri, full, suffixes=suffixes, bounded=bounded, format=format)
    if full.exists() or not glob.has_magic(path):
        if path.endswith("/") or (not full.exists() and not full.suffix):
            # a folder that is still to come
            return PathPattern(uri, full, bounded=bounded, format=format)
        return PathPattern(uri, full.parent, full.name, single=True, bounded=bounded, format=format)
    parts = full.parts
    plain = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root = Path(*parts[:plain])
    return PathPattern(uri, root, str(Path(*parts[plain:])), bounded=bounded, format=format)


def format_of(pattern: PathPattern) -> str | None:
    """The format according to the names of the files; None if they name none, or several."""
    names = [pattern.match] if pattern.match and "." in pattern.match else []
    names = names if names and pattern.single else [f.name for f in pattern.scan()] or names
    kinds = {_kind(n) for n in names}
    return kinds.pop() if len(kinds) == 1 else None


def _suffixes(folder: Path, format: str | None) -> tuple[str, ...] | None:
    """Without a declared format, a folder is read for the only format that its names have."""
    if format is not None:
        return None
    kinds = {_kind(p.name) for p in folder.iterdir() if not hidden(p.name)}
    formats = kinds - {None}
    if len(formats) != 1:
        return None
    return tuple(ext for ext, kind in EXTENSIONS.items() if kind in formats)


def _unpacked_name(name: str) -> str:
    """The name without the ending that says how the file is compressed."""
    plain, ending = os.path.splitext(name.lower())
    return plain if ending in CODECS else name.lower()


def _kind(name: str) -> str | None:
    plain = _unpacked_name(name)
    kind = EXTENSIONS.get(os.path.splitext(plain)[1])
    return kind if plain == name.lower() or kind in LINES else None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as cause:
        raise unreadable(str(path), cause) from cause
