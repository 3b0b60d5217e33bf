"""The columns of a registered schema, for programs that do not declare them.

Every column may be null: a record of another version may not have it. What has no type here is a
ValueError that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.connect import avro, protobuf
from headrace.connect.avro_columns import arrow_fields
from headrace.connect.protobuf_values import STAMP, WRAPPERS, is_map
from headrace.connect.schema_registry import RegisteredSchema
from headrace.schema import TIMESTAMP


def registered_columns(
    format: str, schema: RegisteredSchema, message: str | None = None
) -> pa.Schema:
    """The columns that records of the schema have."""
    if format == "avro":
        found = arrow_fields(avro.whole_schema(schema))
        return pa.schema([_known(name, field) for name, field in found.items()])
    descriptor = protobuf.message_of(schema, message)
    return pa.schema([pa.field(f.name, _column(f, ())) for f in descriptor.fields])


def _known(name: str, field: pa.Field | str) -> pa.Field:
    if isinstance(field, str):
        raise ValueError(f"column {name!r} is {field}")
    return pa.field(name, _nullable(field.type))


def _nullable(kind: pa.DataType) -> pa.DataType:
    """The type, whose parts may be null, too."""
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, _nullable(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _nullable(kind.item_type))
    return kind


def _column(field: Any, within: tuple[str, ...]) -> pa.DataType:
    if is_map(field):
        key, value = (field.message_type.fields_by_name[n] for n in ("key", "value"))
        return pa.map_(_one(key, within), _one(value, within))
    return pa.list_(_one(field, within)) if field.is_repeated else _one(field, within)


def _one(field: Any, within: tuple[str, ...]) -> pa.DataType:
    message = field.message_type
    if message is None:
        return pa.string() if field.enum_type is not None else _TYPES[field.type]
    if message.full_name == STAMP:
        return TIMESTAMP
    if message.full_name in WRAPPERS:
        return _TYPES[message.fields_by_name["value"].type]
    if message.full_name in within:
        raise ValueError(f"column {field.name!r} is a message {message.full_name} within itself")
    if not message.fields:
        raise ValueError(f"column {field.name!r} is a message {message.full_name} without fields")
    inside = (*within, message.full_name)
    return pa.struct([(f.name, _column(f, inside)) for f in message.fields])


# By the numbers that Protobuf has for types. A uint64 beyond a bigint does not fit its column.
_TYPES: Mapping[int, pa.DataType] = {
    1: pa.float64(), 2: pa.float32(), 3: pa.int64(), 4: pa.int64(), 5: pa.int32(), 6: pa.int64(),
    7: pa.int64(), 8: pa.bool_(), 9: pa.string(), 12: pa.binary(), 13: pa.int64(), 15: pa.int32(),
    16: pa.int64(), 17: pa.int32(), 18: pa.int64(),
}  # fmt: skip
