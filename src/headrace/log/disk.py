"""Every durable step of the log: what is written, synced, cut and removed goes through here.

Each step passes a named point first, where a test may raise or kill. `cut` is the only place
that makes a file shorter, and it refuses to cut what was ever published.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from headrace import files
from headrace.errors import LogError
from headrace.log.block import Buffer
from headrace.state.faults import point

_BUFFERS = 512  # of one call; the system takes 1,024


def write(fd: int, buffers: Sequence[Buffer], at: int) -> int:
    """Write all of it at a position; where it ends."""
    point("log.write")
    rest = [memoryview(b) for b in buffers if len(b)]
    while rest:
        written = os.pwritev(fd, rest[:_BUFFERS], at)
        at += written
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if rest and written:
            rest[0] = rest[0][written:]
    return at


def sync(fd: int) -> None:
    point("log.sync")
    files.sync_content(fd)


def sync_folder(path: Path) -> None:
    """Make the creation and removal of files in a folder durable."""
    point("log.sync_folder")
    files.sync_folder(path)


def new_file(path: Path, data: bytes) -> None:
    """A file in place of any of that name, durable when this returns; none if it fails."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        write(fd, [data], 0)
        sync(fd)
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(fd)


def cut(fd: int, path: Path, position: int, published: int) -> None:
    """Remove what lies beyond `position`; durable, so that it cannot come back.

    The caller holds the lock for writing. Readers map nothing beyond `published`.
    """
    if position < published:
        raise LogError(
            "HR-LOG-011",
            f"refused to cut file '{path}' at byte {position}: it is published up to {published}",
            "Restore the topic's folder from a copy.",
        )
    if os.fstat(fd).st_size > position:
        point("log.cut")
        os.ftruncate(fd, position)
        sync(fd)


def rename(old: Path, new: Path) -> None:
    point("log.rename")
    os.rename(old, new)


def remove(path: Path) -> None:
    point("log.remove")
    path.unlink(missing_ok=True)
