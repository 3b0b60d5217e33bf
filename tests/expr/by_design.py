"""Where Headrace differs from Spark by design: the table of docs/guide/expressions.md, as rules.

Each has texts that must differ in just that way (if one comes to agree, the test fails and the
row goes), and says which differences of drawn texts are of its kind.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.expr.spark_oracle import Difference, Failure

_NUMBER = r"-?\d+\.\d+(?:E-?\d+)?"
Kind = Callable[[Difference], bool]


@dataclass(frozen=True, slots=True)
class Design:
    """One row of the table: its first cell there, and how to know a difference of its kind."""

    row: str
    kind: Kind
    examples: tuple[str, ...]


def _raised(*conditions: str) -> Kind:
    def kind(found: Difference) -> bool:
        theirs = found.theirs
        return isinstance(theirs, Failure) and theirs.why.startswith(conditions)

    return kind


def _no_time(found: Difference) -> bool:
    theirs = found.theirs
    overflows = isinstance(theirs, Failure) and theirs.why.startswith("CAST_OVERFLOW")
    return _failed(found, " is no time") or (overflows and "make_timestamp" in found.text)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _decimal(found: Difference) -> bool:
    """The same number up to the last digit of Spark's decimal, or what a double function makes
    of a quotient of decimals, which has six digits or more there."""
    ours, theirs = found.ours, found.theirs
    if _number(ours) and _number(theirs) and re.search(r"BD\b.*\) / |/ p\b|\bp / ", found.text):
        return math.isclose(ours, theirs, rel_tol=1e-9)
    if not (_number(ours) and isinstance(theirs, Decimal)):
        return False
    exponent = theirs.as_tuple().exponent
    unit = Decimal(1).scaleb(exponent if isinstance(exponent, int) else 0)
    return abs(Decimal(repr(ours)) - theirs) <= max(unit, abs(theirs) * Decimal("1e-15"))


def _failed(found: Difference, *words: str) -> bool:
    return isinstance(found.ours, Failure) and any(word in found.ours.why for word in words)


def _beyond(found: Difference) -> bool:
    words = ("nan does not fit", "inf does not fit", "e+18 does not fit")
    return _failed(found, *words, "'nan' is not DEC", "'inf' is not DEC", "'-inf' is not DEC")


def _beside_null(found: Difference) -> bool:
    """Spark lets a null on the left, or one that is written out, decide, but not in concat and
    trim, which compute all that stands before it; DuckDB does the one or the other elsewhere."""
    text = found.text
    ours, theirs = isinstance(found.ours, Failure), isinstance(found.theirs, Failure)
    written = "null" in text.lower()
    between = re.search(r" (=|==|<>|!=|<|<=|>|>=|[-+*/%&|^]|<<|>>|>>>|div) ", text)
    joined = written and re.search(r"concat\(|\|\||trim\(", text)
    left = ours and found.theirs is None and bool(written or between)
    return left or (bool(joined) and found.ours is None and theirs)


def _last_element(found: Difference) -> bool:
    text, failed = found.text, isinstance(found.theirs, Failure)
    position = re.search(r"element_at\(array\(.*\),", text)  # any: it is null in this row
    return found.ours is None and found.theirs is not None and not failed and bool(position)


def _document(found: Difference) -> bool:
    return _failed(found, "levels deep", "surrogate pairs", "characters", "the document ends")


def _spelling(found: Difference) -> bool:
    """The same but for the last digits of numbers."""
    numbers = [re.findall(_NUMBER, str(v)) for v in (found.ours, found.theirs)]
    others = [re.sub(_NUMBER, "#", str(v)) for v in (found.ours, found.theirs)]
    same = [float(n) for n in numbers[0]] == [float(n) for n in numbers[1]]
    return "get_json_object" in found.text and others[0] == others[1] and same


def _sigma(found: Difference) -> bool:
    """The same text but for which small sigma it is, or a comparison of texts that have one."""
    final, plain = "\N{GREEK SMALL LETTER FINAL SIGMA}", "\N{GREEK SMALL LETTER SIGMA}"
    if isinstance(found.ours, bool):
        sigma = any(
            letter in found.text for letter in (final, plain, "\N{GREEK CAPITAL LETTER SIGMA}")
        )
        return sigma and "ilike" in found.text.lower()
    same = str(found.theirs).replace(final, plain) == str(found.ours)
    return isinstance(found.ours, str) and isinstance(found.theirs, str) and same


def _line_end(found: Difference) -> bool:
    return "$'" in found.text


def _json(found: Difference) -> bool:
    """`json_object_keys` and `json_array_length`, where Spark reads the first document."""
    read = re.search(r"json_(object_keys|array_length)\(", found.text)
    failed = isinstance(found.theirs, Failure)
    return bool(read) and found.ours is None and found.theirs is not None and not failed


def _text_of_time(found: Difference) -> bool:
    """Texts that name a zone, a moment of the clock, or a year beyond four digits; hexadecimal
    doubles. What is cast is written out, or the column `u`, which has a time without a date."""
    unread = found.ours is None or isinstance(found.ours, Failure)
    cast = re.search(r"cast\(.*\bas (timestamp|date|double|float)", found.text, re.DOTALL)
    named = re.search(r"[A-Z][a-z]+/|\d:|\d{4}'?, '\d|\d{5}-|0x|\bu\b", found.text)
    return unread and bool(cast and named) and not isinstance(found.theirs, Failure | type(None))


def _days(found: Difference) -> bool:
    """Days, which are an interval of as many days in Spark."""
    theirs = found.theirs
    return isinstance(theirs, dt.timedelta) and theirs / dt.timedelta(days=1) == found.ours


def _pole(found: Difference) -> bool:
    """The last bit of an angle decides where its tangent is steep: by as much as the tangent."""
    ours, theirs = found.ours, found.theirs
    if not (_number(ours) and _number(theirs) and "tan(" in found.text):
        return False
    return abs(ours) > 1e6 and abs(ours - theirs) <= 4 * sys.float_info.epsilon * ours * ours


def _far_before(found: Difference) -> bool:
    """Spark adds the longest length to the least position, and ends one character too early."""
    ours, theirs = found.ours, found.theirs
    if not (isinstance(ours, str) and isinstance(theirs, str)):
        return False
    least = re.search(r"substring\(.*(\bi\b|-2147483648)", found.text)
    return bool(least) and theirs == ours[:-1]


def _calendar(found: Difference) -> bool:
    ends = "timestamp_micros(" in found.text and _failed(found, "overflow: -9223372036854775808")
    return ends or _failed(found, "out of range", "beyond the years", "not in timestamp range")


DESIGN = (
    Design("a divisor of zero", _raised("DIVIDE_BY_ZERO", "REMAINDER_BY_ZERO"),
           ("i / 0", "i % 0", "i div 0", "mod(i, 0)", "x / 0", "coalesce(1 / 0, 5.0)")),
    Design("a position outside an array", _raised("INVALID_ARRAY_INDEX", "INVALID_INDEX_OF_ZERO"),
           ("xs[7]", "element_at(xs, 7)", "element_at(xs, 0)")),
    Design("`/`, `ceil` and `floor` of decimals; a number with a point", _decimal,
           ("p / 3", "ceil(p)", "floor(p)", "1.5", "coalesce(l, 2.5)", "acos(0.5BD / p)")),
    Design("types that do not meet in Spark", _raised("DATATYPE_MISMATCH"),
           ("s + t", "unix_micros(d)", "array_append(array(0.5BD), p)")),
    Design("a double beyond every bigint", _beyond,
           ("ceil(cast('NaN' as double))", "floor(x * 1e300)",
            "cast(9223372036854775807D as bigint)", "cast(asin(2.5D) as decimal(20,5))")),
    Design("a date or timestamp beyond the calendar", _calendar,
           ("timestamp_micros(9223372036854775807)", "date_sub(d, -2147483648)",
            "trunc(timestamp_micros(l), 'week')")),
    Design("the last bit of a double", _pole, ("tan(atan2(i, -3))",)),
    Design("`substring` from position -2147483648", _far_before,
           ("substring(ltrim('né'), i)", "substring(s, -2147483648)")),
    Design("a sigma at the end of a word", _sigma, ("lower('ΟΔΟΣ')", "'ΟΔΟΣ' ilike 'οδοσ'")),
    Design("`$` in a pattern", _line_end, ("'a\\n' rlike 'a$'",)),
    Design("JSON with something after it", _json, ("json_object_keys('{\"a\": 1} x')",)),
    Design("text of times", _text_of_time,
           ("try_cast(concat('2024-02-29 12:30:15 Europe/', 'Rome') as timestamp)",
            "try_cast(concat('12:', '30') as timestamp)",
            "try_cast(concat('1202', '4-01-01') as date)",
            "try_cast(concat('0x1', 'p3') as double)")),
    Design("an argument that fails next to a null one", _beside_null,
           ("(st.a + d) == to_date(rpad(js, n), 'dd/MM/yyyy')",
            "concat(cast(concat('x', s) as int)::string, cast(null as string))",
            "cast(concat('x', s) as int) = cast(null as int)")),
    Design("a null position in an array of what is not null", _last_element,
           ("element_at(array('a'), k)",)),
    Design("extremely large documents in `get_json_object`", _document,
           ("get_json_object(concat(repeat('[', 300), repeat(']', 300)), '$')",)),
    Design("the last digits of a double in `get_json_object`", _spelling, ()),
    Design("a date minus a date", _days, ("e - d", "d - date '2024-02-29'")),
    Design("extremely long text", lambda found: _failed(found, "makes more than"),
           ("lpad('a', 16777217, 'x')", "repeat('ab', 8388609)")),
    Design("`make_timestamp` of parts that are no time", _no_time,
           ("make_timestamp(2024, 1, 1, 0, 0, cast('NaN' as double))",
            "make_timestamp(12000, 1, 1, 0, 0, 0)")),
    Design("seconds and microseconds beyond the calendar", _calendar,
           ("from_unixtime(253402300800)", "timestamp_micros(9223372036854775807)")),
)  # fmt: skip


def undocumented(differences: list[Difference]) -> list[Any]:
    return [str(d) for d in differences if not any(design.kind(d) for design in DESIGN)]
