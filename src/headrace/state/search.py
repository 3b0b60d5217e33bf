"""Searches in sorted hashes: where each of many sorted values would go.

Every function gives, for each value wanted, the first place whose value is not less. The
cost is by values wanted: in a large run a hash is found near where its share of the range
says, because hashes are spread evenly, and if not, by bisection. Arrays only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.hashing import Hashes, Ints

_LARGE = 1 << 19  # rows above which guessing beats bisection: then caches no longer hold them
_WINDOW = 32  # rows around a guess that are bisected; a power of two
_FEW_TIMES = 64  # up to here one search per time beats one bisection of all


def seek(run_times: Ints | None, run_hashes: Hashes, times: Ints | None, hashes: Hashes) -> Ints:
    """Places by ([time,] hash) in a run sorted so; what is wanted is sorted so too."""
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
    found = np.empty(len(hashes), np.int64)
    for a, b, first, last in zip(starts, stops, lo, hi, strict=True):
        found[a:b] = first + lower_bound(run_hashes[first:last], hashes[a:b])
    return found


def lower_bound(held: Hashes, wanted: Hashes) -> Ints:
    """Places by hash."""
    if len(held) < _LARGE:
        return np.searchsorted(held, wanted)
    at = _near(held, wanted, _guess(held, wanted))
    before, after = np.take(held, at - 1, mode="clip"), np.take(held, at, mode="clip")
    right = ((at == 0) | (before < wanted)) & ((at == len(held)) | (after >= wanted))
    missed = np.flatnonzero(~right)
    at[missed] = np.searchsorted(held, wanted[missed])
    return at


def _guess(held: Hashes, wanted: Hashes) -> Ints:
    """Interpolated twice: the second time from the value at the first guess."""
    first, last = float(held[0]), float(held[-1])
    per_hash = (len(held) - 1) / max(last - first, 1.0)
    asked = wanted.astype(np.float64)
    here = _place((asked - first) * per_hash, len(held))
    for _ in range(2):
        here = _place(here + (asked - np.take(held, here)) * per_hash, len(held))
    return here


def _place(guess: npt.NDArray[np.float64], count: int) -> Ints:
    return np.clip(guess, 0, count - 1).astype(np.int64)


def _near(held: Hashes, wanted: Hashes, guess: Ints) -> Ints:
    """The lower bound within the window around each guess."""
    half = _WINDOW // 2
    at = np.clip(guess, half, len(held) - half) - half
    step = half
    while step:
        at += (np.take(held, at + (step - 1), mode="clip") < wanted) * step
        step >>= 1
    return at


def _bisect(held: Hashes, wanted: Hashes, lo: Ints, hi: Ints) -> Ints:
    """All binary searches at once, each within its own [lo, hi)."""
    while (searching := lo < hi).any():
        middle = (lo + hi) >> 1
        less = searching & (np.take(held, middle, mode="clip") < wanted)
        lo, hi = np.where(less, middle + 1, lo), np.where(searching & ~less, middle, hi)
    return lo
