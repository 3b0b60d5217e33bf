"""Columns compacted for the journey between two tasks, and expanded on arrival.

A byte that is sent is copied a dozen times, in two Pythons and the JVM between them, which
takes longer than leaving it out. Whole numbers and times are sent as differences from the
smallest, in the narrowest type that holds them; texts that repeat as a dictionary. A column of
one value is not sent at all, nor the hash of a key that is cheap to compute again. What was done
is recorded in the schema's metadata.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.chunk import HASH
from headrace.hashing import hash_keys

_NOTE, _PLAIN, _CODED = b"headrace.narrowed", b"headrace.plain", b"headrace.coded"
_SHORT = 1 << 16  # texts that 16 bits can number
_FEW = 4_096  # rows: fewer are sent as they are; also the size of the sample of texts
_REPEATS = 4  # how often a text must occur to be worth a number
_LONG = 1_000  # bytes a text, beyond which sampling costs too much
_UNSIGNED = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32()}


def dictionary_encoded(rows: pa.Table) -> pa.Table:
    """The rows with texts that repeat as dictionaries, which are faster to hash, cut and send."""
    if rows.num_rows < _FEW:
        return rows
    for i, field in enumerate(rows.schema):
        if (pt.is_string(field.type) or pt.is_binary(field.type)) and _repeats(rows.column(i)):
            codes = rows.column(i).dictionary_encode().combine_chunks()
            if 2 * len(codes.dictionary) <= len(codes):  # else the sample has misled
                marked = {**(field.metadata or {}), _CODED: b""}
                coded = field.with_type(codes.type).with_metadata(marked)
                rows = rows.set_column(i, coded, codes)
    return rows


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether texts occur often, judged by a sample: it has no more distinct ones than it would
    if each occurred just often enough."""
    if column.null_count or column.nbytes > _LONG * len(column):
        return False
    places = np.linspace(0, len(column) - 1, _FEW).astype(np.int64)
    most = len(column) / _REPEATS
    return len(pc.unique(column.take(pa.array(places)))) <= -math.expm1(-_FEW / most) * most


def compact(table: pa.Table, keys: Sequence[str] | None = None) -> pa.Table:
    """The table compacted; `keys` are the columns of which its hashes are made, if known."""
    if table.num_rows < _FEW:
        return _decoded(table, _uncoded(table.schema))
    rehash = keys is not None and all(_cheap_to_hash(table.column(k).type) for k in keys)
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    least: dict[str, int] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name == HASH and rehash:
            continue
        if column.num_chunks > 1:  # more text than one array can hold
            columns[name] = column
        elif _CODED in (table.schema.field(name).metadata or {}):
            columns[name] = _fitting(column.chunk(0))
        elif _countable(column):
            small, least[name] = _narrowed(column.chunk(0))
            columns |= {} if small is None else {name: small}
        else:
            columns[name] = column
    note = {"rows": table.num_rows, "least": least, "keys": list(keys or ()) if rehash else None}
    schema = _uncoded(table.schema).serialize().to_pybytes()
    metadata = {_NOTE: json.dumps(note).encode(), _PLAIN: schema}
    return pa.table(columns).replace_schema_metadata(metadata)


def expand(table: pa.Table) -> pa.Table:
    """The table that `compact` was called with, its texts as they were before they were coded."""
    metadata = table.schema.metadata or {}
    if _NOTE not in metadata:
        return table
    note, schema = json.loads(metadata[_NOTE]), pa.ipc.read_schema(pa.py_buffer(metadata[_PLAIN]))
    columns = dict(zip(table.column_names, table.columns, strict=True))
    for name, low in note["least"].items():
        columns[name] = _widened(columns.get(name), low, schema.field(name).type, note["rows"])
    if note["keys"] is not None:
        keys = [columns[k] for k in note["keys"]]
        columns[HASH] = pa.array(hash_keys(keys, note["rows"]))
    return _decoded(pa.table([columns[n] for n in schema.names], schema.names), schema)


def _uncoded(schema: pa.Schema) -> pa.Schema:
    """As it was before texts were coded."""
    for i, field in enumerate(schema):
        if _CODED in (field.metadata or {}):
            others = {k: v for k, v in field.metadata.items() if k != _CODED}
            plain = field.with_type(field.type.value_type).with_metadata(others or None)
            schema = schema.set(i, plain)
    return schema


def _decoded(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table if table.schema.equals(schema, check_metadata=True) else table.cast(schema)


def _cheap_to_hash(type: pa.DataType) -> bool:
    return bool(pt.is_integer(type) or pt.is_temporal(type) or pt.is_dictionary(type))


def _fitting(codes: pa.DictionaryArray) -> pa.DictionaryArray:
    """Without the texts that no row has, which a cut leaves behind, and with narrow indices."""
    number = codes.indices.to_numpy()
    used = np.flatnonzero(np.bincount(number, minlength=len(codes.dictionary)))
    place = np.zeros(len(codes.dictionary), np.uint32)
    place[used] = np.arange(len(used))
    indices = place[number].astype(np.uint16 if len(used) <= _SHORT else np.int32)
    return pa.DictionaryArray.from_arrays(indices, codes.dictionary.take(pa.array(used)))


def _countable(array: pa.ChunkedArray) -> bool:
    counts = pt.is_integer(array.type) or (
        pt.is_temporal(array.type) and not pt.is_interval(array.type)
    )
    return counts and array.null_count == 0


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    """The values as whole numbers of their own width."""
    if pt.is_integer(array.type):
        return np.asarray(array)
    return np.asarray(array.view(_integer(array.type)))


def _integer(type: pa.DataType) -> pa.DataType:
    if pt.is_integer(type):
        return type
    return pa.int32() if type.bit_width == 32 else pa.int64()


def _narrowed(array: pa.Array) -> tuple[pa.Array | None, int]:
    """Differences from the least, in the narrowest type, and the least; None if all are zero."""
    values = _numbers(array)
    low, high = int(values.min()), int(values.max())
    if low == high:
        return None, low
    for bits, narrow in _UNSIGNED.items():
        if high - low < 2**bits and bits < array.type.bit_width:
            return pa.array((values - values.dtype.type(low)).astype(narrow.to_pandas_dtype())), low
    return pa.array(values), 0


def _widened(small: pa.ChunkedArray | None, low: int, type: pa.DataType, rows: int) -> pa.Array:
    integer = _integer(type)
    dtype = integer.to_pandas_dtype()
    if small is None:
        values = np.full(rows, low, dtype)
    else:
        values = small.to_numpy().astype(dtype) + dtype(low)
    return pa.array(values).view(type)
