"""Keyed process functions, as users import them; what they are is said in `ops/keyed.py`."""

from __future__ import annotations

from headrace.ops.kept import aggregating, last_of, list_of, map_of, reducing, value
from headrace.ops.keyed import Context, KeyedProcess

__all__ = [
    "Context", "KeyedProcess", "aggregating", "last_of", "list_of", "map_of", "reducing", "value",
]  # fmt: skip
