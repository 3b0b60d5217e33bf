"""Rows by identity: their order, their search, and which of several is the newest.

An identity is ([time,] hash, key); rows are sorted by ([time,] hash), and rows whose time
and hash are equal lie side by side in any order. A hash is never trusted: keys are
compared, nulls and NaNs as values. Knows nothing of tables, files or slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.arrays import Mask, numbers
from headrace.hashing import Hashes, Ints, plain_floats
from headrace.state.search import seek


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


def take(columns: Sequence[pa.Array], at: Ints) -> list[pa.Array]:
    where = pa.array(at)
    return [c.take(where) for c in columns]


def sort_order(times: Ints | None, hashes: Hashes, stable: bool = True) -> Ints | None:
    """The order by ([time,] hash); None if the rows are in order already."""
    if len(hashes) < 2 or _is_sorted(times, hashes):
        return None
    if times is None:
        return np.argsort(hashes, kind="stable" if stable else None)
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows still looked for, in order: the rows `which` of the identities asked for."""

    times: Ints | None
    hashes: Hashes
    which: Ints
    keys: Sequence[pa.Array]  # of all asked for

    @classmethod
    def all_of(cls, asked: Identities) -> Wanted:
        return cls(asked.times, asked.hashes, np.arange(len(asked)), asked.keys)

    def only(self, part: Mask | slice) -> Wanted:
        times = None if self.times is None else self.times[part]
        return Wanted(times, self.hashes[part], self.which[part], self.keys)


def find(run: Identities, wanted: Wanted) -> Ints:
    """The row of `run` for each row wanted; -1 where there is none."""
    found = np.full(len(wanted.which), -1, np.int64)
    at = seek(run.times, run.hashes, wanted.times, wanted.hashes)
    left = np.flatnonzero(_alike(run, at, wanted.times, wanted.hashes))
    while len(left):
        here = at[left]
        same = same_keys(take(run.keys, here), take(wanted.keys, wanted.which[left]), len(left))
        found[left[same]] = here[same]
        left = left[~same]  # another key of the same hash: look at the next row
        at[left] += 1
        times = None if wanted.times is None else wanted.times[left]
        left = left[_alike(run, at[left], times, wanted.hashes[left])]
    return found


def _alike(run: Identities, at: Ints, times: Ints | None, hashes: Hashes) -> Mask:
    """Whether the rows `at` of the run have these hashes (and times)."""
    if not len(run):
        return np.zeros(len(at), np.bool_)
    alike: Mask = (np.take(run.hashes, at, mode="clip") == hashes) & (at < len(run))
    if run.times is not None and times is not None:
        alike &= np.take(run.times, at, mode="clip") == times
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


def distinct(rows: Identities) -> Ints | None:
    """As `newest`, but quicker when no identity is there twice."""
    order = sort_order(rows.times, rows.hashes, stable=False)
    if not _repeats(rows.times, rows.hashes, order).any():
        return order
    return newest(rows)


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
        column = plain_floats(column)
    return numbers(column.dictionary_encode("encode").indices)
