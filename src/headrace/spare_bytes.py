"""Bytes behind a table's rows: what Arrow has written of rows that are not there.

A slice refers to the memory of the whole. Arrow writes its part of each buffer, and up to 63 bytes
more, which it calls padding: the values of the rows that followed. No reader shows them, so they
are no wrong rows; but who erases a value must erase these as well.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

Spread = "pa.Table | pa.RecordBatch"


def has_spare(rows: pa.Table | pa.RecordBatch) -> bool:
    """Whether buffers of these rows have bytes, other than zeros, of other rows."""
    chunks = (
        chunk
        for column in rows.columns
        for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else (column,))
    )
    return any(part.any() for chunk in chunks for part in _spare(chunk))


def without_spare(table: pa.Table) -> pa.Table:
    """The same rows in buffers that have nothing else."""
    plain = pa.table(
        [_plain(column) for column in table.columns], names=table.column_names
    ).replace_schema_metadata(table.schema.metadata)
    taken = plain.take(pa.array(np.arange(table.num_rows)))
    return taken.cast(table.schema)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A dictionary may have values that no row has."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _spare(array: pa.Array) -> Iterator[np.ndarray]:
    """The bytes before and behind the values, of all buffers that hold values."""
    kind, first, count = array.type, array.offset, len(array)
    if pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            yield from _spare(array.field(i))
    elif pa.types.is_dictionary(kind):
        yield from _spare(array.dictionary)
        used = np.unique(array.indices.drop_null().to_numpy(zero_copy_only=False))
        yield np.ones(max(len(array.dictionary) - len(used), 0), np.uint8)
    elif pa.types.is_fixed_size_list(kind):
        yield from _spare(array.values.slice(first * kind.list_size, count * kind.list_size))
    elif pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        ends = _ends(array, pa.types.is_large_list(kind))
        for part in (array.keys, array.items) if pa.types.is_map(kind) else (array.values,):
            yield from _spare(_between(part, *ends))
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        yield from _outside(array.buffers()[2], *_ends(array, True))
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        yield from _outside(array.buffers()[2], *_ends(array, False))
    elif (width := _width(kind)) > 0:
        yield from _outside(array.buffers()[1], first * width, (first + count) * width)


def _ends(array: pa.Array, wide: bool) -> tuple[int, int]:
    """Where the values of the first row begin, and those of the last one end."""
    buffer = array.buffers()[1]
    if buffer is None or not buffer.size:
        return 0, 0
    offsets = np.frombuffer(buffer, np.int64 if wide else np.int32)
    return int(offsets[array.offset]), int(offsets[array.offset + len(array)])


def _between(values: pa.Array, first: int, end: int) -> pa.Array:
    return values.slice(first - values.offset if values.offset else first, end - first)


def _outside(buffer: pa.Buffer | None, first: int, end: int) -> Iterator[np.ndarray]:
    if buffer is not None and buffer.size:
        content = np.frombuffer(buffer, np.uint8)
        yield content[:first]
        yield content[end:]


def _width(kind: pa.DataType) -> int:
    """Bytes of a value; 0 of truth values, which are bits of nobody, and where it has none."""
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return 0
