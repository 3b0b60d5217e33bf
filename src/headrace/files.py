"""Files that appear whole or not at all, and are durable when a function says so; their names.

The only module that syncs, links and replaces. What the operating system refuses is raised as it
is, an OSError: each room reports it with its own codes. There are no crash points here: they lie
between these calls, in the rooms that make them.
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

TEMPORARY = ".new-"  # how names of unfinished files begin; what a crash leaves is swept
_WRITE = 1 << 30  # bytes per system call: some systems refuse more than 2 GB
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/{2,}")


def temporary(path: Path) -> Path:
    """An unused name in the folder of `path`."""
    return path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The name to write under; at the end of the block the file takes the place of `path`.

    Readers see the old file or the new one. Durable only as far as the block makes it.
    """
    fresh = temporary(path)
    try:
        yield fresh
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def replace_durably(path: Path, content: bytes) -> None:
    """Make `path` hold `content`, whole and durable."""
    with replacing(path) as fresh, fresh.open("xb") as file:
        file.write(content)
        file.flush()
        sync(file.fileno())
    sync_folder(path.parent)


def link_if_absent(file: Path, path: Path) -> bool:
    """Give `file` the name `path` as well; False if that is taken."""
    try:
        os.link(file, path)
    except FileExistsError:
        return False
    return True


def write_all(fd: int, content: bytes | memoryview) -> None:
    """Append all of it to an open file."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest[:_WRITE]) :]


def sync(fd: int) -> None:
    """Make a file's content durable, with its size and times."""
    os.fsync(fd)


def sync_content(fd: int) -> None:
    """Make a file's content durable, and of the rest what is needed to read it."""
    os.fdatasync(fd)


def sync_folder(folder: Path) -> None:
    """Make it durable which names there are in `folder`."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(handle)
    finally:
        os.close(handle)


def irregular(path: Path) -> str:
    """Why there is no file of that name, in words; "" if there is one."""
    if path.is_file():
        return ""
    if path.is_symlink():
        return f"it is a link to {str(path.readlink())!r}, where there is no file"
    return "it is a folder" if path.is_dir() else "it is missing"


def unusable(path: Path) -> str:
    """Why a file of that name can neither be opened nor made, in words; "" if it can be."""
    try:
        path.stat()
    except FileNotFoundError:
        return ""  # also where a link leads nowhere
    except OSError:
        pass
    return irregular(path)


def put_away(path: Path) -> None:
    """Remove what is in the place of a file: a file, a link, or a folder that is empty."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make `folder`, durably, unless it is there."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)


# A lock (`flock`) belongs to an open file, so it holds between threads as well as processes, and
# goes with a process that is killed. A forked child closes its copies at once, and a program that
# is started inherits none (O_CLOEXEC).
lock_files: set[int] = set()  # descriptors of files that are locked, or are about to be


def take_lock(
    path: Path, how: int = fcntl.LOCK_EX | fcntl.LOCK_NB, flags: int = os.O_RDWR | os.O_CREAT
) -> int | None:
    """Lock a file, which is made if there is none, for this process; None if another has it."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
    lock_files.add(fd)
    try:
        fcntl.flock(fd, how)
    except BlockingIOError:
        close_lock(fd)
        return None
    except BaseException:
        close_lock(fd)
        raise
    return fd


def close_lock(fd: int) -> None:
    if fd in lock_files:  # else we are a child that was forked meanwhile
        lock_files.discard(fd)
        os.close(fd)


def _close_in_child() -> None:
    for fd in lock_files:
        with suppress(OSError):
            os.close(fd)
    lock_files.clear()


os.register_at_fork(after_in_child=_close_in_child)


def file_name(text: str, plain: str = "") -> str:
    """`text` as a name that stays in its folder and is not hidden; different texts stay different.

    All but letters, digits, `-`, `.`, `_` and `plain` is percent-encoded.
    """
    encoded = quote(text, safe=plain).replace("~", "%7E")
    if encoded[:1] in (".", "_", " "):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    return encoded or "%"


def remote_scheme(path: str) -> str | None:
    """The scheme at the beginning of what should be a path, as "s3://"; None if it is a path."""
    match = _SCHEME.match(path)
    return match[0] if match else None


def size(count: int) -> str:
    """A number of bytes as people read it: 12 B, 3.4 MB."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
