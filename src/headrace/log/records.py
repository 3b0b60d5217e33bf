"""From what users append to the columns that a topic stores.

A typed topic takes a table or rows and checks them against its schema: a missing or unknown
column, a value of another type, a null where none may be is a LogError that names the column,
and nothing is appended. A byte topic takes bytes, text, or dictionaries as JSON. What can be
read only once, a generator or a reader of batches, is read whole: it is one append. What may be
inside of values is in `inner_values.py`. Pure: no files here.
"""

from __future__ import annotations

import datetime as dt
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any, cast

import numpy as np
import pyarrow as pa

from headrace.column_types import extra_field
from headrace.errors import LogError
from headrace.log.contract import BYTES
from headrace.log.inner_values import extra_name, has_struct, json_of
from headrace.log.topic import Topic
from headrace.rows import values_of
from headrace.values import array_of, as_type

Rows = list[Any]
_FEW = 64  # rows of one append; more are worth a table of their own

_MISFITS = (  # what Arrow and Python raise about a value
    ValueError, TypeError, NotImplementedError, ArithmeticError, pa.ArrowCapacityError,
)  # fmt: skip


def normalized(topic: str, records: Any) -> pa.Table | list[Any]:
    """What was passed as records: a table, or a list of rows."""
    if type(records) is list or isinstance(records, pa.Table):
        return records
    if isinstance(records, pa.RecordBatch):
        return pa.Table.from_batches([records])
    if isinstance(records, pa.Array | pa.ChunkedArray):
        return records.to_pylist()
    if isinstance(records, np.ndarray):
        return records.tolist() if records.ndim else [records.item()]
    if isinstance(records, str | bytes | bytearray | memoryview | Mapping):
        raise LogError(
            "HR-LOG-006",
            f"topic '{topic}' takes many records, and got one {type(records).__name__}",
            "Give a list, if only of one record: [record].",
        )
    if hasattr(records, "__arrow_c_stream__"):  # a reader of batches, a data frame
        return pa.table(records)
    if not isinstance(records, Iterable):
        raise LogError(
            "HR-LOG-006",
            f"topic '{topic}' takes records, and got {type(records).__name__}",
            "Give a table, a data frame, or anything that gives rows.",
        )
    return list(records)


def few(topic: Topic, records: Any) -> Rows | None:
    """Rows that can be stored together with those of other appends; None of anything else.

    Those of a byte topic are its values; those of a typed one are not looked at yet.
    """
    if type(records) is not list or not 0 < len(records) <= _FEW:
        return None
    if topic.schema is None:
        return [r if type(r) is bytes else encoded(topic, r) for r in records]
    return records if all(type(r) is dict for r in records) else None


def table_of(topic: Topic, rows: Rows) -> pa.Table:
    """The rows that `few` returned, of one append or of many, as a table."""
    if topic.schema is not None:
        return table_for(topic, rows)
    value = _binary_array(topic, rows)
    return pa.Table.from_arrays([pa.nulls(len(rows), pa.binary()), value], schema=BYTES)


def table_for(topic: Topic, records: Any, keys: Sequence[Any] | None = None) -> pa.Table:
    """Normalized records as a table of exactly the topic's columns."""
    if topic.schema is None:
        return _bytes_table(topic, records, keys)
    if isinstance(records, pa.Table):
        return _fitted(topic, topic.schema, _columns(topic, records))
    return _fitted(topic, topic.schema, _columns_of(topic, topic.schema, records))


def _columns(topic: Topic, table: pa.Table) -> dict[str, pa.ChunkedArray]:
    columns = dict(zip(table.column_names, table.columns, strict=True))
    if len(columns) < table.num_columns:
        twice = next(n for n in columns if table.column_names.count(n) > 1)
        raise _misfit(
            topic, f"gets the column {twice!r} twice", "Leave one out, or give it another name."
        )
    return columns


