"""Functions of text and bytes.

Invariant: a position counts characters (code points) from 1; case follows Unicode's full
mapping (upper of "ß" is "SS"), except that a sigma at a word's end is not special.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from functools import cache

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expr.catalog import listed, offer
from headrace.expr.regex import both_patterns, literal_pattern, replacement
from headrace.expr.types import DUCKDB, SPARK, Term, failing, text_literal

TEXT, PATTERNS, BYTES = "text", "patterns", "bytes and digests"

_ASCII = "strlen({0}) = length({0})"

# The dot of İ has to be written out for DuckDB, the sigma at a word's end made plain for Spark.
_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}", "\N{GREEK SMALL LETTER SIGMA}"
_DOTTED = "'\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}', 'i\N{COMBINING DOT ABOVE}'"
_LOWER = (
    f"lower(CASE WHEN {_ASCII} THEN {{0}} ELSE replace({{0}}, {_DOTTED}) END)",
    f"lower(replace({{0}}, '{_SIGMA[0]}', '{_SIGMA[1]}'))",
)


@cache
def _longer() -> tuple[str, str]:
    """Characters whose upper case is several, and these: DuckDB maps one to one."""
    several = [chr(c) for c in range(0x80, 0xFFFF) if len(chr(c).upper()) > 1]
    return "".join(several), "|".join(c.upper() for c in several)


def _upper(args: Sequence[Term]) -> str:
    """In DuckDB's way unless a character of `_longer` is in it; those are looked up one by one."""
    x, (keys, values) = args[0].sql, _longer()
    place = f"instr('{keys}', c)"
    each = f"lambda c: CASE WHEN {place} > 0 THEN split_part('{values}', '|', {place}) ELSE c END"
    longer = f"array_to_string(list_transform(string_split({x}, ''), {each}), '')"
    plain = f"{_ASCII.format(x)} OR NOT regexp_matches({x}, '[{keys}]')"
    return f"(CASE WHEN {plain} THEN upper({x}) ELSE upper({longer}) END)"


def _text(name: str, signature: str, duckdb: str, spark: str | None = None) -> None:
    offer(TEXT, name, signature, duckdb, spark)


offer(TEXT, "upper", "text -> text", _upper, "upper({0})")
_text("lower", "text -> text", *_LOWER)
_text("length", "text -> int", "CAST(length({0}) AS INTEGER)", "length({0})")


def _trim(name: str) -> Callable[[Sequence[Term]], str]:
    """`trim(characters, text)`, as in Spark; of a text alone only blanks."""

    def sql(args: Sequence[Term]) -> str:
        if len(args) == 1:
            return f"{name}({args[0].sql}, ' ')"
        characters, text = args
        return f"{name}({text.sql}, {characters.sql})"

    return sql


for _name in ("trim", "ltrim", "rtrim"):
    offer(TEXT, _name, "text text? -> text", _trim(_name), listed(f"{_name}({{}})"))


def _not_negative(sql: str) -> str:
    return f"(CASE WHEN {sql} < 0 THEN 0 ELSE {sql} END)"


def _substring(args: Sequence[Term]) -> str:
    """Spark reads position 0 as 1 and a negative length as none."""
    text, start = args[0].sql, args[1].sql
    first = f"(CASE WHEN {start} = 0 THEN 1 ELSE {start} END)"
    if isinstance(args[1].literal, int) and args[1].literal != 0:
        first = start
    if len(args) == 2:  # without a length
        return f"substring({text}, {first})"
    return f"substring({text}, {first}, {_not_negative(args[2].sql)})"


offer(TEXT, "substring", "text int int? -> text", _substring, listed("substring({})"))
for _name in ("left", "right"):
    _text(
        _name,
        "text int -> text",
        f"{_name}({{0}}, {_not_negative('{1}')})",
        f"{_name}({{0}}, {{1}})",
    )
_text("replace", "text text text? -> text", "replace({0}, {1}, {2})")
_text("translate", "text text text -> text", "translate({0}, {1}, {2})")
offer(TEXT, "concat", "text text*-> text", listed("({})", " || "), listed("concat({})"))
offer(TEXT, "concat_ws", "text text text* -> text", listed("concat_ws({})"))
_text("starts_with", "text text -> bool", "starts_with({0}, {1})", "startswith({0}, {1})")
_text("ends_with", "text text -> bool", "ends_with({0}, {1})", "endswith({0}, {1})")
_text("contains", "text text -> bool", "contains({0}, {1})")
_text("instr", "text text -> int", "CAST(instr({0}, {1}) AS INTEGER)", "instr({0}, {1})")
_LONGEST = 2**24  # characters that padding and repetition make, as a guard of the process


