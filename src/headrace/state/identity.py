"""Rows by identity: their order, their search, and which of several is the newest.

An identity is ([time,] hash, key); rows are sorted by ([time,] hash), and rows whose time
and hash are equal lie side by side in any order. A hash is never trusted: keys are
compared, nulls and NaNs as values. Knows nothing of tables, files or slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.arrays import Mask, numbers
from headrace.hashing import Hashes, Ints, plain_floats


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
class Probe:
    """Identities to look up, in order: those of the rows `which` of what was asked for."""

    times: Ints | None
    hashes: Hashes
    which: Ints
    keys: Sequence[pa.Array]  # of all asked for

    @classmethod
    def all_of(cls, rows: Identities) -> Probe:
        return cls(rows.times, rows.hashes, np.arange(len(rows)), rows.keys)

    def only(self, part: Mask | slice) -> Probe:
        times = None if self.times is None else self.times[part]
        return Probe(times, self.hashes[part], self.which[part], self.keys)


def find(run: Identities, probe: Probe) -> Ints:
    """The row of `run` with each identity of the probe; -1 where there is none."""
    rows = np.full(len(probe.which), -1, np.int64)
    at = seek(run.times, run.hashes, probe.times, probe.hashes)
    pending = np.flatnonzero(_alike(run, at, probe.times, probe.hashes))
    while len(pending):
        candidates = at[pending]
        same = same_keys(
            take(run.keys, candidates), take(probe.keys, probe.which[pending]), len(pending)
        )
        rows[pending[same]] = candidates[same]
        pending = pending[~same]  # another key of the same hash: try the next row
        at[pending] += 1
        times = None if probe.times is None else probe.times[pending]
        pending = pending[_alike(run, at[pending], times, probe.hashes[pending])]
    return rows


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
    repeated = _repeats(rows.times, rows.hashes, order)
    if not repeated.any():
        return order
    order = np.arange(len(rows)) if order is None else order
    at = np.flatnonzero(repeated)
    same = same_keys(take(rows.keys, order[at]), take(rows.keys, order[at - 1]), len(at))
    if same.all():
        return order[~repeated]
    return _newest_of_colliding(rows.keys, order, repeated)


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
    repeated = np.zeros(len(hashes), np.bool_)
    repeated[1:] = hashes[1:] == hashes[:-1]
    if times is not None:
        repeated[1:] &= times[1:] == times[:-1]
    return repeated


def _newest_of_colliding(keys: Sequence[pa.Array], order: Ints, repeated: Mask) -> Ints:
    """Different keys share a hash: bring equal keys together, then drop the repeats."""
    columns = [np.cumsum(~repeated), *(_codes(c) for c in take(keys, order))]
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


# Searches in sorted hashes: for each of many sorted values, the first place whose value is not
# less. The cost grows with the values sought, not with the run: in a large run the place of a hash
# is interpolated, because hashes are spread evenly, and bisected only where that fails.


_LARGE = 1 << 19  # rows above which guessing beats bisection: then caches no longer hold them
_WINDOW = 32  # rows around a guess that are bisected; a power of two
_FEW_TIMES = 64  # up to here one search per time beats one bisection of all


def seek(run_times: Ints | None, run_hashes: Hashes, times: Ints | None, hashes: Hashes) -> Ints:
    """Places by ([time,] hash) in a run sorted so; what is sought is sorted so too."""
    if run_times is None or times is None:
        return lower_bound(run_hashes, hashes)
    if not len(times):
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.r_[True, times[1:] != times[:-1]])
    distinct, stops = times[starts], np.r_[starts[1:], len(times)]
    lo = np.searchsorted(run_times, distinct, "left")
    hi = np.searchsorted(run_times, distinct, "right")
    if len(distinct) > _FEW_TIMES:
        counts = stops - starts
        return _bisect(run_hashes, hashes, np.repeat(lo, counts), np.repeat(hi, counts))
    places = np.empty(len(hashes), np.int64)
    for a, b, first, last in zip(starts, stops, lo, hi, strict=True):
        places[a:b] = first + lower_bound(run_hashes[first:last], hashes[a:b])
    return places


def lower_bound(hashes: Hashes, sought: Hashes) -> Ints:
    """Places by hash."""
    if len(hashes) < _LARGE:
        return np.searchsorted(hashes, sought)
    at = _near(hashes, sought, _guess(hashes, sought))
    before, after = np.take(hashes, at - 1, mode="clip"), np.take(hashes, at, mode="clip")
    right = ((at == 0) | (before < sought)) & ((at == len(hashes)) | (after >= sought))
    missed = np.flatnonzero(~right)
    at[missed] = np.searchsorted(hashes, sought[missed])
    return at


def _guess(hashes: Hashes, sought: Hashes) -> Ints:
    """Interpolated twice: the second time from the value at the first guess."""
    first, last = float(hashes[0]), float(hashes[-1])
    per_hash = (len(hashes) - 1) / max(last - first, 1.0)
    target = sought.astype(np.float64)
    at = _place((target - first) * per_hash, len(hashes))
    for _ in range(2):
        at = _place(at + (target - np.take(hashes, at)) * per_hash, len(hashes))
    return at


def _place(guess: npt.NDArray[np.float64], count: int) -> Ints:
    return np.clip(guess, 0, count - 1).astype(np.int64)


def _near(hashes: Hashes, sought: Hashes, guess: Ints) -> Ints:
    """The lower bound within the window around each guess."""
    half = _WINDOW // 2
    at = np.clip(guess, half, len(hashes) - half) - half
    step = half
    while step:
        at += (np.take(hashes, at + (step - 1), mode="clip") < sought) * step
        step >>= 1
    return at


def _bisect(hashes: Hashes, sought: Hashes, lo: Ints, hi: Ints) -> Ints:
    """All binary searches at once, each within its own [lo, hi)."""
    while (searching := lo < hi).any():
        middle = (lo + hi) >> 1
        less = searching & (np.take(hashes, middle, mode="clip") < sought)
        lo, hi = np.where(less, middle + 1, lo), np.where(searching & ~less, middle, hi)
    return lo
