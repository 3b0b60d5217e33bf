"""Rows by identity: their order, their search, and which of several is the newest.

An identity is ([time,] hash, key); rows are sorted by ([time,] hash), and rows whose time
and hash are equal lie side by side in any order. A hash is never trusted: keys are
compared, nulls and NaNs as values. Knows nothing of tables, files or slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.hashing import Hashes, Ints

Mask = npt.NDArray[np.bool_]

_FEW_TIMES = 64  # up to here one search per time beats one bisection of all


@dataclass(frozen=True, slots=True)
class Identities:
    """The identity columns of some rows."""

    times: Ints | None
    hashes: Hashes
    keys: Sequence[pa.Array]

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, at: Ints) -> Identities:
        times = None if self.times is None else self.times[at]
        return Identities(times, self.hashes[at], take(self.keys, at))


def numbers(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[Any]:
    """A column without nulls as NumPy: a view if it is in one piece and not of booleans."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found


def take(columns: Sequence[pa.Array], at: Ints) -> list[pa.Array]:
    where = pa.array(at)
    return [c.take(where) for c in columns]


def sort_order(times: Ints | None, hashes: Hashes) -> Ints | None:
    """The stable order by ([time,] hash); None if the rows are in order already."""
    if len(hashes) < 2 or _is_sorted(times, hashes):
        return None
    if times is None:
        return np.argsort(hashes, kind="stable")
    return np.lexsort((hashes, times))


def _is_sorted(times: Ints | None, hashes: Hashes) -> bool:
    rising = hashes[1:] >= hashes[:-1]
    if times is not None:
        rising = (times[1:] > times[:-1]) | ((times[1:] == times[:-1]) & rising)
    return bool(rising.all())


def same_keys(left: Sequence[pa.Array], right: Sequence[pa.Array], rows: int) -> Mask:
    """Row by row, whether two sets of key columns hold the same key."""
    same = np.ones(rows, np.bool_)
    for a, b in zip(left, right, strict=True):
        same &= _equal(a, b)
    return same


def _equal(a: pa.Array, b: pa.Array) -> Mask:
    equal = numbers(pc.equal(a, b).fill_null(False))
    if a.null_count and b.null_count:
        equal = equal | (numbers(a.is_null()) & numbers(b.is_null()))
    if pt.is_floating(a.type):
        equal = equal | numbers(pc.and_(pc.is_nan(a), pc.is_nan(b)).fill_null(False))
    return equal


def seek(run: Identities, times: Ints | None, hashes: Hashes) -> Ints:
    """For each row wanted, given in order, the first row of `run` that is not before it."""
    if run.times is None or times is None:
        return np.searchsorted(run.hashes, hashes)
    starts = np.flatnonzero(np.r_[True, times[1:] != times[:-1]][: len(times)])
    distinct, stops = times[starts], np.r_[starts[1:], len(times)]
    lo = np.searchsorted(run.times, distinct, "left")
    hi = np.searchsorted(run.times, distinct, "right")
    if len(distinct) > _FEW_TIMES:
        counts = stops - starts
        return _bisect(run.hashes, hashes, np.repeat(lo, counts), np.repeat(hi, counts))
    found = np.empty(len(hashes), np.int64)
    for a, b, first, last in zip(starts, stops, lo, hi, strict=True):
        found[a:b] = first + np.searchsorted(run.hashes[first:last], hashes[a:b])
    return found


def _bisect(run_hashes: Hashes, hashes: Hashes, lo: Ints, hi: Ints) -> Ints:
    """All binary searches at once, each within its own [lo, hi)."""
    while (searching := lo < hi).any():
        middle = (lo + hi) >> 1
        less = searching & (run_hashes[np.minimum(middle, len(run_hashes) - 1)] < hashes)
        lo, hi = np.where(less, middle + 1, lo), np.where(searching & ~less, middle, hi)
    return lo


def find(run: Identities, wanted: Identities, which: Ints) -> Ints:
    """The row of `run` for each of `which` of those wanted (in order); -1 where there is none."""
    found = np.full(len(which), -1, np.int64)
    hashes = wanted.hashes[which]
    times = None if wanted.times is None else wanted.times[which]
    at = seek(run, times, hashes)
    open_ = np.arange(len(which))
    while len(open_ := open_[_alike(run, at[open_], times, hashes, open_)]):
        same = same_keys(take(run.keys, at[open_]), take(wanted.keys, which[open_]), len(open_))
        found[open_[same]] = at[open_[same]]
        open_ = open_[~same]  # another key of the same hash: look at the next row
        at[open_] += 1
    return found


def _alike(run: Identities, at: Ints, times: Ints | None, hashes: Hashes, which: Ints) -> Mask:
    """Whether the rows `at` have the hash (and time) of those wanted."""
    inside: Mask = at < len(run)
    if not inside.any():
        return inside
    at = np.where(inside, at, 0)
    alike: Mask = inside & (run.hashes[at] == hashes[which])
    if run.times is not None and times is not None:
        alike &= run.times[at] == times[which]
    return alike


def newest(rows: Identities) -> Ints | None:
    """Of rows listed newest first, the newest of each identity, in order.

    None if that is all of them, as they lie.
    """
    order = sort_order(rows.times, rows.hashes)
    again = _repeats(rows.times, rows.hashes, order)
    if not again.any():
        return order
    order = np.arange(len(rows)) if order is None else order
    at = np.flatnonzero(again)
    same = same_keys(take(rows.keys, order[at]), take(rows.keys, order[at - 1]), len(at))
    if same.all():
        return order[~again]
    return _newest_of_colliding(rows.keys, order, again)


def _repeats(times: Ints | None, hashes: Hashes, order: Ints | None) -> Mask:
    """Whether each row, in order, has the time and the hash of the row before."""
    if order is not None:
        hashes, times = hashes[order], None if times is None else times[order]
    again = np.zeros(len(hashes), np.bool_)
    again[1:] = hashes[1:] == hashes[:-1]
    if times is not None:
        again[1:] &= times[1:] == times[:-1]
    return again


def _newest_of_colliding(keys: Sequence[pa.Array], order: Ints, again: Mask) -> Ints:
    """Different keys share a hash: bring equal keys together, then drop the repeats."""
    columns = [np.cumsum(~again), *(_codes(c) for c in take(keys, order))]
    by_key = np.lexsort(columns[::-1])
    first = np.zeros(len(order), np.bool_)
    first[:1] = True
    for column in columns:
        first[1:] |= column[by_key][1:] != column[by_key][:-1]
    return order[np.sort(by_key[first])]


def _codes(column: pa.Array) -> Ints:
    """A number per distinct value of the column, null and NaN included."""
    if pt.is_floating(column.type):
        column = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 is the same key
    return numbers(column.dictionary_encode("encode").indices)
