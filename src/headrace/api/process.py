"""Keyed process functions, as users import them; see `ops/process/keyed.py` for what they are."""

from __future__ import annotations

from headrace.ops.process.declare import (
    aggregating,
    last_of,
    list_of,
    map_of,
    reducing,
    shared_map,
    value,
)
from headrace.ops.process.keyed import Context, KeyedProcess

__all__ = [
    "Context", "KeyedProcess", "aggregating", "last_of", "list_of", "map_of", "reducing",
    "shared_map", "value",
]  # fmt: skip
