"""Text to types, column by column, and the values that cannot be cast.

A whole column is cast at once; only when that fails is it halved until each bad value is alone,
so a clean chunk costs one cast and a bad value a few.

A plain value of a JSON document is cast by `scalars`: null where it does not fit the type. A text
is read as a field of CSV is, except that bytes are base64 and true and false are no texts. A
number is an integer if it is whole, however it is spelt (5, 5.0, 5e0), a decimal if no digit is
lost, a timestamp if it is whole milliseconds since 1970, and no date. true and false are booleans
only.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from headrace.arrays import Mask, beyond, milliseconds
from headrace.clock import FIRST_TIME, LAST_TIME
from headrace.isolate import by_halving
from headrace.schema import ddl_type

NOT_TEXT = "not UTF-8 text"
_DIGITS = 38  # of the longest decimal
_TOO_MANY = rf"^[+-]?[0.]*(\d\.?){{{_DIGITS + 1}}}"
_FINE = len("2024-01-01T00:00:00.000000")
_ZONE = r"[T ]\d\d:?\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"


def cast_text(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Binary text as `kind`: null where it cannot be cast, and the positions of those values."""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return values.cast(kind), []
    text, not_text = isolate(values, pa.string(), lambda v: v.cast(pa.string()))
    if pa.types.is_string(kind):
        return text, not_text
    cast, bad = isolate(text, kind, lambda v: _parse(v, kind))
    return cast, sorted({*bad, *not_text})


def reason(name: str, value: bytes | None, kind: pa.DataType) -> str:
    shown = (value or b"")[:80].decode("utf-8", "replace")
    return f"column {name!r}: {shown!r} is not {ddl_type(kind)}"


def isolate(
    values: pa.Array, kind: pa.DataType, cast: Callable[[pa.Array], pa.Array]
) -> tuple[pa.Array, list[int]]:
    """`cast(values)`, with null for the values that cannot be cast, and their positions."""
    bad: list[int] = []

    def null(first: int, _: int, __: Exception) -> pa.Array:
        bad.append(first)
        return pa.nulls(1, kind)

    caught = (pa.ArrowException, ValueError)
    parts = by_halving(len(values), lambda a, b: cast(values[a:b]), null, caught=caught)
    return pa.concat_arrays(list(parts)), bad


def gather(columns: Sequence[pa.Array], schema: pa.Schema, bad: Mask) -> pa.Table:
    """The good rows of `columns`."""
    loose = pa.schema([f.with_nullable(True) for f in schema])
    table = pa.Table.from_arrays(list(columns), schema=loose)
    table = table.filter(pa.array(~bad)) if bad.any() else table
    return pa.Table.from_arrays(table.columns, schema=schema)


def _parse(text: pa.Array, kind: pa.DataType) -> pa.Array:
    text = pc.utf8_trim_whitespace(text)
    if pa.types.is_timestamp(kind):
        return _shown(_times(text, kind))
    if pa.types.is_date(kind):
        return _shown(text.cast(kind))
    if pa.types.is_decimal(kind):
        return _decimals(text, kind)
    if pa.types.is_floating(kind):
        return _doubles(text, kind)
    if (
        pa.types.is_integer(kind)
        and pc.any(pc.match_substring(text, "x", ignore_case=True)).as_py()
    ):
        raise ValueError("a number that is not decimal")  # Arrow reads 0x10
    return text.cast(kind)


def _doubles(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Arrow makes infinity of a number that is too large."""
    doubles = text.cast(kind)
    spelt = text.filter(pc.is_inf(doubles))
    if len(spelt) and pc.any(pc.match_substring_regex(spelt, r"\d")).as_py():
        raise ValueError("a number that is too large")
    return doubles


def _decimals(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Arrow computes in 128 bits, and silently makes another number of too many digits."""
    powers = pc.match_substring_regex(text, "[eE]")
    if pc.any(powers).as_py():
        written = [_without_power(t) for t in text.filter(powers).to_pylist()]
        text = pc.replace_with_mask(text, powers.fill_null(False), pa.array(written, pa.string()))
    integer_digits = kind.precision - kind.scale
    longest = pc.max(pc.utf8_length(text)).as_py() or 0
    if longest > integer_digits:
        too_large = pc.match_substring_regex(text, rf"^[+-]?0*[1-9]\d{{{integer_digits}}}")
        if pc.any(pc.or_(too_large, pc.match_substring_regex(text, _TOO_MANY))).as_py():
            raise ValueError(f"a number of more than {integer_digits} or {_DIGITS} digits")
    return text.cast(kind)


def _without_power(text: str) -> str:
    """1e3 as 1000."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a number") from None
    if not number.is_finite() or abs(number.adjusted()) > _DIGITS:
        raise ValueError(f"{text!r} has too many digits")
    return f"{number:f}"


def _shown(times: pa.Array) -> pa.Array:
    """The times; ValueError if one is outside the calendar."""
    if beyond(milliseconds(pa.chunked_array([times]))) is not None:
        raise ValueError("a time that is not within the years 1 to 9999")
    return times


def _times(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """ISO 8601; a time without a zone is UTC; what is finer than a microsecond is cut."""
    if (pc.max(pc.utf8_length(text)).as_py() or 0) > _FINE:
        text = pc.replace_substring_regex(text, r"(:\d\d\.\d{6})\d+", r"\1")
    zoned = pc.match_substring_regex(text, _ZONE)
    with_zone = pc.if_else(zoned, text, None).cast(pa.timestamp(kind.unit, tz="UTC"))
    without = pc.if_else(zoned, None, text).cast(pa.timestamp(kind.unit))
    return pc.coalesce(with_zone.cast(kind), without.cast(kind))


# JSON values, spelt as JSON

_LONGEST = 20  # digits; no integer column holds more


def scalars(texts: pa.Array, to: pa.DataType) -> pa.Array:
    """The values as `to`; null where they do not fit it."""
    if pt.is_boolean(to):
        booleans = pc.is_in(texts, pa.array(["true", "false"], texts.type))
        return pc.if_else(booleans, pc.equal(texts, "true"), None)
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
        return _integers(texts, to)
    if pt.is_timestamp(to):
        millis = _integers(texts, pa.int64())
        inside = pc.and_(pc.greater_equal(millis, FIRST_TIME), pc.less_equal(millis, LAST_TIME))
        shown = pc.if_else(inside, millis, None).cast(pa.timestamp("ms", to.tz))
        return shown.cast(to)
    if pt.is_floating(to) or pt.is_decimal(to):
        return cast_text(texts.cast(pa.binary()), to)[0]
    return pa.nulls(len(texts), to)


def _integers(texts: pa.Array, to: pa.DataType) -> pa.Array:
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
