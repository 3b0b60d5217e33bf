"""Output files: whole or absent, and durable before anything refers to them.

Every failure of the file system becomes an OutputError that names the path and what to do.
A staged file is written once, by one task, and is invisible to readers: `part-<epoch>-<unique>-<n>`
in a folder of its own, so that leftovers can be told from what a running task is writing.
"""

from __future__ import annotations

import errno
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, Generic, TypeVar, cast

import pyarrow as pa

from headrace import files
from headrace.errors import OutputError, StateError
from headrace.files import file_name, sync_folder
from headrace.sinks.contract import Reference
from headrace.sinks.file_formats import fill, format_named, steps
from headrace.state.faults import point

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
    """A file that computes the checksum of what is written to it, from beginning to end."""

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
    """Create `path` with what `content` writes, durably. On failure no file is left."""
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
    checksum = seen = 0
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                checksum, seen = zlib.crc32(block, checksum), seen + len(block)
    except FileNotFoundError:
        raise
    except OSError as cause:
        raise _failure(str(path), cause) from cause
    if (seen, checksum) != (size, crc):
        what = "its checksum is another" if seen == size else f"it has {seen} bytes, not {size}"
        raise damaged(path, what)


def check_size(path: Path, size: int) -> None:
    """Raise OutputError unless `path` is as long as it was written; cheap."""
    length = path.stat().st_size
    if length != size:
        raise damaged(path, f"it has {length} bytes, not {size}")


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


def sync_folders(root: Path, folders: Iterable[str]) -> None:
    """Make it durable which names there are in `root`, in folders below it and between them."""
    paths = [PurePosixPath(folder) for folder in set(folders)]
    every = {root / folder for path in paths for folder in (path, *path.parents)}
    for folder in sorted(every | {root}):
        with named(folder):
            sync_folder(folder)


# Staged files.


_NAME = re.compile(r"part-(\d+)-.*")
_LARGE = 1 << 20  # bytes: fewer are not worth a thread
_READERS = 4  # threads


@dataclass(frozen=True, slots=True)
class Staging:
    folder: Path
    format: str = "arrow"
    limit: int = 1 << 62  # bytes of a file after which the next one is begun

    def add(self, table: pa.Table, epoch: int, unique: str) -> list[Reference]:
        """Write the rows durably; a reference for each file."""
        return self.add_each([table], epoch, unique)[0]

    def add_each(
        self, tables: Sequence[pa.Table], epoch: int, unique: str
    ) -> list[list[Reference]]:
        """Write the rows of each table into files of its own, one file after the other."""
        if not any(table.num_rows for table in tables):
            return [[] for _ in tables]
        folder_for(self.folder)
        found, count = list[list[Reference]](), 0
        for table in tables:
            found.append(list(self._write(table, f"{epoch:012d}-{file_name(unique)}", count)))
            count += len(found[-1])
        with named(self.folder):
            sync_folder(self.folder)
        point("sink.stage.durable")
        return found

    def _write(self, table: pa.Table, name: str, number: int) -> Iterator[Reference]:
        format = format_named(self.format)
        remaining = steps(table, format, self.limit)
        while remaining:
            file = f"part-{name}-{number}{format.suffix}"
            fill_file = partial(fill, format=format, tables=remaining, limit=self.limit)
            written = write(self.folder / file, fill_file)
            rows = sum(t.num_rows for t in remaining[: written.result])
            yield {"file": file, "rows": rows, "bytes": written.size, "crc": written.crc}
            remaining, number = remaining[written.result :], number + 1

    def add_bytes(
        self, parts: Sequence[Any], rows: int, epoch: int, unique: str, suffix: str
    ) -> Reference:
        """Write bytes that stand for so many rows, durably, into a file of their own."""
        folder_for(self.folder)
        file = f"part-{epoch:012d}-{file_name(unique)}-0{suffix}"
        written = write(self.folder / file, lambda to: [to.write(part) for part in parts])
        with named(self.folder):
            sync_folder(self.folder)
        point("sink.stage.durable")
        return {"file": file, "rows": rows, "bytes": written.size, "crc": written.crc}

    def read(self, reference: Reference) -> pa.Table:
        """The rows that a reference stands for; an error if they are not as they were staged."""
        path = self._checked(reference)
        with named(path):
            return pa.concat_tables(format_named(self.format).batches(path, pa.schema([])))

    def read_bytes(self, reference: Reference) -> pa.Buffer:
        """The bytes that a reference stands for: not copied, pages come as they are read."""
        path = self._checked(reference)
        with named(path):
            return pa.memory_map(str(path)).read_buffer()

    def at(self, reference: Reference) -> Path:
        """Where a staged file is."""
        return self.folder / safe_name(reference["file"])

    def _checked(self, reference: Reference) -> Path:
        path = self.at(reference)
        try:
            check_bytes(path, reference["bytes"], reference["crc"])
        except FileNotFoundError as cause:
            raise lost(path) from cause
        return path

    def read_all(self, references: Sequence[Reference]) -> list[pa.Table]:
        """The rows of each reference. Large files are read side by side: checksums take time."""
        return self._of_all(self.read, references)

    def read_all_bytes(self, references: Sequence[Reference]) -> list[pa.Buffer]:
        return self._of_all(self.read_bytes, references)

    def _of_all(self, read: Callable[[Reference], T], references: Sequence[Reference]) -> list[T]:
        if len(references) == 1 or sum(r["bytes"] for r in references) < _LARGE:
            return [read(r) for r in references]
        with ThreadPoolExecutor(min(len(references), _READERS)) as readers:
            return list(readers.map(read, references))

    def sweep(self, live: Set[str], upto: int | None) -> None:
        """Remove the files that are not in `live`, of epoch `upto` and before."""
        for name, epoch in self._files():
            if name not in live and (upto is None or epoch <= upto):
                remove(self.folder / name)

    def _files(self) -> Iterator[tuple[str, int]]:
        names = [p.name for p in self.folder.iterdir()] if self.folder.is_dir() else []
        for name in names:
            match = _NAME.fullmatch(name)
            if match:
                yield name, int(match[1])


def safe_name(name: str) -> str:
    """The name; OutputError unless it has the form of an output file's."""
    if "/" in name or "\\" in name or not name.startswith(("part-", "merged-")):
        raise OutputError(
            "HR-OUTPUT-007",
            f"{name!r} is not the name of an output file",
            "The job's manifest is damaged: restore the job's folder from a backup.",
        )
    return name


def noted(reference: Reference, what: str) -> str:
    """A field that outputs of one kind add to their references."""
    if what not in reference:
        raise OutputError(
            "HR-OUTPUT-007",
            f"{reference.get('file')!r} was staged by an output of another kind",
            "Start the job once with the output as it was; then change it.",
        )
    return str(reference[what])


def lost(path: Path) -> OutputError:
    match = _NAME.fullmatch(path.name)
    epoch = int(match[1]) if match else 0
    return OutputError(
        "HR-OUTPUT-005",
        f"the staged file {str(path)!r} is gone: the rows of epoch {epoch} that are to be "
        "published are nowhere else",
        instead_of(epoch),
    )


def instead_of(epoch: int) -> str:
    """What can be done when the rows of a committed epoch are lost before they are published."""
    again = (
        f"give the epoch up and read its rows again: headrace rewind ... --to-epoch {epoch - 1}"
        if epoch > 1
        else "start the job in another folder, where it reads everything again"
    )
    return f"Restore it from a backup, or {again}."
