"""Functions of arrays, maps, structs and JSON text, for `headrace.functions`.

A text where a column is expected is the column's name; elsewhere it is the text itself.
"""

from __future__ import annotations

from typing import Any

from headrace.expr.expression import Column, Expr, call, column_of, lit


def array(*values: Any) -> Expr:
    """An array of the values."""
    return call("array", *values)


def size(column: Column) -> Expr:
    """The number of elements of an array, or of entries of a map."""
    return call("size", column_of(column))


def get(column: Column, position: Any) -> Expr:
    """The element at a position from 0; null outside."""
    return call("get", column_of(column), position)


def element_at(column: Column, key: Any) -> Expr:
    """An array's element at a position from 1 (-1 is the last), a map's value of a key."""
    return call("element_at", column_of(column), key)


def array_contains(column: Column, value: Any) -> Expr:
    """Whether an element equals `value`."""
    return call("array_contains", column_of(column), value)


def array_position(column: Column, value: Any) -> Expr:
    """The position of `value` from 1; 0 if it is not there."""
    return call("array_position", column_of(column), value)


def array_min(column: Column) -> Expr:
    """The smallest element."""
    return call("array_min", column_of(column))


def array_max(column: Column) -> Expr:
    """The largest element."""
    return call("array_max", column_of(column))


def array_sort(column: Column) -> Expr:
    """Its elements in order, nulls last."""
    return call("array_sort", column_of(column))


def array_reverse(column: Column) -> Expr:
    """Its elements backwards."""
    return call("array_reverse", column_of(column))


def array_append(column: Column, value: Any) -> Expr:
    """With one more element."""
    return call("array_append", column_of(column), value)


def array_concat(*columns: Column) -> Expr:
    """One array after another."""
    return call("array_concat", *map(column_of, columns))


def array_join(column: Column, separator: str) -> Expr:
    """Its texts joined, without the nulls."""
    return call("array_join", column_of(column), separator)


def slice(column: Column, start: Any, length: Any) -> Expr:
    """`length` elements from position `start`, which counts from 1."""
    return call("slice", column_of(column), start, length)


def map_keys(column: Column) -> Expr:
    """The keys of a map."""
    return call("map_keys", column_of(column))


def map_values(column: Column) -> Expr:
    """The values of a map."""
    return call("map_values", column_of(column))


def map_size(column: Column) -> Expr:
    """The number of entries of a map."""
    return call("map_size", column_of(column))


def get_json_object(column: Column, path: str) -> Expr:
    """What is at a path such as "$.a.b[0]" of a JSON document, as text; null if nothing is."""
    return call("get_json_object", column_of(column), path)


def json_text(column: Column, path: str) -> Expr:
    """The text under a path such as "$.user.name"; null if it is not a text."""
    return call("json_text", column_of(column), path)


def json_long(column: Column, path: str) -> Expr:
    """The whole number under a path; null if it is not one."""
    return call("json_long", column_of(column), path)


def json_double(column: Column, path: str) -> Expr:
    """The number under a path; null if it is not one."""
    return call("json_double", column_of(column), path)


def json_bool(column: Column, path: str) -> Expr:
    """The truth under a path; null if it is not one."""
    return call("json_bool", column_of(column), path)


def json_array_length(column: Column) -> Expr:
    """The number of elements of a JSON array; null if it is not one."""
    return call("json_array_length", column_of(column))


def json_object_keys(column: Column) -> Expr:
    """The keys of a JSON object, in order; null if it is not one."""
    return call("json_object_keys", column_of(column))


def struct(**fields: Any) -> Expr:
    """A struct of named values."""
    return lit(dict(fields))


def array_distinct(column: Column) -> Expr:
    """Its elements, each once, where it stands first."""
    return call("array_distinct", column_of(column))


def array_union(column: Column, other: Column) -> Expr:
    """The elements of both, each once."""
    return call("array_union", column_of(column), column_of(other))


def array_remove(column: Column, value: Any) -> Expr:
    """Without the elements that equal `value`."""
    return call("array_remove", column_of(column), value)
