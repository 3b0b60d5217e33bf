"""Histograms of numbers in buckets that are narrow where numbers are small.

A bucket is a sixteenth of the way from one power of two to the next, as the leading bits of a float
say it, so a quantile is wrong by at most a thirty-second of its value, however large or small. A
histogram is a mapping of buckets to counts: two of them add up, and the difference of two that
only grow is what came in between. Numbers below zero have buckets below zero.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, frexp

import numpy as np

_SHIFT = 48  # of the 64 bits of a float, those that do not tell buckets apart: 11 and 4 do
_SMALLEST, _BIAS = -1021, 1022  # of the powers of two that `frexp` gives
WIDTH = 1 / 16  # of a bucket, at most, as a share of its numbers
Histogram = Mapping[int, int]  # how many numbers by bucket
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def buckets_of(numbers: np.ndarray) -> np.ndarray:
    """The bucket of each number; none may be NaN."""
    floats = np.add(numbers, 0.0, dtype=np.float64)  # which has no zero below zero
    is_below = floats < 0 if floats.size and floats.min() < 0 else None
    bits: np.ndarray = np.abs(floats, out=floats).view(np.int64)
    bits >>= _SHIFT
    return bits if is_below is None else np.where(is_below, ~bits, bits)


def histogram(numbers: np.ndarray) -> Counter[int]:
    """How many of the numbers are in each bucket."""
    if not len(numbers):
        return Counter()
    least, most = bucket_of(float(numbers.min())), bucket_of(float(numbers.max()))
    if least == most:  # as when a batch came at once, or long ago
        return Counter({least: len(numbers)})
    buckets = buckets_of(numbers)
    buckets -= least
    counts = np.bincount(buckets)
    found = np.flatnonzero(counts)
    return Counter(dict(zip((found + least).tolist(), counts[found].tolist(), strict=True)))


def bucket_of(number: float) -> int:
    """The bucket of one number."""
    share, power = frexp(abs(number))
    if not share or power < _SMALLEST:  # zero, and what a float has other bits for
        return int(buckets_of(np.array([number]))[0])
    bucket = (power + _BIAS << 4) + int(share * 32) - 16
    return ~bucket if number < 0 else bucket


def middle(bucket: int) -> float:
    """The number that stands for all of a bucket."""
    if bucket < 0:
        return -middle(~bucket)
    if bucket == 0:
        return 0.0
    return float(np.array((bucket << _SHIFT) + (1 << _SHIFT - 1)).view(np.float64))


def shifted(counts: Histogram, by: float) -> Counter[int]:
    """The histogram of numbers that are all larger by so much."""
    moved: Counter[int] = Counter()
    for bucket, count in counts.items():
        moved[bucket_of(middle(bucket) + by)] += count
    return moved


def added(*histograms: Histogram) -> dict[int, int]:
    total: Counter[int] = Counter()
    for counts in histograms:
        total.update(counts)
    return dict(sorted(total.items()))


def since(now: Histogram, before: Histogram) -> dict[int, int]:
    """What has come to a histogram that only grows."""
    grown = {bucket: count - before.get(bucket, 0) for bucket, count in now.items()}
    return {bucket: count for bucket, count in grown.items() if count > 0}


def quantiles(counts: Histogram, shares: Iterable[float]) -> list[float] | None:
    """For each share the number that this share of the numbers does not exceed; None of none."""
    ordered = sorted(counts)
    reached: Sequence[int] = np.cumsum([counts[bucket] for bucket in ordered]).tolist()
    if not reached or not reached[-1]:
        return None
    ranks = [max(1, ceil(share * reached[-1])) for share in shares]
    return [middle(ordered[int(np.searchsorted(reached, rank))]) for rank in ranks]


def below(counts: Histogram, powers: Iterable[int]) -> list[tuple[float, int]]:
    """Bounds, each a little above a power of two, and how many numbers are below them.

    A bound is the end of the bucket that begins with the power, which is itself below it: so the
    counts are exact.
    """
    ordered = sorted(counts)
    reached = [0, *np.cumsum([counts[bucket] for bucket in ordered], dtype=np.int64).tolist()]
    last = [bucket_of(2.0**power) for power in powers]
    ends = np.array([(bucket + 1) << _SHIFT for bucket in last]).view(np.float64).tolist()
    return [(end, reached[bisect_right(ordered, b)]) for end, b in zip(ends, last, strict=True)]


def sum_of(counts: Histogram) -> float:
    """About the sum of the numbers."""
    return sum(middle(bucket) * count for bucket, count in counts.items())


def percentiles(counts: Histogram) -> dict[str, float] | None:
    """The quantiles that figures show, by name."""
    found = quantiles(counts, QUANTILES.values())
    return None if found is None else dict(zip(QUANTILES, found, strict=True))
