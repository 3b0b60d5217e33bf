"""Fields and types: from dataclasses, hints, DDL and dictionaries to Arrow.

Inside Headrace a schema *is* a `pyarrow.Schema`; this module only makes one from what
users write (text is read in `ddl.py`). Columns whose name starts with "__" are reserved
for the engine (see `chunk.py`); names that differ only in case are refused, because SQL
would take them for one.
"""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import datetime as dt
import decimal
import types
import typing
from collections.abc import Mapping

import pyarrow as pa

from headrace.ddl import (
    DECIMAL,
    TIMESTAMP,
    ddl_of,
    ddl_type,
    read_fields,
    read_type,
    refuse_same_names,
    struct_of,
    unfit,
)
from headrace.errors import PlanError

__all__ = ["TIMESTAMP", "SchemaLike", "ddl_of", "ddl_type", "schema_of", "type_of"]

_PYTHON: dict[object, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    dt.datetime: TIMESTAMP,
    dt.date: pa.date32(),
    decimal.Decimal: DECIMAL,
}

_LISTS = (list, set, frozenset, abc.Sequence, abc.Set)

SchemaLike = object  # a dataclass, a DDL string, a {name: type} mapping, a pyarrow.Schema


def schema_of(spec: SchemaLike) -> pa.Schema:
    """The Arrow schema that `spec` describes."""
    if isinstance(spec, pa.Schema):
        return _checked(spec)
    if isinstance(spec, str):
        return _checked(pa.schema(read_fields(spec)))
    if isinstance(spec, Mapping):
        return _checked(pa.schema([(str(n), type_of(t)) for n, t in spec.items()]))
    if _is_record(spec):
        return _checked(pa.schema(_record_fields(spec, ())))
    raise PlanError(
        "HR-SCHEMA-001",
        f"{spec!r} does not describe a schema",
        'Give a dataclass, a DDL string such as "area string, celsius double", '
        "a {name: type} mapping or a pyarrow.Schema.",
    )


def type_of(spec: object) -> pa.DataType:
    """The Arrow type that a Python type, a hint or a DDL type name describes."""
    return _type(spec, ())


def _type(spec: object, within: tuple[type, ...]) -> pa.DataType:
    if isinstance(spec, pa.DataType):
        return spec
    if isinstance(spec, str):
        return read_type(spec)
    if isinstance(spec, type) and spec in _PYTHON:
        return _PYTHON[spec]
    if _is_record(spec):
        return struct_of(_record_fields(spec, within), spec.__name__)
    return _hint_type(spec, within)


def _hint_type(spec: object, within: tuple[type, ...]) -> pa.DataType:
    origin, args = typing.get_origin(spec), typing.get_args(spec)
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in args if a is not type(None)]
        if len(rest) == 1:
            return _type(rest[0], within)
    if origin in _LISTS or (origin is tuple and args[1:] == (...,)):
        return pa.list_(_type(args[0], within))
    if origin in (dict, abc.Mapping):
        return pa.map_(_type(args[0], within), _type(args[1], within))
    if origin is typing.Annotated:
        return _type(args[0], within)
    if isinstance(spec, typing.NewType):
        return _type(spec.__supertype__, within)
    raise PlanError(
        "HR-SCHEMA-002",
        f"{spec!r} is not a column type",
        "Use bool, int, float, str, bytes, datetime, date, Decimal, list[...], "
        "dict[..., ...], a dataclass, or a DDL type name.",
    )


def _is_record(spec: object) -> typing.TypeGuard[type]:
    """A dataclass, TypedDict or typed named tuple."""
    if not isinstance(spec, type) or typing.get_origin(spec) is not None:
        return False
    named_tuple = issubclass(spec, tuple) and hasattr(spec, "_fields")
    return (
        dataclasses.is_dataclass(spec)
        or typing.is_typeddict(spec)
        or (named_tuple and bool(getattr(spec, "__annotations__", None)))
    )


def _record_fields(spec: type, within: tuple[type, ...]) -> list[pa.Field]:
    try:
        hints = typing.get_type_hints(spec)
    except NameError as error:
        raise PlanError(
            "HR-SCHEMA-005",
            f"the types of {spec.__name__} cannot be resolved: {error}",
            "Define the types that it names at the top level of a module, before using it.",
        ) from error
    if spec in within:
        raise PlanError(
            "HR-SCHEMA-005",
            f"{spec.__name__} contains itself",
            "A column has a fixed depth: keep such a value as a JSON string.",
        )
    # The fields of a dataclass, not all its hints: a ClassVar is no column.
    names = [f.name for f in dataclasses.fields(spec)] if dataclasses.is_dataclass(spec) else hints
    return [pa.field(name, _type(hints[name], (*within, spec))) for name in names]


def _checked(schema: pa.Schema) -> pa.Schema:
    reserved = [n for n in schema.names if n.startswith("__")]
    if not schema.names:
        raise unfit("a schema needs at least one column", "Add a column.")
    if reserved:
        raise unfit(
            f"column names beginning with '__' are reserved: {', '.join(reserved)}",
            "Rename the column.",
        )
    refuse_same_names(schema.names, "the schema")
    return schema