def _bounded(name: str, size: str, made: str, dialect: str) -> str:
    """`made`, unless its length in characters is beyond all measure: then the row fails."""
    said = f"'{name} makes more than {_LONGEST} characters'"
    fail = f"CAST({failing(said)} AS VARCHAR)"
    if dialect == SPARK:
        fail = f"CAST(raise_error({said}) AS STRING)"
    return f"(CASE WHEN {size} > {_LONGEST} THEN {fail} ELSE {made} END)"


def _few(times: str, size: str) -> str:
    """Also where it is not asked for: engines compute what is constant ahead of time."""
    return f"(CASE WHEN {size} > {_LONGEST} THEN 0 ELSE {times} END)"


def _repeat(dialect: str) -> Callable[[Sequence[Term]], str]:
    def sql(args: Sequence[Term]) -> str:
        text, times = (a.sql for a in args)
        size = f"CAST(length({text}) AS BIGINT) * {times}"
        return _bounded("repeat", size, f"repeat({text}, {_few(times, size)})", dialect)

    return sql


offer(TEXT, "repeat", "text int -> text", _repeat(DUCKDB), _repeat(SPARK), may_fail=True)
_text(
    "reverse",
    "text -> text",
    "array_to_string(list_reverse(string_split({0}, '')), '')",
    "reverse({0})",
)
_text("ascii", "text -> int", "CAST(ascii({0}) AS INTEGER)", "ascii({0})")


def _pad(name: str, dialect: str) -> Callable[[Sequence[Term]], str]:
    def sql(args: Sequence[Term]) -> str:
        text, width, by = (a.sql for a in args)
        if dialect == SPARK:
            return _bounded(name, width, f"{name}({text}, {width}, {by})", dialect)
        cut = f"left({text}, {_not_negative(width)})"
        padded = f"{name}({text}, {_few(width, width)}, {by})"
        return f"(CASE WHEN {by} = '' THEN {cut} ELSE {_bounded(name, width, padded, dialect)} END)"

    return sql


for _name in ("lpad", "rpad"):
    offer(
        TEXT,
        _name,
        "text int text? -> text",
        _pad(_name, DUCKDB),
        _pad(_name, SPARK),
        may_fail=True,
    )


def _separator(args: Sequence[Term]) -> str:
    word = args[1].literal
    if isinstance(word, str) and word:
        return word
    raise PlanError(
        "HR-EXPR-003", "the separator is a text of at least one character", "Write split(x, ',')."
    )


def _split(args: Sequence[Term]) -> str:
    """By a regular expression, as in Spark; the quick way if it matches just one text."""
    pattern = _separator(args)
    plain = re.sub(r"\\([^a-zA-Z0-9])", r"\1", pattern)
    if literal_pattern(plain) == pattern:
        return f"string_split({args[0].sql}, {text_literal(plain, DUCKDB)})"
    return f"string_split_regex({args[0].sql}, {_consuming(args, DUCKDB)})"


offer(
    TEXT,
    "split",
    "text word -> [text]",
    _split,
    lambda a: f"split({a[0].sql}, {_consuming(a, SPARK)}, -1)" if _separator(a) else "",
)


def _split_part(args: Sequence[Term]) -> str:
    text, place = args[0].sql, args[2].sql
    if args[2].literal == 0:
        raise PlanError(
            "HR-EXPR-003",
            "split_part counts from 1, or from -1 for the last",
            "Write split_part(x, ',', 1).",
        )
    fail = failing("'split_part counts from 1, not from '", place)
    place = f"(CASE WHEN {place} = 0 AND {text} IS NOT NULL THEN {fail} ELSE {place} END)"
    return f"split_part({text}, {text_literal(_separator(args), DUCKDB)}, {place})"


offer(
    TEXT,
    "split_part",
    "text word int -> text",
    _split_part,
    lambda a: f"split_part({a[0].sql}, {text_literal(_separator(a), SPARK)}, {a[2].sql})",
)


def _like(dialect: str, *, fold: bool = False) -> Callable[[Sequence[Term]], str]:
    def sql(args: Sequence[Term]) -> str:
        pattern = _by_backslash(str(args[1].literal), *(str(a.literal) for a in args[2:]))
        text = args[0].sql
        if fold:
            pattern = pattern.replace(*_SIGMA).lower()
            text = _LOWER[dialect == SPARK].format(text)
        escape = " ESCAPE '\\'" if dialect == DUCKDB and "\\" in pattern else ""
        return f"({text} LIKE {text_literal(pattern, dialect)}{escape})"

    return sql


