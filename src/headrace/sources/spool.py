"""Lines stored on disk because where they come from will not send them again.

A spool is a folder of segments, each named by the position of its first byte, with checksums
beside it. What `add` has returned from is durable; a torn last line is cut off when the spool
is written to again. Segments follow one another without a gap, and none is shorter than its
checksums say: anything else is damage. One process at a time may add; any may read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import zlib
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from headrace.errors import InputError
from headrace.files import sync, sync_content, sync_folder, write_all
from headrace.sources.listing import Extent, Stretch
from headrace.sources.place import damaged, readable
from headrace.state.sealed import make_folder

SEGMENT = 64 << 20
SUFFIX, SUMS = ".lines", ".sums"
ENDED = "ended"
_WHAT = "the spool of lines received"


def spooled(folder: Path) -> dict[str, Path]:
    """By key: the inputs that have stored lines in a job's folder, whoever reads them now."""
    spools = {p.parent.name: Spool(p) for p in folder.glob("inputs/*/spool")}
    return {unquote(key): spool.folder for key, spool in spools.items() if spool.end}


class Spool:
    """The reading side: which bytes are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def segments(self) -> list[tuple[int, Path]]:
        names = self.folder.glob(f"*{SUFFIX}") if self.folder.is_dir() else []
        return sorted((int(p.stem), p) for p in names)

    def sums(self, path: Path) -> Sums:
        return Sums(_WHAT, path, path.with_suffix(SUMS))

    @property
    def start(self) -> int:
        segments = self.segments()
        return segments[0][0] if segments else 0

    @property
    def end(self) -> int:
        """After the last whole line; what follows it is still being written."""
        for base, path in reversed(self.segments()):
            with readable(_WHAT, path):
                return base + path.read_bytes().rfind(b"\n") + 1
        return 0

    def check(self, position: int = 0, *, bounded: bool = False) -> None:
        """Raise InputError if lines are missing, or if not all up to `position` are there; of a
        `bounded` input that has ended also if there are more lines than were received."""
        segments = self.segments()
        for path in self.folder.glob(f"*{SUMS}") if self.folder.is_dir() else ():
            if not path.with_suffix(SUFFIX).exists():
                raise damaged(_WHAT, path.with_suffix(SUFFIX), "is missing")
        for (base, path), (after, _) in pairwise(segments):
            if base + path.stat().st_size != after:
                raise damaged(_WHAT, path, f"does not end at byte {after}, where the next begins")
        if segments:
            base, path = segments[-1]
            if base + self.sums(path).covered() > self.end:
                raise damaged(_WHAT, path, "is shorter than it was")
            if bounded and self.sums(path).ended() and base + self.sums(path).covered() < self.end:
                raise damaged(_WHAT, path, "is longer than it was when the input ended")
        if position > self.end:
            raise self._ends_before(position)

    def verify(self, extent: Extent) -> None:
        """Raise InputError if the lines of `extent` are not as they were received."""
        self.sums(self.folder / extent.path).verify(extent.start, extent.end)

    @property
    def ended(self) -> bool:
        if (self.folder / ENDED).exists():
            return True
        return any(self.sums(path).ended() for _, path in self.segments()[-1:])

    def stretches(self, start: int, end: int) -> list[Stretch]:
        found, reached = [], start
        for base, path in self.segments():
            lo, hi = max(start, base), min(end, base + path.stat().st_size)
            if lo < hi:
                found.append(Stretch(lo, Extent(path.name, lo - base, hi - base, (0, 0))))
                if lo != reached:
                    raise damaged(_WHAT, path, f"begins after byte {reached}, which is missing")
                reached = hi
        if reached < end:
            raise self._ends_before(end)
        return found

    def forget(self, before: int) -> None:
        """Remove segments that end at or before `before`; the last one stays."""
        segments = self.segments()
        for (_, path), (after, _) in pairwise(segments):
            if after <= before:
                path.with_suffix(SUMS).unlink(missing_ok=True)  # alone they would be damage
                path.unlink(missing_ok=True)

    def _ends_before(self, position: int) -> InputError:
        how = f"ends at byte {self.end}, but the job has read up to {position}"
        return damaged(_WHAT, self.folder, how)


class SpoolWriter:
    """The writing side; made by the one process that receives."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self._spool = Spool(folder)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        self._handle: int | None = None
        self._base, self.end = 0, 0
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._spool.check()
            self._go_on()
        except (OSError, InputError):
            self.close()
            raise

    def add(self, lines: bytes) -> None:
        """Append whole lines; durable when this returns."""
        if self._handle is None or self.end - self._base >= SEGMENT:
            self._begin(self.end)
        handle = self._handle
        assert handle is not None
        try:
            write_all(handle, lines)
            sync_content(handle)
            self._sums.add(self.end + len(lines) - self._base, lines)
        except OSError:
            os.ftruncate(handle, self.end - self._base)  # no half line, and nothing unsynced
            raise
        self.end += len(lines)

    def finish(self) -> None:
        """Note that nothing more will come: twice, so that it is not lost with one file."""
        if self._handle is None:
            self._begin(self.end)
        self._sums.finish()
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
        self._sums = self._spool.sums(path)
        content = path.read_bytes()
        whole, covered = content.rfind(b"\n") + 1, self._sums.covered()
        if covered < whole:
            self._sums.verify(0, covered)  # else the rest may be of another file
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(self._handle, whole)
        sync(self._handle)
        if covered < whole:  # a crash or a power cut has taken the checksum, not the lines
            self._sums.add(whole, content[covered:whole])
        self.end = self._base + whole

    def _begin(self, base: int) -> None:
        if self._handle is not None:
            os.close(self._handle)
        path = self._spool.folder / f"{base:020d}{SUFFIX}"
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._base, self._sums = base, self._spool.sums(path)
        sync_folder(self._spool.folder)


