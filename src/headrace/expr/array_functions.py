"""SQL functions of arrays, maps and structs.

Invariant: a null array gives null; a position outside an array gives null. Arrays as sets are in
the order in which elements first occur; null is an element like others; NaN equals NaN and
-0.0 equals 0.0, which is what a set of doubles holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from headrace.errors import PlanError, call_site
from headrace.expr.catalog import declare, function, listed
from headrace.expr.expression import Column, Expr, call, column_of, lit
from headrace.expr.types import Term, failing, is_nested, ordered, quote


@function("T T* -> [T]", listed("[{}]"))
def array(*values: Any) -> Expr:
    """An array of columns, or of literals that are not text; of a text it is `lit("x")`."""
    listed = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    return call("array", *map(column_of, listed))


def _size_type(args: Sequence[Term]) -> pa.DataType:
    if pt.is_list(args[0].type) or pt.is_map(args[0].type):
        return pa.int32()
    raise PlanError(
        "HR-EXPR-003",
        "size takes an array or a map",
        "The number of characters of a text is length(x).",
    )


def _size(args: Sequence[Term]) -> str:
    word = "cardinality" if pt.is_map(args[0].type) else "len"
    return f"CAST({word}({args[0].sql}) AS INTEGER)"


@function("any -> int", _size, returns=_size_type, aliases="cardinality array_size")
def size(column: Column) -> Expr:
    """The number of elements of an array, or of entries of a map."""
    return call("size", column_of(column))


@function(
    "[T] int -> T",
    "{0}[CASE WHEN {1} >= 0 THEN CAST({1} AS BIGINT) + 1 ELSE 0 END]",  # 0: null
)
def get(column: Column, position: Any) -> Expr:
    """The element at a position from 0; null outside."""
    return call("get", column_of(column), position)


def _element_type(args: Sequence[Term]) -> pa.DataType:
    kind, key = args[0].type, args[1].type
    if pt.is_list(kind) and key in (pa.int8(), pa.int16(), pa.int32()):
        return kind.value_type
    if pt.is_map(kind) and key == kind.key_type:
        return kind.item_type
    raise PlanError(
        "HR-EXPR-003",
        "element_at takes an array and a position, or a map and a key of it",
        "Cast the position to int.",
    )


@function("any any ->", "({0})[{1}]", returns=_element_type)
def element_at(column: Column, key: Any) -> Expr:
    """An array's element at a position from 1 (-1 is the last), a map's value of a key."""
    return call("element_at", column_of(column), key)


@function(
    "[T] T -> bool",
    "(CASE WHEN list_contains({0}, {1}) THEN TRUE WHEN {0} IS NULL OR {1} IS NULL THEN NULL "
    "WHEN len(list_filter({0}, lambda x: x IS NULL)) > 0 THEN NULL ELSE FALSE END)",
)
def array_contains(column: Column, value: Any) -> Expr:
    """Whether an element equals `value`."""
    return call("array_contains", column_of(column), value)


@function(
    "[T] T -> long",
    "(CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL "
    "ELSE CAST(coalesce(list_position({0}, {1}), 0) AS BIGINT) END)",
)
def array_position(column: Column, value: Any) -> Expr:
    """The position of `value` from 1; 0 if it is not there."""
    return call("array_position", column_of(column), value)


# of equal ones, such as 0.0 and -0.0, DuckDB takes the last and Spark the first
@function("[T] ->", "list_min(list_reverse({0}))", returns=lambda a: ordered(a[0].type.value_type))
def array_min(column: Column) -> Expr:
    """The smallest element."""
    return call("array_min", column_of(column))


@function("[T] ->", "list_max(list_reverse({0}))", returns=lambda a: ordered(a[0].type.value_type))
def array_max(column: Column) -> Expr:
    """The largest element."""
    return call("array_max", column_of(column))


@function(
    "[T] ->",
    "list_sort({0}, 'ASC', 'NULLS LAST')",
    returns=lambda a: pa.list_(ordered(a[0].type.value_type)),
)
def array_sort(column: Column) -> Expr:
    """Its elements in order, nulls last."""
    return call("array_sort", column_of(column))


@function("[T] -> [T]", "list_reverse({0})")
def array_reverse(column: Column) -> Expr:
    """Its elements backwards."""
    return call("array_reverse", column_of(column))


@function("[T] T -> [T]", "(CASE WHEN {0} IS NOT NULL THEN list_append({0}, {1}) END)")
def array_append(column: Column, value: Any) -> Expr:
    """With one more element."""
    return call("array_append", column_of(column), value)


@function("[T] [T]* -> [T]", listed("({})", " || "))
def array_concat(*columns: Column) -> Expr:
    """One array after another."""
    return call("array_concat", *map(column_of, columns))


def _slice(args: Sequence[Term]) -> str:
    """From a position that counts from 1, or from the end if it is negative."""
    array, start, length = (a.sql for a in args)
    if args[1].literal == 0 or (isinstance(args[2].literal, int) and args[2].literal < 0):
        raise PlanError(
            "HR-EXPR-003",
            "slice starts at 1, or at -1 for the last, and its length is not negative",
            "Write slice(xs, 1, 2).",
        )
    fail = failing("'slice cannot take '", length, "' elements from position '", start)
    length = f"(CASE WHEN {start} = 0 OR {length} < 0 THEN {fail} ELSE {length} END)"
    first = (
        f"(CASE WHEN {start} < 0 THEN len({array}) + {start} + 1 ELSE CAST({start} AS BIGINT) END)"
    )
    part = f"list_slice({array}, {first}, {first} + {length} - 1)"
    return (
        f"(CASE WHEN {array} IS NULL OR {start} IS NULL OR {length} IS NULL THEN NULL "
        f"WHEN {length} = 0 OR {first} < 1 THEN {array}[2:1] "
        f"ELSE {part} END)"
    )


@function("[T] int int -> [T]", _slice, may_fail=True)
def slice(column: Column, start: Any, length: Any) -> Expr:
    """`length` elements from position `start`, which counts from 1."""
    return call("slice", column_of(column), start, length)


def _texts(args: Sequence[Term]) -> pa.DataType:
    if args[0].type == pa.list_(pa.string()):
        return pa.string()
    raise PlanError("HR-EXPR-003", "array_join takes an array of text", "Use cast.")


def _join(args: Sequence[Term]) -> str:
    """DuckDB's own takes only a literal between the texts."""
    array, between = (a.sql for a in args)
    if isinstance(args[1].literal, str):
        return f"array_to_string({array}, {between})"
    texts = f"list_filter({array}, lambda x: x IS NOT NULL)"
    joined = f"list_reduce({texts}, lambda x, y: concat(x, {between}, y))"
    return (
        f"(CASE WHEN {array} IS NULL OR {between} IS NULL THEN NULL "
        f"WHEN len({texts}) = 0 THEN '' ELSE {joined} END)"
    )


