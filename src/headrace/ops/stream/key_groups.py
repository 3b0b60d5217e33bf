"""Rows of the same key, for all rows at once: their ids, order, and distance in time.

Exact where hashes collide. Null equals null here, NaN equals NaN and -0.0 is 0.0, as everywhere
in state. Arrays only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Index, Mask, flat, integers
from headrace.chunk import HASH
from headrace.ops.agg.order import sorted_by
from headrace.ops.keys import ORDER, key_groups


def repeated(hashes: npt.NDArray[np.uint64]) -> Index:
    """The rows whose hash is there more than once, equal ones side by side."""
    order = np.argsort(hashes)
    equal = hashes[order][1:] == hashes[order][:-1]
    if not equal.any():
        return np.zeros(0, np.int64)
    among = np.zeros(len(order), np.bool_)
    among[1:] |= equal
    among[:-1] |= equal
    return order[among]


def key_ids(identity: pa.Table) -> Index:
    """A small id for each row's key; `identity` has "__h" and the key's columns."""
    hashes = flat(identity[HASH]).to_numpy()
    _, first, ids = np.unique(hashes, return_index=True, return_inverse=True)
    keys = identity.drop_columns([HASH])
    if all(same_values(flat(c), flat(c).take(pa.array(first[ids]))).all() for c in keys.columns):
        return ids.astype(np.int64, copy=False)
    return key_groups(identity, identity.column_names).codes


def same_values(left: pa.Array, right: pa.Array) -> Mask:
    """Row by row, whether two columns have the same value."""
    equal: Mask = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
    if left.null_count and right.null_count:
        equal = equal | pc.and_(left.is_null(), right.is_null()).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(left.type):
        both = pc.and_(pc.is_nan(left), pc.is_nan(right)).fill_null(False)
        equal = equal | both.to_numpy(zero_copy_only=False)
    return equal


def by_key_order(rows: pa.Table, ids: Index) -> Index:
    """The rows by id, and those of one id in their order."""
    columns = [rows.column(n) for n in ORDER if n in rows.column_names]
    return sorted_by([ids, *map(integers, columns)])


def group_heads(ids: Index) -> Mask:
    """Whether each row is the first of its id; equal ids are side by side."""
    first = np.ones(len(ids), np.bool_)
    first[1:] = ids[1:] != ids[:-1]
    return first


def place_in_group(ids: Index) -> Index:
    """0, 1, 2, ... within each run of equal ids."""
    starts = np.flatnonzero(group_heads(ids))
    lengths = np.diff(starts, append=len(ids))
    return np.arange(len(ids)) - np.repeat(starts, lengths)


def mixed_hashes(
    hashes: npt.NDArray[np.uint64], numbers: Sequence[Index]
) -> npt.NDArray[np.uint64]:
    """One hash of hashes and further numbers, such as a time."""
    mixed = hashes.copy()
    for column in numbers:
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIX + column.view(np.uint64)
    return mixed


_MIX = np.uint64(0x9E3779B97F4A7C15)


# Rows of a key at a minimum distance in time: the first stays and hides those less than `gap`
# after it; the first that it does not hide stays, and so on.


def rows_apart(ids: Index, times: Index, first: Mask, gap: int) -> Mask:
    """Which rows stay; they are sorted by id, then time, and `first` begins each id."""
    if len(times) < 2 or gap > int(times.max()) - int(times.min()):
        return first
    return _reached(first, _next(ids, times, gap))


def list_starts(ids: Index, times: Index, first: Mask, most: int, within: int | None) -> Mask:
    """Which rows begin a list: it ends with its `most`-th row, or before one `within` later."""
    after_most = np.arange(len(ids)) + most
    after = np.where(after_most < len(ids), after_most, len(ids))
    inside = after < len(ids)
    inside[inside] = ids[after[inside]] == ids[inside]
    after = np.where(inside, after, len(ids))
    if within is not None and len(ids):
        after = np.minimum(after, _next(ids, times, within))
    return _reached(first, after)


def _next(ids: Index, times: Index, gap: int) -> Index:
    """For each row the first of its id at least `gap` later; the end where there is none.

    By the place of a time among all times, so that id and time fit into one integer.
    """
    distinct = np.unique(times)
    room = len(distinct) + 1
    places = ids * room + np.searchsorted(distinct, times)
    targets = ids * room + np.searchsorted(distinct, times + gap)
    at = np.searchsorted(places, targets)
    inside = at < len(ids)
    inside[inside] = ids[at[inside]] == ids[inside]
    return np.where(inside, at, len(ids))


def _reached(first: Mask, after: Index) -> Mask:
    """The rows that are reached from the first ones, going from each to the one after.

    Each round goes twice as far as the one before, so a long chain takes few of them.
    """
    end = len(first)
    stays = np.append(first, True)  # the end counts as seen
    jump = np.append(after, end)
    while True:
        reached = jump[np.flatnonzero(stays[:end])]
        fresh = reached[~stays[reached]]
        if not len(fresh):
            return stays[:end]
        stays[fresh] = True
        jump = jump[jump]
