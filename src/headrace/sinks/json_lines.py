"""Rows to JSON lines and back, column by column: no Python per row for plain types.

Numbers are JSON numbers, NaN and infinities null; times are ISO 8601 in UTC; bytes are
base64; decimals are text, so that nothing is lost. Nested columns go value by value.
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
import pyarrow.json as pajson

_CONTROL = r"[\x00-\x1f\x7f]"


def json_lines(table: pa.Table) -> bytes:
    """One line of JSON for each row."""
    if not table.num_rows:
        return b""
    lines = _documents(table, "}\n")
    whole = pa.LargeListArray.from_arrays(pa.array([0, len(lines)], pa.int64()), lines)
    return bytes(pc.binary_join(whole, _text(""))[0].as_buffer())


def json_values(table: pa.Table) -> pa.Array:
    """One JSON document for each row, as bytes."""
    if not table.num_rows:
        return pa.array([], pa.binary())
    return _documents(table, "}").cast(pa.string()).cast(pa.binary())


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
        text = pc.if_else(pc.is_finite(values), values, None).cast(pa.string())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = _quoted(values)
    elif pa.types.is_timestamp(kind):
        text = _quoted_plain(_iso(values))
    elif pa.types.is_date(kind):
        text = _quoted_plain(values.cast(pa.date32()).cast(pa.string()))
    else:
        text = pa.array([None if v is None else _value(v) for v in values.to_pylist()])
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


def _value(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        utc = value.astimezone(dt.UTC) if value.tzinfo else value
        return utc.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    return value


def parsed(lines: pa.Array, schema: pa.Schema) -> pa.Table:
    """What `json_lines` wrote, as rows again."""
    text = b"\n".join(lines.to_pylist())
    loose = pa.schema([pa.field(f.name, _written(f.type)) for f in schema])
    if not text:
        return schema.empty_table()
    table = pajson.read_json(
        pa.BufferReader(text),
        pajson.ReadOptions(use_threads=False, block_size=len(text) + 1),
        pajson.ParseOptions(explicit_schema=loose, unexpected_field_behavior="ignore"),
    )
    columns = [_back(table.column(f.name), f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _written(kind: pa.DataType) -> pa.DataType:
    """The type that a value of `kind` has in JSON."""
    if pa.types.is_dictionary(kind):
        return _written(kind.value_type)
    known = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return kind if known or pa.types.is_nested(kind) else pa.string()


def _back(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values = [None if v is None else base64.b64decode(v) for v in column.to_pylist()]
        return pa.chunked_array([pa.array(values, kind)])
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return column.cast(pa.timestamp(kind.unit, "UTC")).cast(kind)
    return column.cast(kind)
