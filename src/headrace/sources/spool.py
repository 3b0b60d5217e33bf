"""Lines kept on disk because where they come from will not send them again.

A spool is a folder of segments, each named by the position of its first byte. What `add`
has returned from is durable; a torn last line is cut off when the spool is opened. One
process at a time may add; any may read.
"""

from __future__ import annotations

import fcntl
import os
from itertools import pairwise
from pathlib import Path

from headrace.sources.listing import Extent, Stretch
from headrace.sources.place import damaged
from headrace.state.files import sync_folder

SEGMENT = 64 << 20
SUFFIX = ".lines"
ENDED = "ended"


class Spool:
    """The reading side: which bytes are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def segments(self) -> list[tuple[int, Path]]:
        names = self.folder.glob(f"*{SUFFIX}") if self.folder.is_dir() else []
        return sorted((int(p.stem), p) for p in names)

    @property
    def start(self) -> int:
        segments = self.segments()
        return segments[0][0] if segments else 0

    @property
    def end(self) -> int:
        """After the last whole line; what follows it is still being written."""
        for base, path in reversed(self.segments()):
            return base + path.read_bytes().rfind(b"\n") + 1
        return 0

    def check(self, position: int) -> None:
        """Raise InputError if lines are missing, or up to `position` not all are there."""
        if position > self.end:
            how = f"ends at byte {self.end}, but the job has read up to {position}"
            raise damaged("the spool of lines received", self.folder, how)

    @property
    def ended(self) -> bool:
        return (self.folder / ENDED).exists()

    def stretches(self, start: int, end: int) -> list[Stretch]:
        found = []
        for base, path in self.segments():
            lo, hi = max(start, base), min(end, base + path.stat().st_size)
            if lo < hi:
                found.append(Stretch(lo, Extent(path.name, lo - base, hi - base, (0, 0))))
        return found

    def forget(self, before: int) -> None:
        """Remove segments that end at or before `before`; the last one stays."""
        segments = self.segments()
        for (_, path), (after, _) in pairwise(segments):
            if after <= before:
                path.unlink(missing_ok=True)


class SpoolWriter:
    """The writing side; made by the one process that receives."""

    def __init__(self, folder: Path) -> None:
        self._spool = Spool(folder)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise
        self._handle: int | None = None
        self._base, self.end = 0, 0
        self._go_on()

    def add(self, lines: bytes) -> None:
        """Append whole lines; durable when this returns."""
        if self._handle is None or self.end - self._base >= SEGMENT:
            self._begin(self.end)
        handle = self._handle
        assert handle is not None
        try:
            done = 0
            while done < len(lines):
                done += os.write(handle, lines[done:])
            os.fdatasync(handle)
        except OSError:
            os.ftruncate(handle, self.end - self._base)  # no half line, and nothing unsynced
            raise
        self.end += len(lines)

    def finish(self) -> None:
        """Note that nothing more will come."""
        (self._spool.folder / ENDED).touch()
        sync_folder(self._spool.folder)

    def close(self) -> None:
        for handle in (self._handle, self._lock):
            if handle is not None:
                os.close(handle)
        self._handle = None

    def _go_on(self) -> None:
        segments = self._spool.segments()
        if not segments:
            return
        self._base, path = segments[-1]
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(self._handle, whole)
        os.fsync(self._handle)
        self.end = self._base + whole

    def _begin(self, base: int) -> None:
        if self._handle is not None:
            os.close(self._handle)
        path = self._spool.folder / f"{base:020d}{SUFFIX}"
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._base = base
        sync_folder(self._spool.folder)
