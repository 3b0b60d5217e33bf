"""Rows as text: JSON documents and lines of CSV, and JSON back to rows.

JSON lines are written column by column: no Python per row for plain types. Every value comes back
as it was, by `parse_json` and from a JSON input of the same columns. Numbers are JSON numbers; NaN
and infinities are the texts "NaN", "Infinity", "-Infinity"; times are ISO 8601 in UTC; bytes are
base64; decimals are text; maps are objects, their keys texts. Nested columns go value by value.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.chunk import plain_type
from headrace.errors import OutputError
from headrace.kernel import decode_json


def without_dictionaries(schema: pa.Schema) -> pa.Schema:
    """The same columns, plain."""
    return pa.schema([_plain(f) for f in schema])


def _plain(field: pa.Field) -> pa.Field:
    kind = plain_type(field.type)
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_plain(kind.value_field)))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_plain(f) for f in kind]))
    return field.with_type(kind)


_CONTROL = r"[\x00-\x1f\x7f]"


def json_lines(table: pa.Table) -> bytes:
    """One line of JSON for each row."""
    if not table.num_rows:
        return b""
    return joined(_documents(table, "}\n"))


def joined(texts: pa.Array) -> bytes:
    """The texts one after the other."""
    whole = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], pa.int64()), texts)
    return bytes(pc.binary_join(whole, _text(""))[0].as_buffer())


def json_values(table: pa.Table) -> pa.Array:
    """One JSON document for each row, as bytes."""
    if not table.num_rows:
        return pa.array([], pa.binary())
    return _documents(table, "}").cast(pa.string()).cast(pa.binary())


def csv_values(table: pa.Table) -> pa.Array:
    """One line of CSV for each row, as bytes and without an end."""
    return csv_texts(table).cast(pa.string()).cast(pa.binary())


def csv_texts(table: pa.Table, delimiter: str = ",", end: str = "") -> pa.Array:
    """One line of CSV for each row: null is an empty field, empty text is ""; text is in quotes
    where it must be, times are as in JSON and in quotes."""
    fields = [_csv_field(column, delimiter) for column in table.columns]
    lines = pc.binary_join_element_wise(*fields, _text(delimiter))
    return pc.binary_join_element_wise(lines, _text(end), _text("")) if end else lines


def _csv_field(column: pa.ChunkedArray, delimiter: str) -> pa.Array:
    values = column.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return pc.if_else(values.is_null(), _text(""), _encoded(column))
    text = values.cast(pa.large_string())
    special = pc.or_(
        pc.match_substring_regex(text, rf'["\r\n\x{{{ord(delimiter):x}}}]|^\x{{feff}}'),
        pc.equal(text, _text("")),
    )
    quoted = _quoted_plain(pc.replace_substring(text, '"', '""'))
    return pc.fill_null(pc.if_else(special, quoted, text), "")


def _documents(table: pa.Table, end: str) -> pa.Array:
    parts: list[pa.Array | pa.Scalar] = []
    for i, name in enumerate(table.column_names):
        parts.append(_text(f"{',' if i else '{'}{json.dumps(name, ensure_ascii=False)}:"))
        parts.append(_encoded(table.column(i)))
    return pc.binary_join_element_wise(*parts, _text(end), _text(""))


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def _encoded(column: pa.ChunkedArray) -> pa.Array:
    """The column's values as JSON text; no nulls."""
    values = column.combine_chunks()
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.dictionary_decode(), kind.value_type
    if pa.types.is_null(kind):
        return pa.array(["null"] * len(values), pa.large_string())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        text = values.cast(pa.string())
    elif pa.types.is_floating(kind):
        text = _numbers(values)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = _quoted(values)
    elif pa.types.is_timestamp(kind):
        text = _quoted_plain(_iso(values))
    elif pa.types.is_date(kind):
        text = _quoted_plain(values.cast(pa.date32()).cast(pa.string()))
    else:
        text = pa.array([None if v is None else _value(v, kind) for v in values.to_pylist()])
        text = text.cast(pa.string())
    return pc.fill_null(text.cast(pa.large_string()), "null")


