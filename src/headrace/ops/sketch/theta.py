"""theta: the different values of a column, as a sketch whose sets can be combined.

State, and the result, is a compact theta sketch in the library's portable format: the smallest
hashes of all values, `k` at most, and the first that has no place any more (theta). Both are
functions of the set of values alone: partials merge to the same bytes however rows are divided.
Hashes are those of `coupons`; nulls are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, flat, valid
from headrace.hashing import hash_keys
from headrace.ops.agg.base import Arguments, UnsuitableType
from headrace.ops.agg.order import is_sortable
from headrace.ops.agg.span import stretches
from headrace.ops.sketch.base import Sketch
from headrace.ops.sketch.coupons import HllSketches, decoded, words_of
from headrace.ops.sketch.sizes import in_words, out_of_reach, too_large

DEFAULT_ERROR = 0.05
_DEVIATIONS = 2.5  # standard deviations that `error` is: it holds for 98 of 100 streams
_SMALLEST, _LARGEST = 16, 1 << 24  # hashes of a sketch
_HEAD = 24  # bytes before the hashes, at most
_ALL = (1 << 63) - 1  # theta, where no hash is left out
_SERIAL, _FAMILY = 3, 3
_EMPTY, _FLAGS = 4, 2 | 8 | 16  # read only, compact, in order
_SEED_HASH = 0x93CC  # of the seed 9001


def k_of(error: float | None, size: int | None) -> int:
    """The hashes of a sketch, for an error or a size in bytes."""
    if size is not None:
        fitting = min((size - _HEAD) // 8, _LARGEST)
        if fitting >= _SMALLEST:
            return fitting
        least = in_words(_HEAD + 8 * _SMALLEST)
        raise out_of_reach("theta", in_words(size), f"It needs {least} at least.")
    wanted = DEFAULT_ERROR if error is None else error
    k = ceil(min(_DEVIATIONS / wanted, _LARGEST) ** 2) + 1
    if k > _LARGEST:
        best = f"{_DEVIATIONS / (_LARGEST - 1) ** 0.5:.2g}"
        least = f"The least is {best}; hr.count_distinct is exact."
        raise out_of_reach("theta", f"an error of {wanted:g}", least)
    return max(k, _SMALLEST)


@dataclass(frozen=True)
class ThetaHashes:
    """The hashes of all rows, one row's after the other's, where they begin, and the thetas."""

    hashes: Index
    starts: Index
    sizes: Index
    theta: Index


@dataclass(frozen=True)
class Theta(Sketch[ThetaHashes]):
    error: float | None = None
    size: int | None = None

    hashes = True

    @property
    def k(self) -> int:
        return k_of(self.error, self.size)

    def words(self) -> list[str]:
        said = {"error": self.error, "size": self.size}
        return [f"{name}={value}" for name, value in said.items() if value is not None]

    def numbers(self) -> list[int | float] | None:
        return None

    def memory(self) -> int:
        return _HEAD + 8 * self.k

    def at_rest(self) -> dict[str, Any]:
        return {"format": 1, "k": self.k}

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        if not is_sortable(kind):
            raise UnsuitableType("a number, text, a time or a boolean")
        return pa.binary()

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {"theta": pa.binary()}

    def made(self, rows: Arguments, group: Index, groups: int) -> list[Column]:
        present = valid(rows.column)
        values = rows.column if present.all() else pc.drop_null(rows.column)
        low, _ = words_of(hash_keys([values]))
        hashes = (low >> np.uint64(1)).view(np.int64)
        return [self._smallest(hashes, group[present], np.full(groups, _ALL))]

    def single(self, rows: Arguments) -> list[Column]:
        return self.made(rows, np.arange(rows.count), rows.count)

    def decoded(self, columns: Sequence[Column]) -> ThetaHashes:
        return theta_hashes(columns[0])

    def union(self, sketches: ThetaHashes, rows: Index, group: Index, groups: int) -> list[Column]:
        theta = np.full(groups, _ALL)
        np.minimum.at(theta, group, sketches.theta[rows])
        sizes = sketches.sizes[rows]
        hashes = sketches.hashes[stretches(sketches.starts[rows], sizes)]
        return [self._smallest(hashes, np.repeat(group, sizes), theta)]

    def _smallest(self, hashes: Index, group: Index, theta: Index) -> pa.Array:
        """The smallest hashes of each group below its theta, and the theta that they leave."""
        below = (hashes < theta[group]) & (hashes > 0)  # the library's, too, has no hash 0
        hashes, group = hashes[below], group[below]
        order = np.lexsort((hashes, group))
        hashes, group = hashes[order], group[order]
        new = np.ones(len(order), np.bool_)
        new[1:] = (np.diff(hashes) != 0) | (np.diff(group) != 0)
        hashes, group = hashes[new], group[new]
        sizes = np.bincount(group, minlength=len(theta))
        starts = np.cumsum(sizes) - sizes
        full = np.flatnonzero(sizes > self.k)
        theta[full] = hashes[starts[full] + self.k]
        place = np.arange(len(hashes)) - starts[group]
        return _bytes(hashes[place < self.k], np.minimum(sizes, self.k), theta)

    def result(self, columns: Sequence[Column]) -> Column:
        return flat(columns[0])


def theta_hashes(column: Column) -> ThetaHashes:
    """What the sketches of a column hold."""
    raw: HllSketches = decoded(0, column)
    some = raw.lengths > 0
    longs = np.zeros(len(raw.starts), np.int64)
    longs[some] = raw.data[raw.starts[some]]
    sizes = np.maximum(raw.lengths // 8 - longs, 0)
    words = np.ndarray((max(len(raw.data) - 7, 0),), "<i8", raw.data, strides=(1,))
    theta = np.full(len(longs), _ALL)
    theta[longs == 3] = words[raw.starts[longs == 3] + 16]
    first = np.repeat(raw.starts + 8 * longs, sizes)
    hashes = words[first + 8 * stretches(np.zeros(len(sizes), np.int64), sizes)]
    return ThetaHashes(hashes, np.cumsum(sizes) - sizes, sizes, theta)


def _bytes(hashes: Index, sizes: Index, theta: Index) -> pa.Array:
    """Sketches of `sizes` hashes each, in order."""
    longs = np.where(theta < _ALL, 3, np.where(sizes > 1, 2, 1))
    ends = np.append(0, np.cumsum(8 * (longs + sizes)))
    if ends[-1] > np.iinfo(np.int32).max:
        raise too_large()
    starts = ends[:-1] // 8
    out = np.zeros(int(ends[-1]) // 8, "<i8")
    flags = np.where((sizes == 0) & (longs == 1), _FLAGS | _EMPTY, _FLAGS)
    out[starts] = longs | _SERIAL << 8 | _FAMILY << 16 | flags << 40
    out[starts] |= np.uint64(_SEED_HASH << 48).astype(np.int64)
    out[starts[longs > 1] + 1] = sizes[longs > 1]
    out[starts[longs == 3] + 2] = theta[longs == 3]
    out[np.repeat(starts + longs, sizes) + stretches(np.zeros_like(sizes), sizes)] = hashes
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
