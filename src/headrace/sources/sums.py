"""Checksums beside a file that only grows: one record for each piece that was added.

A record says where its piece ends, the checksum of the piece, and its own. Records are not
synced: after a power cut the last may be missing, and whoever adds next makes one for the
rest. A last record that is not whole was never finished; any other damage is an error.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.errors import InputError
from headrace.sources.place import damaged, readable

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
