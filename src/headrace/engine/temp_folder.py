"""The one temporary folder of a process that runs Spark: private, locked, removed when unused.

Everything short-lived is in it: Spark's own folders, sockets, the checkpoint of a query. The
file `owner` in it is locked by this process, its JVM and its zygote only, so the lock is free
exactly when all of them have ended. A start removes folders of processes that have ended: named as
ours, of the same user, closed to others, with an `owner` that is not locked.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from headrace.engine.interrupts import registering
from headrace.state.epochs import is_held
from headrace.state.faults import point

PREFIX = "headrace-"
OWNER = "owner"
# The path of a socket may have 104 bytes (macOS): this folder's name, and Spark's socket in it.
_LONGEST_BASE = 104 - len(f"/{PREFIX}12345678/.{'0' * 36}.sock") - 1
_POLL = 0.02  # seconds
_PATIENCE = 10.0  # seconds for killed processes to end


@dataclass
class TempFolder:
    path: Path
    lock: int  # the descriptor that holds the lock; children that use the folder inherit it
    process: int

    def remove(self) -> None:
        """Once the processes that use it have ended, or have had time to."""
        if self.process != os.getpid():  # a fork of the owner, which still needs it
            return
        os.close(self.lock)
        deadline = time.monotonic() + _PATIENCE
        while not _free(self.path) and time.monotonic() < deadline:
            time.sleep(_POLL)
        shutil.rmtree(self.path, ignore_errors=True)


_current: TempFolder | None = None


def temp_folder() -> TempFolder:
    """This process's folder; the first call makes it, and removes abandoned ones."""
    global _current  # noqa: PLW0603
    with registering():
        if _current is None or _current.process != os.getpid():
            base = _base()
            clear_abandoned(base)
            _current = _make(base)
            atexit.register(remove_temp_folder)  # runs after what uses it: that registers later
    point("start.folder")
    return _current


def remove_temp_folder() -> None:
    """Remove this process's folder, if it has one; a later call of `temp_folder` makes another."""
    global _current
    if _current is not None and _current.process == os.getpid():
        folder, _current = _current, None
        folder.remove()


def clear_abandoned(base: Path) -> None:
    """Remove the folders in `base` that are provably ours and whose owners have ended."""
    for path in base.glob(f"{PREFIX}*"):
        if _is_ours(path) and _free(path):
            shutil.rmtree(path, ignore_errors=True)


def _base() -> Path:
    base = Path(tempfile.gettempdir())
    return base if len(os.fsencode(base)) <= _LONGEST_BASE else Path("/tmp")


def _make(base: Path) -> TempFolder:
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))  # 0700
    fresh = path / f"{OWNER}.new"
    lock = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    fresh.rename(path / OWNER)  # locked before anybody can find it
    return TempFolder(path, lock, os.getpid())


def _is_ours(path: Path) -> bool:
    try:
        folder, owner = path.lstat(), (path / OWNER).lstat()
    except OSError:
        return False
    private = stat.S_ISDIR(folder.st_mode) and stat.S_IMODE(folder.st_mode) == 0o700
    return private and stat.S_ISREG(owner.st_mode) and folder.st_uid == owner.st_uid == os.getuid()


def _free(path: Path) -> bool:
    """Whether nobody holds the folder's lock."""
    return not is_held(path / OWNER)
