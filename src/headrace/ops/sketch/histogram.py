"""Histograms of equal width: how many values fall into each of some intervals; exact.

State is a list of counts: of values below the first interval, of those in each, and of those from
the last interval's end on, NaN included. Nulls are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Column, Index, array, doubles, flat, floats, valid
from headrace.ops.agg.base import Arguments
from headrace.ops.agg.order import run_starts
from headrace.ops.agg.plain import numeric
from headrace.ops.agg.span import RunningSpan
from headrace.ops.sketch.base import Sketch

_EXACT = 2**53  # whole numbers below it are doubles
BUCKET = pa.struct([("low", pa.float64()), ("high", pa.float64()), ("count", pa.int64())])
BOUNDED_BUCKET = pa.struct([*BUCKET, ("least", pa.int64()), ("most", pa.int64())])


@dataclass(frozen=True)
class CountRows:
    """The counts of each row."""

    matrix: Index

    @property
    def sizes(self) -> Index:
        return np.full(len(self.matrix), self.matrix.shape[1])


@dataclass(frozen=True)
class EqualWidth(Sketch[CountRows]):
    low: float
    high: float
    bins: int
    bounds: bool = False

    @property
    def edges(self) -> npt.NDArray[np.float64]:
        return np.linspace(self.low, self.high, self.bins + 1)

    def words(self) -> list[str]:
        of = [f"low={self.low:g}", f"high={self.high:g}"]
        return [str(self.bins), *of, *(["bounds=True"] if self.bounds else [])]

    def numbers(self) -> list[int | float] | None:
        return None if self.bounds else [self.bins, self.low, self.high]

    def memory(self) -> int:
        return 8 * (self.bins + 2)

    def at_rest(self) -> dict[str, Any]:
        return {"format": 1, "low": self.low, "high": self.high, "bins": self.bins}

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        numeric(kind)
        return pa.list_(BOUNDED_BUCKET if self.bounds else BUCKET)

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {"n": pa.list_(pa.int64())}

    def made(self, rows: Arguments, group: Index, groups: int) -> list[Column]:
        width, present = self.bins + 2, valid(rows.column)
        values = floats(doubles(rows.column))[present]
        bucket = np.searchsorted(self.edges, values, side="right")
        bucket -= self._below(rows.column.filter(pa.array(present)), values, bucket)
        counts = np.bincount(group[present] * width + bucket, minlength=groups * width)
        return [self._lists(counts)]

    def _below(self, column: Column, values: npt.NDArray[np.float64], bucket: Index) -> Index:
        """1 where a value is less than the double next to it, with which an interval begins."""
        below = np.zeros(len(values), np.int64)
        if pa.types.is_floating(column.type):
            return below
        begins = self.edges[np.maximum(bucket, 1) - 1]
        at = np.flatnonzero((bucket > 0) & (values == begins))
        if pa.types.is_integer(column.type):
            at = at[np.abs(values[at]) >= _EXACT]
        exact = {}  # Python compares numbers of all kinds as they are
        for row, value in zip(at.tolist(), column.take(pa.array(at)).to_pylist(), strict=True):
            if value not in exact:
                exact[value] = value < begins[row].item()
            below[row] = exact[value]
        return below

    def single(self, rows: Arguments) -> list[Column]:
        return self.made(rows, np.arange(rows.count), rows.count)

    def decoded(self, columns: Sequence[Column]) -> CountRows:
        lists = flat(columns[0])
        matrix = np.zeros((len(lists), self.bins + 2), np.int64)
        matrix[valid(lists)] = lists.flatten().to_numpy().reshape(-1, self.bins + 2)
        return CountRows(matrix)

    def union(self, sketches: CountRows, rows: Index, group: Index, groups: int) -> list[Column]:
        return [self._lists(np.add.reduceat(sketches.matrix[rows], run_starts(group), axis=0))]

    def running(self, columns: Sequence[Column], span: RunningSpan) -> tuple[Column, list[Column]]:
        parts = self.decoded(columns).matrix.T
        sums = self._lists(np.stack([span.differences(part) for part in parts], axis=1))
        return self.result([sums]), [sums.take(pa.array(span.last))]

    def _lists(self, counts: Index) -> pa.Array:
        width = self.bins + 2
        ends = np.arange(counts.size // width + 1) * width
        return pa.ListArray.from_arrays(array(ends, pa.int32()), pa.array(counts.reshape(-1)))

    def result(self, columns: Sequence[Column]) -> Column:
        matrix = self.decoded(columns).matrix
        edges = [None, *self.edges.tolist(), None]
        lows, highs = (pa.array(e * len(matrix), pa.float64()) for e in (edges[:-1], edges[1:]))
        counts = pa.array(matrix.reshape(-1))
        fields = BOUNDED_BUCKET if self.bounds else BUCKET  # both bounds are the count
        columns = [lows, highs, *[counts] * (len(fields) - 2)]
        buckets = pa.StructArray.from_arrays(columns, fields=list(fields))
        ends = array(np.arange(len(matrix) + 1) * (self.bins + 2), pa.int32())
        return pa.ListArray.from_arrays(ends, buckets)