def _quoted(values: pa.Array) -> pa.Array:
    odd = pc.or_(
        pc.match_substring_regex(values, _CONTROL), pc.match_substring_regex(values, r'["\\]')
    )
    if pc.any(odd).as_py():
        return pa.array(
            [None if v is None else json.dumps(v, ensure_ascii=False) for v in values.to_pylist()],
            pa.large_string(),
        )
    return _quoted_plain(values)


def _quoted_plain(values: pa.Array) -> pa.Array:
    large = values.cast(pa.large_string())
    return pc.binary_join_element_wise(_text('"'), large, _text('"'), _text(""))


def _iso(values: pa.Array) -> pa.Array:
    utc = values.cast(pa.timestamp("us", tz="UTC"), safe=False)
    naive = utc.cast(pa.timestamp("us")).cast(pa.large_string())  # 20 times faster than zoned
    dated = pc.replace_substring(naive, " ", "T")
    return pc.binary_join_element_wise(dated, _text("Z"), _text(""))


def _numbers(values: pa.Array) -> pa.Array:
    text = values.cast(pa.string())
    text = pc.if_else(pc.equal(text, "-0"), "-0.0", text)  # without a point, readers see a whole 0
    finite = pc.is_finite(values).fill_null(True)
    if pc.all(finite).as_py():
        return text
    odd = pa.array([_ODD[str(v)] for v in values.filter(pc.invert(finite)).to_pylist()])
    return pc.replace_with_mask(
        text, pc.invert(finite), pc.binary_join_element_wise('"', odd, '"', "")
    )


def _value(value: Any, kind: pa.DataType) -> str:
    return json.dumps(_as_json(value, kind), ensure_ascii=False)


def _as_json(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: _as_json(value[f.name], f.type) for f in kind}
    if pa.types.is_map(kind):
        return _object(value, kind)
    if pa.types.is_nested(kind):
        return [_as_json(v, kind.value_type) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else _ODD[str(value)]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        utc = value.astimezone(dt.UTC) if value.tzinfo else value
        return utc.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, dt.date):
        return value.isoformat()
    return f"{value:f}" if isinstance(value, decimal.Decimal) else value


def _object(pairs: list[tuple[Any, Any]], kind: pa.DataType) -> dict[str, Any]:
    fields = {_key(k, kind.key_type): _as_json(v, kind.item_type) for k, v in pairs}
    if len(fields) < len(pairs):
        raise OutputError(
            "HR-OUTPUT-006",
            "a map has a key twice, which an object of JSON cannot hold",
            'Pass format="parquet", or take one of the two out.',
        )
    return fields


def _key(key: Any, kind: pa.DataType) -> str:
    plain = _as_json(key, kind)
    return plain if isinstance(plain, str) else json.dumps(plain)


def check_json(schema: pa.Schema) -> None:
    """Raise ValueError for a column that could not be read again."""
    for field in schema:
        kind = _unsupported(field.type)
        if kind is not None:
            raise ValueError(f"column {field.name!r} is {field.type}, and JSON has no {kind}")


def _unsupported(kind: pa.DataType) -> str | None:
    """The part of a type that JSON cannot represent, in words."""
    if pa.types.is_dictionary(kind):
        return _unsupported(kind.value_type)
    if pa.types.is_map(kind):
        if pa.types.is_nested(kind.key_type):
            return f"map with keys of {kind.key_type}"
        return _unsupported(kind.key_type) or _unsupported(kind.item_type)
    if pa.types.is_nested(kind):
        inner = [kind.field(i).type for i in range(kind.num_fields)]
        return next((part for k in inner if (part := _unsupported(k)) is not None), None)
    return None if any(test(kind) for test in _SUPPORTED) else str(kind)


_ODD = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_SUPPORTED = (
    pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating,
    pa.types.is_decimal, pa.types.is_string, pa.types.is_large_string, pa.types.is_binary,
    pa.types.is_large_binary, pa.types.is_date, pa.types.is_timestamp,
)  # fmt: skip


def parse_json(lines: pa.Array, schema: pa.Schema) -> pa.Table:
    """What `json_lines` wrote, as rows again; ValueError if it is something else."""
    table, bad, reasons = decode_json(lines, pa.schema([f.with_nullable(True) for f in schema]))
    if bad.any():
        raise ValueError(f"line {int(bad.argmax()) + 1}: {reasons[0]}")
    return pa.Table.from_arrays(table.columns, schema=schema)
