"""Notes of the operating system about folders: Linux's inotify(7), by ctypes.

As the system says it: a note that others were lost is handed on, which most libraries do not.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import sys
import termios
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

DROPPED = 0x8000  # a watch, by `drop` or because its folder has gone
_TOLD = 0x3CA  # IN_MODIFY, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE
_ONLY = 0x7000000  # IN_ONLYDIR, DONT_FOLLOW, EXCL_UNLINK
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES)  # listing it says which
_HEAD = struct.Struct("iIII")


class FolderNote(NamedTuple):
    watch: int  # -1: the queue was full, and notes are lost
    what: int
    name: str  # in the folder; empty if it concerns the folder itself


class Inotify:
    """A queue of notes; OSError, also of the constructor, if the system has no room for more."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, f"{sys.platform} has no inotify")
        self._system: Any = ctypes.CDLL(None, use_errno=True)
        self._queue = self._called("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        self.close = weakref.finalize(self, os.close, self._queue)

    def watch(self, folder: str) -> int | None:
        """Notes about this folder from now on; None if there is none that can be read."""
        path = os.fsencode(folder)
        try:
            return self._called("inotify_add_watch", self._queue, path, _TOLD | _ONLY)
        except OSError as cause:
            if cause.errno in _GONE:
                return None
            raise

    def drop(self, watch: int) -> None:
        """No more notes of this watch."""
        try:
            self._called("inotify_rm_watch", self._queue, watch)
        except OSError as cause:
            if cause.errno != errno.EINVAL:  # its folder has gone
                raise

    def notes(self) -> list[FolderNote]:
        """What happened until now, in order."""
        size = struct.unpack("i", fcntl.ioctl(self._queue, termios.FIONREAD, b"\0" * 4))[0]
        return list(_parsed(os.read(self._queue, size))) if size else []

    def _called(self, name: str, *arguments: Any) -> int:
        result = int(getattr(self._system, name)(*arguments))
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result


def _parsed(data: bytes) -> Iterator[FolderNote]:
    at = 0
    while at < len(data):
        watch, what, _, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size + length
        name = data[at - length : at].rstrip(b"\0")
        yield FolderNote(watch, what, os.fsdecode(name))
