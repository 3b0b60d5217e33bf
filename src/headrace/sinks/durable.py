"""Output files: there whole or not at all, durable before they are spoken of.

Every failure of the file system becomes an OutputError that names the path and what to do.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Generic, TypeVar, cast

from headrace import files
from headrace.errors import OutputError, StateError

T = TypeVar("T")

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def named(path: Path | str) -> Iterator[None]:
    """Turn what the operating system says about `path` into an OutputError."""
    try:
        yield
    except OSError as cause:
        raise _failure(str(path), cause) from cause
    except StateError as cause:
        raise OutputError(
            "HR-OUTPUT-007",
            f"the output's own record is not usable: {cause.message}",
            "Restore the file from a backup, or write to a new folder.",
        ) from cause


def _failure(path: str, cause: OSError) -> OutputError:
    if cause.errno in _FULL:
        return OutputError(
            "HR-OUTPUT-003",
            f"cannot write {path!r}: the disk is full",
            "Free some space and start the job again: nothing is lost, the epoch is done anew.",
        )
    if cause.errno in _DENIED:
        return OutputError(
            "HR-OUTPUT-002",
            f"cannot write {path!r}: permission denied",
            "Give the user that runs the job permission to write there.",
        )
    return OutputError(
        "HR-OUTPUT-009",
        f"cannot write {path!r}: {(cause.strerror or str(cause)).lower()}",
        "Check the path and the disk, then start the job again.",
    )


@dataclass(frozen=True, slots=True)
class Written(Generic[T]):
    """A file that was written: its size and checksum, and what its writer returned."""

    size: int
    crc: int
    result: T


class _Summed:
    """A file that adds up the checksum of what is written to it, which is never taken back."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.crc = file, 0

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def close(self) -> None:
        return None

    @property
    def closed(self) -> bool:
        return self._file.closed


def write(path: Path, content: Callable[[IO[bytes]], T]) -> Written[T]:
    """Make `path` with what `content` writes, durably. On failure nothing stays."""
    with named(path):
        try:
            with path.open("xb") as file:
                summed = _Summed(file)
                result = content(cast("IO[bytes]", summed))
                file.flush()
                files.sync(file.fileno())
                return Written(file.tell(), summed.crc, result)
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise


def check_bytes(path: Path, size: int, crc: int) -> None:
    """Raise OutputError unless `path` holds the bytes that were written to it.

    FileNotFoundError stays one: the file may have been replaced, which is no damage.
    """
    found = seen = 0
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                found, seen = zlib.crc32(block, found), seen + len(block)
    except FileNotFoundError:
        raise
    except OSError as cause:
        raise _failure(str(path), cause) from cause
    if (seen, found) != (size, crc):
        what = "its checksum is another" if seen == size else f"it has {seen} bytes, not {size}"
        raise damaged(path, what)


def check_size(path: Path, size: int) -> None:
    """Raise OutputError unless `path` is as long as it was written; cheap."""
    found = path.stat().st_size
    if found != size:
        raise damaged(path, f"it has {found} bytes, not {size}")


def damaged(path: Path, what: str) -> OutputError:
    return OutputError(
        "HR-OUTPUT-012",
        f"the output file {str(path)!r} is damaged: {what}",
        "Restore the file from a backup; only the job itself may change output files.",
    )


def remove(path: Path) -> None:
    with named(path):
        path.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raise OutputError if a folder could not be made at `path`, or not be written."""
    place = path
    with named(path):
        while not place.exists() and place != place.parent:
            place = place.parent
    if not place.is_dir():
        raise OutputError(
            "HR-OUTPUT-009",
            f"{str(place)!r} is a file, not a folder",
            "This output needs a folder: choose another path.",
        )
    if not os.access(place, os.W_OK | os.X_OK):
        raise _failure(str(path), PermissionError(errno.EACCES, "permission denied"))


def folder_for(path: Path) -> Path:
    """`path` as a folder, made durably if missing."""
    with named(path):
        files.make_folder(path)
    return path
