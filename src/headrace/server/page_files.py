"""The files of the page, as the package has them: read once, and served by their exact names."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    content: bytes
    kind: str
    tag: str


def page_files(folder: Path = FOLDER) -> dict[str, PageFile]:
    """Every file of a kind that is served, by its path without the first "/"; "" is the page."""
    found = {
        f"page/{path.relative_to(folder).as_posix()}": _file(path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in KINDS and path.is_file()
    }
    if (index := found.get("page/index.html")) is not None:
        found[""] = index
    return found


def _file(path: Path) -> PageFile:
    content = path.read_bytes()
    return PageFile(content, KINDS[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
