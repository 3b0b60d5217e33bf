"""Columns as NumPy arrays, and arrays as columns: what everything by column computes with.

Nothing here knows what a column means, but that milliseconds are times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
