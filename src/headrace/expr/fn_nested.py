"""Functions of arrays, structs, maps and JSON text.

Invariant: a null array gives null; a position outside an array gives null; JSON that is
malformed, or of another type than asked for, gives null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import types as pt

from headrace.errors import PlanError
from headrace.expr.catalog import listed, offer
from headrace.expr.json_paths import json_path
from headrace.expr.types import (
    DUCKDB,
    JSON_OBJECT,
    SPARK,
    Term,
    failing,
    ordered,
    quote,
    text_literal,
    type_name,
)

ARRAYS, STRUCTS, JSON = "arrays and maps", "structs", "json"


def _array(name: str, signature: str, duckdb: str, spark: str | None = None) -> None:
    offer(ARRAYS, name, signature, duckdb, spark)


offer(ARRAYS, "array", "T T* -> [T]", listed("[{}]"), listed("array({})"))
_array(
    "get",
    "[T] int -> T",
    "{0}[CASE WHEN {1} >= 0 THEN CAST({1} AS BIGINT) + 1 ELSE 0 END]",  # 0: null
    "get({0}, {1})",
)
_array(
    "array_contains",
    "[T] T -> bool",
    "(CASE WHEN list_contains({0}, {1}) THEN TRUE WHEN {0} IS NULL OR {1} IS NULL THEN NULL "
    "WHEN len(list_filter({0}, lambda x: x IS NULL)) > 0 THEN NULL ELSE FALSE END)",
    "array_contains({0}, {1})",
)
_array(
    "array_position",
    "[T] T -> long",
    "(CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL "
    "ELSE CAST(coalesce(list_position({0}, {1}), 0) AS BIGINT) END)",
    "array_position({0}, {1})",
)
# of equal ones, such as 0.0 and -0.0, DuckDB takes the last and Spark the first
offer(
    ARRAYS,
    "array_min",
    "[T] ->",
    "list_min(list_reverse({0}))",
    "array_min({0})",
    gives=lambda a: ordered(a[0].type.value_type),
)
offer(
    ARRAYS,
    "array_max",
    "[T] ->",
    "list_max(list_reverse({0}))",
    "array_max({0})",
    gives=lambda a: ordered(a[0].type.value_type),
)
offer(
    ARRAYS,
    "array_sort",
    "[T] ->",
    "list_sort({0}, 'ASC', 'NULLS LAST')",
    "array_sort({0})",
    gives=lambda a: pa.list_(ordered(a[0].type.value_type)),
)
_array("array_reverse", "[T] -> [T]", "list_reverse({0})", "reverse({0})")
_array(
    "array_append",
    "[T] T -> [T]",
    "(CASE WHEN {0} IS NOT NULL THEN list_append({0}, {1}) END)",
    "array_append({0}, {1})",
)
offer(ARRAYS, "array_concat", "[T] [T]* -> [T]", listed("({})", " || "), listed("concat({})"))


def _slice(args: Sequence[Term]) -> str:
    """From a position that counts from 1, or from the end if it is negative."""
    of, start, length = (a.sql for a in args)
    if args[1].literal == 0 or (isinstance(args[2].literal, int) and args[2].literal < 0):
        raise PlanError(
            "HR-EXPR-003",
            "slice starts at 1, or at -1 for the last, and its length is not negative",
            "Write slice(xs, 1, 2).",
        )
    fail = failing("'slice cannot take '", length, "' elements from position '", start)
    length = f"(CASE WHEN {start} = 0 OR {length} < 0 THEN {fail} ELSE {length} END)"
    first = f"(CASE WHEN {start} < 0 THEN len({of}) + {start} + 1 ELSE CAST({start} AS BIGINT) END)"
    found = f"list_slice({of}, {first}, {first} + {length} - 1)"
    return (
        f"(CASE WHEN {of} IS NULL OR {start} IS NULL OR {length} IS NULL THEN NULL "
        f"WHEN {length} = 0 OR {first} < 1 THEN {of}[2:1] "
        f"ELSE {found} END)"
    )


offer(ARRAYS, "slice", "[T] int int -> [T]", _slice, "slice({0}, {1}, {2})")


def _texts(args: Sequence[Term]) -> pa.DataType:
    if args[0].type == pa.list_(pa.string()):
        return pa.string()
    raise PlanError("HR-EXPR-003", "array_join takes an array of text", "Use cast.")


def _join(args: Sequence[Term]) -> str:
    """DuckDB's own takes only a literal between the texts."""
    of, between = (a.sql for a in args)
    if isinstance(args[1].literal, str):
        return f"array_to_string({of}, {between})"
    there = f"list_filter({of}, lambda x: x IS NOT NULL)"
    joined = f"list_reduce({there}, lambda x, y: concat(x, {between}, y))"
    return (
        f"(CASE WHEN {of} IS NULL OR {between} IS NULL THEN NULL "
        f"WHEN len({there}) = 0 THEN '' ELSE {joined} END)"
    )


offer(ARRAYS, "array_join", "any text ->", _join, "array_join({0}, {1})", gives=_texts)


def _element(dialect: str) -> Callable[[Sequence[Term]], str]:
    """Of an array by position from 1 (from the end if negative), of a map by key."""

    def sql(args: Sequence[Term]) -> str:
        of, key = args
        if dialect == DUCKDB:
            return f"({of.sql})[{key.sql}]"
        found = f"try_element_at({of.sql}, {key.sql})"
        return found if pt.is_map(of.type) else f"(CASE WHEN {key.sql} <> 0 THEN {found} END)"

    return sql