def _fitted(topic: Topic, schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    extra = [name for name in columns if name not in schema.names]
    if extra:
        raise _misfit(topic, f"has no column {extra[0]!r}", f"Its columns: {_names(schema)}.")
    rows = next((len(column) for column in columns.values()), 0)
    arrays = [
        pa.chunked_array([pa.nulls(rows, field.type)])
        if field.name not in columns and field.name in topic.added
        else _fit(topic, field, columns.get(field.name))
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _fit(topic: Topic, field: pa.Field, column: pa.ChunkedArray | None) -> pa.ChunkedArray:
    if column is None:
        raise _misfit(
            topic,
            f"needs the column {field.name!r} ({field.type})",
            "Add the column to the records; fill it with nulls if there is nothing to say.",
        )
    _check_fields(topic, field, extra_field(column.type, field.type, field.name))
    try:
        fitted = as_type(_from_text(field, column), field.type)
    except _MISFITS as error:
        raise _misfit(
            topic,
            f"has {field.type} in column {field.name!r}, the records have {column.type}",
            f"Cast the column before the append ({_first_line(error)}).",
        ) from error
    if not field.nullable and fitted.null_count:
        raise _misfit(
            topic,
            f"allows no null in column {field.name!r}, the records have {fitted.null_count}",
            "Fill the nulls, or leave out 'not null' in the schema.",
        )
    return fitted


def _columns_of(topic: Topic, schema: pa.Schema, rows: Sequence[Any]) -> dict[str, Any]:
    names = set(schema.names)
    for row in rows:
        if isinstance(row, Mapping) and not names.issuperset(row):
            extra = next(name for name in row if name not in names)
            raise _misfit(topic, f"has no column {extra!r}", f"Its columns: {_names(schema)}.")
    values = [_values(topic, schema, row) for row in rows]
    wrong = next((v for v in values if len(v) != len(schema)), None)
    if wrong is not None:
        raise _misfit(
            topic,
            f"has {len(schema)} columns, a record has {len(wrong)}",
            f"Give a dictionary or a tuple of {_names(schema)}.",
        )
    columns = zip(*values, strict=True) if values else ([] for _ in schema)
    return {f.name: _column(topic, f, list(c)) for f, c in zip(schema, columns, strict=True)}


def _values(topic: Topic, schema: pa.Schema, row: Any) -> Sequence[Any]:
    try:
        if type(row) is tuple and len(row) in topic.widths:  # without columns that were added
            row = row + (None,) * (len(schema) - len(row))
        values = values_of(row, schema.names)
        len(values)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise _misfit(
            topic,
            f"has the columns {_names(schema)}, and a record is {type(row).__name__}",
            f"Give a dictionary or a tuple of {_names(schema)} ({_first_line(error)}).",
        ) from error
    return values


def _column(topic: Topic, field: pa.Field, values: list[Any]) -> pa.ChunkedArray:
    try:
        array = array_of(_parsed(field, values), field.type)
    except _MISFITS as e:
        bad = _first_bad(field, values)
        if has_struct(field.type):
            _check_fields(topic, field, extra_name(bad, field.type, field.name))
        raise _misfit(
            topic,
            f"has {field.type} in column {field.name!r}, a record has {bad!r}",
            f"Give a value of that type, or none at all ({_first_line(e)}).",
        ) from e
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def _check_fields(topic: Topic, field: pa.Field, extra: str | None) -> None:
    if extra is not None:
        raise _misfit(
            topic,
            f"has no field {extra!r}",
            f"Column {field.name!r} is {field.type}.",
        )


def _parsed(field: pa.Field, values: list[Any]) -> list[Any]:
    """Times and decimals may be text, as in JSON."""
    parse = _parser(field.type)
    return values if parse is None else [parse(v) if isinstance(v, str) else v for v in values]


def _from_text(field: pa.Field, column: Any) -> Any:
    """The same of a column of a table."""
    if _parser(field.type) is None or not pa.types.is_string(column.type):
        return column
    return pa.chunked_array([array_of(_parsed(field, column.to_pylist()), field.type)])


def _parser(kind: pa.DataType) -> Callable[[str], Any] | None:
    if pa.types.is_timestamp(kind):
        return _instant
    if pa.types.is_date(kind):
        return dt.date.fromisoformat
    return Decimal if pa.types.is_decimal(kind) else None


def _instant(text: str) -> dt.datetime:
    at = dt.datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=dt.UTC)


def _first_bad(field: pa.Field, values: list[Any]) -> Any:
    for value in values:
        try:
            array_of(_parsed(field, [value]), field.type)
        except _MISFITS:
            return value
    return None


def _bytes_table(topic: Topic, records: Any, keys: Sequence[Any] | None) -> pa.Table:
    if isinstance(records, pa.Table):
        columns = {n: _binary(topic, n, c) for n, c in _columns(topic, records).items()}
        nulls = pa.nulls(records.num_rows, pa.binary())
        columns.setdefault("key", pa.chunked_array([nulls]))
        table = _fitted(topic, BYTES, columns)
    else:
        table = table_of(topic, [encoded(topic, r) for r in records])
    if keys is None:
        return table
    if len(keys) != len(table):
        raise _misfit(
            topic, f"gets {len(table)} records with {len(keys)} keys", "Give one key for each."
        )
    return table.set_column(0, "key", _binary_array(topic, [encoded(topic, k) for k in keys]))


def _binary(topic: Topic, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_null(column.type):
        return column.cast(pa.binary())
    if name in BYTES.names and not _is_text_or_bytes(column.type):
        raise _misfit(
            topic,
            f"holds bytes, the records have {column.type} in column {name!r}",
            "Give bytes or text, or create the topic with a schema.",
        )
    return column


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_string(kind)
        or types.is_large_binary(kind)
        or types.is_large_string(kind)
        or types.is_binary_view(kind)
        or types.is_string_view(kind)
    )


def _binary_array(topic: Topic, values: Sequence[bytes | None]) -> pa.Array | pa.ChunkedArray:
    try:
        if len(values) <= _FEW * 16 and None not in values:
            return _few_binaries(cast("Sequence[bytes]", values))
        return pa.array(values, pa.binary())
    except _MISFITS as error:
        raise _misfit(
            topic, "gets a record that is too long", "Records of up to 2 GB can be stored."
        ) from error


def _few_binaries(values: Sequence[bytes]) -> pa.Array:
    """The same array, in half the time."""
    ends = array("i", accumulate(map(len, values), initial=0))  # OverflowError beyond 2 GB
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def encoded(topic: Topic, record: Any) -> bytes | None:
    if record is None or isinstance(record, bytes):
        return record
    if isinstance(record, bytearray | memoryview):
        return bytes(record)
    try:
        if isinstance(record, str):
            return record.encode()
        if isinstance(record, Mapping):
            return json_of(record)
    except (TypeError, ValueError, RecursionError) as error:
        raise _misfit(
            topic,
            f"cannot hold a record as JSON or UTF-8: {_first_line(error)}",
            "Give its bytes, encoded as you like.",
        ) from error
    raise _misfit(
        topic,
        f"holds bytes, a record is {type(record).__name__}",
        "Give bytes, text or a dictionary (stored as JSON), or create the topic with a schema.",
    )


def _misfit(topic: Topic, fact: str, hint: str) -> LogError:
    return LogError("HR-LOG-006", f"topic '{topic.name}' {fact}", hint)


def _names(schema: pa.Schema) -> str:
    return ", ".join(schema.names)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
