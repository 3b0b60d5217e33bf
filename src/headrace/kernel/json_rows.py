"""Decoding: a column of JSON documents to typed columns.

Invariant: what a document decodes to depends on that document alone, never on its neighbours
in the chunk; a value that does not fit its field makes the document bad, never null and never
another value. DuckDB parses all documents in one pass and gives plain values as they are spelt;
`text_cast` makes them what their fields say. Only rows with something odd about them (a null,
a comma before a bracket) are looked at again, by `settle`.

The reading: a missing field is null; extra fields are ignored; of a repeated key the first
counts. A string field takes any value, as JSON text; the others as `text_cast` says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from headrace.expr.types import text_literal, type_text
from headrace.kernel import duckdb
from headrace.kernel.json_documents import DEEPEST, TOO_DEEP, Fields, depth, load, written
from headrace.kernel.text_cast import scalars

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
    deep = too_deep(raw)
    texts = pc.if_else(pa.array(~deep), texts, None) if deep.any() else texts
    try:
        parsed = _transform(texts, schema)
    except duckdb.Error:
        texts = pc.if_else(_valid(texts), texts, None)
        parsed = _transform(texts, schema)
    pairs = zip(parsed.columns, schema, strict=True)
    columns = [_convert(c.combine_chunks(), f.type) for c, f in pairs]
    columns, bad, reasons = settle(raw, texts, columns, schema)
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
    shape = text_literal(json.dumps({**kinds, nowhere: "DECIMAL(38,0)"}))
    fields = ", ".join(f"struct_extract_at(s, {i + 1}) AS c{i}" for i in range(len(schema)))
    sql = f"SELECT {fields} FROM (SELECT json_transform(d, {shape}) AS s FROM {duckdb.FEED})"
    return duckdb.once(sql, pa.table({"d": texts}))


def _valid(texts: pa.Array) -> pa.Array:
    result = duckdb.once(f"SELECT json_valid(d) AS ok FROM {duckdb.FEED}", pa.table({"d": texts}))
    return result.column("ok").combine_chunks()


def is_document(raw: bytes) -> bool:
    """Whether these bytes are JSON, and all of it."""
    return bool(_valid(_texts(pa.array([raw], pa.binary())))[0].as_py())


def _convert(column: pa.Array, to: pa.DataType) -> pa.Array:
    """DuckDB's column as `to`, null where it does not fit."""
    if pt.is_string(to):
        return column
    if not pt.is_nested(to):
        return scalars(column, to)
    converted = _nested(column, to)  # with one inner value in doubt, every row is read again
    return pa.nulls(len(column), to) if converted is None else converted


def _nested(column: pa.Array, to: pa.DataType) -> pa.Array | None:
    """None if a value inside is null or does not fit."""
    if pt.is_map(to):
        return None
    if column.null_count:
        converted = _nested(column.drop_null(), to)
        return None if converted is None else converted.take(_places(column))
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
    """The position of each value when the nulls are left out."""
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(np.cumsum(valid) - 1, mask=~valid)


def _inner(column: pa.Array, to: pa.DataType) -> pa.Array | None:
    if column.null_count:
        return None
    converted = _nested(column, to) if pt.is_nested(to) else _convert(column, to)
    return None if converted is None or converted.null_count else converted


# The odd rows of a decoded chunk: nulls, huge integers, nested values, bad documents.
#
# Invariant: the same document gets the same values here as on the fast path, or a reason why
# it is bad. Nothing here is fast; it sees only the rows of which the fast path was not certain.


_LAST_COMMA = r",\s*[}\]]"  # which DuckDB takes; or it is inside a text


class Misfit(ValueError):
    """A value that is not what its field says."""


def too_deep(raw: pa.Array) -> Mask:
    """Which documents have more levels than are read: by their bytes alone, so that what is
    next to a document in the chunk has no say. Only long ones are looked into."""
    deep = np.zeros(len(raw), bool)
    lengths = pc.binary_length(raw).fill_null(0).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(lengths > DEEPEST):
        document = bytes(raw[int(row)].as_buffer())
        if document.count(b"[") + document.count(b"{") > DEEPEST:
            deep[row] = depth(document) > DEEPEST
    return deep


def settle(
    raw: pa.Array, texts: pa.Array, columns: list[pa.Array], schema: pa.Schema
) -> tuple[list[pa.Array], Mask, list[str]]:
    """The columns after every null was looked at, which rows are bad, and why."""
    nulls = [_mask(c.is_null()) if c.null_count else None for c in columns]
    bad = np.zeros(len(texts), bool)
    reasons: list[str] = []
    patches: dict[int, dict[int, Any]] = {}
    for row in map(int, np.flatnonzero(_suspects(texts, nulls, schema))):
        odd = [n is not None and bool(n[row]) for n in nulls]
        try:
            patches[row] = _read(raw[row].as_py(), texts[row].as_py(), odd, schema)
        except (ValueError, ArithmeticError, RecursionError, duckdb.Error) as why:
            bad[row] = True
            reasons.append(str(why) if isinstance(why, Misfit) else f"unreadable: {why}")
            patches[row] = dict.fromkeys(range(len(schema)))
    return [_patched(c, i, patches) for i, c in enumerate(columns)], bad, reasons


