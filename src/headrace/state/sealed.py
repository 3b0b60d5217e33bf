"""Sealed files: a header line with kind, format and checksum, and a line of JSON.

One is made durable under a temporary name and then linked to its own, which must be free. So
a reader sees all of it or none, and of two writers one wins. Every failure of the file system
becomes a StateError that names the path.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headrace import files
from headrace.errors import StateError
from headrace.state.faults import point

FORMAT = 1


@contextmanager
def named_failures(path: Path) -> Iterator[None]:
    """Turn what the operating system says about `path` into a StateError."""
    try:
        yield
    except FileNotFoundError as error:
        raise missing(path) from error
    except OSError as error:
        raise _unusable("use", path, error) from error


def _unusable(what: str, path: Path, error: OSError) -> StateError:
    return StateError(
        "HR-STATE-006",
        f"cannot {what} {str(path)!r}: {error.strerror or error}",
        "Check the disk's free space and the folder's permissions, then start again.",
    )


def missing(path: Path) -> StateError:
    return StateError(
        "HR-STATE-003",
        f"{str(path)!r} is missing",
        "The job's folder is incomplete: restore it from a copy, or start in a new folder.",
    )


def corrupt(path: Path, what: str) -> StateError:
    return StateError(
        "HR-STATE-004",
        f"{str(path)!r} is corrupt: {what}",
        "Restore this file from a copy of the job's folder, or start in a new folder.",
    )


def unknown_format(path: Path, version: object) -> StateError:
    return StateError(
        "HR-STATE-002",
        f"{str(path)!r} has format {version}, this version reads format {FORMAT}",
        "Run the job with the version of Headrace that wrote the folder.",
    )


def make_folder(folder: Path) -> None:
    """As in `files`; a failure is a StateError."""
    try:
        files.make_folder(folder)
    except OSError as error:
        raise _unusable("make", folder, error) from error


def create_sealed(path: Path, kind: str, content: dict[str, Any]) -> bool:
    """Durably create `path`; False if it is there already, also durably."""
    with named_failures(path):
        temporary = files.temporary(path)
        try:
            _write_synced(temporary, _seal(kind, content), kind)
            created = files.link_if_absent(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
        point(f"{kind}.linked")
        files.sync_folder(path.parent)
        point(f"{kind}.durable")
        return created


def replace_sealed(path: Path, kind: str, content: dict[str, Any]) -> None:
    """Make `path` hold `content`: whole, but durable only when the system gets to it."""
    with named_failures(path), files.replacing(path) as temporary:
        temporary.write_bytes(_seal(kind, content))


def replace_sealed_durably(path: Path, kind: str, content: dict[str, Any]) -> None:
    """Make `path` hold `content`, whole and durable."""
    with named_failures(path):
        files.replace_durably(path, _seal(kind, content))


def _write_synced(path: Path, data: bytes, kind: str) -> None:
    with path.open("xb") as file:
        point(f"{kind}.opened")
        file.write(data)
        file.flush()
        point(f"{kind}.written")
        files.sync(file.fileno())
    point(f"{kind}.synced")


def _seal(kind: str, content: dict[str, Any]) -> bytes:
    payload = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    header = {"headrace": kind, "format": FORMAT, "bytes": len(payload)}
    header["crc32"] = zlib.crc32(payload)
    return json.dumps(header, separators=(",", ":")).encode() + b"\n" + payload + b"\n"


def read_sealed(path: Path, kind: str) -> dict[str, Any]:
    """The content of a sealed file, or a StateError that says what is wrong with it."""
    with named_failures(path):
        data = path.read_bytes()
    first, _, rest = data.partition(b"\n")
    header = _header(path, first)
    if header.get("headrace") != kind:
        raise corrupt(path, f"it is not a {kind} file")
    if header.get("format") != FORMAT:
        raise unknown_format(path, header.get("format"))
    payload = rest[:-1]
    if rest[-1:] != b"\n" or header.get("bytes") != len(payload):
        raise corrupt(path, f"it is {len(data)} bytes long, its header says otherwise")
    if header.get("crc32") != zlib.crc32(payload):
        raise corrupt(path, "its checksum does not match")
    content: dict[str, Any] = json.loads(payload)
    return content


def kind_of(path: Path) -> str:
    """What a sealed file says it is, by its header; whether it is whole, `read_sealed` says."""
    with named_failures(path):
        first, _, _ = path.read_bytes().partition(b"\n")
    return str(_header(path, first).get("headrace"))


def _header(path: Path, line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except ValueError as error:
        raise corrupt(path, "its header cannot be read") from error
    if not isinstance(header, dict):
        raise corrupt(path, "its header cannot be read")
    return header


def numbered(folder: Path, pattern: re.Pattern[str]) -> list[int]:
    """The numbers (group 1 of `pattern`) of the files in `folder`, ascending."""
    with named_failures(folder):
        matches = (pattern.fullmatch(name) for name in os.listdir(folder))
        return sorted(int(match[1]) for match in matches if match)
