"""Records in the Confluent wire format: a zero, the number of a schema in four bytes, the content.

A record that is not written so, or whose schema the registry does not know, is bad, with a reason.
Avro and Protobuf are decoded record by record, by the schema each was written with; columns are
found by name, and one that a record does not have is null. JSON is checked by its schema, unless
that is not wanted, and decoded as without a registry. What is encoded is decoded again: a row that
would not be read back as it was is never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect import avro, protobuf
from headrace.connect.json_schema import document_checker
from headrace.connect.moments import Days, Micros
from headrace.connect.schema_registry import RegisteredSchema, SchemaRegistry
from headrace.kernel.text_cast import gather
from headrace.schema import ddl_type

HEAD = 5  # bytes: a zero, and the number of the schema
KINDS = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}
UNMARKED = "not in the wire format of a schema registry: there is no zero and number in front"

Decoded = tuple[pa.Table, npt.NDArray[np.bool_], list[str]]  # good rows, which are bad, why
Plain = Callable[[pa.Array], Decoded]  # decodes JSON
Reader = Callable[[bytes], Any]  # decodes one record; ValueError


def decode_wire(
    format: str, values: pa.Array, schema: pa.Schema, registry: SchemaRegistry, plain: Plain
) -> Decoded:
    """The good rows, a mask of the bad ones, a reason for each of those."""
    enough = pc.fill_null(pc.greater_equal(pc.binary_length(values), HEAD), False)
    places = np.flatnonzero(enough.to_numpy(zero_copy_only=False))
    ids, contents = _split(values.take(pa.array(places)))
    found = {id: registry.schema(id) for id in np.unique(ids[ids >= 0]).tolist()}
    problems = {-1: UNMARKED} | {
        id: _problem(format, id, one, registry) for id, one in found.items()
    }
    why = dict.fromkeys(np.flatnonzero(~enough.to_numpy(zero_copy_only=False)).tolist(), UNMARKED)
    wrong = np.isin(ids, [id for id, problem in problems.items() if problem])
    why |= {int(places[i]): str(problems[int(ids[i])]) for i in np.flatnonzero(wrong)}
    good, records = places[~wrong], contents.filter(pa.array(~wrong))
    schemas = {id: one for id, one in found.items() if one is not None}
    decoded = _contents(format, records, ids[~wrong], schema, schemas, plain, registry.validates)
    return decoded if not why else _spread(decoded, good, why, len(values))


def _contents(
    format: str,
    records: pa.Array,
    ids: npt.NDArray[np.int64],
    schema: pa.Schema,
    schemas: dict[int, RegisteredSchema],
    plain: Plain,
    validate: bool,
) -> Decoded:
    """What follows the heads, decoded."""
    if format != "json":
        return _one_by_one(format, records, ids, schema, schemas)
    if not validate:
        return plain(records)
    why, checkers = dict[int, str](), {id: _checker(schemas[id]) for id in np.unique(ids).tolist()}
    for i, (id, record) in enumerate(zip(ids.tolist(), records.to_pylist(), strict=True)):
        problem = checkers[id](record)
        if problem is not None:
            why[i] = f"not as its schema, {id}, says: {problem}"
    if not why:
        return plain(records)
    fit = np.ones(len(records), np.bool_)
    fit[list(why)] = False
    return _spread(plain(records.filter(pa.array(fit))), np.flatnonzero(fit), why, len(records))


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


def _problem(
    format: str, id: int, found: RegisteredSchema | None, registry: SchemaRegistry
) -> str | None:
    """Why records of this schema cannot be decoded."""
    if found is None:
        return f"its schema, {id}, is not in the registry {registry.place}"
    if found.kind != KINDS[format]:
        return f"its schema, {id}, is of kind {found.kind}, not {KINDS[format]}"
    try:
        if format == "avro":
            _avro_reader(found)
        elif format == "json":
            _checker(found) if registry.validates else None
        else:
            protobuf.path_of(found, None)
    except ValueError as cause:
        return f"its schema, {id}, is {cause}"
    return None


@lru_cache(maxsize=256)
def _avro_reader(schema: RegisteredSchema) -> Reader:
    return avro.record_reader(schema)


@lru_cache(maxsize=256)
def _checker(schema: RegisteredSchema) -> Callable[[bytes], str | None]:
    return document_checker(schema)


def _message(schema: RegisteredSchema, columns: pa.Schema) -> Reader:
    readers = dict[tuple[int, ...], Reader | str]()  # a problem is the same for every record

    def decode(record: bytes) -> Any:
        path, start = protobuf.index_path(record)
        if path not in readers:
            try:
                readers[path] = protobuf.message_reader(schema, path, columns)
            except ValueError as cause:
                readers[path] = str(cause)
        reader = readers[path]
        if isinstance(reader, str):
            raise ValueError(reader)
        return reader(record[start:])

    return decode


def _one_by_one(
    format: str,
    records: pa.Array,
    ids: npt.NDArray[np.int64],
    schema: pa.Schema,
    schemas: dict[int, RegisteredSchema],
) -> Decoded:
    readers = {
        id: _avro_reader(schemas[id]) if format == "avro" else _message(schemas[id], schema)
        for id in np.unique(ids).tolist()
    }
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
        column = _exact(values, field.type)
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
        return _exact([value], field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        shown = str(value)[:80]
        why.setdefault(i, f"column {field.name!r}: {shown!r} is not {ddl_type(field.type)}")
        return pa.nulls(1, field.type)


def _exact(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values as they are: Arrow alone would cut a number, or take one for a time."""
    _check_types(values, kind)
    column = pa.array(values, kind)
    if pa.types.is_float32(kind):
        infinite = pc.sum(pc.is_inf(column)).as_py() or 0
        if infinite != sum(v in (_INFINITY, -_INFINITY) for v in values):
            raise ValueError("more than a float holds")
    return column