@function("any text ->", _join, returns=_texts)
def array_join(column: Column, separator: str) -> Expr:
    """Its texts joined, without the nulls."""
    return call("array_join", column_of(column), separator)


# arrays as sets


def _set_type(args: Sequence[Term]) -> pa.DataType:
    if is_nested(args[0].type.value_type):
        raise PlanError(
            "HR-EXPR-003",
            "it takes an array of plain values",
            "Use a Python function for arrays of arrays or structs.",
        )
    return args[0].type


def _distinct(args: Sequence[Term]) -> str:
    array_sql = args[0].sql if len(args) == 1 else f"({' || '.join(a.sql for a in args)})"
    if args[0].type.value_type == pa.float64():
        array_sql = f"list_transform({array_sql}, lambda x: x + CAST(0 AS DOUBLE))"
    elements = f"list_transform(list_sort({_firsts(array_sql)}), lambda p: struct_extract_at(p, 2))"
    return f"(CASE WHEN {array_sql} IS NOT NULL THEN {elements} END)"


def _firsts(array_sql: str) -> str:
    """(position, element) of the first of each: those that in order of elements begin a run."""
    pairs = f"list_sort(list_zip({array_sql}, range(len({array_sql}))))"
    element, before = "struct_extract_at(p, 1)", "struct_extract_at(s[i - 1], 1)"
    begins = f"lambda p, i: i = 1 OR {before} IS DISTINCT FROM {element}"
    firsts = f"list_transform([{pairs}], lambda s: list_filter(s, {begins}))[1]"
    return f"list_transform({firsts}, lambda p: row(struct_extract_at(p, 2), {element}))"


