"""Functions that DuckDB has not: Python over the distinct values of a vector.

Invariant: each is pure; null where an argument is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.expr.json_paths import json_path
from headrace.expr.types import DIGEST, JSON_OBJECT
from headrace.kernel.json_object import get_json_object


def _digests(values: Any, bits: Any) -> pa.Array:
    """SHA-2 of as many bits, in hexadecimal digits."""
    return _by_value(values, bits, lambda v, n: hashlib.new(f"sha{n}", v).hexdigest())


def _json_objects(documents: Any, paths: Any) -> pa.Array:
    return _by_value(documents, paths, lambda d, path: get_json_object(d, json_path(path)))


def _by_value(values: Any, others: Any, function: Callable[[Any, Any], str | None]) -> pa.Array:
    """`function` of each pair; once for each pair that is different."""
    pairs = list(zip(values.to_pylist(), others.to_pylist(), strict=True))
    made = {pair: function(*pair) for pair in dict.fromkeys(pairs) if None not in pair}
    return pa.array([made.get(pair) for pair in pairs], pa.string())


# name, function, and what it takes; each gives text
OWN_FUNCTIONS: tuple[tuple[str, Callable[..., pa.Array], list[str]], ...] = (
    (DIGEST, _digests, ["BLOB", "INTEGER"]),
    (JSON_OBJECT, _json_objects, ["VARCHAR", "VARCHAR"]),
)
