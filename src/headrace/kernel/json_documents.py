"""JSON documents in Python as DuckDB reads them: numbers as text, keys in pairs.

A document must read the same on the fast path and here. Python's own reading would refuse
numbers of more than 4,300 digits, drop the second of two equal keys, and round
12345678901234567890.12.

`get_json_object` is Spark's, character by character, or the row fails with `Unsupported`. As
there, a document is read leniently (single quotes, control characters inside of texts, anything
after its end) but whole, and null is the result of whatever cannot be read. A text comes out as
it is, everything else as compact JSON with doubles spelt as in Java 19 and later. `_find` follows
Spark's evaluation case by case, because how matches of [*] are wrapped into arrays depends on how
many there are and on the steps around.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np

from headrace.expr.patterns import ALL, PathStep

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


def _large_hex(match: re.Match[str]) -> str:
    return match[0] if match[1] else f"\\u00{match[2].upper()}"


_LONGEST_NUMBER, _LONGEST_NAME, _LONGEST = 1_000, 25_000, 10_000_000  # Spark reads no others
_BLANKS = " \t\n\r"
_STRINGS = re.compile(r"""("(?:[^"\\]|\\.)*")|'((?:[^'\\]|\\.)*)'""", re.DOTALL)
_INSIDE = re.compile(r"\\(.)|(\")", re.DOTALL)
_PLAIN = re.compile(r'["\\\x00-\x1f]')
_NARROW = re.compile('["\\\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_HALF, _HALVES = re.compile("[\ud800-\udfff]"), re.compile("[\udc00-\udfff]{2}")
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r",
          "\t": "\\t"}  # fmt: skip


class Unsupported(Exception):
    """A document of which it is not certain what Spark finds there."""


class _Malformed(ValueError):
    pass


class _Object(list[tuple[str, Any]]):
    """The fields of an object, as often as they are there."""

    __slots__ = ()


class _Integer(str):
    __slots__ = ()


class _Fraction(str):
    __slots__ = ()


class _Style(Enum):
    RAW = 1  # a text has no quotes
    QUOTED = 2
    FLAT = 3  # arrays dissolve in the one around


class _Out:
    """The values written so far at one level, and which characters are escaped there."""

    __slots__ = ("escaped", "raw", "values")

    def __init__(self, escaped: re.Pattern[str]) -> None:
        self.escaped = escaped
        self.values: list[str] = []
        self.raw = ""

    def listed(self) -> str:
        return f"[{','.join(self.values)}]"


def get_json_object(document: str, path: tuple[PathStep, ...]) -> str | None:
    """What is found at `path`, as text; None if nothing is or the document is malformed."""
    try:
        root = _read(document)
    except _Malformed:
        return None
    except RecursionError:
        raise Unsupported(TOO_DEEP) from None
    out = _Out(_NARROW)
    if not _find(root, path, _Style.RAW, out):
        return None
    text = " ".join(out.values) + out.raw
    if _HALVES.search(text):
        raise Unsupported("the text has halves of surrogate pairs")
    return None if _HALF.search(text) else text


# reading


def _read(document: str) -> Any:
    if len(document) > _LONGEST:
        raise Unsupported(f"the document has more than {_LONGEST} characters")
    try:
        return _decode(document)
    except _Malformed:
        if "'" not in document:
            raise
    return _decode(_STRINGS.sub(_requoted, document))


def _decode(text: str) -> Any:
    start = len(text) - len(text.lstrip(_BLANKS))
    try:
        root, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise _Malformed from error
    if text.count("[") + text.count("{") > DEEPEST and depth(text[:end].encode()) > DEEPEST:
        raise Unsupported(TOO_DEEP)
    _check_end(root, text[end : end + 1])
    return root


def _check_end(root: Any, follows: str) -> None:
    """A number ends with a blank, a word with what cannot go on with it."""
    if isinstance(root, _Integer | _Fraction):
        if follows not in _BLANKS:
            raise _Malformed
    elif (root is None or isinstance(root, bool)) and follows:
        if follows > "~":
            raise Unsupported("it is unclear where the document ends")
        if follows.isalnum() or follows == "_":
            raise _Malformed


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    if any(len(name) > _LONGEST_NAME for name, _ in pairs):
        raise Unsupported(f"a name has more than {_LONGEST_NAME} characters")
    return _Object(pairs)


