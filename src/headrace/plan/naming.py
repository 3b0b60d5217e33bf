"""Names that a step gets when the user gives none, made from where it reads or writes.

They depend on nothing but the place itself, so they are the same in every version of a
program.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_ODD = re.compile(r"[^\w.-]+")


def place_name(uri: object) -> str:
    """A short name for what a uri points at: "log:temperature" is "temperature"."""
    if not isinstance(uri, str):
        return _clean(type(uri).__name__.lower().removesuffix("source")) or "input"
    scheme, _, rest = uri.partition(":")
    if scheme == "files":
        parts = [p for p in PurePosixPath(rest).parts if not set(p) & set("*?[") and p != "/"]
        rest = parts[-1].split(".")[0] or parts[-1] if parts else ""
    return _clean(rest) or _clean(scheme) or "input"


def points_somewhere(uri: str) -> bool:
    """Whether the uri names a place of its own: "console:" does not."""
    scheme, _, rest = uri.partition(":")
    return bool(rest) and scheme != "console"


def _clean(text: str) -> str:
    return _ODD.sub("-", text).strip("-._")
