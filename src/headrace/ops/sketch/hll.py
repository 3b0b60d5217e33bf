"""approx_count_distinct: how many different values, by HyperLogLog.

State is a sketch in the library's portable format, of at most 40 + 2**lg_k bytes; while values are
few it holds their coupons, and is as good as exact. Equal values have equal hashes whatever
the width of their type is; nulls are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, array, flat, valid
from headrace.hashing import hash_keys
from headrace.ops.agg.base import Arguments, UnsuitableType
from headrace.ops.agg.order import group_numbers, is_sortable, run_starts
from headrace.ops.agg.span import ADD, RunningSpan
from headrace.ops.sketch import coupons as hll
from headrace.ops.sketch import library
from headrace.ops.sketch.base import Sketch
from headrace.ops.sketch.sizes import in_words, out_of_reach

DEFAULT_ERROR = 0.02
_SMALLEST, _LARGEST = 7, 21  # lg_k that the library takes
_HEAD = 40  # bytes before the registers
_RANKS = np.arange(64)
_UNITS = (  # of a register with each rank, as doubles that add up without rounding
    np.where(_RANKS < 32, 2.0 ** (31 - _RANKS), 0.0),
    np.where(_RANKS < 32, 0.0, 2.0 ** (63 - _RANKS)),
)
BOUNDED = pa.struct([("value", pa.int64()), ("low", pa.int64()), ("high", pa.int64())])


@cache
def lg_k_of(error: float | None, size: int | None) -> int:
    """The number of registers, as a power of two, for an error or a size in bytes."""
    choices = range(_SMALLEST, _LARGEST + 1)
    if size is not None:
        fitting = [lg_k for lg_k in choices if _HEAD + (1 << lg_k) <= size]
        if fitting:
            return fitting[-1]
        least = in_words(_HEAD + (1 << _SMALLEST))
        raise out_of_reach("approx_count_distinct", in_words(size), f"It needs {least} at least.")
    wanted = DEFAULT_ERROR if error is None else error
    precise = [lg_k for lg_k in choices if library.hll_error(lg_k) <= wanted]
    if precise:
        return precise[0]
    best = f"{library.hll_error(_LARGEST):.2g}"
    raise out_of_reach(
        "approx_count_distinct",
        f"an error of {wanted:g}",
        f"The least is {best}; hr.count_distinct is exact.",
    )


@dataclass(frozen=True)
class HyperLogLog(Sketch[hll.HllSketches]):
    error: float | None = None
    size: int | None = None
    bounds: bool = False

    hashes = True

    @property
    def lg_k(self) -> int:
        return lg_k_of(self.error, self.size)

    def words(self) -> list[str]:
        said = {"error": self.error, "size": self.size, "bounds": self.bounds or None}
        return [f"{name}={value}" for name, value in said.items() if value is not None]

    def numbers(self) -> list[int | float] | None:
        if self.bounds or self.size is not None:
            return None
        return [] if self.error is None else [self.error]

    def memory(self) -> int:
        return _HEAD + (1 << self.lg_k)

    def at_rest(self) -> dict[str, Any]:
        return {"format": 1, "lg_k": self.lg_k}

    def width(self) -> int:
        return 1 << self.lg_k

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        if not is_sortable(kind):
            raise UnsuitableType("a number, text, a time or a boolean")
        return BOUNDED if self.bounds else pa.int64()

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {"hll": pa.binary()}

    def made(self, rows: Arguments, group: Index, groups: int) -> list[Column]:
        found, present = _coupons(rows)
        group = group if present.all() else group[present]
        none, nobody = np.zeros((0, 1 << self.lg_k), np.uint8), np.zeros(0, np.int64)
        return [hll.encoded(self.lg_k, found, group, groups, none, nobody)]

    def single(self, rows: Arguments) -> list[Column]:
        return [hll.singles(self.lg_k, *_coupons(rows))]

    def decoded(self, columns: Sequence[Column]) -> hll.HllSketches:
        return hll.decoded(self.lg_k, columns[0])

    def union(
        self, sketches: hll.HllSketches, rows: Index, group: Index, groups: int
    ) -> list[Column]:
        is_dense = sketches.dense[rows]
        dense_groups = np.unique(group[is_dense])
        dense = np.zeros((len(dense_groups), 1 << self.lg_k), np.uint8)
        at = np.searchsorted(dense_groups, group[is_dense])
        for row, place in zip(rows[is_dense], at, strict=True):
            np.maximum(dense[place], sketches.registers(int(row)), out=dense[place])
        sparse = rows[~is_dense]
        owner = np.repeat(group[~is_dense], sketches.sizes[sparse])
        coupons = sketches.coupons(sparse)
        return [hll.encoded(self.lg_k, coupons, owner, groups, dense, dense_groups)]

    def result(self, columns: Sequence[Column]) -> Column:
        sketches = self.decoded(columns)
        dense = sketches.dense
        out = _of_counts(self.lg_k, np.where(dense, 0, sketches.sizes))
        blobs = flat(columns[0]).filter(pa.array(dense)).to_pylist()
        out[dense] = library.hll_estimates(blobs)
        return self._shown(out)

    def running(self, columns: Sequence[Column], span: RunningSpan) -> tuple[Column, list[Column]]:
        """What each row changes, for all rows at once, instead of a sketch for each."""
        sketches = self.decoded(columns)
        rows, coupons = _events(sketches)
        group = span.groups[rows]
        pair = group << 32 | coupons.astype(np.int64)
        seen, first = np.unique(pair, return_index=True)
        del seen
        fresh = np.bincount(rows[first], minlength=span.rows)
        counts = span.reduce(ADD, [fresh])[0]
        begins_dense = np.zeros(span.rows, np.int64)
        begins_dense[sketches.dense] = 1
        dense = span.reduce(ADD, [begins_dense])[0] + (counts > hll.most_coupons(self.lg_k)) > 0
        out = _of_counts(self.lg_k, np.where(dense, 0, counts))
        low, high, zeros = (span.differences(c) for c in self._changes(span, rows, coupons))
        k = 1 << self.lg_k
        sums = np.stack([k + low * 0.5**31, high * 0.5**63, k + zeros])[:, dense]
        if sums.shape[1]:
            different, back = np.unique(sums, axis=1, return_inverse=True)
            made = [hll.of_sums(self.lg_k, a, b, int(c)) for a, b, c in different.T]
            out[dense] = library.hll_estimates(made)[back.reshape(-1)]
        final = self._banded(sketches, np.arange(span.rows), span.groups)
        return self._shown(out), final

    def _changes(self, span: RunningSpan, rows: Index, coupons: hll.Coupons) -> list[Index]:
        """How each row changes the sums over registers of its group, and how many are blank.

        Registers up to 31 add up in units of 2**-31, the others in units of 2**-63.
        """
        k = 1 << self.lg_k
        register = span.groups[rows] * k + (coupons & np.uint32(k - 1))
        rank = (coupons >> 26).astype(np.int64)
        order = np.argsort(register, kind="stable")
        register, rank, rows = register[order], rank[order], rows[order]
        starts = run_starts(register)
        number = group_numbers(starts, len(register))
        highest = np.maximum.accumulate(number << 8 | rank) & 0xFF
        before = np.append(0, highest[:-1])
        before[starts] = 0
        low, high = (_UNITS[part][highest] - _UNITS[part][before] for part in (0, 1))
        blank = -((before == 0) & (highest > 0)).astype(np.float64)
        return [np.bincount(rows, c, span.rows).astype(np.int64) for c in (low, high, blank)]

    def _shown(self, estimates: library.Estimates) -> Column:
        value = np.rint(estimates[:, 0])
        if not self.bounds:
            return array(value.astype(np.int64), pa.int64())
        low = np.minimum(np.floor(estimates[:, 1] + 1e-3), value)
        high = np.maximum(np.ceil(estimates[:, 2] - 0.5), value)
        parts = [array(c.astype(np.int64), pa.int64()) for c in (value, low, high)]
        return pa.StructArray.from_arrays(parts, fields=list(BOUNDED))


def _coupons(rows: Arguments) -> tuple[hll.Coupons, Any]:
    present = valid(rows.column)
    values = rows.column if present.all() else pc.drop_null(rows.column)
    return hll.coupons_of(hash_keys([values])), present


def _events(sketches: hll.HllSketches) -> tuple[Index, hll.Coupons]:
    """Every coupon of every sketch with its row; registers as the coupons that they may be of."""
    sparse = np.flatnonzero(~sketches.dense)
    rows = [np.repeat(sparse, sketches.sizes[sparse])]
    found = [sketches.coupons(sparse)]
    for row in np.flatnonzero(sketches.dense):
        registers = sketches.registers(int(row))
        used = np.flatnonzero(registers).astype(np.uint32)
        rows.append(np.full(len(used), row))
        found.append(registers[used].astype(np.uint32) << np.uint32(26) | used)
    joined = np.concatenate(rows)
    order = np.argsort(joined, kind="stable")
    return joined[order], np.concatenate(found)[order]


def _of_counts(lg_k: int, counts: Index) -> library.Estimates:
    """The estimates of sketches that hold so many coupons."""
    different, back = np.unique(counts, return_inverse=True)
    known = [_of_count(lg_k, int(count)) for count in different]
    return np.array(known).reshape(-1, 3)[back.reshape(-1)]


@cache
def _of_count(lg_k: int, count: int) -> tuple[float, ...]:
    return tuple(library.hll_estimates([hll.of_count(lg_k, count)])[0])
