"""What a place in a URI's text is: a path of this machine, or something else."""

from __future__ import annotations

import re

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/{2,}")


def remote_scheme(path: str) -> str | None:
    """The scheme at the beginning of what should be a path, as "s3://"; None if it is a path."""
    match = _SCHEME.match(path)
    return match[0] if match else None
