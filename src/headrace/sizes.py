"""Numbers of bytes, as people read and write them."""

from __future__ import annotations

import re

from headrace.errors import LogError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)


def bytes_of(text: str) -> int:
    """A number of bytes: 1000000, 500MB, 1.5 GiB."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise LogError("HR-LOG-004", f"{text!r} is not a size", 'Write "500MB", "1GB" or bytes.')
    unit = " kmgt".index(match[2].lower() or " ")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * float(base**unit))


def size(count: int) -> str:
    """A number of bytes: 12 B, 3.4 MB."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
