"""Which input, output or step a test means: by its name, or the only one there is."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from headrace.errors import RunError


def chosen(name: str | None, known: Collection[str], what: str) -> str:
    """The name, if it is known; without one, the only one there is."""
    if name is None and len(known) == 1:
        return next(iter(known))
    if name in known:
        return str(name)
    close = difflib.get_close_matches(str(name), known, 1)
    meant = f"Did you mean {close[0]!r}? " if close else ""
    fact = f"has no {what} {name!r}" if name is not None else f"has {len(known)} {what}s"
    raise RunError(
        f"the job {fact}", code="HR-TEST-004",
        hint=f"{meant}Known: {', '.join(map(repr, known)) or 'none'}.",
    )  # fmt: skip
