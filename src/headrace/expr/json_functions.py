"""SQL functions of JSON text.

Invariant: JSON that is malformed, or of another type than asked for, gives null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expr.catalog import function
from headrace.expr.expression import Column, Expr, call, column_of
from headrace.expr.patterns import json_path
from headrace.expr.types import JSON_OBJECT, Term, text_literal, type_name

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
        made = value if to == pa.string() else f"TRY_CAST({value} AS {type_name(to)})"
        test = f"json_type({doc}, {path}) IN ({types})"
        return f"(CASE WHEN {_MALFORMED.format(doc)} THEN NULL WHEN {test} THEN {made} END)"

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
