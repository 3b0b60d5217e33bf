"""Output files: there whole or not at all, durable before they are spoken of.

Every failure of the file system becomes an OutputError that names the path and what to do.
Any text may become part of a name: what could leave its folder is percent-encoded.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import quote

from headrace.errors import OutputError, StateError
from headrace.state.files import sync_folder

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
            f"the output's own record is not usable: {cause.message}", code="HR-OUTPUT-007",
            hint="Restore the file from a backup, or write to a new folder.",
        ) from cause  # fmt: skip


def _failure(path: str, cause: OSError) -> OutputError:
    if cause.errno in _FULL:
        return OutputError(
            f"cannot write {path!r}: the disk is full", code="HR-OUTPUT-003",
            hint="Free some space and start the job again: nothing is lost, "
            "the epoch is done anew.",
        )  # fmt: skip
    if cause.errno in _DENIED:
        return OutputError(
            f"cannot write {path!r}: permission denied", code="HR-OUTPUT-002",
            hint="Give the user that runs the job permission to write there.",
        )  # fmt: skip
    return OutputError(
        f"cannot write {path!r}: {(cause.strerror or str(cause)).lower()}", code="HR-OUTPUT-009",
        hint="Check the path and the disk, then start the job again.",
    )  # fmt: skip


def write(path: Path, content: Callable[[IO[bytes]], T]) -> tuple[int, T]:
    """Make `path` with what `content` writes, durably: its size, and what `content` returned.
    On failure nothing stays."""
    with named(path):
        try:
            with path.open("xb") as file:
                result = content(file)
                file.flush()
                os.fsync(file.fileno())
                return file.tell(), result
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise


def replace(path: Path, content: bytes) -> None:
    """Make `path` hold `content`, atomically and durably."""
    fresh = path.with_name(f".new-{uuid.uuid4().hex}")
    write(fresh, lambda file: file.write(content))
    with named(path):
        fresh.replace(path)
        sync_folder(path.parent)


def folder_for(path: Path) -> Path:
    """`path` as a folder, made durably if missing."""
    with named(path):
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            sync_folder(path.parent)
    return path


def safe(text: str) -> str:
    """`text` as part of a file name; different texts stay different."""
    encoded = quote(text, safe="").replace("~", "%7E")
    if encoded[:1] in (".", "_"):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    return encoded or "%"
