"""Which rows have the same key, for all rows at once: exact where hashes collide.

Null equals null here, NaN equals NaN and -0.0 is 0.0, as everywhere in state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.chunk import HASH
from headrace.ops.agg.groups import Column, Index, flat, integers
from headrace.ops.agg.order import sorted_by
from headrace.ops.grouping import ORDER, group

Mask = npt.NDArray[np.bool_]


def repeated(hashes: npt.NDArray[np.uint64]) -> Index:
    """The rows whose hash is there more than once, equal ones side by side."""
    order = np.argsort(hashes)
    same = hashes[order][1:] == hashes[order][:-1]
    if not same.any():
        return np.zeros(0, np.int64)
    among = np.zeros(len(order), np.bool_)
    among[1:] |= same
    among[:-1] |= same
    return order[among]


def numbered(identity: pa.Table) -> Index:
    """A small number for each row's key; `identity` has "__h" and the key's columns."""
    hashes = flat(identity[HASH]).to_numpy()
    _, first, number = np.unique(hashes, return_index=True, return_inverse=True)
    keys = identity.drop_columns([HASH])
    if all(same(flat(c), flat(c).take(pa.array(first[number]))).all() for c in keys.columns):
        return number.astype(np.int64, copy=False)
    return group(
        pa.table([identity[HASH], *map(_plain_floats, keys.columns)], identity.column_names),
        identity.column_names,
    ).codes


def same(left: pa.Array, right: pa.Array) -> Mask:
    """Row by row, whether two columns have the same value."""
    equal: Mask = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
    if left.null_count and right.null_count:
        equal = equal | pc.and_(left.is_null(), right.is_null()).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(left.type):
        both = pc.and_(pc.is_nan(left), pc.is_nan(right)).fill_null(False)
        equal = equal | both.to_numpy(zero_copy_only=False)
    return equal


def in_turn(rows: pa.Table, numbers: Index) -> Index:
    """The rows by number, and those of one number in their order."""
    columns = [rows.column(n) for n in ORDER if n in rows.column_names]
    return sorted_by([numbers, *map(integers, columns)])


def heads(numbers: Index) -> Mask:
    """Whether each row is the first of its number; equal numbers lie side by side."""
    first = np.ones(len(numbers), np.bool_)
    first[1:] = numbers[1:] != numbers[:-1]
    return first


def place_in_group(numbers: Index) -> Index:
    """0, 1, 2, ... within each run of equal numbers."""
    starts = np.flatnonzero(heads(numbers))
    lengths = np.diff(starts, append=len(numbers))
    return np.arange(len(numbers)) - np.repeat(starts, lengths)


def _plain_floats(column: Column) -> Column:
    if pa.types.is_floating(column.type):
        return pc.add(column, pa.scalar(0.0, column.type))  # -0.0 is the same key
    return column


def mixed(hashes: npt.NDArray[np.uint64], numbers: Sequence[Index]) -> npt.NDArray[np.uint64]:
    """One hash of hashes and further numbers, such as a time."""
    found = hashes.copy()
    for column in numbers:
        found = (found ^ (found >> np.uint64(29))) * _MIX + column.view(np.uint64)
    return found


_MIX = np.uint64(0x9E3779B97F4A7C15)
