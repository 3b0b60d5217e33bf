"""Locks and syncs on files: what keeps appenders apart and writes on disk.

A lock belongs to an open file, so it holds between threads as well as processes and goes
with a process that is killed. Readers of the log take none.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock; FileNotFoundError if it is not there (any more)."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_ino != os.stat(path).st_ino:
            raise FileNotFoundError(f"{path} was replaced")
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


@contextmanager
def all_locked(paths: Iterable[Path]) -> Iterator[None]:
    """Hold several locks; everybody takes them in this order, so nobody waits in a circle."""
    with ExitStack() as stack:
        for path in sorted(paths):
            stack.enter_context(locked(path))
        yield


def sync_folder(path: Path) -> None:
    """Make the creation and removal of files in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_synced(path: Path, data: bytes) -> None:
    """A small file, whole and durable when this returns; the folder is not synced."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
