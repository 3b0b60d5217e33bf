"""The log of epochs: one manifest per epoch, the one truth about a job.

    <folder>/job.json              whose folder it is, its number of slots, its format
    <folder>/fence/<n>.json        the n-th driver to take the folder; the newest holds it, and
                                   has the file locked for as long as it lives
    <folder>/epochs/<epoch>.json   the manifest: offsets, state, outputs, counters
    <folder>/published             how far publishing has come

What no manifest names does not exist. A manifest is written once and never changed; when
`commit` returns it is durable, and before that a crash at any step leaves either the whole
manifest or none. What it holds is in `manifest.py`; removal of what is no longer needed is in
`prune.py`.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headrace.clock import Clock, SystemClock
from headrace.errors import FencedError, StateError
from headrace.files import close_lock, lock_files, take_lock
from headrace.state import sealed
from headrace.state.faults import point
from headrace.state.manifest import Manifest
from headrace.state.prune import Pruner

_EPOCH = re.compile(r"(\d{12})\.json")
_FENCE = re.compile(r"(\d+)\.json")
_PUBLISHED = "published"


class EpochLog:
    """The folder of one job, as its driver sees it."""

    def __init__(self, folder: str | Path, clock: Clock | None = None) -> None:
        self.folder = Path(folder)
        self._clock = clock or SystemClock()
        self._epochs, self._fences = self.folder / "epochs", self.folder / "fence"
        self._pruner = Pruner(self.folder)
        self._holding: Holding | None = None

    def look(self, job: str) -> int | None:
        """The number of slots in force, checked and read only; None if no job is here yet."""
        path = self.folder / "job.json"
        if path.exists():
            return self._check_job(path, job)
        if self.epochs():
            raise sealed.missing(path)
        return None

    def open(self, job: str, slots: int) -> int:
        """Make or check the job's folder; the number of slots that is in force there."""
        for folder in (self.folder, self._epochs, self._fences):
            sealed.make_folder(folder)
        path = self.folder / "job.json"
        if self.look(job) is None:
            content = {"job": job, "slots": slots, "created": self._clock.now()}
            sealed.create_sealed(path, "job", content)
        return self._check_job(path, job)

    def _check_job(self, path: Path, job: str) -> int:
        content = sealed.read_sealed(path, "job")
        if content["job"] != job:
            raise StateError(
                "HR-STATE-001",
                f"the folder {str(self.folder)!r} belongs to the job {content['job']!r}, "
                f"not to {job!r}",
                "Give this job a folder of its own, or the job its old name.",
            )
        return int(content["slots"])

    def take_fence(self) -> int:
        """Take the folder: every driver that took it before can no longer commit.

        While somebody rewrites what is in it (`savepoints.creating`), that is waited for.
        """
        holder = {"host": socket.gethostname(), "pid": os.getpid()}
        with shared(self.folder):
            token = 1 + max(self._tokens(), default=0)
            while not sealed.create_sealed(self._fence(token), "fence", holder):
                token += 1
            with sealed.named_failures(self._fence(token)):
                self._holding = Holding(self._fence(token))
        with sealed.named_failures(self._fences):
            for old in self._tokens():
                if old < token:
                    self._fence(old).unlink(missing_ok=True)
        return token

    def release(self) -> None:
        """Say that this driver is done: who comes next need not take the folder over."""
        if self._holding is not None:
            self._holding.release()

    def driver(self) -> str | None:
        """The driver that holds the folder and lives, in words; None if there is none."""
        holder = self.holder()
        return None if holder is None else f"process {holder[0]} on {holder[1]}"

    def holder(self) -> tuple[int, str] | None:
        """The process and the machine of the driver that holds the folder and lives."""
        if not self.is_held():
            return None
        holder = sealed.read_sealed(self._fence(max(self._tokens())), "fence")
        return int(holder["pid"]), str(holder["host"])

    def fence_in_force(self) -> Path | None:
        """The file that the driver which has taken the folder last has open while it lives."""
        newest = max(self._tokens(), default=None)
        return None if newest is None else self._fence(newest)

    def is_held(self) -> bool:
        """Whether the driver that has taken the folder last still lives."""
        newest = max(self._tokens(), default=None)
        if newest is None:
            return False
        with sealed.named_failures(self._fence(newest)):
            return is_held(self._fence(newest))

    def taken(self) -> bool:
        """Whether a driver has ever taken the folder."""
        return bool(self._tokens())

    def check_fence(self, token: int) -> None:
        """Raise FencedError unless `token` is the newest."""
        newest = max(self._tokens(), default=None)
        if newest is None or newest != token:
            raise _fenced(
                f"another driver has taken the folder {str(self.folder)!r} "
                f"(fence {newest}, ours is {token})"
            )

    def epochs(self) -> list[int]:
        """The epochs whose manifests are there, ascending."""
        return sealed.numbered(self._epochs, _EPOCH) if self._epochs.is_dir() else []

    def newest(self) -> int:
        """The newest epoch that has a manifest; 0 if none has."""
        return max(self.epochs(), default=0)

    def newest_file(self) -> tuple[int, ...] | None:
        """Which manifest is the newest: another one of the same epoch, as in a folder that was
        replaced, is told apart. None if there is none."""
        while epochs := self.epochs():
            with suppress(FileNotFoundError):  # a driver that runs has cleared it away
                facts = self._path(epochs[-1]).stat()
                return epochs[-1], facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns
        return None

    def latest(self) -> Manifest | None:
        """The newest manifest; a corrupt one is an error, never skipped."""
        while epochs := self.epochs():
            try:
                return self.read(epochs[-1])
            except FencedError:
                continue  # a driver that runs has gone on since, and cleared it away
        return None

    def read(self, epoch: int) -> Manifest:
        """The manifest of an epoch; FencedError if a driver that has gone on has removed it."""
        content = self._content(epoch)
        try:
            return Manifest.from_json(content)
        except KeyError as error:
            raise sealed.corrupt(self._path(epoch), f"it does not say {error}") from error

    def _content(self, epoch: int) -> dict[str, Any]:
        path = self._path(epoch)
        if not path.exists() and min(self.epochs(), default=epoch) > epoch:
            raise _fenced(f"another driver has gone on from epoch {epoch} in {str(self.folder)!r}")
        content = sealed.read_sealed(path, "manifest")
        if content["epoch"] != epoch:
            raise sealed.corrupt(path, f"it is the manifest of epoch {content['epoch']}")
        return content

    def rewrite(self, manifest: Manifest) -> None:
        """Put a manifest in the place of the one of its epoch: the same truth, in other files.

        Only for a holder of the fence, while nobody else can take it.
        """
        sealed.rewrite_sealed(self._path(manifest.epoch), "manifest", manifest.to_json())

    def commit(self, manifest: Manifest) -> bool:
        """Make `manifest` the truth of its epoch: True if written now, False if it was before.

        1. The fence must be ours.
        2. No later epoch may be there: a driver that slept through several is out.
        3. The manifest is made durable under a temporary name and linked to its own.
        4. If the name was taken, it must be by this very attempt.
        5. The fence must still be ours; if not, the driver that has it finds the manifest
           and publishes it, and this one must not.
        """
        epoch, token = manifest.epoch, manifest.token
        self.check_fence(token)
        point("commit.checked")
        if max(self.epochs(), default=epoch) > epoch:
            raise _fenced(f"epoch {epoch} is behind the newest in {str(self.folder)!r}")
        written = sealed.create_sealed(self._path(epoch), "manifest", manifest.to_json())
        if not written and self.read(epoch).attempt != manifest.attempt:
            raise _fenced(f"epoch {epoch} was committed by another attempt")
        self.check_fence(token)
        return written

    def prune(self, keep: int, most: int = 2_048) -> list[str]:
        """Delete manifests but the newest `keep`, then files that none left names.

        At most `most` files are deleted per call. Returns their paths within the folder.
        """
        return self._pruner.prune(self.epochs(), max(keep, 1), most, self._path, self._content)

    def _tokens(self) -> list[int]:
        return sealed.numbered(self._fences, _FENCE) if self._fences.is_dir() else []

    def _path(self, epoch: int) -> Path:
        return self._epochs / f"{epoch:012d}.json"

    def _fence(self, token: int) -> Path:
        return self._fences / f"{token}.json"