def _element_type(args: Sequence[Term]) -> pa.DataType:
    of, key = args[0].type, args[1].type
    if pt.is_list(of) and key in (pa.int8(), pa.int16(), pa.int32()):
        return of.value_type
    if pt.is_map(of) and key == of.key_type:
        return of.item_type
    raise PlanError(
        "HR-EXPR-003",
        "element_at takes an array and a position, or a map and a key of it",
        "Cast the position to int.",
    )


offer(ARRAYS, "element_at", "any any ->", _element(DUCKDB), _element(SPARK), gives=_element_type)
offer(ARRAYS, "map_keys", "map ->", "map_keys({0})", gives=lambda a: pa.list_(a[0].type.key_type))
offer(
    ARRAYS, "map_values", "map ->", "map_values({0})", gives=lambda a: pa.list_(a[0].type.item_type)
)
offer(ARRAYS, "map_size", "map -> int", "CAST(cardinality({0}) AS INTEGER)", "size({0})")


def _pairs(args: Sequence[Term]) -> list[tuple[str, Term]]:
    names, values = args[::2], args[1::2]
    if len(names) == len(values) and all(isinstance(n.literal, str) for n in names):
        return [(str(n.literal), v) for n, v in zip(names, values, strict=True)]
    raise PlanError(
        "HR-EXPR-003",
        "named_struct takes names and values in turn",
        "Write named_struct('a', x, 'b', y).",
    )


def _struct_type(args: Sequence[Term]) -> pa.DataType:
    return pa.struct([(name, value.type) for name, value in _pairs(args)])


def _struct(args: Sequence[Term]) -> str:
    inner = ", ".join(f"{quote(name, DUCKDB)} := {value.sql}" for name, value in _pairs(args))
    return f"struct_pack({inner})"


def _spark_struct(args: Sequence[Term]) -> str:
    inner = ", ".join(f"{text_literal(name, SPARK)}, {value.sql}" for name, value in _pairs(args))
    return f"named_struct({inner})"


offer(STRUCTS, "named_struct", "any any any* ->", _struct, _spark_struct, gives=_struct_type)

_PATH = re.compile(r"\$(\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]+\])*$")


def _path(args: Sequence[Term]) -> str:
    path = str(args[1].literal)
    if _PATH.match(path):
        return path
    raise PlanError(
        "HR-EXPR-003", f"{path!r} is not a JSON path", "Write one such as '$.user.tags[0]'."
    )


# Spark reads the first of several documents; as elements of one array it sees them all.
_ALONE = "json_array_length(concat('[', {0}, ']')) = 1"
# DuckDB also reads NaN, infinities and a comma after the last element, which JSON does not have;
# outside of texts nothing else is spelt like them.
_LAX = r"'(?i)nan|inf|,\s*[\]}}]'"
_TEXTS = r"""'"(?:[^"\\]|\\.)*"', '""', 'gs'"""
_MALFORMED = (
    "NOT json_valid({0}) OR (regexp_matches({0}, " + _LAX + ") "
    "AND regexp_matches(regexp_replace({0}, " + _TEXTS + "), " + _LAX + "))"
)
_VALID = f"(CASE WHEN {_MALFORMED} THEN NULL WHEN json_type({{0}}) = '"


def _json(name: str, gives: str, types: str, to: pa.DataType, variant: str) -> None:
    """A value of one JSON type under a path."""

    def duckdb(args: Sequence[Term]) -> str:
        doc, path = args[0].sql, text_literal(_path(args), DUCKDB)
        value = f"json_extract_string({doc}, {path})"
        made = value if to == pa.string() else f"TRY_CAST({value} AS {type_name(to, DUCKDB)})"
        test = f"json_type({doc}, {path}) IN ({types})"
        return f"(CASE WHEN {_MALFORMED.format(doc)} THEN NULL WHEN {test} THEN {made} END)"

    def spark(args: Sequence[Term]) -> str:
        doc, path = args[0].sql, text_literal(_path(args), SPARK)
        found = f"try_variant_get(try_parse_json({doc}), {path}, 'variant')"
        value = f"try_variant_get({found}, '$', '{type_name(to, SPARK)}')"
        test = f"schema_of_variant({found}) RLIKE '^({variant})$'"
        return f"(CASE WHEN {_ALONE.format(doc)} AND {test} THEN {value} END)"

    offer(JSON, name, f"text word -> {gives}", duckdb, spark)


_WHOLE = "'BIGINT', 'UBIGINT'"
_json("json_text", "text", "'VARCHAR'", pa.string(), "STRING")
_json("json_long", "long", _WHOLE, pa.int64(), "BIGINT")
_json("json_double", "double", f"{_WHOLE}, 'DOUBLE'", pa.float64(), "BIGINT|DECIMAL.*|DOUBLE")
_json("json_bool", "bool", "'BOOLEAN'", pa.bool_(), "BOOLEAN")
offer(
    JSON,
    "json_array_length",
    "text -> int",
    f"{_VALID}ARRAY' THEN CAST(json_array_length({{0}}) AS INTEGER) END)",
    f"(CASE WHEN {_ALONE} THEN json_array_length({{0}}) END)",
)
offer(
    JSON,
    "json_object_keys",
    "text -> [text]",
    f"{_VALID}OBJECT' THEN json_keys({{0}}) END)",
    f"(CASE WHEN {_ALONE} THEN json_object_keys({{0}}) END)",
)


def _json_object(dialect: str) -> Callable[[Sequence[Term]], str]:
    def sql(args: Sequence[Term]) -> str:
        path = str(args[1].literal)
        json_path(path)
        name = JSON_OBJECT if dialect == DUCKDB else "get_json_object"
        return f"{name}({args[0].sql}, {text_literal(path, dialect)})"

    return sql


offer(
    JSON,
    "get_json_object",
    "text word -> text",
    _json_object(DUCKDB),
    _json_object(SPARK),
    may_fail=True,
)
