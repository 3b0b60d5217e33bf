"""What an input stores in the job's folder: `<folder>/inputs/<key>/`.

The key is the input's id: its first name, which stays when it is renamed. Files appear whole
or not at all, and are durable when `put` returns. Any text may be a key: what could leave the
folder or surprise a shell is percent-encoded. Nothing is made before it is written to.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from headrace.errors import InputError
from headrace.state.files import make_folder, sync_folder


def safe(name: str) -> str:
    """`name` as a file name that stays in its folder; different names stay different."""
    encoded = quote(name, safe=" +=@,").replace("~", "%7E")
    if encoded[:1] in (".", "_", " "):  # hidden, or nowhere at all
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    return encoded or "%"


def place(folder: str, key: str) -> Path:
    """The folder of the input with this key; it need not be there yet."""
    return Path(folder) / "inputs" / safe(key)


def put(path: Path, content: bytes) -> None:
    """Write `content` as `path`, atomically and durably."""
    make_folder(path.parent)
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    sync_folder(path.parent)


def damaged(what: str, path: Path, how: str) -> InputError:
    """The error for a file of an input in the job's folder that is not as it was written."""
    return InputError(
        "HR-INPUT-009",
        f"{what}, {str(path)!r}, {how}",
        "Restore it from a copy of the job's folder, or start with a new job folder.",
    )


@contextmanager
def readable(what: str, path: Path) -> Iterator[None]:
    """Turn what the system says of `path`, but that it is missing, into an InputError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as cause:
        raise damaged(what, path, f"cannot be read: {cause.strerror or cause}") from cause
