"""JSON documents in Python as DuckDB reads them: numbers as text, keys in pairs.

A document must read the same on the fast path and here. Python's own reading would refuse
numbers of more than 4,300 digits, drop the second of two equal keys, and round
12345678901234567890.12.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

DEEPEST = 256  # levels of lists and objects in a document; Python's own reading ends below 1,000
TOO_DEEP = f"the document is nested more than {DEEPEST} levels deep"
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_SMALL_HEX = re.compile(r"(\\\\)|\\u00(1[a-f]|0[a-f])")
_STEPS = np.zeros(256, np.int64)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


class Number(str):
    """A number, spelt as the document spells it."""

    __slots__ = ()


class Fields(dict[str, Any]):
    """An object: of a repeated key the first value counts, but all are there in `pairs`."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(reversed(pairs))
        self.pairs = pairs


def load(text: str) -> Any:
    """The document, its numbers as they are written; ValueError if it is malformed or nested too
    deeply."""
    try:
        return json.loads(
            text,
            object_pairs_hook=Fields,
            parse_int=Number,
            parse_float=Number,
            parse_constant=Number,
        )
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def written(value: Any) -> str:
    """A value as compact JSON text, spelt as DuckDB spells it."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, Fields):
        return "{" + ",".join([f"{written(k)}:{written(v)}" for k, v in value.pairs]) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    text = json.dumps(value, ensure_ascii=False)
    return _SMALL_HEX.sub(_large_hex, text) if "\\u" in text else text


def depth(document: bytes) -> int:
    """How many levels of lists and objects it has; brackets inside its texts do not count."""
    octets = np.frombuffer(_ESCAPED.sub(b"", document), np.uint8)
    outside = np.cumsum(octets == ord('"')) % 2 == 0
    return int(np.cumsum(_STEPS[octets] * outside).max(initial=0))


def _large_hex(found: re.Match[str]) -> str:
    return found[0] if found[1] else f"\\u00{found[2].upper()}"