def _suspects(texts: pa.Array, nulls: Sequence[Mask | None], schema: pa.Schema) -> Mask:
    """Rows that need a second look: those with a null that is not plainly there and allowed."""
    suspects = _mask(pc.match_substring_regex(texts, _LAST_COMMA).fill_null(True))
    if all(n is not None for n in nulls):
        suspects |= np.logical_and.reduce([n for n in nulls if n is not None])  # perhaps no object
    for null, field in zip(nulls, schema, strict=True):
        if null is None:
            continue
        if not field.nullable:
            suspects |= null
        elif not pt.is_string(field.type):  # any value fits a text: there null is null
            rows = np.flatnonzero(null & ~suspects)
            suspects[rows[_present(texts.take(pa.array(rows)), field.name)]] = True
    return suspects


def _mask(column: pa.Array) -> Mask:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)


def _present(texts: pa.Array, name: str) -> Mask:
    """Where the document holds something other than null under that name."""
    if not len(texts):
        return np.zeros(0, bool)
    path = text_literal("/" + name.replace("~", "~0").replace("/", "~1"))
    sql = f"SELECT coalesce(json_type(d, {path}) <> 'NULL', false) AS there FROM {duckdb.FEED}"
    flags = duckdb.once(sql, pa.table({"d": texts})).column("there")
    return np.asarray(flags.to_numpy(), dtype=bool)


def _patched(column: pa.Array, index: int, patches: dict[int, dict[int, Any]]) -> pa.Array:
    rows = [row for row, values in patches.items() if index in values]
    if not rows:
        return column
    replacements = pa.array([patches[row][index] for row in rows], column.type)
    order = np.arange(len(column))
    order[rows] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, replacements]).take(pa.array(order))


def _read(
    raw: bytes | str | None, text: str | None, odd: Sequence[bool], schema: pa.Schema
) -> dict[int, Any]:
    """The values of one document's odd fields by position; Misfit says why it has none."""
    document = _document(raw, text)
    values = {}
    for i, field in enumerate(schema):
        value = document.get(field.name)
        if value is None and not field.nullable:
            fact = "is null" if field.name in document else "is missing"
            raise Misfit(f"field {field.name!r} {fact}, but it is declared not null")
        if odd[i]:
            try:
                values[i] = _value(value, field.type)
            except Misfit as why:
                raise Misfit(f"field {field.name!r}: {why}") from None
    return values


def _document(raw: bytes | str | None, text: str | None) -> dict[str, Any]:
    if raw is None:
        raise Misfit("the document is null")
    try:
        document = load(raw.decode() if isinstance(raw, bytes) else raw)
    except UnicodeDecodeError:
        raise Misfit("the document is not UTF-8 text") from None
    except ValueError as error:
        why = str(error)
        reason = why if why == TOO_DEEP else f"malformed JSON: {why[:1].lower()}{why[1:]}"
        raise Misfit(reason) from None
    if text is None:
        raise Misfit(_refused(raw.encode() if isinstance(raw, str) else raw))
    if not isinstance(document, dict):
        raise Misfit(f"the document is {_shown(document)}, not an object")
    return document


def _refused(raw: bytes) -> str:
    """Why a document that Python can read was not handed to DuckDB, or not taken by it."""
    if depth(raw) > DEEPEST:
        return TOO_DEEP
    surrogate = " with half of a surrogate pair" if re.search(rb"\\u[dD][89a-fA-F]", raw) else ""
    return "malformed JSON" + (f": a text{surrogate}" if surrogate else "")


def _shown(value: Any) -> str:
    text = written(value)
    return text if len(text) <= 40 else text[:37] + "..."  # fits a line


def _value(value: Any, to: pa.DataType) -> Any:
    """A JSON value as `to`."""
    if value is None:
        return None
    if pt.is_list(to):
        return [_value(v, to.value_type) for v in _of(value, list, to)]
    if pt.is_map(to):
        first = {k: value[k] for k, _ in _of(value, Fields, to).pairs}
        return [(_key(k, to.key_type), _value(v, to.item_type)) for k, v in first.items()]
    if pt.is_struct(to):
        fields = _of(value, dict, to)
        return {f.name: _value(fields.get(f.name), f.type) for f in to}
    if pt.is_boolean(to):
        return _of(value, bool, to)
    if pt.is_string(to):
        return _text(value)
    return _scalar(value, to)


def _key(key: str, to: pa.DataType) -> Any:
    """A key of an object; booleans are texts there, too."""
    is_boolean = pt.is_boolean(to) and key in ("true", "false")
    return _value(key == "true" if is_boolean else key, to)


def _of(value: Any, kind: type, to: pa.DataType) -> Any:
    if not isinstance(value, kind):
        raise Misfit(f"{_shown(value)} is not {type_text(to)}")
    return value


def _scalar(value: Any, to: pa.DataType) -> Any:
    scalar = scalars(pa.array([written(value)], pa.string()), to)
    if scalar.null_count:
        raise Misfit(f"{_shown(value)} is not {type_text(to)}")
    return scalar[0].as_py()


def _text(value: Any) -> str:
    """What a text column holds of a value: a text itself, anything else as JSON."""
    return str(value) if isinstance(value, str) else written(value)
