"""SQL functions of patterns in text: LIKE, regular expressions, separators, paths into JSON.

Invariant: a pattern is a literal that has been checked, so both engines read it the same way;
where it is replaced or splits, it never matches an empty text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expr.catalog import function
from headrace.expr.expression import Column, Expr, call, column_of, optional
from headrace.expr.patterns import (
    json_path,
    like_pattern,
    literal_pattern,
    regex,
    replacement,
)
from headrace.expr.text_functions import LOWER
from headrace.expr.types import JSON_OBJECT, Term, failing, text_literal, type_name

_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}", "\N{GREEK SMALL LETTER SIGMA}"


def _like(*, fold: bool) -> Callable[[Sequence[Term]], str]:
    def sql(args: Sequence[Term]) -> str:
        pattern = like_pattern(*(str(a.literal) for a in args[1:]))
        text = args[0].sql
        if fold:
            pattern, text = pattern.replace(*_SIGMA).lower(), LOWER.format(text)
        escape = " ESCAPE '\\'" if "\\" in pattern else ""
        return f"({text} LIKE {text_literal(pattern)}{escape})"

    return sql


@function("text word word? -> bool", _like(fold=False))
def like(column: Column, pattern: str, escape: str | None = None) -> Expr:
    """Whether it matches a SQL pattern: % is any text, _ any character."""
    return call("like", column_of(column), pattern, *optional(escape))


@function("text word word? -> bool", _like(fold=True))
def ilike(column: Column, pattern: str, escape: str | None = None) -> Expr:
    """As `like`, in any case."""
    return call("ilike", column_of(column), pattern, *optional(escape))


def _pattern(args: Sequence[Term]) -> str:
    return text_literal(regex(str(args[1].literal)).sql)


def _consuming(args: Sequence[Term]) -> str:
    """A pattern that never matches nothing: there engines replace different places."""
    if regex(str(args[1].literal)).matches_empty:
        raise PlanError(
            "HR-EXPR-003",
            f"the pattern {args[1].literal!r} can match an empty text",
            "Use + where it has *.",
        )
    return _pattern(args)


@function(
    "text word -> bool",
    lambda a: f"regexp_matches({a[0].sql}, {_pattern(a)})",
    aliases="regexp_like regexp",
)
def rlike(column: Column, pattern: str) -> Expr:
    """Whether a regular expression matches somewhere in it."""
    return call("rlike", column_of(column), pattern)


def _replace(args: Sequence[Term]) -> str:
    by = text_literal(replacement(str(args[2].literal)))
    return f"regexp_replace({args[0].sql}, {_consuming(args)}, {by}, 'g')"


@function("text word word -> text", _replace)
def regexp_replace(column: Column, pattern: str, by: str) -> Expr:
    """With every match replaced; $1 is the first group."""
    return call("regexp_replace", column_of(column), pattern, by)


@function(
    "text word -> int",
    lambda a: f"CAST(len(regexp_extract_all({a[0].sql}, {_consuming(a)})) AS INTEGER)",
)
def regexp_count(column: Column, pattern: str) -> Expr:
    """How often a regular expression matches in it."""
    return call("regexp_count", column_of(column), pattern)


def _extract(args: Sequence[Term]) -> str:
    group, groups = args[2].literal, regex(str(args[1].literal)).groups
    if isinstance(group, int) and 0 <= group <= min(9, groups):
        return f"regexp_extract({args[0].sql}, {_pattern(args)}, {group})"
    raise PlanError(
        "HR-EXPR-003",
        f"the pattern {args[1].literal!r} has {groups} groups",
        "Give the number of a group as a literal; 0 is the whole match.",
    )


@function("text word int? -> text", _extract, default=1)
def regexp_extract(column: Column, pattern: str, group: int = 1) -> Expr:
    """A group of the first match; empty without one."""
    return call("regexp_extract", column_of(column), pattern, group)


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
        return f"string_split({args[0].sql}, {text_literal(plain)})"
    return f"string_split_regex({args[0].sql}, {_consuming(args)})"


@function("text word -> [text]", _split)
def split(column: Column, separator: str) -> Expr:
    """The parts between separators, as an array; in SQL text it is a regular expression."""
    return call("split", column_of(column), literal_pattern(separator))


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
    return f"split_part({text}, {text_literal(_separator(args))}, {place})"


@function("text word int -> text", _split_part, may_fail=True)
def split_part(column: Column, separator: str, part: int) -> Expr:
    """One part between separators; the first is 1, the last -1."""
    return call("split_part", column_of(column), separator, part)


# JSON text: what is malformed, or of another type than asked for, is null

_PATH = re.compile(r"\$(\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]+\])*$")
# DuckDB also reads NaN, infinities and a comma after the last element, which JSON does not have;
# outside of texts nothing else is spelt like them.
_LAX = r"'(?i)nan|inf|,\s*[\]}}]'"
_TEXTS = r"""'"(?:[^"\\]|\\.)*"', '""', 'gs'"""
_MALFORMED = (
    "NOT json_valid({0}) OR (regexp_matches({0}, " + _LAX + ") "
    "AND regexp_matches(regexp_replace({0}, " + _TEXTS + "), " + _LAX + "))"
)
_VALID = f"(CASE WHEN {_MALFORMED} THEN NULL WHEN json_type({{0}}) = '"
_WHOLE = "'BIGINT', 'UBIGINT'"


def _path(args: Sequence[Term]) -> str:
    path = str(args[1].literal)
    if _PATH.match(path):
        return path
    raise PlanError(
        "HR-EXPR-003", f"{path!r} is not a JSON path", "Write one such as '$.user.tags[0]'."
    )


def _value(types: str, to: pa.DataType) -> Callable[[Sequence[Term]], str]:
    """A value of these JSON types under a path."""

    def sql(args: Sequence[Term]) -> str:
        doc, path = args[0].sql, text_literal(_path(args))
        value = f"json_extract_string({doc}, {path})"
        result = value if to == pa.string() else f"TRY_CAST({value} AS {type_name(to)})"
        test = f"json_type({doc}, {path}) IN ({types})"
        return f"(CASE WHEN {_MALFORMED.format(doc)} THEN NULL WHEN {test} THEN {result} END)"

    return sql


@function("text word -> text", _value("'VARCHAR'", pa.string()))
def json_text(column: Column, path: str) -> Expr:
    """The text under a path such as "$.user.name"; null if it is not a text."""
    return call("json_text", column_of(column), path)


@function("text word -> long", _value(_WHOLE, pa.int64()))
def json_long(column: Column, path: str) -> Expr:
    """The whole number under a path; null if it is not one."""
    return call("json_long", column_of(column), path)


@function("text word -> double", _value(f"{_WHOLE}, 'DOUBLE'", pa.float64()))
def json_double(column: Column, path: str) -> Expr:
    """The number under a path; null if it is not one."""
    return call("json_double", column_of(column), path)


@function("text word -> bool", _value("'BOOLEAN'", pa.bool_()))
def json_bool(column: Column, path: str) -> Expr:
    """The truth under a path; null if it is not one."""
    return call("json_bool", column_of(column), path)


@function("text -> int", f"{_VALID}ARRAY' THEN CAST(json_array_length({{0}}) AS INTEGER) END)")
def json_array_length(column: Column) -> Expr:
    """The number of elements of a JSON array; null if it is not one."""
    return call("json_array_length", column_of(column))


@function("text -> [text]", f"{_VALID}OBJECT' THEN json_keys({{0}}) END)")
def json_object_keys(column: Column) -> Expr:
    """The keys of a JSON object, in order; null if it is not one."""
    return call("json_object_keys", column_of(column))


def _json_object(args: Sequence[Term]) -> str:
    path = str(args[1].literal)
    json_path(path)
    return f"{JSON_OBJECT}({args[0].sql}, {text_literal(path)})"


@function("text word -> text", _json_object, may_fail=True)
def get_json_object(column: Column, path: str) -> Expr:
    """What is at a path such as "$.a.b[0]" of a JSON document, as text; null if nothing is."""
    return call("get_json_object", column_of(column), path)
