"""Decoding: a column of JSON documents to typed columns.

Invariant: what a document decodes to depends on that document alone, never on its neighbours
in the chunk; a value that does not fit its field makes the document bad, never null and never
another value. DuckDB parses all documents in one pass; only rows with something odd about
them (a null, a huge integer) are looked at again, by `json_odd`.

The reading: a missing field is null; extra fields are ignored; of a repeated key the first
counts. An integer may be written 5, 5.0 or "5", but not 5.5; a number may be a text that
spells one; true and false count as 1 and 0. A timestamp is ISO text (UTC unless it says
otherwise) or integer milliseconds since 1970. A string field takes any value, as JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from headrace.expr.types import DUCKDB, computed, text_literal, type_name
from headrace.kernel import door
from headrace.kernel import json_odd as odd_rows
from headrace.kernel.json_text import Number
from headrace.schema import TIMESTAMP

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


def decode_json(
    raw: pa.Array | pa.ChunkedArray, schema: pa.Schema
) -> tuple[pa.Table, Mask, list[str]]:
    """(a row for each document, which documents are bad, why for each bad one in turn).

    The row of a bad document holds nulls: leave it out by the mask.
    """
    chunks = raw.chunks if isinstance(raw, pa.ChunkedArray) else [raw]
    parts = [_decode(c, schema) for c in chunks if len(c)]
    if not parts:
        return _nullable(schema).empty_table(), np.zeros(0, bool), []
    tables, masks, reasons = zip(*parts, strict=True)
    return pa.concat_tables(tables), np.concatenate(masks), [r for rs in reasons for r in rs]


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f.with_nullable(True) for f in schema])


def _decode(raw: pa.Array, schema: pa.Schema) -> tuple[pa.Table, Mask, list[str]]:
    texts = _texts(raw)
    deep = odd_rows.too_deep(raw)
    texts = pc.if_else(pa.array(~deep), texts, None) if deep.any() else texts
    kinds = _targets(texts, schema)
    try:
        parsed = _transform(texts, schema, kinds)
    except door.Error:
        texts = pc.if_else(_valid(texts), texts, None)
        parsed = _transform(texts, schema, kinds)
    pairs = zip(parsed.columns, schema, strict=True)
    columns = [_convert(c.combine_chunks(), f.type) for c, f in pairs]
    columns, bad, reasons = odd_rows.settle(raw, texts, columns, schema)
    return pa.Table.from_arrays(columns, schema=_nullable(schema)), bad, reasons


def _texts(raw: pa.Array) -> pa.Array:
    """The documents as text; null where they are not UTF-8."""
    if pt.is_string(raw.type):
        return raw
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        if len(raw) == 1:
            return pa.nulls(1, pa.string())
        middle = len(raw) // 2
        return pa.concat_arrays([_texts(raw[:middle]), _texts(raw[middle:])])


def _targets(texts: pa.Array, schema: pa.Schema) -> list[object]:
    """What DuckDB is asked to make of each field; the first document says how times are spelt."""
    first = odd_rows.parse(next((t.as_py() for t in texts[:16] if t.is_valid), ""))
    return [
        "DOUBLE"
        if pt.is_timestamp(f.type) and isinstance(first.get(f.name), Number)
        else _target(computed(f.type))
        for f in schema
    ]


def _target(kind: pa.DataType) -> object:
    """In DuckDB's own spelling of a JSON shape. An integer is read as a double, which shows a
    fraction where a cast would round it away; what DuckDB reads too freely stays JSON text."""
    if pt.is_integer(kind):
        return "DOUBLE"
    if pt.is_timestamp(kind):
        return "TIMESTAMPTZ"
    if pt.is_binary(kind):
        return "VARCHAR"
    if pt.is_list(kind):
        return [_target(kind.value_type)]
    if pt.is_struct(kind):
        return {f.name: _target(f.type) for f in kind}
    return "JSON" if pt.is_boolean(kind) or pt.is_map(kind) else type_name(kind, DUCKDB)


def _transform(texts: pa.Array, schema: pa.Schema, kinds: Sequence[object]) -> pa.Table:
    shape = text_literal(json.dumps(dict(zip(schema.names, kinds, strict=True))), DUCKDB)
    fields = ", ".join(f"struct_extract_at(s, {i + 1}) AS c{i}" for i in range(len(schema)))
    sql = f"SELECT {fields} FROM (SELECT json_transform(d, {shape}) AS s FROM {door.FEED})"
    return door.once(sql, pa.table({"d": texts}))


def _valid(texts: pa.Array) -> pa.Array:
    made = door.once(f"SELECT json_valid(d) AS ok FROM {door.FEED}", pa.table({"d": texts}))
    return made.column("ok").combine_chunks()


def is_document(raw: bytes) -> bool:
    """Whether these bytes are JSON, and all of it."""
    return bool(_valid(_texts(pa.array([raw], pa.binary())))[0].as_py())


def _convert(column: pa.Array, to: pa.DataType) -> pa.Array:
    """DuckDB's column as `to`, null where it does not fit."""
    if pt.is_integer(to):
        return _integers(column, to)
    if pt.is_boolean(to):
        known = pc.is_in(column, pa.array(["true", "false"]))
        return pc.if_else(known, pc.equal(column, "true"), None)
    if pt.is_timestamp(to):
        return _timestamps(column).cast(to)
    if pt.is_date32(to):
        return _inside(column.cast(pa.int32()), *odd_rows.DAYS).cast(to)
    if pt.is_nested(to):
        return _nested(column, to)
    return column if column.type == to else column.cast(to)


