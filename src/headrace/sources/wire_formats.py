"""Records in the Confluent wire format: a zero, the number of a schema in four bytes, the content.

A record that is not written so, or whose schema the registry does not know, is bad, with a reason.
Avro is decoded record by record, by the schema each was written with; columns are found by name,
and one that a record does not have is null. JSON is decoded as without a registry.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.avro import record_reader
from headrace.kernel.text_cast import gather
from headrace.schema import ddl_type
from headrace.sources.contract import Decoded
from headrace.sources.schema_registry import SchemaRegistry

HEAD = 5  # bytes: a zero, and the number of the schema
KINDS = {"avro": "AVRO", "json": "JSON"}
UNMARKED = "not in the wire format of a schema registry: there is no zero and number in front"

Plain = Callable[[pa.Array], Decoded]  # decodes what follows the head


def decode_wire(
    format: str, values: pa.Array, schema: pa.Schema, registry: SchemaRegistry, plain: Plain
) -> Decoded:
    """The good rows, a mask of the bad ones, a reason for each of those."""
    enough = pc.fill_null(pc.greater_equal(pc.binary_length(values), HEAD), False)
    places = np.flatnonzero(enough.to_numpy(zero_copy_only=False))
    ids, contents = _split(values.take(pa.array(places)))
    known = np.unique(ids[ids >= 0]).tolist()
    problems = {-1: UNMARKED, **{id: _problem(format, id, registry) for id in known}}
    why = dict.fromkeys(np.flatnonzero(~enough.to_numpy(zero_copy_only=False)).tolist(), UNMARKED)
    wrong = np.isin(ids, [id for id, problem in problems.items() if problem])
    why |= {int(places[i]): str(problems[int(ids[i])]) for i in np.flatnonzero(wrong)}
    good, records = places[~wrong], contents.filter(pa.array(~wrong))
    decoded = plain(records) if format == "json" else _avro(records, ids[~wrong], schema, registry)
    return decoded if not why else _spread(decoded, good, why, len(values))


def _split(values: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """The number of each record's schema, -1 where it has none, and what follows it."""
    count = len(values)
    if not count:
        return np.zeros(0, np.int64), values
    _, bounds, content = values.buffers()
    offsets = np.frombuffer(bounds, np.int32)[values.offset : values.offset + count + 1]
    data = np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]]
    starts = offsets - offsets[0]
    head = np.zeros(len(data), np.bool_)
    head[(starts[:-1, None] + np.arange(HEAD)).ravel()] = True
    heads = data[head].reshape(count, HEAD)
    numbers = heads[:, 1:].copy().view(">u4").ravel().astype(np.int64)
    shorter = (starts - HEAD * np.arange(count + 1)).astype(np.int32)
    buffers = [None, pa.py_buffer(shorter), pa.py_buffer(data[~head])]
    contents = pa.BinaryArray.from_buffers(pa.binary(), count, buffers)
    return np.where(heads[:, 0] == 0, numbers, -1), contents


def _problem(format: str, id: int, registry: SchemaRegistry) -> str | None:
    """Why records of this schema cannot be decoded."""
    found = registry.schema(id)
    if found is None:
        return f"its schema, {id}, is not in the registry {registry.place}"
    if found.kind != KINDS[format]:
        return f"its schema, {id}, is of kind {found.kind}, not {KINDS[format]}"
    if format == "avro":
        try:
            _reader(found.text)
        except ValueError as cause:
            return f"its schema, {id}, is {cause}"
    return None


@lru_cache(maxsize=256)
def _reader(text: str) -> Callable[[bytes], Any]:
    return record_reader(text)


def _avro(
    records: pa.Array, ids: npt.NDArray[np.int64], schema: pa.Schema, registry: SchemaRegistry
) -> Decoded:
    readers = {}
    for id in np.unique(ids).tolist():
        found = registry.schema(id)
        assert found is not None
        readers[id] = _reader(found.text)
    rows, why = list[dict[str, Any]](), dict[int, str]()
    for i, (id, record) in enumerate(zip(ids.tolist(), records.to_pylist(), strict=True)):
        try:
            row = readers[id](record)
            if not isinstance(row, dict):
                raise ValueError(f"the record is {str(row)[:80]}, which has no fields")
        except ValueError as cause:
            why[i], row = str(cause), {}
        rows.append(row)
    columns = [_column(field, rows, why) for field in schema]
    bad = np.zeros(len(rows), np.bool_)
    bad[list(why)] = True
    return gather(columns, schema, bad), bad, [why[i] for i in sorted(why)]


def _column(field: pa.Field, rows: list[dict[str, Any]], why: dict[int, str]) -> pa.Array:
    """One column of all rows; `why` learns of the values that do not fit."""
    values = [row.get(field.name) for row in rows]
    if pa.types.is_map(field.type):
        values = [list(v.items()) if isinstance(v, dict) else v for v in values]
    try:
        if pa.types.is_date(field.type) and any(isinstance(v, datetime) for v in values):
            raise ValueError("a time of day in a date")
        column = pa.array(values, field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        column = pa.concat_arrays(
            [pa.array([], field.type), *(_value(i, v, field, why) for i, v in enumerate(values))]
        )
    if not field.nullable and column.null_count:
        for i in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            why.setdefault(i, f"column {field.name!r} has no value")
    return column


def _value(i: int, value: Any, field: pa.Field, why: dict[int, str]) -> pa.Array:
    try:
        if pa.types.is_date(field.type) and isinstance(value, datetime):
            raise ValueError("a time of day in a date")
        return pa.array([value], field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        shown = str(value)[:80]
        why.setdefault(i, f"column {field.name!r}: {shown!r} is not {ddl_type(field.type)}")
        return pa.nulls(1, field.type)


def _spread(
    decoded: Decoded, good: npt.NDArray[np.int64], why: dict[int, str], count: int
) -> Decoded:
    """What was decoded of some of the records, as of all of them."""
    table, bad, reasons = decoded
    why = why | dict(zip(good[bad].tolist(), reasons, strict=True))
    mask = np.zeros(count, np.bool_)
    mask[list(why)] = True
    return table, mask, [why[i] for i in sorted(why)]
