"""Columns as NumPy arrays and arrays as columns, and columns of event times as milliseconds.

A time that is too large for milliseconds in 64 bits becomes the largest there is, which is not
within the years 1 to 9999; it never wraps round to a valid time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import FIRST_TIME, LAST_TIME
from headrace.schema import TIMESTAMP

Column: TypeAlias = "pa.Array | pa.ChunkedArray"
Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Times = npt.NDArray[np.int64]  # epoch milliseconds


def flat(column: Column) -> pa.Array:
    """The column as one array."""
    if isinstance(column, pa.Array):
        return column
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        return pa.concat_arrays(joined.chunks) if joined.num_chunks else pa.array([], column.type)
    return joined


def owned(table: pa.Table, source: pa.Table | None = None) -> pa.Table:
    """A user's table in memory of its own, but for columns of `source` that it passes on.

    Arrow refers to the memory of NumPy arrays, which user code may fill again: `pa.array(BUFFER)`.
    """
    ours = set[int]() if source is None else _addresses(source.columns)
    columns = [c if _addresses([c]) <= ours else _copied(c) for c in table.columns]
    return pa.table(columns, schema=table.schema)


def owned_array(array: pa.Array) -> pa.Array:
    """The same for one array."""
    return pa.concat_arrays([array, array[:0]])  # of one alone there would be no copy


def _copied(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array(map(owned_array, column.chunks), column.type)


def _addresses(columns: Iterable[pa.ChunkedArray]) -> set[int]:
    buffers = (b for c in columns for chunk in c.chunks for b in chunk.buffers())
    return {b.address for b in buffers if b is not None and b.size}


def numbers(column: Column) -> npt.NDArray[Any]:
    """A column without nulls as NumPy: a view if it is in one piece and not of booleans."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def integers(column: Column, missing: int = 0) -> Index:
    """The values as int64, `missing` for null."""
    filled = column.fill_null(missing) if column.null_count else column
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)


def doubles(column: Column) -> Column:
    """Numbers of any type as the nearest double; Arrow's own cast misses it for decimals."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    return column.cast(pa.float64(), safe=False)


def floats(column: Column) -> npt.NDArray[np.float64]:
    """The values as float64, NaN for null."""
    values: npt.NDArray[np.float64] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values


def valid(column: Column) -> Mask:
    """True where a value is present."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    mask: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def array(values: npt.NDArray[np.generic], kind: pa.DataType, present: object = None) -> pa.Array:
    """An Arrow array of `kind`, null where `present` (a mask) is false."""
    mask = None if present is None else ~np.asarray(present, np.bool_)
    return pa.array(values, kind, mask=mask)


def timestamps(times: Times, present: Mask | None = None) -> pa.Array:
    """Milliseconds as the timestamps that users see, null where `present` is false."""
    if present is None:
        return pa.array(times * 1_000).cast(TIMESTAMP)
    return array(np.where(present, times, 0) * 1_000, pa.int64(), present).cast(TIMESTAMP)


def take(columns: Sequence[Column], rows: Index, present: object = None) -> list[Column]:
    """The given rows of each column, null where `present` (a mask) is false."""
    index = array(rows, pa.int64(), present)
    return [flat(flat(c).take(index)) for c in columns]


# Event times.


_MOST = 2**63 - 1


def milliseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Event times as int64 milliseconds: timestamps of any unit, dates, or integers."""
    kind = column.type
    if pa.types.is_integer(kind):
        if kind == pa.uint64():
            column = pc.min_element_wise(column, pa.scalar(_MOST, kind), skip_nulls=False)
        return column.cast(pa.int64())
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("ms")).cast(pa.int64())
    per_unit = {"s": 1_000, "ms": 1, "us": -1_000, "ns": -1_000_000}[kind.unit]
    units = column.cast(pa.int64())
    if per_unit > 0:
        return units if per_unit == 1 else _times(units, per_unit)
    cut = [_floor(c, -per_unit) for c in units.chunks]
    return pa.chunked_array(cut, pa.int64())


def beyond(times: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Which times are not within the years 1 to 9999; None if all are. A null is not beyond."""
    reach = pc.min_max(times).as_py()
    if reach["min"] is None or FIRST_TIME <= reach["min"] <= reach["max"] <= LAST_TIME:
        return None
    outside = pc.or_(pc.less(times, FIRST_TIME), pc.greater(times, LAST_TIME))
    return pc.fill_null(outside, False)


def _times(units: pa.ChunkedArray, by: int) -> pa.ChunkedArray:
    most = _MOST // by
    units = pc.min_element_wise(units, most, skip_nulls=False)
    return pc.multiply(pc.max_element_wise(units, -most, skip_nulls=False), by)


def _floor(units: pa.Array, by: int) -> pa.Array:
    if not units.null_count:
        return pa.array(units.to_numpy() // by)
    present = valid(units)
    return pa.array(units.fill_null(0).to_numpy() // by, mask=~present)
