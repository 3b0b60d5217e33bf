"""Locks between appenders: one for writing, one for syncing; readers of the log take none.

A lock holds between threads as well as processes, and is released when its process is killed (see
`files.py`). Its holder writes its name into the file, for the error that others get when they have
waited too long. A thread that needs both locks takes `sync` first.
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
from headrace.files import close_lock, lock_files

PATIENCE = 60.0  # seconds
_SHORTEST, _LONGEST = 0.000_05, 0.001  # seconds between two tries
_TRYING = 0.01  # seconds of polling; then it queues, so that faster threads cannot starve it


@cache
def _me() -> bytes:
    """Without arguments: what was passed may be a password, or a key that is being forgotten."""
    program = " ".join(os.path.basename(p) for p in (sys.executable, sys.argv[0]) if p)[:120]
    return (
        f"process {os.getpid()} on {socket.gethostname()} ({program})".encode().ljust(255) + b"\n"
    )


os.register_at_fork(after_in_child=_me.cache_clear)


@contextmanager
def locked(
    path: Path, patience: float = PATIENCE, needless: Callable[[], bool] | None = None
) -> Iterator[bool]:
    """Hold the file's lock; FileNotFoundError if its folder does not exist (any more).

    Yields False, without the lock, as soon as waiting has become `needless`.
    """
    fd = _acquire(path, patience, needless)
    if fd is None:
        yield False
        return
    try:
        yield True
    finally:
        if fd in lock_files:
            fcntl.flock(fd, fcntl.LOCK_UN)
        close_lock(fd)


def _acquire(path: Path, patience: float, needless: Callable[[], bool] | None) -> int | None:
    until = time.monotonic() + patience
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        lock_files.add(fd)
        try:
            if not (_try(fd, until, needless) or _queue(fd, until, needless)):
                if needless is not None and needless():
                    close_lock(fd)
                    return None
                raise _blocked(path, patience)
            if os.fstat(fd).st_ino == os.stat(path).st_ino:
                with suppress(OSError):  # it has the lock, even if its name cannot be written
                    os.pwrite(fd, _me(), 0)
                return fd
        except BaseException:
            close_lock(fd)
            raise
        close_lock(fd)  # the file was replaced: take the lock of the new one


def _try(fd: int, until: float, needless: Callable[[], bool] | None) -> bool:
    """Poll for the lock for a short while; whether that got it."""
    pause, soon = _SHORTEST, min(until, time.monotonic() + _TRYING)
    while not _take(fd):
        if time.monotonic() > soon or (needless is not None and needless()):
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST)
    return True


class _Waiter(threading.Thread):
    """Waits in the system's queue for a lock; releases it if the caller has given up."""

    def __init__(self, fd: int) -> None:
        super().__init__(daemon=True)
        self._own = os.dup(fd)
        lock_files.add(self._own)
        self._change = threading.Lock()
        self._waiting = True
        self.got = threading.Event()

    def run(self) -> None:
        fcntl.flock(self._own, fcntl.LOCK_EX)
        with self._change:
            if self._waiting:
                self.got.set()
            else:
                fcntl.flock(self._own, fcntl.LOCK_UN)
        close_lock(self._own)

    def gives_up(self) -> bool:
        with self._change:
            self._waiting = False
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


def _what(path: Path) -> str:
    home = path.parent.name
    if home == ".transactions":
        return f"the log '{path.parent.parent}'"
    return f"{'group' if path.parent.parent.name == '.groups' else 'topic'} '{home}'"


def _blocked(path: Path, patience: float) -> LogError:
    holder = path.read_bytes()[:256].decode(errors="replace").strip()
    return LogError(
        "HR-LOG-016",
        f"{_what(path)} is locked for longer than {patience:g} s by "
        f"{holder or 'another process'}: file '{path}'",
        "Nothing was appended. See what that process does; let it go on, or stop it, and "
        "append again. EmbeddedLog(..., patience=...) says how long to wait.",
    )


def is_taken(path: Path) -> bool:
    """Whether somebody holds the lock at this moment; it is not taken, and no file is made."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
