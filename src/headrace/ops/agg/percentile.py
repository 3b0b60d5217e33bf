"""Exact percentiles: stored as every distinct value with the number of its rows.

The result lies between the two values next to its place, as in Spark's `percentile` and
DuckDB's `quantile_cont`: place p * (n - 1) of n sorted values, interpolated. It is a double. NaN is
the largest number, and nulls are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Column, Index, array, doubles, flat, floats, integers, take, valid
from headrace.hashing import plain_floats
from headrace.ops.agg.base import Arguments, Exploding
from headrace.ops.agg.groups import Finish, Grouping
from headrace.ops.agg.order import codes, sorted_by
from headrace.ops.agg.ordered import group_of, lists_of, owners
from headrace.ops.agg.plain import numeric
from headrace.ops.agg.span import RunningSpan

Doubles = npt.NDArray[np.float64]
_Lookup = Callable[[Index], Doubles]


class Percentile(Exploding):
    def __init__(self, share: float) -> None:
        self.share = share  # 0 is the least value, 0.5 the median, 1 the largest

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        numeric(kind)
        return pa.float64()

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {"v": pa.list_(kind), "n": pa.list_(pa.int64())}

    def partial(self, rows: Arguments, grouping: Grouping) -> Finish:
        ones = np.ones(rows.count, np.int64)
        return _gather(rows.column, ones, np.arange(rows.count), grouping)

    def single(self, rows: Arguments) -> list[Column]:
        present = valid(rows.column)
        values = _plain(rows.column.drop_null())
        return [lists_of(values, present), lists_of(_ones(len(values)), present)]

    def merge(self, label: str, columns: Sequence[Column], grouping: Grouping) -> Finish:
        values, counts = (flat(c).flatten() for c in columns)
        return _gather(values, integers(counts), owners(columns[0]), grouping)

    def running(self, columns: Sequence[Column], span: RunningSpan) -> tuple[Column, list[Column]]:
        """Looks the places of all rows up at once, instead of making a list for each."""
        values, counts = flat(columns[0]).flatten(), integers(flat(columns[1]).flatten())
        owner = owners(columns[0])
        sizes = integers(flat(columns[0]).value_lengths())
        ends = np.cumsum(sizes)
        first = (ends - sizes)[span.starts][span.groups]
        numbers, code = np.unique(codes(values).codes, return_inverse=True)
        at = np.zeros(len(numbers), np.int64)
        at[code] = np.arange(len(code))  # an element of each value
        before = np.append(0, np.cumsum(counts))
        total = before[ends] - before[first]

        def value_at(place: Index) -> Doubles:
            found = selected(code, counts, first[total > 0], ends[total > 0], place)
            return _doubles(values)[at[found]]

        final = _distinct(values, counts, span.groups[owner], len(span.starts))
        return self._interpolated(total, value_at), final

    def result(self, columns: Sequence[Column]) -> Column:
        values, counts = flat(columns[0]).flatten(), integers(flat(columns[1]).flatten())
        before = np.append(0, np.cumsum(counts))
        sizes = integers(flat(columns[0]).value_lengths())
        ends = np.cumsum(sizes)
        total = before[ends] - before[ends - sizes]
        first = before[ends - sizes][total > 0]

        def value_at(place: Index) -> Doubles:
            at: Index = np.searchsorted(before, first + place, side="right") - 1
            return _doubles(values)[at]

        return self._interpolated(total, value_at)

    def _interpolated(self, total: Index, value_at: _Lookup) -> pa.Array:
        """The value at the place of each group, of those that have one, that lies at `share`."""
        some = total > 0
        place = self.share * (total[some] - 1)
        low, high = np.floor(place), np.ceil(place)
        below, above = value_at(low.astype(np.int64)), value_at(high.astype(np.int64))
        between = (high - place) * below + (place - low) * above
        out = np.zeros(len(total))
        out[some] = np.where((low == high) | (below == above), below, between)
        return array(out, pa.float64(), some)


def _ones(count: int) -> pa.Array:
    return pa.array(np.ones(count, np.int64))


def _plain(values: Column) -> pa.Array:
    """Numbers of which equal ones are the same: -0.0 is 0.0."""
    values = flat(values)
    return plain_floats(values) if pa.types.is_floating(values.type) else values


def _doubles(values: pa.Array) -> Doubles:
    return floats(doubles(values))


def _gather(values: Column, counts: Index, owner: Index, grouping: Grouping) -> Finish:
    ticket = grouping.ask_rows()

    def finish() -> list[Column]:
        group = group_of(*grouping.rows_of(ticket))[owner]
        return _distinct(values, counts, group, grouping.count)

    return finish


def _distinct(values: Column, counts: Index, group: Index, groups: int) -> list[Column]:
    """The distinct values of each group in order, and the number of each."""
    present, values = valid(values), _plain(values.drop_null())
    counts, group = counts[present], group[present]
    keys = [group, codes(values).codes]
    order = sorted_by(keys)
    group, code = (key[order] for key in keys)
    new = np.append(True, (np.diff(group) != 0) | (np.diff(code) != 0))[: len(order)]
    starts = np.flatnonzero(new)
    summed = np.add.reduceat(counts[order], starts) if len(starts) else counts
    sizes = np.bincount(group[starts], minlength=groups)
    (kept,) = take([values], order[starts])
    return [lists_of(flat(kept), sizes), lists_of(array(summed, pa.int64()), sizes)]


def selected(code: Index, weight: Index, low: Index, high: Index, place: Index) -> Index:
    """Of the elements low to high of each query, sorted, the code at its place.

    An element counts `weight` times. All queries at once, bit by bit from the highest: elements
    are divided by the bit, in order, and each query goes on in the half that holds its place (a
    wavelet matrix).
    """
    found = np.zeros(len(place), np.int64)
    for bit in reversed(range(int(code.max(initial=0)).bit_length())):
        one = (code >> bit & 1).astype(np.bool_)
        zeros = np.append(0, np.cumsum(~one))
        light = np.append(0, np.cumsum(np.where(one, 0, weight)))
        inside = light[high] - light[low]
        right = place >= inside
        found |= right.astype(np.int64) << bit
        place = np.where(right, place - inside, place)
        low, high = (np.where(right, zeros[-1] + e - zeros[e], zeros[e]) for e in (low, high))
        order = np.concatenate([np.flatnonzero(~one), np.flatnonzero(one)])
        code, weight = code[order], weight[order]
    return found
