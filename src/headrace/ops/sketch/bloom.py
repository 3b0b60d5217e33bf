"""Bloom filters in NumPy, many at once: was this key seen before, in so many bits per key.

A filter is a block of bits for a share of all keys, by their hash. A key sets a few bits of its
block; a key whose bits are all set counts as seen, which a new key is by chance, too. When a block
has taken the keys that its error allows, a further layer begins, with room for twice as many and
a smaller error: the errors of all layers add up to less than the one that was asked for. So the
error holds however many keys come, and only memory depends on their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, exp, log, log2, sqrt

import numpy as np
import numpy.typing as npt

from headrace.arrays import Index, Mask
from headrace.hashing import Hashes, mixed

Bits = npt.NDArray[np.uint8]  # a row per filter

BLOCK_BYTES = 512  # of the first layer of a filter
_FIRST_SHARE = 0.75  # of the error, for the first layer; each further one has half of what is left
_DEVIATIONS = 4  # so many standard deviations more keys than on average fit in a block
ROW_BYTES = BLOCK_BYTES + 40  # of a stored filter, with its period, place and number of keys
_MOST_PROBES = 64  # that a layer is numbered by; errors from 1e-6 on need 30
LEAST_ERROR = 1e-6


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a filter: how many bits it has, how many a key sets, and for how many keys."""

    number: int
    bits: int
    probes: int
    keys: int

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def error(self) -> float:
        """The chance that a new key counts as seen when the layer is full."""
        return float((1 - exp(-self.probes * self.keys / self.bits)) ** self.probes)


@cache
def layer_of(error: float, number: int) -> Layer:
    """The layer `number` of filters with this error in all."""
    if number == 0:
        bits, wanted = 8 * BLOCK_BYTES, _FIRST_SHARE * error
        choices = ((_room(bits, probes, wanted), -probes) for probes in range(1, _MOST_PROBES))
        keys, fewest = max(choices)
        return Layer(0, bits, -fewest, keys)
    keys = layer_of(error, 0).keys << number
    wanted = (1 - _FIRST_SHARE) * error / 2**number
    probes = max(1, round(-log2(wanted)))
    return Layer(number, 8 * ceil(_bits(keys, probes, wanted) / 8), probes, keys)


def _room(bits: int, probes: int, error: float) -> int:
    """The keys that fit in so many bits."""
    return int(-bits * log(1 - error ** (1 / probes)) / probes)


def _bits(keys: int, probes: int, error: float) -> float:
    return -probes * keys / log(1 - error ** (1 / probes))


@cache
def blocks_for(error: float, expected: int) -> int:
    """The filters that `expected` keys need, so that hardly one has to grow."""
    keys = layer_of(error, 0).keys
    half = _DEVIATIONS / 2
    average = (sqrt(keys + half**2) - half) ** 2  # average + deviations * sqrt(average) == keys
    return ceil(expected / average)


def memory(error: float, expected: int) -> int:
    """The bytes of the filters of `expected` keys."""
    return blocks_for(error, expected) * ROW_BYTES


def contains(layer: Layer, filters: Bits, filter_of: Index, hashes: Hashes) -> Mask:
    """Whether each key counts as seen in its filter, a row of `filters`."""
    found = np.ones(len(hashes), np.bool_)
    alive = np.arange(len(hashes))
    for probe in range(layer.probes):
        at = _place(layer, probe, hashes[alive])
        hit = (filters[filter_of[alive], at >> 3] >> (at & 7).astype(np.uint8)) & 1 > 0
        found[alive[~hit]] = False
        alive = alive[hit]
    return found


def insert(layer: Layer, filters: Bits, filter_of: Index, hashes: Hashes) -> None:
    """Set the bits of each key in its filter, a row of `filters`."""
    flat = filters.reshape(-1)
    for probe in range(layer.probes):
        at = _place(layer, probe, hashes)
        mask = np.left_shift(1, at & 7).astype(np.uint8)
        np.bitwise_or.at(flat, filter_of * layer.bytes + (at >> 3), mask)


def _place(layer: Layer, probe: int, hashes: Hashes) -> Index:
    """The bit of each key, by a hash of its own for every layer and probe."""
    seed = np.full(1, layer.number * _MOST_PROBES + probe + 1, np.uint64)
    words = mixed(hashes ^ mixed(seed)) >> np.uint64(32)
    return ((words * np.uint64(layer.bits)) >> np.uint64(32)).astype(np.int64)