def _check_types(values: Iterable[Any], kind: pa.DataType) -> None:
    """Refuse values of other types than those that mean the same in a column of this one."""
    types, nested = pa.types, list[tuple[Iterable[Any], pa.DataType]]()
    there = [v for v in values if v is not None]
    if types.is_struct(kind):
        allowed: set[type] = {dict}
        good = [v for v in there if type(v) is dict]
        nested = [([v.get(f.name) for v in good], f.type) for f in kind]
    elif types.is_map(kind):
        allowed, good = {dict, list}, [v for v in there if type(v) in (dict, list)]
        pairs = [pair for v in good for pair in (v.items() if type(v) is dict else v)]
        nested = [([p[0] for p in pairs], kind.key_type), ([p[1] for p in pairs], kind.item_type)]
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        allowed = {list}
        nested = [([one for v in there if type(v) is list for one in v], kind.value_type)]
    else:
        allowed = next((kinds for fits, kinds in _MEAN_THE_SAME if fits(kind)), set())
    for one in {*map(type, there)} - allowed:
        raise ValueError(f"{one.__name__} in {ddl_type(kind)}")
    for inner, of in nested:
        _check_types(inner, of)


_INFINITY = float("inf")
_MEAN_THE_SAME: tuple[tuple[Callable[[pa.DataType], bool], set[type]], ...] = (
    (pa.types.is_boolean, {bool}),
    (pa.types.is_integer, {int}),
    (pa.types.is_floating, {float, int}),
    (pa.types.is_decimal, {Decimal, int}),
    (pa.types.is_date, {date, Days}),
    (pa.types.is_timestamp, {datetime, Micros}),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), {str}),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), {bytes}),
)


def _spread(
    decoded: Decoded, good: npt.NDArray[np.int64], why: dict[int, str], count: int
) -> Decoded:
    """What was decoded of some of the records, as of all of them."""
    table, bad, reasons = decoded
    why = why | dict(zip(good[bad].tolist(), reasons, strict=True))
    mask = np.zeros(count, np.bool_)
    mask[list(why)] = True
    return table, mask, [why[i] for i in sorted(why)]


# Writing.


def head_of(id: int) -> bytes:
    """What stands in front of every record of a schema."""
    return b"\0" + id.to_bytes(4, "big")


class WireEncoder:
    """Rows to records of one schema. ValueError, with a reason, for what it cannot hold."""

    def __init__(
        self, format: str, schema: RegisteredSchema, columns: pa.Schema, message: str | None = None
    ) -> None:
        """ValueError if columns and schema do not go together."""
        self._format, self._schema, self._columns = format, schema, columns
        if schema.kind != KINDS[format]:
            raise ValueError(f"the schema is of kind {schema.kind}, not {KINDS[format]}")
        if format == "avro":
            self._write, self._read = avro.record_writer(schema), avro.record_reader(schema)
            missing = sorted(set(columns.names) - set(avro.field_names(schema)))
            if missing:
                raise ValueError(f"the schema has no field {missing[0]!r}")
        elif format == "protobuf":
            path = protobuf.path_of(schema, message)
            self._write = protobuf.message_writer(schema, path, columns)
            self._read = _message(schema, columns)
        else:
            self._check = document_checker(schema)

    def checked(self, documents: pa.Array) -> pa.Array:
        """JSON documents as they are, each as the schema says."""
        for document in documents.to_pylist():
            if (problem := self._check(document)) is not None:
                raise ValueError(problem)
        return documents

    def encoded(self, rows: pa.Table) -> pa.Array:
        """The records of Avro or Protobuf, each of which is read back as the row it was."""
        try:
            listed = rows.to_pylist(maps_as_pydicts="strict")
        except (KeyError, OverflowError, ValueError) as cause:  # a key twice; beyond the year 9999
            raise ValueError(f"a row has what no record can hold: {cause}") from cause
        values = [self._write(row) for row in listed]
        again, why = [self._read(value) for value in values], dict[int, str]()
        for field in self._columns:
            column = rows.column(field.name).combine_chunks()
            read = _column(field.with_nullable(True), again, why)
            if not column.equals(read):
                self._refuse_changed(field, column, read, why)
        return pa.array(values, pa.binary())

    def _refuse_changed(
        self, field: pa.Field, column: pa.Array, read: pa.Array, why: dict[int, str]
    ) -> None:
        pairs = zip(*(c.to_pylist(maps_as_pydicts="strict") for c in (column, read)), strict=True)
        for i, (before, after) in enumerate(pairs):
            if not _same(before, after):
                said = why.get(i) or f"it would be read as {str(after)[:60]}"
                raise ValueError(f"column {field.name!r} is {str(before)[:60]} in a row: {said}")


def _same(one: Any, other: Any) -> bool:
    """NaN is the same as NaN, and a map has no order."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(v, other[k]) for k, v in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return repr(one) == repr(other)


def framed(id: int, contents: pa.Array) -> pa.Array:
    """The contents as records: with the number of their schema in front."""
    return pc.binary_join_element_wise(
        pa.scalar(head_of(id), pa.binary()), contents, pa.scalar(b"", pa.binary())
    )
