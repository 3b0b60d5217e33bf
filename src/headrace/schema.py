"""Fields and types: from dataclasses, hints, DDL and dictionaries to Arrow.

Inside Headrace a schema *is* a `pyarrow.Schema`; this module only makes one from what
users write and prints one back as DDL. Columns whose name starts with "__" are reserved
for the engine (see `chunk.py`).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import re
import types
import typing
from collections.abc import Mapping

import pyarrow as pa

from headrace.errors import PlanError

TIMESTAMP = pa.timestamp("us", tz="UTC")

_PYTHON: dict[object, pa.DataType] = {
    bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string(),
    bytes: pa.binary(), dt.datetime: TIMESTAMP, dt.date: pa.date32(),
    decimal.Decimal: pa.decimal128(38, 18),
}  # fmt: skip

_DDL: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "bool": pa.bool_(),
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "integer": pa.int32(),
    "bigint": pa.int64(), "long": pa.int64(),
    "float": pa.float32(), "real": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "text": pa.string(), "varchar": pa.string(),
    "binary": pa.binary(), "bytes": pa.binary(),
    "date": pa.date32(), "timestamp": TIMESTAMP,
}  # fmt: skip

SchemaLike = object  # a dataclass, a DDL string, a {name: type} mapping, a pyarrow.Schema


def schema_of(spec: SchemaLike) -> pa.Schema:
    """The Arrow schema that `spec` describes."""
    if isinstance(spec, pa.Schema):
        return _checked(spec)
    if isinstance(spec, str):
        return _checked(_ddl_schema(spec))
    if isinstance(spec, Mapping):
        return _checked(pa.schema([(str(n), type_of(t)) for n, t in spec.items()]))
    if isinstance(spec, type) and (dataclasses.is_dataclass(spec) or _is_record(spec)):
        hints = typing.get_type_hints(spec)
        return _checked(pa.schema([(n, type_of(t)) for n, t in hints.items()]))
    raise PlanError(
        f"{spec!r} does not describe a schema", code="HR-SCHEMA-001",
        hint='Give a dataclass, a DDL string such as "area string, celsius double", '
        "a {name: type} mapping or a pyarrow.Schema.",
    )  # fmt: skip


def type_of(spec: object) -> pa.DataType:
    """The Arrow type that a Python type, a hint or a DDL type name describes."""
    if isinstance(spec, pa.DataType):
        return spec
    if isinstance(spec, str):
        return _ddl_type(spec)
    if spec in _PYTHON:
        return _PYTHON[spec]
    if isinstance(spec, type) and (dataclasses.is_dataclass(spec) or _is_record(spec)):
        return pa.struct(list(schema_of(spec)))
    return _hint_type(spec)


def _hint_type(spec: object) -> pa.DataType:
    origin, args = typing.get_origin(spec), typing.get_args(spec)
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in args if a is not type(None)]
        if len(rest) == 1:
            return type_of(rest[0])
    if origin in (list, tuple, set, frozenset) and args:
        return pa.list_(type_of(args[0]))
    if origin is dict:
        return pa.map_(type_of(args[0]), type_of(args[1]))
    if origin is typing.Annotated:
        return type_of(args[0])
    raise PlanError(
        f"{spec!r} is not a column type", code="HR-SCHEMA-002",
        hint="Use bool, int, float, str, bytes, datetime, date, Decimal, list[...], "
        "dict[..., ...], a dataclass, or a DDL type name.",
    )  # fmt: skip


def _is_record(spec: type) -> bool:
    typed_dict = typing.is_typeddict(spec)
    named_tuple = issubclass(spec, tuple) and hasattr(spec, "_fields")
    return typed_dict or (named_tuple and bool(getattr(spec, "__annotations__", None)))


def _ddl_schema(text: str) -> pa.Schema:
    fields = [part.strip() for part in _split(text) if part.strip()]
    return pa.schema([_ddl_field(f, text) for f in fields])


def _ddl_field(field: str, whole: str) -> pa.Field:
    match = re.match(r"^(`[^`]+`|\w+)\s*:?\s+(.+)$|^(`[^`]+`|\w+):(.+)$", field, re.DOTALL)
    if match is None:
        raise PlanError(
            f"cannot read the field {field!r} in the schema {whole!r}", code="HR-SCHEMA-003",
            hint='Write "name type, name type", for example "area string, celsius double".',
        )  # fmt: skip
    name, type_text = (match[1] or match[3]).strip("`"), (match[2] or match[4]).strip()
    required = re.search(r"\s+not\s+null$", type_text, re.IGNORECASE)
    if required:
        type_text = type_text[: required.start()]
    return pa.field(name, _ddl_type(type_text), nullable=not required)


def _ddl_type(text: str) -> pa.DataType:
    name = text.strip().lower()
    if name in _DDL:
        return _DDL[name]
    inner = re.match(r"^(\w+)\s*<(.*)>$", text.strip(), re.DOTALL)
    kind = inner[1].lower() if inner else ""
    if inner and kind == "array":
        return pa.list_(_ddl_type(inner[2]))
    if inner and kind == "map":
        key, value = _split(inner[2])
        return pa.map_(_ddl_type(key), _ddl_type(value))
    if inner and kind == "struct":
        return pa.struct(list(_ddl_schema(inner[2])))
    number = re.match(r"^(?:decimal|numeric)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?$", name)
    if number:
        return pa.decimal128(int(number[1] or 38), int(number[2] or 18))
    if re.match(r"^(varchar|char)\s*\(\s*\d+\s*\)$", name):
        return pa.string()
    raise PlanError(
        f"{text!r} is not a column type", code="HR-SCHEMA-002",
        hint=f"Known types: {', '.join(sorted(_DDL))}, decimal(p,s), array<...>, "
        "map<..., ...>, struct<...>.",
    )  # fmt: skip


def _split(text: str) -> list[str]:
    """Split at commas that are not inside <> or ()."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def ddl_of(schema: pa.Schema) -> str:
    """The schema as DDL that `schema_of` reads back."""
    return ", ".join(
        f"{f.name} {ddl_type(f.type)}{'' if f.nullable else ' not null'}" for f in schema
    )


def ddl_type(kind: pa.DataType) -> str:
    """The DDL name of an Arrow type."""
    for name, known in _DDL.items():
        if known == kind:
            return name
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{ddl_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl_type(kind.key_type)}, {ddl_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{f.name} {ddl_type(f.type)}' for f in kind)}>"
    if pa.types.is_large_string(kind):
        return "string"
    return str(kind)


def _checked(schema: pa.Schema) -> pa.Schema:
    names = schema.names
    twice = sorted({n for n in names if names.count(n) > 1})
    reserved = [n for n in names if n.startswith("__")]
    if not names or twice or reserved:
        fact = (
            "a schema needs at least one column" if not names
            else f"the schema names {', '.join(map(repr, twice))} twice" if twice
            else f"column names beginning with '__' are reserved: {', '.join(reserved)}"
        )  # fmt: skip
        raise PlanError(fact, code="HR-SCHEMA-004", hint="Rename or add a column.")
    return schema
