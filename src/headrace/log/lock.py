"""Locks between appenders: one for writing, one for syncing; readers of the log take none.

A lock belongs to an open file, so it holds between threads as well as processes and goes with
a process that is killed; a forked child closes its copy at once. Whoever holds one says so in
the file, for the error that others get when they have waited too long. A thread that needs
both takes `sync` first.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from headrace.errors import LogError

PATIENCE = 60.0  # seconds
_SHORTEST, _LONGEST = 0.000_05, 0.005  # seconds between two tries
_held: set[int] = set()


def _after_fork() -> None:
    for fd in _held:
        with suppress(OSError):
            os.close(fd)
    _held.clear()
    _me.cache_clear()


os.register_at_fork(after_in_child=_after_fork)


@cache
def _me() -> bytes:
    command = " ".join(sys.orig_argv)[:120]
    return (
        f"process {os.getpid()} on {socket.gethostname()} ({command})".encode().ljust(255) + b"\n"
    )


@contextmanager
def locked(
    path: Path, patience: float = PATIENCE, needless: Callable[[], bool] | None = None
) -> Iterator[bool]:
    """Hold the file's lock; FileNotFoundError if its folder is not there (any more).

    Gives False, without the lock, as soon as waiting has become `needless`.
    """
    fd = _acquire(path, patience, needless)
    if fd is None:
        yield False
        return
    try:
        yield True
    finally:
        if fd in _held:  # else we are a child that was forked meanwhile
            _held.discard(fd)
            os.close(fd)


def _acquire(path: Path, patience: float, needless: Callable[[], bool] | None) -> int | None:
    started, pause = time.monotonic(), _SHORTEST
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _held.add(fd)
        try:
            while not _take(fd):
                if needless is not None and needless():
                    _drop(fd)
                    return None
                if time.monotonic() - started > patience:
                    raise _blocked(path, fd, patience)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST)
            if os.fstat(fd).st_ino == os.stat(path).st_ino:
                os.pwrite(fd, _me(), 0)
                return fd
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return fd  # it has the lock; only its name could not be written
            _drop(fd)
            raise
        except BaseException:
            _drop(fd)
            raise
        _drop(fd)  # the file was replaced: take the lock of the new one


def _take(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _drop(fd: int) -> None:
    _held.discard(fd)
    os.close(fd)


def _blocked(path: Path, fd: int, patience: float) -> LogError:
    said = os.pread(fd, 256, 0).decode(errors="replace").strip()
    return LogError(
        f"topic '{path.parent.name}' is locked for longer than {patience:g} s by "
        f"{said or 'another process'}: file '{path}'", code="HR-LOG-016",
        hint="Nothing was appended. See what that process does; let it go on, or stop it, and "
        "append again. EmbeddedLog(..., patience=...) says how long to wait.",
    )  # fmt: skip
