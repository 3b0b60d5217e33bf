"""Where a program meets an input: its place, its schema and its format.

The only module of `api` that looks at `sources`, and only for what an input brings of its own.
What a user says about time is in `timing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.errors import PlanError
from headrace.sources import open_source


def brought(
    uri: Any, format: str | None, options: Mapping[str, Any]
) -> tuple[pa.Schema, str | None]:
    """The schema that the input itself has, and the format that gives it."""
    source = open_source(uri, None, format, options)
    return source.schema, format or getattr(source, "format", None)


def check_place(uri: object, method: str) -> None:
    """Refuse what is neither the text of a place nor (to be read) a source."""
    if isinstance(uri, str) or (method == "read" and hasattr(uri, "splits")):
        return
    known = f'"files:{uri}"' if hasattr(uri, "__fspath__") else '"log:topic" or "files:path"'
    raise PlanError("HR-PLAN-025", f"{method} needs a place, not {uri!r}", f"Write {known}.")
