"""Decoding: a column of JSON documents to typed columns.

Invariant: what a document decodes to depends on that document alone, never on its neighbours
in the chunk; a value that does not fit its field makes the document bad, never null and never
another value. DuckDB parses all documents in one pass and gives plain values as they are spelt;
`json_scalars` makes them what their fields say. Only rows with something odd about them (a null,
a comma before a bracket) are looked at again, by `json_odd`.

The reading: a missing field is null; extra fields are ignored; of a repeated key the first
counts. A string field takes any value, as JSON text; the others as `json_scalars` says.
"""

from __future__ import annotations

import json
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from headrace.expr.types import DUCKDB, text_literal
from headrace.kernel import duckdb
from headrace.kernel import json_odd as odd_rows
from headrace.kernel.json_scalars import scalars

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
    try:
        parsed = _transform(texts, schema)
    except duckdb.Error:
        texts = pc.if_else(_valid(texts), texts, None)
        parsed = _transform(texts, schema)
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


def _target(kind: pa.DataType) -> object:
    """In DuckDB's own spelling of a JSON shape. What DuckDB reads too freely stays JSON text."""
    if pt.is_list(kind):
        return [_target(kind.value_type)]
    if pt.is_struct(kind):
        return {f.name: _target(f.type) for f in kind}
    return "VARCHAR" if pt.is_string(kind) else "JSON"


def _transform(texts: pa.Array, schema: pa.Schema) -> pa.Table:
    kinds = {f.name: _target(f.type) for f in schema}
    # asked for a decimal, DuckDB leaves every number as it is written
    nowhere = next(n for i in count() if (n := f"exact{i}") not in kinds)
    shape = text_literal(json.dumps({**kinds, nowhere: "DECIMAL(38,0)"}), DUCKDB)
    fields = ", ".join(f"struct_extract_at(s, {i + 1}) AS c{i}" for i in range(len(schema)))
    sql = f"SELECT {fields} FROM (SELECT json_transform(d, {shape}) AS s FROM {duckdb.FEED})"
    return duckdb.once(sql, pa.table({"d": texts}))


def _valid(texts: pa.Array) -> pa.Array:
    made = duckdb.once(f"SELECT json_valid(d) AS ok FROM {duckdb.FEED}", pa.table({"d": texts}))
    return made.column("ok").combine_chunks()


def is_document(raw: bytes) -> bool:
    """Whether these bytes are JSON, and all of it."""
    return bool(_valid(_texts(pa.array([raw], pa.binary())))[0].as_py())


def _convert(column: pa.Array, to: pa.DataType) -> pa.Array:
    """DuckDB's column as `to`, null where it does not fit."""
    if pt.is_string(to):
        return column
    if not pt.is_nested(to):
        return scalars(column, to)
    made = _nested(column, to)  # with one inner value in doubt, every row is read again
    return pa.nulls(len(column), to) if made is None else made


def _nested(column: pa.Array, to: pa.DataType) -> pa.Array | None:
    """None if a value inside is null or does not fit."""
    if pt.is_map(to):
        return None
    if column.null_count:
        made = _nested(column.drop_null(), to)
        return None if made is None else made.take(_places(column))
    if column.offset:
        column = column.take(pa.array(np.arange(len(column))))
    if pt.is_list(to):
        inner = _inner(column.values, to.value_type)
        return None if inner is None else pa.ListArray.from_arrays(column.offsets, inner, type=to)
    fields = [_inner(column.field(i), f.type) for i, f in enumerate(to)]
    if any(f is None for f in fields) or not fields:
        return None
    return pa.StructArray.from_arrays(fields, fields=list(to))


def _places(column: pa.Array) -> pa.Array:
    """Where each value is when the nulls are left out."""
    there = column.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(np.cumsum(there) - 1, mask=~there)


def _inner(column: pa.Array, to: pa.DataType) -> pa.Array | None:
    if column.null_count:
        return None
    made = _nested(column, to) if pt.is_nested(to) else _convert(column, to)
    return None if made is None or made.null_count else made
