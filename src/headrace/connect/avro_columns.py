"""Columns as Avro and Arrow have them: each other's schemas, and the values of rows.

Times and dates pass as whole numbers, so none is out of the range of Python's. A type that has no
equal on the other side is a ValueError that names the column; no value is changed here without
being the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.connect.avro import expanded

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGITS = 38  # of a decimal, at most


class UnsupportedFile(ValueError):
    """The file is whole, and cannot be read here."""

    def __init__(self, fact: str, hint: str) -> None:
        super().__init__(fact)
        self.hint = hint


# Avro's types as Arrow's.

_PLAIN = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
_TIMES = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"), "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"), "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"), "local-timestamp-nanos": pa.timestamp("ns"),
}  # fmt: skip


def arrow_fields(avro: Any) -> dict[str, pa.Field | str]:
    """The columns of an Avro schema, by name; a text says why one has no type here."""
    whole = expanded(avro)
    if not isinstance(whole, dict) or whole.get("type") != "record":
        hint = "Keep it out of the input: a row has to be a record, whose fields are columns."
        raise UnsupportedFile("its rows are not records", hint)
    fields: dict[str, pa.Field | str] = {}
    for field in whole["fields"]:
        try:
            kind, nullable = _arrow(field["type"])
            fields[field["name"]] = pa.field(field["name"], kind, nullable)
        except ValueError as cause:
            fields[field["name"]] = str(cause)
    return fields


def _arrow(avro: Any) -> tuple[pa.DataType, bool]:
    """The type, and whether it may be null."""
    if isinstance(avro, list):
        others = [a for a in avro if a != "null"]
        if len(others) != 1:
            words = " or ".join(str(a["type"] if isinstance(a, dict) else a) for a in avro)
            raise ValueError(f"{words}, which is not one type")
        return _arrow(others[0])[0], len(others) < len(avro) or _arrow(others[0])[1]
    if isinstance(avro, str):
        if avro not in _PLAIN:
            raise ValueError(f"a record of {avro!r} within itself")
        return _PLAIN[avro], avro == "null"
    return _compound(avro), avro.get("type") == "null"


def _compound(avro: dict[str, Any]) -> pa.DataType:
    kind, logical = avro["type"], avro.get("logicalType")
    if logical in _TIMES:
        return _TIMES[logical]
    if logical == "decimal" and kind in ("bytes", "fixed"):
        if avro["precision"] > _DIGITS:
            raise ValueError(f"a decimal of {avro['precision']} digits, and {_DIGITS} can be held")
        return pa.decimal128(avro["precision"], avro.get("scale", 0))
    if logical in ("time-millis", "time-micros"):
        raise ValueError(f"{logical}, a time of day without a date")
    if kind == "record":
        inner = [(f["name"], *_arrow(f["type"])) for f in avro["fields"]]
        return pa.struct([pa.field(*i) for i in inner])
    if kind == "array":
        return pa.list_(pa.field("item", *_arrow(avro["items"])))
    if kind == "map":
        return pa.map_(pa.string(), pa.field("value", *_arrow(avro["values"])))
    if kind == "enum":
        return pa.string()
    if kind == "fixed":
        return pa.binary()
    return _arrow(kind)[0]


def known(fields: dict[str, pa.Field | str], name: str) -> pa.Field:
    field = fields[name]
    if isinstance(field, str):
        raise ValueError(f"column {name!r} is {field}")
    return field


def column(rows: list[dict[str, Any]], field: pa.Field) -> pa.Array:
    values = [row[field.name] for row in rows]
    convert = _pairs(field.type)
    values = values if convert is None else [convert(v) for v in values]
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, OverflowError) as cause:
        raise ValueError(f"column {field.name!r}: {cause}") from cause


def _pairs(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """A function that makes pairs of the dicts of maps, wherever they are; None if nowhere."""
    if pa.types.is_map(kind):
        inner = _pairs(kind.item_type) or (lambda v: v)
        return lambda m: None if m is None else [(k, inner(v)) for k, v in m.items()]
    if pa.types.is_list(kind) and (item := _pairs(kind.value_type)):
        return lambda values: None if values is None else [item(v) for v in values]
    if pa.types.is_struct(kind):
        parts = {f.name: c for f in kind if (c := _pairs(f.type))}
        if parts:
            return lambda r: r and {k: parts[k](v) if k in parts else v for k, v in r.items()}
    return None


# Arrow's types as Avro's.


def avro_schema(schema: pa.Schema) -> dict[str, Any]:
    """The Avro schema of a table; ValueError for what Avro cannot hold exactly."""
    return _record(list(schema), "row", "")


def _record(fields: list[pa.Field], name: str, inside: str) -> dict[str, Any]:
    made = []
    for field in fields:
        if not _NAME.fullmatch(field.name):
            raise ValueError(f"{field.name!r} cannot be a name in Avro")
        avro = _avro(field.type, f"{name}_{field.name}", f"column {inside + field.name!r}")
        made.append({"name": field.name, "type": ["null", avro] if field.nullable else avro})
    return {"type": "record", "name": name, "fields": made}


def _avro(kind: pa.DataType, name: str, what: str) -> Any:
    t = pa.types
    if t.is_dictionary(kind):
        return _avro(kind.value_type, name, what)
    if t.is_struct(kind):
        return _record(list(kind), name, f"{what.removeprefix('column ')[1:-1]}.")
    if t.is_map(kind):
        if not t.is_string(kind.key_type):
            raise ValueError(f"{what} is a map with keys of {kind.key_type}, and Avro's are text")
        return {"type": "map", "values": _item(kind.item_field, name, what)}
    if t.is_list(kind) or t.is_large_list(kind):
        return {"type": "array", "items": _item(kind.value_field, name, what)}
    if t.is_decimal(kind) and kind.scale >= 0:
        sizes = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", "logicalType": "decimal", **sizes}
    if t.is_timestamp(kind) and kind.unit in ("ms", "us"):
        unit = {"ms": "millis", "us": "micros"}[kind.unit]
        local = "" if kind.tz else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-{unit}"}
    if t.is_date32(kind):
        return {"type": "int", "logicalType": "date"}
    for avro, tests in _TESTS.items():
        if any(test(kind) for test in tests):
            return avro
    raise ValueError(f"{what} is {kind}, and Avro has no {kind}")


def _item(field: pa.Field, name: str, what: str) -> Any:
    avro = _avro(field.type, f"{name}_", what)
    return ["null", avro] if field.nullable else avro


_TESTS = {
    "boolean": (pa.types.is_boolean,),
    "int": (
        pa.types.is_int8, pa.types.is_int16, pa.types.is_int32,
        pa.types.is_uint8, pa.types.is_uint16,
    ),
    "long": (pa.types.is_int64, pa.types.is_uint32),
    "float": (pa.types.is_float32,),
    "double": (pa.types.is_float64,),
    "string": (pa.types.is_string, pa.types.is_large_string),
    "bytes": (pa.types.is_binary, pa.types.is_large_binary),
}  # fmt: skip


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The type with times and dates as the numbers they are stored as, and without dictionaries."""
    t = pa.types
    if t.is_dictionary(kind):
        return stored_type(kind.value_type)
    if t.is_timestamp(kind):
        return pa.int64()
    if t.is_date32(kind):
        return pa.int32()
    if t.is_struct(kind):
        return pa.struct([f.with_type(stored_type(f.type)) for f in kind])
    if t.is_map(kind):
        item = kind.item_field
        return pa.map_(kind.key_type, item.with_type(stored_type(item.type)))
    if t.is_list(kind):
        item = kind.value_field
        return pa.list_(item.with_type(stored_type(item.type)))
    return kind


def dicts(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """A function that makes dicts of the pairs of maps, wherever they are; None if nowhere."""
    if pa.types.is_map(kind):
        inner = dicts(kind.item_type) or (lambda v: v)
        return lambda m: m if m is None else _dict(m, inner)
    if pa.types.is_list(kind) and (item := dicts(kind.value_type)):
        return lambda values: None if values is None else [item(v) for v in values]
    if pa.types.is_struct(kind):
        parts = {f.name: c for f in kind if (c := dicts(f.type))}
        if parts:
            return lambda r: r and {k: parts[k](v) if k in parts else v for k, v in r.items()}
    return None


def _dict(pairs: list[tuple[str, Any]], inner: Callable[[Any], Any]) -> dict[str, Any]:
    fields = {k: inner(v) for k, v in pairs}
    if len(fields) < len(pairs):
        raise ValueError("a map has a key twice, which a map of Avro cannot hold")
    return fields
