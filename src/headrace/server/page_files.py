"""The files of the page, as the package has them: read once, and served by their exact names.

An address of theirs holds a digest of all of them, so a browser need never ask again for one that
it has; and after an upgrade it cannot mix old ones with new ones. Modules import each other by
relative names, so only the page itself, which is asked for each time, says the digest.
"""

from __future__ import annotations

import gzip
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
    packed: bytes  # by gzip
    kind: str
    tag: str
    is_final: bool  # its address never has another content


def page_files(folder: Path = FOLDER) -> dict[str, PageFile]:
    """Every file of a kind that is served, by its path without the first "/"; "" is the page."""
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in KINDS and path.is_file()
    }
    digest = _digest("\0".join(f"{name}\0{_digest(found[name])}" for name in found).encode())
    place = f"page/{digest[:16]}/"
    page = found.pop("index.html").replace(b'"page/', f'"{place}'.encode())
    files = {f"{place}{name}": _file(name, content, True) for name, content in found.items()}
    return {"": _file("index.html", page, False), **files}


def digest_of(files: dict[str, PageFile]) -> str:
    """What the addresses of the files hold: of another version of the page it is another one."""
    return next(name for name in files if name).split("/")[1]


def _file(name: str, content: bytes, is_final: bool) -> PageFile:
    packed = gzip.compress(content, mtime=0)
    return PageFile(content, packed, KINDS[Path(name).suffix], f'"{_digest(content)}"', is_final)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
