"""What an input keeps in the job's folder: `<folder>/inputs/<name>/`.

Files appear whole or not at all, and are durable when `put` returns. Any text may be a name:
what could leave the folder or surprise a shell is percent-encoded. Nothing else here.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from urllib.parse import quote

from headrace.state.files import sync_folder


def safe(name: str) -> str:
    """`name` as a file name that stays in its folder; different names stay different."""
    encoded = quote(name, safe=" +=@,").replace("~", "%7E")
    if encoded[:1] in (".", "_", " "):  # hidden, or nowhere at all
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    return encoded or "%"


def place(folder: str, name: str) -> Path:
    """The folder of input `name`, made if missing."""
    path = Path(folder) / "inputs" / safe(name)
    path.mkdir(parents=True, exist_ok=True)
    return path


def put(path: Path, content: bytes) -> None:
    """Write `content` as `path`, atomically and durably."""
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
