"""A column of JSON values, spelt as JSON, as a type: the one rule for plain values in documents.

Null where a value does not fit; nothing is bent. A text is read as a field of CSV is, except that
bytes are base64 and true and false are no texts. A number is an integer if it is whole, however it
is spelt (5, 5.0, 5e0), a decimal if no digit is lost, a timestamp if it is whole milliseconds since
1970, and no date. true and false are booleans only.
"""

from __future__ import annotations

import base64
import binascii
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from headrace.clock import FIRST_TIME, LAST_TIME
from headrace.kernel.text_cast import cast_text, isolate

_LONGEST = 20  # digits; no integer column holds more


def scalars(texts: pa.Array, to: pa.DataType) -> pa.Array:
    """The values as `to`; null where they do not fit it."""
    if pt.is_boolean(to):
        known = pc.is_in(texts, pa.array(["true", "false"], texts.type))
        return pc.if_else(known, pc.equal(texts, "true"), None)
    quoted = pc.starts_with(texts, '"')
    if not pc.any(quoted).as_py():
        return _bare(texts, to)
    if pc.all(quoted).as_py():
        return _quoted(texts, to)
    spelt = _quoted(pc.if_else(quoted, texts, None), to)
    return pc.coalesce(spelt, _bare(pc.if_else(quoted, None, texts), to))


def _quoted(texts: pa.Array, to: pa.DataType) -> pa.Array:
    content = pc.binary_slice(texts.cast(pa.binary()), 1, -1)
    escaped = pc.match_substring(texts, "\\").fill_null(False)
    if pc.any(escaped).as_py():
        loaded = [json.loads(t).encode() for t in texts.filter(escaped).to_pylist()]
        content = pc.replace_with_mask(content, escaped, pa.array(loaded, pa.binary()))
    if pt.is_binary(to) or pt.is_large_binary(to):
        return pa.array([_bytes(v) for v in content.to_pylist()], to)
    return cast_text(content, to)[0]


def _bytes(text: bytes | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _bare(texts: pa.Array, to: pa.DataType) -> pa.Array:
    """Numbers, and what is none: true, false, lists, objects."""
    if pt.is_integer(to):
        return _whole(texts, to)
    if pt.is_timestamp(to):
        millis = _whole(texts, pa.int64())
        inside = pc.and_(pc.greater_equal(millis, FIRST_TIME), pc.less_equal(millis, LAST_TIME))
        shown = pc.if_else(inside, millis, None).cast(pa.timestamp("ms", to.tz))
        return shown.cast(to)
    if pt.is_floating(to) or pt.is_decimal(to):
        return cast_text(texts.cast(pa.binary()), to)[0]
    return pa.nulls(len(texts), to)


def _whole(texts: pa.Array, to: pa.DataType) -> pa.Array:
    try:
        return texts.cast(to)
    except pa.ArrowException:
        texts = pc.replace_substring_regex(texts, r"^(-?[0-9]+)\.0+$", r"\1")
    numbers = pc.match_substring_regex(texts, r"^-?[0-9]").fill_null(False)
    odd = pc.and_(numbers, pc.match_substring_regex(texts, "[.eE]").fill_null(False))
    if pc.any(odd).as_py():
        spelt = pa.array([_spelt(t) for t in texts.filter(odd).to_pylist()], texts.type)
        texts = pc.replace_with_mask(texts, odd, spelt)
    texts = pc.if_else(numbers, texts, None)  # lists and words are many, or none
    return isolate(texts, to, lambda part: part.cast(to))[0]


def _spelt(text: str) -> str | None:
    """1.5e1 as 15; None if it is not whole, or no integer column could hold it."""
    digits, _, power = text.lower().partition("e")
    if len(power) > len(str(_LONGEST)) + 7 or len(digits) > 10_000:
        return None
    number = Decimal(text)
    if not number:
        return "0"
    small = number.adjusted() < _LONGEST and number == number.to_integral_value()
    return str(int(number)) if small else None
