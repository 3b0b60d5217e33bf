"""Typed columns of an input against the schema that the program declares.

Columns are found by name; numbers, texts and times may change their width, never their kind,
and never lose a value on the way: that is an InputError which names place and column.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.errors import InputError
from headrace.schema import TIMESTAMP


def fit(what: str, found: pa.Schema, wanted: pa.Schema) -> None:
    """Raise InputError unless `found` has every wanted column in a type that can be cast."""
    for field in wanted:
        if found.get_field_index(field.name) < 0:
            raise missing_column(what, field.name, found.names)
        kind = found.field(field.name).type
        if not _castable(kind, field.type):
            raise wrong_type(what, field, kind, "")


def conform(what: str, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The schema's columns in its order and types; nothing lost in a cast, or InputError."""
    columns = []
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            column = _cast(what, column, field)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def plain(kind: pa.DataType) -> pa.DataType:
    """The type as programs know it: one kind of text, of bytes, of time."""
    if pa.types.is_dictionary(kind):
        return plain(kind.value_type)
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _cast(what: str, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    times = pa.types.is_timestamp(column.type) and pa.types.is_timestamp(field.type)
    try:
        return column.cast(field.type, safe=not times)  # time finer than a microsecond is cut
    except (pa.ArrowException, ValueError) as cause:
        raise wrong_type(what, field, column.type, f": {cause}") from cause


def _castable(kind: pa.DataType, wanted: pa.DataType) -> bool:
    if kind == wanted or pa.types.is_null(kind):
        return True
    if _family(kind) != _family(wanted):
        return False
    try:
        pa.array([], kind).cast(wanted)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _family(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return _family(kind.value_type)
    families = {
        "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
        "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        "bytes": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
        "time": (pa.types.is_timestamp, pa.types.is_date),
        "list": (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    }
    for name, tests in families.items():
        if any(test(kind) for test in tests):
            return name
    return str(kind.id)


def missing_column(what: str, name: str, found: list[str]) -> InputError:
    return InputError(
        f"{what} has no column {name!r}", code="HR-INPUT-005",
        hint=f"It has: {', '.join(found)}. Change the schema, or keep this file out of the input.",
    )  # fmt: skip


def wrong_type(what: str, field: pa.Field, kind: pa.DataType, why: str) -> InputError:
    return InputError(
        f"column {field.name!r} of {what} is {kind}, which is not {field.type}{why}",
        code="HR-INPUT-006",
        hint="Declare the type that the file has and cast in the program.",
    )