def _by_backslash(pattern: str, escape: str = "\\") -> str:
    """A LIKE pattern in which what is escaped by another character is so by a backslash."""
    if len(escape) != 1:
        raise PlanError(
            "HR-EXPR-003",
            f"ESCAPE takes one character, not {escape!r}",
            "Write s like 'a/%b' escape '/'.",
        )
    made, signs = "", iter(pattern)
    for sign in signs:
        follows = next(signs, "") if sign == escape else None
        if follows is not None and (not follows or follows not in f"%_{escape}"):
            raise PlanError(
                "HR-EXPR-003",
                f"in the LIKE pattern {pattern!r}, {escape!r} stands before other signs than %, _ "
                "and itself",
                f"Double a {escape!r} that is meant as such.",
            )
        made += sign if follows is None and sign != "\\" else "\\" + (follows or sign)
    return made


offer(PATTERNS, "like", "text word word? -> bool", _like(DUCKDB), _like(SPARK))
offer(
    PATTERNS, "ilike", "text word word? -> bool", _like(DUCKDB, fold=True), _like(SPARK, fold=True)
)


def _pattern(args: Sequence[Term], dialect: str) -> str:
    return text_literal(both_patterns(str(args[1].literal))[dialect], dialect)


def _by(args: Sequence[Term], dialect: str) -> str:
    return text_literal(replacement(str(args[2].literal))[dialect], dialect)


offer(
    PATTERNS,
    "rlike",
    "text word -> bool",
    lambda a: f"regexp_matches({a[0].sql}, {_pattern(a, DUCKDB)})",
    lambda a: f"({a[0].sql} RLIKE {_pattern(a, SPARK)})",
)


def _consuming(args: Sequence[Term], dialect: str) -> str:
    """A pattern that never matches nothing: there engines replace different places."""
    if both_patterns(str(args[1].literal))["empty"]:
        raise PlanError(
            "HR-EXPR-003",
            f"the pattern {args[1].literal!r} can match an empty text",
            "Use + where it has *.",
        )
    return _pattern(args, dialect)


offer(
    PATTERNS,
    "regexp_replace",
    "text word word -> text",
    lambda a: f"regexp_replace({a[0].sql}, {_consuming(a, DUCKDB)}, {_by(a, DUCKDB)}, 'g')",
    lambda a: f"regexp_replace({a[0].sql}, {_consuming(a, SPARK)}, {_by(a, SPARK)})",
)
offer(
    PATTERNS,
    "regexp_extract",
    "text word int? -> text",
    lambda a: f"regexp_extract({a[0].sql}, {_pattern(a, DUCKDB)}, {_group(a)})",
    lambda a: f"regexp_extract({a[0].sql}, {_pattern(a, SPARK)}, {_group(a)})",
)


def _group(args: Sequence[Term]) -> int:
    group, groups = args[2].literal, both_patterns(str(args[1].literal))["groups"]
    if isinstance(group, int) and 0 <= group <= min(9, int(groups)):
        return group
    raise PlanError(
        "HR-EXPR-003",
        f"the pattern {args[1].literal!r} has {groups} groups",
        "Give the number of a group as a literal; 0 is the whole match.",
    )


offer(BYTES, "md5", "text -> text", "md5({0})")
offer(BYTES, "sha1", "text -> text", "sha1({0})")
offer(BYTES, "sha256", "text -> text", "sha256({0})", "sha2({0}, 256)")
offer(BYTES, "base64", "binary -> text", "base64({0})", "replace(base64({0}), '\\r\\n', '')")


def _bytes(args: Sequence[Term], template: str) -> str:
    digits = str(args[0].literal)
    if len(digits) % 2 == 0 and not set(digits) - set(string.hexdigits):
        return template.format(digits)
    raise PlanError(
        "HR-EXPR-003",
        "unhex takes a literal of pairs of hexadecimal digits",
        "In Python write the bytes themselves: lit(b'...').",
    )


offer(
    BYTES,
    "unhex",
    "word -> binary",
    lambda a: _bytes(a, "unhex('{}')"),
    lambda a: _bytes(a, "unhex('{}')"),
)


def _octets(args: Sequence[Term]) -> str:
    name = "strlen" if args[0].type == pa.string() else "octet_length"
    return f"CAST({name}({args[0].sql}) AS INTEGER)"


def _octets_type(args: Sequence[Term]) -> pa.DataType:
    if args[0].type in (pa.string(), pa.binary()):
        return pa.int32()
    raise PlanError("HR-EXPR-003", "octet_length takes text or binary", "Use cast.")


offer(BYTES, "octet_length", "any ->", _octets, "octet_length({0})", gives=_octets_type)
