"""Places on other systems ("s3://bucket/x"), which are not folders of this machine.

Everything here reads and writes files of this machine: a place with a scheme would become a
folder of that name. Whoever takes a path from a user asks here and refuses it by name.
"""

from __future__ import annotations

import os
import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def scheme_of(path: str | os.PathLike[str]) -> str | None:
    """The scheme with which the path begins, such as "s3"; None of a path of this machine."""
    found = _SCHEME.match(os.fspath(path))
    return found[1] if found else None


def scheme_hint(path: str | os.PathLike[str]) -> str:
    """What to write instead of such a path."""
    rest = _SCHEME.sub("", os.fspath(path), count=1)
    if scheme_of(path) == "file":
        return f"Leave out the scheme: {rest}"
    return "Only folders of this machine can be used, such as one where that storage is mounted."
