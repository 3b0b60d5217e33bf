"""Small JSON files of the log that are replaced as a whole, with their format and a checksum."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headrace.errors import LogError
from headrace.files import replace_durably
from headrace.log.contract import unreadable


def store_sealed(path: Path, format: int, content: Mapping[str, Any]) -> None:
    data = {"format": format, **content}
    replace_durably(path, json.dumps({**data, "crc": _crc(data)}).encode())


def load_sealed(
    path: Path, format: int, damaged: Callable[[Path], LogError]
) -> dict[str, Any] | None:
    """The content of a file; None if there is none. `damaged` makes the error of one that is."""
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        data: dict[str, Any] = json.loads(raw)
        if data.pop("crc") != _crc(data):
            raise ValueError("checksum")
        found = data.pop("format")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path) from error
    if found != format:
        raise LogError(
            "HR-LOG-014",
            f"'{path}' has format {found}, this version reads {format}",
            "Use the version of headrace that wrote it, or a later one.",
        )
    return data


def _crc(data: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(data, sort_keys=True).encode())