def _nested(column: pa.Array, to: pa.DataType) -> pa.Array:
    """All or nothing: with one inner value in doubt, every row is read again."""
    try:
        if not _in_doubt(column, to):
            return column.cast(to)
    except pa.ArrowException:
        pass
    return pa.nulls(len(column), to)


def _in_doubt(column: pa.Array, to: pa.DataType) -> bool:
    """Whether a value inside is null or is not exactly what its type says."""
    if pt.is_list(to):
        inner = column.flatten()
        return bool(inner.null_count) or _in_doubt(inner, to.value_type)
    if pt.is_struct(to):
        fields = zip(column.drop_null().flatten(), to, strict=True)
        return any(c.null_count or _in_doubt(c, f.type) for c, f in fields)
    return pt.is_map(to) or bool(_convert(column, to).null_count)


def _whole(column: pa.Array) -> tuple[np.ndarray, Mask]:
    """Doubles as integers, and where they are exactly that."""
    values = column.to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
        exact = (whole == values) & (np.abs(values) < odd_rows.EXACT)
    return whole, exact


def _integers(column: pa.Array, to: pa.DataType) -> pa.Array:
    whole, exact = _whole(column)
    if to != pa.int64():
        limits = np.iinfo(to.to_pandas_dtype())
        exact &= (whole >= limits.min) & (whole <= limits.max)
    if exact.all():
        return pa.array(whole).cast(to)
    return pa.array(np.where(exact, whole, 0), mask=~exact).cast(to)


def _timestamps(column: pa.Array) -> pa.Array:
    first, last = odd_rows.YEARS
    if pt.is_floating(column.type):
        millis = _inside(_integers(column, pa.int64()), first // 1_000, last // 1_000)
        return pc.multiply(millis, 1_000).cast(TIMESTAMP)
    return _inside(column.cast(TIMESTAMP).cast(pa.int64()), first, last).cast(TIMESTAMP)


def _inside(times: pa.Array, low: int, high: int) -> pa.Array:
    """Null for what no calendar shows: DuckDB reads 'infinity' as a time."""
    bounds = pc.min_max(times)
    if bounds["min"].is_valid and low <= bounds["min"].as_py() and bounds["max"].as_py() <= high:
        return times
    inside = pc.and_(pc.greater_equal(times, low), pc.less_equal(times, high))
    return pc.if_else(inside, times, None)
