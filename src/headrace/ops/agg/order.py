"""Order as integers: any sortable column as int64 codes that compare as its values do.

Text and bytes compare by their bytes, false before true, NaN after every number and
-0.0 as 0.0: Spark's order. Codes mean something only within the column they come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, array, flat, integers

_SIGN = np.int64(2**63 - 1)
_LIMIT = 2**63
_SHORT = 1 << 16  # values that 16 bits tell from each other


@dataclass(frozen=True, slots=True)
class Coded:
    """The codes of a column (of no meaning where it is null), and the way back."""

    codes: Index
    kind: pa.DataType
    values: pa.Array | None = None  # by code; None where the code is the value itself

    def decode(self, codes: Index, present: Any = None) -> pa.Array:
        if self.values is not None:
            return self.values.take(array(codes, pa.int64(), present))
        width = pa.int32() if self.kind.bit_width == 32 else pa.int64()
        return array(codes, pa.int64(), present).cast(width).cast(self.kind)


def is_sortable(kind: pa.DataType) -> bool:
    types = pa.types
    return not (types.is_nested(kind) or types.is_null(kind) or types.is_union(kind))


def codes(column: Column) -> Coded:
    kind = column.type
    if pa.types.is_floating(kind):
        return Coded(_float_codes(column), kind)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return Coded(integers(column), kind)
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return Coded(integers(column.cast(width)), kind)
    return _ranked(flat(column))


def _float_codes(column: Column) -> Index:
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # -0.0 becomes 0.0
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    turned: Index = bits ^ ((bits >> 63) & _SIGN)  # negative numbers sort the other way round
    return turned


def _ranked(column: pa.Array) -> Coded:
    distinct = column.unique().drop_null()
    ordered = distinct.take(pc.sort_indices(distinct))
    return Coded(integers(pc.index_in(column, ordered)), column.type, ordered)


def packed(keys: Sequence[Index]) -> list[Index]:
    """Fewer columns with the same lexicographic order: one, if the ranges of values allow."""
    out: list[Index] = []
    room = 0  # values that the last column of `out` can take; 0: it holds no more
    for key in keys:
        low, high = int(key.min()), int(key.max())
        values = high - low + 1
        if room and room * values < _LIMIT:
            out[-1] = out[-1] * values + (key - low)
            room *= values
        else:
            fits = values < _LIMIT
            out.append(key - low if fits else key)
            room = values if fits else 0
    return out


def rises(keys: Sequence[Index]) -> bool:
    """Whether the rows are in the lexicographic order of `keys` already."""
    tied = np.ones(max(len(keys[0]) - 1, 0), np.bool_)
    for key in keys:
        if (tied & (key[1:] < key[:-1])).any():
            return False
        tied &= key[1:] == key[:-1]
    return True


def best_rows(rows: Index, group: Index, keys: Sequence[Index]) -> tuple[Index, Index]:
    """The best of each group's rows: (groups that have one, that row).

    `rows` lie group by group. The row with the least keys is best, later keys deciding between
    equals; no two rows are equal in all of them.
    """
    for values in keys:
        if not len(rows):
            break
        here, heads = values[rows], run_starts(group)
        best = np.minimum.reduceat(here, heads)
        keep = here == np.repeat(best, np.diff(heads, append=len(rows)))
        rows, group = rows[keep], group[keep]
    return group, rows


def group_numbers(starts: Index, count: int) -> Index:
    """The number of the group that each of `count` rows lies in."""
    return np.repeat(np.arange(len(starts)), np.diff(starts, append=count))


def places_in_group(group: Index) -> Index:
    """For each row, how many rows of its group come before it."""
    order = np.argsort(group, kind="stable")
    starts = run_starts(group[order])
    places = np.empty(len(group), np.int64)
    places[order] = np.arange(len(group)) - starts[group_numbers(starts, len(group))]
    return places


def run_starts(group: Index) -> Index:
    """Where each run of equal numbers begins."""
    return np.flatnonzero(np.diff(group, prepend=-1))


def sorted_by(keys: Sequence[Index]) -> Index:
    """The rows in the lexicographic order of `keys`, equal ones as they are."""
    count = len(keys[0])
    if count <= 1:
        return np.arange(count)
    numbered = packed([*keys, np.arange(count)])
    if len(numbered) == 1:  # sorting numbers is far faster than sorting their places
        return np.sort(numbered[0]) % count
    return np.lexsort(packed(keys)[::-1])


def inverse(order: Index) -> Index:
    """The place of each row in an order of all rows."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def by_number(values: Index) -> Index:
    """The stable order by one column; numbers that fit in 16 bits are sorted in one sweep."""
    low, high = int(values.min()), int(values.max())
    narrow = (values - low).astype(np.uint16) if high - low < _SHORT else values
    return np.argsort(narrow, kind="stable")


def distinct(values: Index) -> Index:
    """The different values, sorted; `np.unique` alone hashes, and slowly."""
    ordered = np.sort(values)
    return ordered[np.flatnonzero(np.diff(ordered, prepend=~ordered[:1]))]


def order_keys(columns: Sequence[Column]) -> list[Index]:
    """Time, split and offset as keys; the last two go where the rows' numbers say the same."""
    keys = [integers(c) for c in columns]
    return keys[:1] if rises(keys[1:]) else keys


def repeats(place: Sequence[Index]) -> Index:
    """Of rows that are made of one row of input, as by explode: 0, 1, 2, ..."""
    out = np.zeros(len(place[0]), np.int64)
    if any((np.diff(part) > 0).all() for part in place):
        return out
    order = sorted_by(list(place))
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = False
    for part in place:
        fresh[1:] |= np.diff(part[order]) != 0
    starts = np.flatnonzero(fresh)
    out[order] = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return out
