"""Tuples as JSON, for bolts and spouts in other languages: columns to text, and values back.

Nothing is bent on the way back: a value that is not what its field declares is refused, with the
field and the value. Which JSON stands for which type is one table, in docs/guide/topologies.md.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace.chunk import visible
from headrace.rows import pylist
from headrace.schema import ddl_type

Convert = Callable[[Any], Any]

_ODD = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_DECIMAL = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_SHOWN = 60  # characters of a value in a message


class Unfitting(Exception):
    """A value that is not what its field declares; the text says which, and why."""


# What travels at all.


def cannot_travel(schema: pa.Schema) -> pa.Field | None:
    """The first field whose type has no JSON form here."""
    return next((field for field in schema if not _travels(field.type)), None)


def _travels(kind: pa.DataType) -> bool:
    if pt.is_map(kind):
        return _travels(kind.key_type) and _travels(kind.item_type)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_struct(kind):
        return all(_travels(kind.field(i).type) for i in range(kind.num_fields))
    exact = pt.is_timestamp(kind) and kind.unit != "ns" and kind.tz in (None, "UTC")
    plain = pt.is_boolean, pt.is_integer, pt.is_float32, pt.is_float64, pt.is_date32, pt.is_decimal
    return exact or _is_text(kind) or _is_bytes(kind) or any(is_kind(kind) for is_kind in plain)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind))


# From columns to text.


def rows_as_json(table: pa.Table) -> list[str]:
    """Each row of a table, without its hidden columns, as the JSON list of its values."""
    columns = [_texts(column) for column in visible(table).columns]
    if len(columns) == 1:
        return [f"[{text}]" for text in columns[0]]
    return ["[" + ",".join(texts) + "]" for texts in zip(*columns, strict=True)] if columns else []


def _texts(column: pa.ChunkedArray) -> Iterable[str]:
    """The values of a column as JSON, each as text."""
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pt.is_integer(kind):
        return column.cast(pa.string()).fill_null("null").to_pylist()  # type: ignore[no-any-return]
    if _is_text(kind) and not column.null_count:
        return map(quoted, column.to_pylist())
    if pt.is_float32(kind):  # the shortest text of the 32 bits, not of 64
        column = column.cast(pa.string()).cast(pa.float64())
    if pt.is_null(kind):
        return ["null"] * len(column)
    write = _writer(kind)
    return map(_dumps, (None if v is None else write(v) for v in pylist(column)))


_dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@lru_cache(maxsize=256)
def _writer(kind: pa.DataType) -> Convert:
    """How a value of this type becomes what `json` writes."""
    if pt.is_map(kind):
        return _map_writer(_nullable(_writer(kind.key_type)), _nullable(_writer(kind.item_type)),
                           _is_text(kind.key_type))  # fmt: skip
    if pt.is_struct(kind):
        fields = [(f.name, _nullable(_writer(f.type))) for f in kind]
        return lambda value: {name: write(value[name]) for name, write in fields}
    if pt.is_list(kind) or pt.is_large_list(kind):
        inner = _nullable(_writer(kind.value_type))
        return lambda value: [inner(one) for one in value]
    if pt.is_floating(kind):
        return _float_out
    if pt.is_decimal(kind):
        return lambda value: format(value, "f")
    if pt.is_timestamp(kind):
        return _utc_out if kind.tz else lambda value: value.isoformat(timespec="microseconds")
    if pt.is_date(kind):
        return lambda value: value.isoformat()
    if _is_bytes(kind):
        return lambda value: base64.b64encode(value).decode("ascii")
    return lambda value: value


def _nullable(write: Convert) -> Convert:
    return lambda value: None if value is None else write(value)


def _map_writer(key: Convert, item: Convert, by_text: bool) -> Convert:
    def write(value: Any) -> Any:
        entries = value.items() if isinstance(value, dict) else value
        pairs = [[key(k), item(v)] for k, v in entries]
        return dict(pairs) if by_text else pairs

    return write


def _float_out(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _utc_out(value: dt.datetime) -> str:
    return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


# And back.


def columns_of(tuples: Sequence[Any], schema: pa.Schema) -> list[pa.Array]:
    """Tuples that a program emitted, lists of JSON values, as columns of `schema`."""
    for wrong in (t for t in tuples if type(t) is not list or len(t) != len(schema)):
        names = ", ".join(schema.names)
        how = f"{len(wrong)} values" if type(wrong) is list else "no list"
        raise Unfitting(f"the tuple {_shown(wrong)} is {how}; its fields are {names}")
    columns = zip(*tuples, strict=True) if tuples else ((),) * len(schema)
    return [_array(values, field) for values, field in zip(columns, schema, strict=True)]


def _array(values: Sequence[Any], field: pa.Field) -> pa.Array:
    kind = field.type
    as_they_are = set(map(type, values)) <= _plain_types(kind)
    if not as_they_are:
        read = _reader(kind)
        values = [None if v is None else _read(read, v, field) for v in values]
    try:
        array = pa.array(values, kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        raise _misfit(values, field) from None
    if array.null_count and not field.nullable:
        raise Unfitting(f"field {field.name!r} is null, and is declared not null")
    if as_they_are and pt.is_floating(kind):
        _refuse_overflow(array, values, field)
    return array


@lru_cache(maxsize=256)
def _plain_types(kind: pa.DataType) -> frozenset[type]:
    """The types of values that Arrow takes as they are, or refuses."""
    none = type(None)
    if pt.is_boolean(kind):
        return frozenset({bool, none})
    if pt.is_integer(kind):
        return frozenset({int, none})
    if _is_text(kind):
        return frozenset({str, none})
    return frozenset({float, none}) if pt.is_floating(kind) else frozenset({none})


def _refuse_overflow(array: pa.Array, values: Sequence[Any], field: pa.Field) -> None:
    """Among numbers an infinity is one that did not fit: 1e400."""
    numbers = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    for place in np.flatnonzero(np.isinf(numbers)).tolist():
        raise _refused(values[place], field)


def _read(read: Convert, value: Any, field: pa.Field) -> Any:
    try:
        return read(value)
    except (ValueError, TypeError, KeyError, OverflowError, ArithmeticError):
        raise _refused(value, field) from None


def _misfit(values: Sequence[Any], field: pa.Field) -> Unfitting:
    """Which of the values Arrow refuses."""
    for value in values:
        try:
            pa.array([value], field.type)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            return _refused(value, field)
    return Unfitting(f"field {field.name!r} ({ddl_type(field.type)}) does not fit")


def _refused(value: Any, field: pa.Field) -> Unfitting:
    return Unfitting(f"field {field.name!r} ({ddl_type(field.type)}) cannot be {_shown(value)}")


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


@lru_cache(maxsize=256)
def _reader(kind: pa.DataType) -> Convert:
    """How a JSON value other than null becomes one of this type; raises where it is none."""
    if pt.is_map(kind):
        return _map_reader(kind)
    if pt.is_struct(kind):
        return _struct_reader(kind)
    if pt.is_list(kind) or pt.is_large_list(kind):
        inner = _field_reader(kind.value_field)
        return lambda value: [inner(one) for one in _exactly(value, list)]
    if pt.is_floating(kind):
        narrow = np.float32 if pt.is_float32(kind) else np.float64
        return lambda value: _float_in(value, narrow)
    if pt.is_integer(kind):
        bounds = np.iinfo(kind.to_pandas_dtype())
        return lambda value: _integer_in(value, bounds)
    if pt.is_decimal(kind):
        return lambda value: _decimal_in(value, kind)
    if pt.is_timestamp(kind):
        zoned, digits = kind.tz is not None, {"s": 0, "ms": 3, "us": 6}[kind.unit]
        return lambda value: _time_in(value, zoned, digits)
    if pt.is_date(kind):
        return lambda value: dt.date.fromisoformat(_matching(value, _DATE)[0])
    if _is_bytes(kind):
        return lambda value: base64.b64decode(_exactly(value, str), validate=True)
    wanted: type = bool if pt.is_boolean(kind) else str
    return lambda value: _exactly(value, wanted)


def _field_reader(field: pa.Field) -> Convert:
    """A value inside another, which may be null if its field says so."""
    read = _reader(field.type)

    def inside(value: Any) -> Any:
        if value is not None:
            return read(value)
        if not field.nullable:
            raise ValueError("null")
        return None

    return inside


def _map_reader(kind: pa.DataType) -> Convert:
    key, item = _field_reader(kind.key_field), _field_reader(kind.item_field)

    def read(value: Any) -> list[tuple[Any, Any]]:
        if _is_text(kind.key_type):
            pairs = list(_exactly(value, dict).items())
        else:
            pairs = [(k, v) for k, v in _exactly(value, list)]
        return [(key(k), item(v)) for k, v in pairs]

    return read


def _struct_reader(kind: pa.DataType) -> Convert:
    fields = {f.name: _field_reader(f) for f in kind}

    def read(value: Any) -> dict[str, Any]:
        if _exactly(value, dict).keys() != fields.keys():
            raise ValueError("other fields")
        return {name: inside(value[name]) for name, inside in fields.items()}

    return read


def _exactly(value: Any, kind: Any) -> Any:
    if type(value) is not kind:
        raise TypeError
    if kind is str:
        value.encode("utf-8")  # half a character cannot be stored
    return value


def _matching(value: Any, pattern: re.Pattern[str]) -> re.Match[str]:
    match = pattern.fullmatch(_exactly(value, str))
    if match is None:
        raise ValueError
    return match


def _integer_in(value: Any, bounds: Any) -> int:
    if type(value) is not int or not bounds.min <= value <= bounds.max:
        raise ValueError
    return value


def _float_in(value: Any, narrow: Any) -> float:
    if type(value) is str:
        return _ODD[value]
    if type(value) not in (int, float):
        raise TypeError
    with np.errstate(over="ignore"):
        number = float(narrow(value))
    if math.isinf(number) or (type(value) is int and number != value):
        raise ValueError
    return number


def _decimal_in(value: Any, kind: pa.DataType) -> Decimal:
    number = Decimal(_matching(value, _DECIMAL)[0])
    pa.array([number], kind)  # refuses digits that it would lose
    return number


def _time_in(value: Any, zoned: bool, digits: int) -> dt.datetime:
    match = _matching(value, _TIME)
    if (match[2] is not None) != zoned or len((match[1] or ".").rstrip("0")) - 1 > digits:
        raise ValueError
    return dt.datetime.fromisoformat(match[0])
