"""Locks between appenders: one for writing, one for syncing; readers of the log take none.

A lock belongs to an open file, so it holds between threads as well as processes and goes with
a process that is killed; a forked child closes its copy at once. Whoever holds one says so in
the file, for the error that others get when they have waited too long. A thread that needs
both takes `sync` first.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from headrace.errors import LogError

PATIENCE = 60.0  # seconds
_SHORTEST, _LONGEST = 0.000_05, 0.001  # seconds between two tries
_TRYING = 0.01  # seconds; after that it queues, so that nobody who is faster comes first for ever
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
        if fd in _held:
            fcntl.flock(fd, fcntl.LOCK_UN)
        _drop(fd)


def _acquire(path: Path, patience: float, needless: Callable[[], bool] | None) -> int | None:
    until = time.monotonic() + patience
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _held.add(fd)
        try:
            if not (_try(fd, until, needless) or _queue(fd, until, needless)):
                if needless is not None and needless():
                    _drop(fd)
                    return None
                raise _blocked(path, patience)
            if os.fstat(fd).st_ino == os.stat(path).st_ino:
                with suppress(OSError):  # it has the lock, though its name cannot be written
                    os.pwrite(fd, _me(), 0)
                return fd
        except BaseException:
            _drop(fd)
            raise
        _drop(fd)  # the file was replaced: take the lock of the new one


def _try(fd: int, until: float, needless: Callable[[], bool] | None) -> bool:
    """Whether it was to be had at once, or soon."""
    pause, soon = _SHORTEST, min(until, time.monotonic() + _TRYING)
    while not _take(fd):
        if time.monotonic() > soon or (needless is not None and needless()):
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST)
    return True


class _Waiter(threading.Thread):
    """Waits in the system's queue for a lock; closes the file if nobody wants it any more."""

    def __init__(self, fd: int) -> None:
        super().__init__(daemon=True)
        self._own = os.dup(fd)
        _held.add(self._own)
        self._change = threading.Lock()
        self._wanted = True
        self.got = threading.Event()

    def run(self) -> None:
        fcntl.flock(self._own, fcntl.LOCK_EX)
        with self._change:
            if self._wanted:
                self.got.set()
            else:
                fcntl.flock(self._own, fcntl.LOCK_UN)
        _drop(self._own)

    def gives_up(self) -> bool:
        with self._change:
            self._wanted = False
            return not self.got.is_set()


def _queue(fd: int, until: float, needless: Callable[[], bool] | None) -> bool:
    if needless is not None and needless():
        return False
    waiter = _Waiter(fd)
    waiter.start()
    try:
        while not waiter.got.wait(min(_LONGEST * 5, max(0.0, until - time.monotonic()))):
            if time.monotonic() >= until or (needless is not None and needless()):
                return not waiter.gives_up()
    except BaseException:
        waiter.gives_up()
        raise
    return True


def _take(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _drop(fd: int) -> None:
    if fd in _held:  # else we are a child that was forked meanwhile
        _held.discard(fd)
        os.close(fd)


def _blocked(path: Path, patience: float) -> LogError:
    said = path.read_bytes()[:256].decode(errors="replace").strip()
    return LogError(
        "HR-LOG-016",
        f"topic '{path.parent.name}' is locked for longer than {patience:g} s by "
        f"{said or 'another process'}: file '{path}'",
        "Nothing was appended. See what that process does; let it go on, or stop it, and "
        "append again. EmbeddedLog(..., patience=...) says how long to wait.",
    )