@function("[T] -> [T]", _distinct, returns=_set_type)
def array_distinct(column: Column) -> Expr:
    """Its elements, each once, in the order of their first occurrence."""
    return call("array_distinct", column_of(column))


@function("[T] [T] -> [T]", _distinct, returns=_set_type)
def array_union(column: Column, other: Column) -> Expr:
    """The elements of both, each once."""
    return call("array_union", column_of(column), column_of(other))


@function(
    "[T] T -> [T]",
    "(CASE WHEN {0} IS NULL THEN NULL WHEN {1} IS NOT NULL "
    "THEN list_filter({0}, lambda x: x IS DISTINCT FROM {1}) END)",
    returns=_set_type,
)
def array_remove(column: Column, value: Any) -> Expr:
    """Without the elements that equal `value`."""
    return call("array_remove", column_of(column), value)


# maps and structs


@function("map ->", "map_keys({0})", returns=lambda a: pa.list_(a[0].type.key_type))
def map_keys(column: Column) -> Expr:
    """The keys of a map."""
    return call("map_keys", column_of(column))


@function("map ->", "map_values({0})", returns=lambda a: pa.list_(a[0].type.item_type))
def map_values(column: Column) -> Expr:
    """The values of a map."""
    return call("map_values", column_of(column))


@function("map -> int", "CAST(cardinality({0}) AS INTEGER)")
def map_size(column: Column) -> Expr:
    """The number of entries of a map."""
    return call("map_size", column_of(column))


def _pairs(args: Sequence[Term]) -> list[tuple[str, Term]]:
    names, values = args[::2], args[1::2]
    if len(names) == len(values) and all(isinstance(n.literal, str) for n in names):
        _different([str(n.literal) for n in names])
        return [(str(n.literal), v) for n, v in zip(names, values, strict=True)]
    raise PlanError(
        "HR-EXPR-003",
        "named_struct takes names and values in turn",
        "Write named_struct('a', x, 'b', y).",
    )


def _struct_type(args: Sequence[Term]) -> pa.DataType:
    return pa.struct([(name, value.type) for name, value in _pairs(args)])


def _struct(args: Sequence[Term]) -> str:
    inner = ", ".join(f"{quote(name)} := {value.sql}" for name, value in _pairs(args))
    return f"struct_pack({inner})"


declare("named_struct", "any any any* ->", _struct, returns=_struct_type)


def struct(*columns: Column, **fields: Any) -> Expr:
    """A struct of columns by their names, and of columns or literals under others."""
    named = [(_field_name(c), column_of(c)) for c in columns]
    named += [(name, column_of(value)) for name, value in fields.items()]
    _different([name for name, _ in named])
    return lit(dict(named))


def _field_name(column: Column) -> str:
    name = column.name if isinstance(column, Expr) else column
    if not isinstance(name, str):
        raise PlanError(
            "HR-EXPR-003",
            f"a field of a struct has no name: {column!r}",
            'Name it: struct("a", b=col("x") + 1), struct((col("x") + 1).alias("b")).',
            site=call_site(),
        )
    return name


def _different(names: Sequence[str]) -> None:
    """Refuse names that differ at most in case, as SQL engines do."""
    twice = [n for i, n in enumerate(names) if n.lower() in {m.lower() for m in names[:i]}]
    if twice:
        raise PlanError(
            "HR-EXPR-003",
            f"a struct has two fields named {twice[0]!r}",
            "Give each field a name of its own; case does not tell them apart.",
            site=call_site(),
        )