# Checksums beside a file that only grows: one record for each piece that was added.
#
# A record says where its piece ends, the checksum of the piece, and its own. Records are not
# synced: after a power cut the last may be missing, and whoever adds next makes one for the
# rest. A last record that is not whole was never finished; any other damage is an error.


_RECORD = struct.Struct("<qII")  # end, checksum of the piece, checksum of the two
_LAYOUT = np.dtype([("end", "<i8"), ("crc", "<u4"), ("own", "<u4")])
_ENDED = -1  # in place of an end: nothing more will come

Records = npt.NDArray[np.void]


class Sums:
    """The checksums of the file `data`, in `path`; what both are is said by `what`."""

    def __init__(self, what: str, data: Path, path: Path) -> None:
        self._what, self._data, self._path = what, data, path

    def covered(self) -> int:
        """Up to where pieces have a checksum; an error if the last one is damaged."""
        records = self._pieces(self._records())
        return self._end_of(records, len(records) - 1)

    def ended(self) -> bool:
        records = self._records()
        return bool(len(records)) and int(records[-1]["end"]) == _ENDED and self._sound(records, -1)

    def add(self, end: int, piece: bytes) -> None:
        """Note a piece that ends at `end`."""
        self._append(end, zlib.crc32(piece))

    def finish(self) -> None:
        """Note that nothing more will come."""
        self._append(_ENDED, 0)

    def verify(self, start: int, end: int) -> None:
        """Raise InputError if a piece that holds any of `[start, end)` is not as it was added."""
        records = self._pieces(self._records())
        first = int(np.searchsorted(records["end"], start, side="right"))
        with self._data.open("rb") as file:
            at = self._end_of(records, first - 1)
            if at > start:
                raise self._damage("is damaged")
            file.seek(at)
            for i in range(first, len(records)):
                if at >= end:
                    return
                stop = self._end_of(records, i)
                if zlib.crc32(file.read(stop - at)) != int(records[i]["crc"]):
                    raise damaged(self._what, self._data, f"is damaged after byte {at}")
                at = stop

    def _records(self) -> Records:
        try:
            with readable(f"{self._what}, its checksums", self._path):
                content = self._path.read_bytes()
        except FileNotFoundError:
            content = b""
        return np.frombuffer(content[: len(content) // _RECORD.size * _RECORD.size], _LAYOUT)

    def _pieces(self, records: Records) -> Records:
        pieces: Records = records[records["end"] != _ENDED]
        return pieces

    def _end_of(self, records: Records, at: int) -> int:
        if at < 0:
            return 0
        if not self._sound(records, at):
            raise self._damage("is damaged")
        return int(records[at]["end"])

    def _sound(self, records: Records, at: int) -> bool:
        return zlib.crc32(records[at].tobytes()[:-4]) == int(records[at]["own"])

    def _append(self, end: int, crc: int) -> None:
        own = zlib.crc32(struct.pack("<qI", end, crc))
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            whole = os.fstat(handle).st_size // _RECORD.size * _RECORD.size
            os.ftruncate(handle, whole)  # a record that was never finished
            if os.write(handle, _RECORD.pack(end, crc, own)) != _RECORD.size:
                os.ftruncate(handle, whole)
                raise OSError(errno.ENOSPC, "short write", str(self._path))
        finally:
            os.close(handle)

    def _damage(self, how: str) -> InputError:
        return damaged(f"{self._what}, its checksums", self._path, how)
