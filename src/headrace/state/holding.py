"""A lock on a file that dies with its holder: who drives a job at this moment.

The lock belongs to an open file, so it holds between threads as well as processes, and goes
with a process that is killed. A forked child closes its copy at once; a program that is
started inherits none.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

_held: set[int] = set()


def _after_fork() -> None:
    for fd in _held:
        with suppress(OSError):
            os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)


class Holding:
    """The lock on `path`, from now until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._fd: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        _held.add(self._fd)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def release(self) -> None:
        fd, self._fd = self._fd, None
        if fd in _held:  # else we are a child that was forked meanwhile
            _held.discard(fd)
            os.close(fd)


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock on `path`; nobody holds one on a file that is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
