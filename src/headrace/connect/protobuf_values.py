"""Between the fields of a Protobuf message and the values of columns.

`field_getters` of a message's description read its fields as values, `field_putters` fill them.
Fields with presence (messages, `optional`, members of a oneof) are null where they are not set;
other fields have their default value then, as Protobuf says. Enums are names in text columns and
numbers in others; `Timestamp` fills timestamps, to the microsecond; wrappers such as `Int64Value`
fill columns of what they wrap, null where they are not set.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.connect.extras import needed
from headrace.connect.moments import Micros
from headrace.ddl import ddl_type

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICRO = dt.timedelta(microseconds=1)
STAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
Get = Callable[[Any], Any]  # of a message: a column's value
Put = Callable[[Any, Any], None]  # into a message: a column's value


def field_getters(descriptor: Any, columns: Any) -> dict[str, Get]:
    """For the columns that the message has."""
    fields = descriptor.fields_by_name
    return {c.name: _getter(fields[c.name], c.type) for c in columns if c.name in fields}


def _getter(field: Any, kind: pa.DataType) -> Get:
    read, number = _read(field, kind), field.number
    enum = (field.message_type.fields_by_name["value"] if is_map(field) else field).enum_type
    if enum is None or not enum.is_closed:
        return read
    unknown = needed("google.protobuf.unknown_fields", "protobuf", "Protobuf").UnknownFieldSet

    def get(message: Any) -> Any:
        """Of a closed enum the library puts numbers without a name aside, and whole entries of a
        map that have one."""
        for other in unknown(message):
            if other.field_number == number:
                found = "a value of the map" if isinstance(other.data, bytes) else other.data
                raise ValueError(f"{found} is no value of enum {enum.full_name} in its schema")
        return read(message)

    return get


def _read(field: Any, kind: pa.DataType) -> Get:
    name = field.name
    if is_map(field):
        key, item = (field.message_type.fields_by_name[n] for n in ("key", "value"))
        if not pa.types.is_map(kind):
            raise _unfit(field, kind)
        to_key, to_item = _value(key, kind.key_type), _value(item, kind.item_type)
        return lambda m: sorted(
            (to_key(k), to_item(v)) for k, v in dict(getattr(m, name).items()).items()
        )
    if field.is_repeated:
        if not pa.types.is_list(kind):
            raise _unfit(field, kind)
        to_one = _value(field, kind.value_type)
        return lambda m: [to_one(v) for v in getattr(m, name)]
    to_value = _value(field, kind)
    if not field.has_presence:
        return lambda m: to_value(getattr(m, name))
    return lambda m: to_value(getattr(m, name)) if m.HasField(name) else None


def _value(field: Any, kind: pa.DataType) -> Get:
    if field.enum_type is not None:
        return _enum_name(field.enum_type) if _is_text(kind) else _same
    if field.message_type is None:
        if pa.types.is_nested(kind):
            raise _unfit(field, kind)
        return _same
    full = field.message_type.full_name
    if full == STAMP and pa.types.is_timestamp(kind):
        return lambda m: Micros(m.seconds * 1_000_000 + m.nanos // 1_000)
    if full in WRAPPERS and not pa.types.is_struct(kind):
        return lambda m: m.value
    if not pa.types.is_struct(kind):
        raise _unfit(field, kind)
    getters = field_getters(field.message_type, kind)
    missing = dict.fromkeys(f.name for f in kind)
    return lambda m: {**missing, **{n: get(m) for n, get in getters.items()}}


def _enum_name(enum: Any) -> Get:
    names = dict[int, str]()
    for value in enum.values:
        names.setdefault(value.number, str(value.name))  # of aliases the first, as in JSON

    def name(number: int) -> str:
        if number not in names:
            raise ValueError(f"{number} is no value of enum {enum.full_name} in its schema")
        return names[number]

    return name


def _same(value: Any) -> Any:
    return value


def is_map(field: Any) -> bool:
    """Whether it is a map, which is a repeated message of keys and values."""
    message = field.message_type
    return bool(field.is_repeated and message is not None and message.GetOptions().map_entry)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _unfit(field: Any, kind: pa.DataType) -> ValueError:
    what = (field.message_type or field.enum_type or field).full_name
    many = "a map" if is_map(field) else f"repeated {what}" if field.is_repeated else what
    return ValueError(f"column {field.name!r} is {ddl_type(kind)}, and its field is {many}")


def field_putters(descriptor: Any, columns: Any) -> dict[str, Put]:
    fields = descriptor.fields_by_name
    for column in columns:
        if column.name not in fields:
            raise ValueError(f"message {descriptor.full_name} has no field {column.name!r}")
    return {c.name: _putter(fields[c.name], c.type) for c in columns}


def _putter(field: Any, kind: pa.DataType) -> Put:
    name = field.name
    _getter(field, kind)  # refuses what does not go together
    if is_map(field):
        return _map_putter(name, field.message_type.fields_by_name["value"], kind.item_type)
    if field.message_type is not None:
        return _message_putter(field, kind)
    if field.is_repeated:
        convert = _scalar(field, kind.value_type)
        return lambda m, v: getattr(m, name).extend([convert(one) for one in v or ()])
    convert = _scalar(field, kind)
    return lambda m, v: None if v is None else setattr(m, name, convert(v))


def _message_putter(field: Any, kind: pa.DataType) -> Put:
    name, repeated = field.name, field.is_repeated
    fill = _filler(field, kind.value_type if repeated else kind)

    def put(message: Any, value: Any) -> None:
        if repeated:
            for one in value or ():
                fill(getattr(message, name).add(), one)
        elif value is not None:
            fill(_present(getattr(message, name)), value)

    return put


def _map_putter(name: str, item: Any, kind: pa.DataType) -> Put:
    if item.message_type is not None:
        fill = _filler(item, kind)

        def put_messages(message: Any, pairs: Any) -> None:
            for key, value in (pairs or {}).items():
                fill(_present(getattr(message, name)[key]), value)

        return put_messages
    convert = _scalar(item, kind)

    def put(message: Any, pairs: Any) -> None:
        for key, value in (pairs or {}).items():
            getattr(message, name)[key] = convert(value)

    return put


def _scalar(field: Any, kind: pa.DataType) -> Get:
    if field.enum_type is None or not _is_text(kind):
        return _same
    numbers = {n: value.number for n, value in field.enum_type.values_by_name.items()}

    def number(name: str) -> int:
        if name not in numbers:
            raise ValueError(f"{name!r} is no value of enum {field.enum_type.full_name}")
        return int(numbers[name])

    return number


def _filler(field: Any, kind: pa.DataType) -> Put:
    full = field.message_type.full_name
    if full == STAMP and pa.types.is_timestamp(kind):
        return _fill_stamp
    if full in WRAPPERS and not pa.types.is_struct(kind):
        return lambda m, v: setattr(m, "value", v)
    putters = field_putters(field.message_type, kind)

    def fill(message: Any, row: Any) -> None:
        for name, put in putters.items():
            put(message, row[name])

    return fill


def _fill_stamp(message: Any, moment: dt.datetime) -> None:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    message.seconds, micros = divmod((aware - _EPOCH) // _MICRO, 1_000_000)
    message.nanos = micros * 1_000


def _present(message: Any) -> Any:
    message.SetInParent()
    return message
