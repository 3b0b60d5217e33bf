"""Text as numbers, conditions, dates and timestamps: the grammar of Spark's casts.

Invariant: the patterns are read the same way by Python, RE2 (DuckDB) and Java (Spark); a text
that matches one is cast to the same value by Spark itself. What Spark also takes and is not
here, because it depends on the clock, a table of zones or a year beyond 9999, is listed in
docs/guide/expressions.md.
"""

from __future__ import annotations

import datetime as dt
import re

from headrace.expr.types import text_literal

_DIGITS = r"[+-]?[0-9]+"
_DECIMAL = r"[+-]?(?:[0-9]+(?:[.][0-9]*)?|[.][0-9]+)(?:[eE][+-]?[0-9]{1,4})?"
_INFINITY = r"[+-]?(?:Infinity|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?)"
_DAY = r"[+]?(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
_OFFSET = (
    r" ?(?:Z|UTC|GMT|(?:UTC|GMT)?(?P<sign>[+-])(?P<zone_hour>1[0-7]|0?[0-9])"
    r"(?::?(?P<zone_minute>[0-5][0-9]))?)"
)
_CLOCK = (
    r"[ T](?P<hour>2[0-3]|[01]?[0-9])(?::(?P<minute>[0-5]?[0-9])"
    rf"(?::(?P<second>[0-5]?[0-9])(?P<fraction>[.][0-9]*)?(?:{_OFFSET})?)?)?"
)
_YES, _NO = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_GRAMMAR = {
    "int": _DIGITS,
    "double": rf"{_DECIMAL}[dDfF]?|[+-]?NaN|[nN][aA][nN]|{_INFINITY}",
    "decimal": _DECIMAL,
    "bool": "|".join(
        "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in w) for w in (*_YES, *_NO)
    ),
    "date": rf"{_DAY}(?:[ T](?P<rest>(?:.|\n|\r)*))?)?)?",
    "timestamp": rf"{_DAY}(?:{_CLOCK})?)?)?",
}
KINDS = tuple(_GRAMMAR)
_BLANK = r"[\x00-\x20\x7f]*"
_EDGE = {"double": r"[\x00-\x20]*", "decimal": r"[\x00-\x20]*"}
_TIME_WORDS = ("epoch", "now", "today", "tomorrow", "yesterday")
_PLAIN_TIMES = {
    "date": "[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "timestamp": "[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]([01][0-9]|2[0-3])"
    ":[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?",
}


def _whole(kind: str) -> str:
    edge = _EDGE.get(kind, _BLANK)
    return rf"\A{edge}(?:{_GRAMMAR[kind]}){edge}\z"


def pattern(kind: str) -> str:
    """A regular expression that matches just the texts that can be read as `kind`."""
    return re.sub(r"\(\?P<\w+>", "(?:", _whole(kind))


def matches(kind: str, text: str) -> str:
    """SQL: whether the text can be read as `kind`."""
    return f"regexp_matches({text}, {text_literal(pattern(kind))})"


def spelt(kind: str, text: str) -> str:
    """DuckDB's SQL: a text that matches, as DuckDB's own cast to `kind` wants it."""
    bare = f"trim({text}, chr(0) || {text_literal(''.join(map(chr, [*range(1, 33), 127])))})"
    if kind == "bool":
        yes = ", ".join(f"'{word}'" for word in _YES)
        return f"(CASE WHEN lower({bare}) IN ({yes}) THEN 'true' ELSE 'false' END)"
    if kind == "double":
        number = f"regexp_replace({bare}, '([0-9.])[dDfF]$', '\\1')"
        return f"(CASE WHEN {text} ILIKE '%nan%' THEN 'NaN' ELSE {number} END)"
    if kind in _PLAIN_TIMES:
        plain = f"regexp_matches({text}, '^{_PLAIN_TIMES[kind]}$')"
        return f"(CASE WHEN {plain} THEN {text} ELSE {_respelt(kind, text)} END)"
    return bare


def _part(kind: str, text: str, name: str) -> str:
    pattern = _whole(kind).replace(f"(?P<{name}>", "(")
    pattern = re.sub(r"\(\?P<\w+>", "(?:", pattern)
    return f"regexp_extract({text}, {text_literal(pattern)}, 1)"


def _respelt(kind: str, text: str) -> str:
    """A date or timestamp with all its parts, in two digits each, the offset with a sign."""

    def two(name: str, default: str) -> str:
        part = _part(kind, text, name)
        return f"(CASE WHEN {part} = '' THEN '{default}' ELSE lpad({part}, 2, '0') END)"

    parts = [_part(kind, text, "year"), "'-'", two("month", "01"), "'-'", two("day", "01")]
    if kind == "timestamp":
        parts += ["' '", two("hour", "00"), "':'", two("minute", "00"), "':'", two("second", "00")]
        parts += [f"rtrim(left({_part(kind, text, 'fraction')}, 7), '.')"]
        sign = _part(kind, text, "sign")
        parts += [f"(CASE WHEN {sign} = '' THEN '+' ELSE {sign} END)", two("zone_hour", "00")]
        parts += ["':'", two("zone_minute", "00")]
    return f"concat({', '.join(parts)})"


def is_time_word(text: str) -> bool:
    """Whether Spark reads the literal as a time that is not in it, such as 'now'."""
    return text.strip().lower().split(" ")[0] in _TIME_WORDS


def time_text(text: str, to: str) -> str:
    """A literal DATE or TIMESTAMP in its one spelling, a timestamp in UTC; else a ValueError."""
    match = re.fullmatch(_whole(to.lower())[2:-2], text)
    if match is None:
        raise ValueError(text)
    year, month, day = (int(match[k] or 1) for k in ("year", "month", "day"))
    if to == "DATE":
        return dt.date(year, month, day).isoformat()
    hour, minute, second = (int(match[k] or 0) for k in ("hour", "minute", "second"))
    micros = int(f"{(match['fraction'] or '.')[1:7]:0<6}")
    moment = dt.datetime(year, month, day, hour, minute, second, micros)
    offset = dt.timedelta(
        hours=int(match["zone_hour"] or 0), minutes=int(match["zone_minute"] or 0)
    )
    return (moment + offset if match["sign"] == "-" else moment - offset).isoformat(" ")