def _fenced(message: str) -> FencedError:
    return FencedError(
        "HR-STATE-007",
        message,
        "Stop one of the two drivers; the one that is left carries on by itself.",
    )


class PublishedMark:
    """How far publishing has come: a small file next to the manifests.

    Publishing is idempotent, so the mark may be behind the truth after a crash, never ahead. A
    damaged one counts as none, and everything that manifests name is published again.
    """

    def __init__(self, folder: str | Path) -> None:
        self._path = Path(folder) / _PUBLISHED

    def epoch(self) -> int:
        """The last epoch known to be published; 0 if none is."""
        try:
            return int(sealed.read_sealed(self._path, _PUBLISHED)["epoch"])
        except StateError as error:
            if error.code == "HR-STATE-006":  # it cannot be read, whatever it holds
                raise
            return 0

    def reached(self, epoch: int) -> None:
        if epoch > self.epoch():
            sealed.replace_sealed(self._path, _PUBLISHED, {"epoch": epoch})


@contextmanager
def shared(folder: Path) -> Iterator[None]:
    """While nobody has the job's file for himself; one that is not there yet nobody has."""
    try:
        lock = take_lock(folder / "job.json", fcntl.LOCK_SH, os.O_RDONLY)
    except FileNotFoundError:
        lock = None
    try:
        yield
    finally:
        if lock is not None:
            close_lock(lock)


class Holding:
    """The lock on `path`, from now until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._fd: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        lock_files.add(self._fd)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def release(self) -> None:
        if self._fd is not None:
            close_lock(self._fd)
        self._fd = None


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
