"""approx_quantile, approx_quantiles and histograms of equal depth, by KLL sketches.

The result is a value of the stream whose rank is within the error of the share asked for. State is
a sketch in the library's portable format, and beside it the number of NaNs, which are the largest
values; nulls are passed over. Values are doubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Column, Index, array, doubles, flat, floats, integers, valid
from headrace.ops.agg.base import Arguments
from headrace.ops.agg.order import by_number, codes
from headrace.ops.agg.percentile import selected
from headrace.ops.agg.plain import numeric
from headrace.ops.agg.span import ADD, RunningSpan, Ufunc
from headrace.ops.sketch import levels as kll
from headrace.ops.sketch import library
from headrace.ops.sketch.base import Sketch
from headrace.ops.sketch.histogram import BOUNDED_BUCKET, BUCKET
from headrace.ops.sketch.sizes import in_words, out_of_reach

Doubles = npt.NDArray[np.float64]

DEFAULT_ERROR = 0.01
_SMALLEST, _LARGEST = 8, 65_535  # k that the library takes
_EXACT = 1 - 2.0**-51  # 0.07 of 100 values are 7, though the product of doubles is a bit more
_BOUNDED = pa.struct([("value", pa.float64()), ("low", pa.float64()), ("high", pa.float64())])


@cache
def k_of(what: str, error: float | None, size: int | None) -> int:
    """The size of the sketch, for an error of ranks or a size in bytes."""
    if size is not None:
        low, high = _SMALLEST, _LARGEST
        if kll.most_bytes(low) > size:
            least = in_words(kll.most_bytes(low))
            raise out_of_reach(what, in_words(size), f"It needs {least} at least.")
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if kll.most_bytes(middle) <= size else (low, middle - 1)
        return low
    wanted, low, high = DEFAULT_ERROR if error is None else error, _SMALLEST, _LARGEST
    if library.kll_error(high) > wanted:
        least = f"The least is {library.kll_error(high):.2g}; hr.percentile is exact."
        raise out_of_reach(what, f"an error of {wanted:g}", least)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if library.kll_error(middle) <= wanted else (middle + 1, high)
    return low


@dataclass(frozen=True)
class Quantiles(Sketch[kll.KllSketches]):
    """The values at `shares`: one, a list of them, or the buckets between them."""

    shares: tuple[float, ...] = (0.5,)
    shape: str = "one"  # or "list", or "buckets"
    error: float | None = None
    size: int | None = None
    bounds: bool = False

    @property
    def k(self) -> int:
        return k_of("an approximate quantile", self.error, self.size)

    def words(self) -> list[str]:
        said = {"error": self.error, "size": self.size, "bounds": self.bounds or None}
        shares = {
            "one": f"{self.shares[0]:g}", "list": f"[{', '.join(f'{s:g}' for s in self.shares)}]",
            "buckets": str(len(self.shares) - 1),
        }[self.shape]  # fmt: skip
        return [shares, *(f"{name}={value}" for name, value in said.items() if value is not None)]

    def numbers(self) -> list[int | float] | None:
        if self.bounds or self.size is not None or self.shape == "list":
            return None
        asked = self.shares[0] if self.shape == "one" else len(self.shares) - 1
        return [asked, *([] if self.error is None else [self.error])]

    def memory(self) -> int:
        return kll.most_bytes(self.k)

    def at_rest(self) -> dict[str, Any]:
        return {"format": 1, "k": self.k}

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        numeric(kind)
        if self.shape == "buckets":
            return pa.list_(BOUNDED_BUCKET if self.bounds else BUCKET)
        one = _BOUNDED if self.bounds else pa.float64()
        return one if self.shape == "one" else pa.list_(one)

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {"kll": pa.binary(), "nan": pa.int64()}

    def made(self, rows: Arguments, group: Index, groups: int) -> list[Column]:
        values, present = _values(rows)
        number = present & ~np.isnan(values)
        nan = np.bincount(group[present & ~number], minlength=groups)
        owner = group if number.all() else group[number]
        order = by_number(owner) if len(owner) else owner
        owner, values = owner[order], (values if number.all() else values[number])[order]
        low, high = _edges(values, values, owner, groups)
        return [
            self._encoded(values, np.zeros_like(owner), owner, low, high),
            array(nan, pa.int64()),
        ]

    def _encoded(
        self, values: Doubles, level: Index, owner: Index, low: Doubles, high: Doubles,
        counts: Index | None = None,
    ) -> pa.Array:  # fmt: skip
        groups = len(low)
        known = np.bincount(owner, minlength=groups) if counts is None else counts
        items = kll.of_items(self.k, values, level, owner, groups, known)
        items.compress()
        return kll.encoded(items, low, high)

    def single(self, rows: Arguments) -> list[Column]:
        return self.made(rows, np.arange(rows.count), rows.count)

    def decoded(self, columns: Sequence[Column]) -> _KllAndNan:
        nan = integers(columns[1])
        parts = kll.decoded(self.k, columns[0])
        return _KllAndNan(parts.k, parts.data, parts.starts, parts.lengths, nan)

    def union(
        self, sketches: kll.KllSketches, rows: Index, group: Index, groups: int
    ) -> list[Column]:
        assert isinstance(sketches, _KllAndNan)
        values, level, place = sketches.items(rows)
        low, high = (edge[rows] for edge in sketches.edges())
        known = ~np.isnan(low)
        low, high = _edges(low[known], high[known], group[known], groups)
        counts = np.zeros(groups, np.int64)
        np.add.at(counts, group, sketches.counts[rows])
        nan = np.zeros(groups, np.int64)
        np.add.at(nan, group, sketches.nan[rows])
        made = self._encoded(values, level, group[place], low, high, counts)
        return [made, array(nan, pa.int64())]

    def result(self, columns: Sequence[Column]) -> Column:
        sketches = self.decoded(columns)

        def value_at(row: Index, place: Index) -> Doubles:
            chosen = flat(columns[0]).take(pa.array(row)).to_pylist()
            return library.kll_values(chosen, (place + 0.5) / sketches.counts[row])

        low, high = sketches.edges()
        return self._shown(sketches.counts, sketches.nan, low, high, value_at)

    def running(self, columns: Sequence[Column], span: RunningSpan) -> tuple[Column, list[Column]]:
        """The rows of an epoch count one by one, beside the sketch that a group begins with."""
        sketches = self.decoded(columns)
        rows = np.arange(span.rows)
        values, level, owner = sketches.items(rows)
        ends = np.searchsorted(owner, rows, side="right")
        begins = np.searchsorted(owner, span.starts)[span.groups]
        numbers, code = np.unique(codes(pa.array(values)).codes, return_inverse=True)
        at = np.zeros(len(numbers), np.int64)
        at[code] = np.arange(len(code))

        def value_at(row: Index, place: Index) -> Doubles:
            found = selected(code, 1 << level, begins[row], ends[row], place)
            return np.asarray(values[at[found]])

        counts, nan = (span.reduce(ADD, [c])[0] for c in (sketches.counts, sketches.nan))
        low, high = sketches.edges()
        low = span.reduce(Ufunc(np.fmin, np.inf), [low])[0]
        high = span.reduce(Ufunc(np.fmax, -np.inf), [high])[0]
        final = self._banded(sketches, rows, span.groups)
        return self._shown(counts, nan, low, high, value_at), final

    def _shown(
        self, counts: Index, nan: Index, low: Doubles, high: Doubles, value_at: Any
    ) -> pa.Array:
        """`value_at(rows, places)` looks places up among the numbers of rows that have some."""
        total = counts + nan

        def at(share: float) -> pa.Array:
            place = np.clip(np.ceil(share * _EXACT * total).astype(np.int64) - 1, 0, None)
            out = np.where(place >= counts, np.nan, high if share >= 1 else low)
            if 0 < share < 1:
                rows = np.flatnonzero(place < counts)
                out[rows] = value_at(rows, place[rows]) if len(rows) else 0.0
            return array(out, pa.float64(), total > 0)

        if self.shape == "buckets":
            return self._buckets([at(share) for share in self.shares], total)
        parts = [at(share) for share in self.shares]
        if self.bounds:
            error = library.kll_error(self.k)
            lows = [at(max(share - error, 0.0)) for share in self.shares]
            highs = [at(min(share + error, 1.0)) for share in self.shares]
            mask = pa.array(total == 0)
            parts = [
                pa.StructArray.from_arrays(list(three), fields=list(_BOUNDED), mask=mask)
                for three in zip(parts, lows, highs, strict=True)
            ]
        return parts[0] if self.shape == "one" else _lists(parts, total > 0)

    def _buckets(self, edges: list[pa.Array], total: Index) -> pa.Array:
        """With bounds: `least` values are within the closed interval, `most` within the open one,
        so that both hold however many values are equal to an edge."""
        ends = [np.rint(share * total).astype(np.int64) for share in self.shares]
        columns: list[tuple[Index, ...]] = [(b - a,) for a, b in pairwise(ends)]
        kind = BUCKET
        if self.bounds:
            off = np.ceil(2 * library.kll_error(self.k) * total).astype(np.int64)
            kind = BOUNDED_BUCKET
            columns = [(n, np.maximum(n - off, 0), np.minimum(n + off, total)) for (n,) in columns]
        parts = [
            pa.StructArray.from_arrays(
                [low, high, *(array(n, pa.int64()) for n in numbers)], fields=list(kind)
            )
            for low, high, numbers in zip(edges, edges[1:], columns, strict=False)
        ]
        return _lists(parts, total > 0)


@dataclass(frozen=True)
class _KllAndNan(kll.KllSketches):
    nan: Index


def _lists(parts: Sequence[pa.Array], present: npt.NDArray[np.bool_]) -> pa.Array:
    """The parts of each row as a list; null where there are none."""
    rows, width = len(present), len(parts)
    chosen = np.flatnonzero(present)
    index = (np.arange(width)[None, :] * rows + chosen[:, None]).reshape(-1)
    ends = np.append(0, np.cumsum(np.where(present, width, 0)))
    offsets = array(ends, pa.int32(), np.append(present, True))
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(parts).take(pa.array(index)))


def _values(rows: Arguments) -> tuple[Doubles, npt.NDArray[np.bool_]]:
    return floats(doubles(rows.column)) + 0.0, valid(rows.column)  # -0.0 is 0.0


def _edges(low: Doubles, high: Doubles, owner: Index, groups: int) -> tuple[Doubles, Doubles]:
    """The least and the largest of each group; NaN where it has none."""
    least, most = np.full(groups, np.nan), np.full(groups, np.nan)
    np.fmin.at(least, owner, low)
    np.fmax.at(most, owner, high)
    return least, most
