"""The typed columns of an input, cast to the schema that the program declares.

Columns are matched by name. Numbers, texts and times may change their width, but never their kind,
and no value is lost: a column of another kind is an InputError that names the place and the
column, and a value that does not fit makes its row bad.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import beyond, milliseconds
from headrace.column_types import cast_exactly
from headrace.errors import InputError
from headrace.kernel.text_cast import isolate
from headrace.schema import TIMESTAMP, ddl_type
from headrace.sources.contract import MISFIT


def fit(what: str, actual: pa.Schema, declared: pa.Schema) -> None:
    """Raise InputError unless `actual` has every declared column in a type that can be cast."""
    for field in declared:
        if actual.get_field_index(field.name) < 0:
            raise missing_column(what, field.name, actual.names)
        kind = actual.field(field.name).type
        missing = _missing_field(kind, field.type)
        if missing is not None:
            raise missing_column(what, f"{field.name}.{missing}", actual.names)
        if not _castable(kind, field.type):
            raise wrong_type(what, field, kind)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The schema's columns, in its order and types.

    Rows with a value that does not fit are bad: if there are any, a column `__misfit` says why.
    """
    reasons: dict[int, str] = {}
    columns = []
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            column = _cast(column, field, reasons)
        _find_misfits(column, field, reasons)
        columns.append(column)
    typed = pa.Table.from_arrays(columns, schema=schema)
    if not reasons:
        return typed
    misfits = pa.array([reasons.get(i) for i in range(typed.num_rows)], pa.string())
    return typed.append_column(MISFIT, misfits)


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
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(plain(f.type)) for f in kind])
    return kind


def _cast(column: pa.ChunkedArray, field: pa.Field, reasons: dict[int, str]) -> pa.ChunkedArray:
    """The column in the field's type; null where a value does not fit it."""
    try:
        return cast_exactly(column, field.type)
    except (pa.ArrowException, ValueError):
        values = column.combine_chunks()
    cast, bad = isolate(values, field.type, lambda part: cast_exactly(part, field.type))
    for i in bad:
        problem = f"{_shown(values[i])} is not {ddl_type(field.type)}"
        reasons.setdefault(i, f"column {field.name!r}: {problem}")
    return pa.chunked_array([cast])


def _shown(value: pa.Scalar) -> str:
    try:
        return str(value.as_py())[:80]
    except (OverflowError, ValueError):
        return "a time that is not within the years 1 to 9999"


def _find_misfits(column: pa.ChunkedArray, field: pa.Field, reasons: dict[int, str]) -> None:
    """Find rows that lack a required value, and times that are outside the calendar."""
    if column.null_count and not field.nullable:
        for i in np.flatnonzero(column.is_null().to_numpy()):
            reasons.setdefault(int(i), f"column {field.name!r} has no value")
    if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type):
        ends = pc.min_max(column)
        if beyond(milliseconds(_pair(ends["min"], ends["max"]))) is None:
            return
        far = beyond(milliseconds(column))
        for i in [] if far is None else np.flatnonzero(far.to_numpy()):
            why = f"the time of column {field.name!r} is not within the years 1 to 9999"
            reasons.setdefault(int(i), why)


def _pair(first: pa.Scalar, last: pa.Scalar) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([s], first.type) for s in (first, last)])


def _castable(kind: pa.DataType, declared: pa.DataType) -> bool:
    if kind == declared or pa.types.is_null(kind):
        return True
    if _family(kind) != _family(declared):
        return False
    try:
        pa.array([], kind).cast(declared)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _missing_field(kind: pa.DataType, declared: pa.DataType) -> str | None:
    """The first declared field of a struct that `kind` does not have: a cast would add nulls."""
    if pa.types.is_struct(kind) and pa.types.is_struct(declared):
        for field in declared:
            if kind.get_field_index(field.name) < 0:
                return str(field.name)
            deeper = _missing_field(kind.field(field.name).type, field.type)
            if deeper is not None:
                return f"{field.name}.{deeper}"
        return None
    if pa.types.is_map(kind) and pa.types.is_map(declared):
        return _missing_field(kind.item_type, declared.item_type)
    if _family(kind) == _family(declared) == "list":
        return _missing_field(kind.value_type, declared.value_type)
    return None


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


def missing_column(what: str, name: str, names: list[str]) -> InputError:
    return InputError(
        "HR-INPUT-005",
        f"{what} has no column {name!r}",
        f"It has: {', '.join(names)}. Change the schema, or keep this file out of the input.",
    )


def wrong_type(what: str, field: pa.Field, kind: pa.DataType) -> InputError:
    return InputError(
        "HR-INPUT-006",
        f"column {field.name!r} of {what} is {kind}, which is not {field.type}",
        "Declare the type that the file has and cast in the program.",
    )