def _integer(text: str) -> _Integer:
    return _Integer(_short(text))


def _fraction(text: str) -> _Fraction:
    return _Fraction(_short(text))


def _short(text: str) -> str:
    if len(text) > _LONGEST_NUMBER:
        raise Unsupported(f"a number has more than {_LONGEST_NUMBER} characters")
    return text


def _constant(text: str) -> Any:
    raise _Malformed(text)


_DECODER = json.JSONDecoder(
    strict=False,
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_fraction,
    parse_constant=_constant,
)


def _requoted(match: re.Match[str]) -> str:
    """A text in double quotes, in which an apostrophe needs no escape."""
    inside = match[1][1:-1] if match[1] is not None else match[2]
    return f'"{_INSIDE.sub(_unescaped, inside)}"'


def _unescaped(match: re.Match[str]) -> str:
    if match[2]:
        return '\\"'
    return "'" if match[1] == "'" else match[0]


# finding


def _find(value: Any, path: Sequence[PathStep], style: _Style, out: _Out) -> bool:
    """Write what is found at `path` of `value`; whether anything is."""
    if not path:
        return _write(value, style, out)
    step, rest = path[0], path[1:]
    if isinstance(step, str):
        fields = value if isinstance(value, _Object) else ()
        return any(_find(v, rest, style, out) for n, v in fields if n == step and v is not None)
    if type(value) is not list:
        return False
    if step is ALL:
        return _find_all(value, rest, style, out)
    inner = _Style.QUOTED if rest and rest[0] is ALL else style
    return step < len(value) and _find(value[step], rest, inner, out)


def _find_all(array: list[Any], rest: Sequence[PathStep], style: _Style, out: _Out) -> bool:
    twice = bool(rest) and rest[0] is ALL
    if twice or style is _Style.QUOTED:
        inner, inner_style = _Out(out.escaped), _Style.FLAT if twice else _Style.QUOTED
        results = [_find(v, rest[1:] if twice else rest, inner_style, inner) for v in array]
        out.values.append(inner.listed())
        return any(results)
    inner, inner_style = _Out(_PLAIN), _Style.QUOTED if style is _Style.RAW else style
    count = sum([_find(v, rest, inner_style, inner) for v in array])
    if count:
        out.values.append(inner.listed() if count > 1 else inner.listed()[1:-1])
    return count > 0


# writing


def _write(value: Any, style: _Style, out: _Out) -> bool:
    if style is _Style.RAW and type(value) is str:
        out.raw += value
        return True
    if style is _Style.FLAT and type(value) is list:
        return any([_write(v, style, out) for v in value])
    out.values.append(_spelt(value, out.escaped))
    return True


def _spelt(value: Any, escaped: re.Pattern[str]) -> str:
    if isinstance(value, _Integer):
        return "0" if value == "-0" else str(value)
    if isinstance(value, _Fraction):
        return java_double(float(value))
    if isinstance(value, str):
        return f'"{escaped.sub(_escape, value)}"'
    if isinstance(value, _Object):
        fields = [f"{_spelt(n, escaped)}:{_spelt(v, escaped)}" for n, v in value]
        return f"{{{','.join(fields)}}}"
    if isinstance(value, list):
        return f"[{','.join([_spelt(v, escaped) for v in value])}]"
    return {None: "null", True: "true", False: "false"}[value]


def _escape(match: re.Match[str]) -> str:
    sign = match[0]
    if sign in _SHORT:
        return _SHORT[sign]
    units = sign.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def java_double(value: float) -> str:
    """A double as Java 19 and later, and JSON written there, spell it."""
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    digits, power = _digits(repr(value))
    if len(digits) == 1:  # of two digits, the nearest
        digits, power = _digits(f"{value:.1e}")
    sign = "-" if value < 0 else ""
    if not -3 <= power < 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    whole = digits[: power + 1].ljust(power + 1, "0")
    return f"{sign}{whole}.{digits[power + 1 :] or '0'}"


def _digits(spelt: str) -> tuple[str, int]:
    """The digits of a decimal, and the power of ten of the first."""
    number = Decimal(spelt)
    return "".join(map(str, number.as_tuple().digits)).rstrip("0"), number.adjusted()
