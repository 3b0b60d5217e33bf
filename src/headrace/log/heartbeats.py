"""The sign of life of a group's member: a file, its lock and its content."""

from __future__ import annotations

import fcntl
import os
import struct
import time
import zlib
from contextlib import suppress
from pathlib import Path

from headrace.files import close_lock, lock_files
from headrace.log.head import boot_id

_BEAT = struct.Struct("<16sqI")


class Heartbeat:
    """A member's file; its lock shows that the process lives, its content when it last said so."""

    def __init__(self, path: Path, member: str) -> None:
        self.member = member
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        lock_files.add(self._fd)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self.beat()

    def beat(self) -> None:
        packed = _BEAT.pack(boot_id(), _now_ms(), 0)
        boot, at, _ = _BEAT.unpack(packed)
        os.pwrite(self._fd, _BEAT.pack(boot, at, zlib.crc32(packed)), 0)

    def close(self) -> None:
        close_lock(self._fd)


def has_stopped(path: Path, session_ms: int) -> bool:
    """Whether the member of this heartbeat is dead."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    lock_files.add(fd)
    try:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True  # its process is gone, and the lock with it
        boot, at, crc = _BEAT.unpack(os.pread(fd, _BEAT.size, 0))
    except struct.error:
        return False  # it is being written
    finally:
        close_lock(fd)
    if crc != zlib.crc32(_BEAT.pack(boot, at, 0)):
        return False
    return bool(boot != boot_id() or _now_ms() - at > session_ms)


def _now_ms() -> int:
    """Milliseconds of a clock that nobody sets, the same in all processes since the boot."""
    return time.monotonic_ns() // 1_000_000
