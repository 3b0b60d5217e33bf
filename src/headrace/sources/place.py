"""What an input stores in the job's folder: `<folder>/inputs/<key>/`.

The key is the input's id: its first name, which stays when it is renamed. Files appear whole
or not at all, and are durable when `put` returns. Any text may be a key: what could leave the
folder or surprise a shell is percent-encoded. Nothing is made before it is written to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import InputError
from headrace.files import file_name, replace_durably
from headrace.state.sealed import make_folder


def place(folder: str, key: str) -> Path:
    """The folder of the input with this key; it need not be there yet."""
    return Path(folder) / "inputs" / file_name(key, plain=" +=@,")


def put(path: Path, content: bytes) -> None:
    """Write `content` as `path`, atomically and durably."""
    make_folder(path.parent)
    replace_durably(path, content)


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
