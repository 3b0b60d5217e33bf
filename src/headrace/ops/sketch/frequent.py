"""approx_top_k: the values that come most often, by counters that are merged (Misra and Gries).

A group has at most so many counters. When there are more, the largest count that has no place any
more is subtracted from all, and added to `over`: what a count may be short by. So the number of
rows of a value lies between its count and its count + over, always, and over is at most the error
times the rows. Values are stored in a column of their own type; nulls are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, array, flat, integers
from headrace.hashing import plain_floats
from headrace.ops.agg.base import Arguments, UnsuitableType
from headrace.ops.agg.order import codes, is_sortable, run_starts
from headrace.ops.agg.ordered import lists_of
from headrace.ops.agg.span import stretches
from headrace.ops.sketch.base import Sketch
from headrace.ops.sketch.sizes import in_words

DEFAULT_COUNTERS = 1_000
COUNTER_BYTES = 16  # of a value of 8 bytes, and its count


@dataclass(frozen=True)
class Counters:
    """The counters of all rows: values by their order, counts, and where each row's begin."""

    values: pa.Array  # every different value, in order
    code: Index  # of each counter, its value
    counts: Index
    starts: Index
    sizes: Index
    over: Index


@dataclass(frozen=True)
class Frequent(Sketch[Counters]):
    k: int = 10
    counters: int = DEFAULT_COUNTERS
    bounds: bool = False

    def words(self) -> list[str]:
        return [str(self.k), f"counters={self.counters}", *(["bounds=True"] * self.bounds)]

    def numbers(self) -> list[int | float] | None:
        default = self.counters == max(DEFAULT_COUNTERS, self.k)
        return None if self.bounds or not default else [self.k]

    def memory(self) -> int:
        return COUNTER_BYTES * self.counters + 8

    def room(self) -> str:
        return f"{in_words(self.memory())} per key at most, of values of 8 bytes"

    def at_rest(self) -> dict[str, Any]:
        return {"format": 1, "counters": self.counters}

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        if not is_sortable(kind):
            raise UnsuitableType("a number, text, a time or a boolean")
        bounds = [("low", pa.int64()), ("high", pa.int64())] if self.bounds else []
        return pa.list_(pa.struct([("value", kind), ("count", pa.int64()), *bounds]))

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {"v": pa.list_(kind), "n": pa.list_(pa.int64()), "over": pa.int64()}

    def made(self, rows: Arguments, group: Index, groups: int) -> list[Column]:
        present = np.asarray(rows.column.is_valid())
        values, code = _numbered(flat(pc.drop_null(rows.column)))
        ones, none = np.ones(len(code), np.int64), np.zeros(groups, np.int64)
        return self._fewest(values, code, ones, group[present], none)

    def single(self, rows: Arguments) -> list[Column]:
        return self.made(rows, np.arange(rows.count), rows.count)

    def decoded(self, columns: Sequence[Column]) -> Counters:
        values, code = _numbered(flat(columns[0]).flatten())
        sizes = integers(pc.list_value_length(flat(columns[0])))
        counts, over = integers(flat(columns[1]).flatten()), integers(columns[2])
        return Counters(values, code, counts, np.cumsum(sizes) - sizes, sizes, over)

    def union(self, sketches: Counters, rows: Index, group: Index, groups: int) -> list[Column]:
        sizes = sketches.sizes[rows]
        chosen = stretches(sketches.starts[rows], sizes)
        over = np.zeros(groups, np.int64)
        np.add.at(over, group, sketches.over[rows])
        code, counts = sketches.code[chosen], sketches.counts[chosen]
        return self._fewest(sketches.values, code, counts, np.repeat(group, sizes), over)

    def _fewest(
        self, values: pa.Array, code: Index, counts: Index, group: Index, over: Index
    ) -> list[Column]:
        """Counts of equal values added up, and made no more than there are counters."""
        order = np.lexsort((code, group))
        group, code, counts = group[order], code[order], counts[order]
        first = np.flatnonzero(np.append(True, (np.diff(group) != 0) | (np.diff(code) != 0)))
        first = first[: len(order)]
        group, code = group[first], code[first]
        counts = np.add.reduceat(counts, first) if len(first) else counts
        by_count = np.lexsort((-counts, group))
        starts = run_starts(group)
        full = np.diff(starts, append=len(group)) > self.counters
        excess = np.zeros(len(over), np.int64)
        excess[group[starts[full]]] = counts[by_count[starts[full] + self.counters]]
        counts = counts - excess[group]
        keep = counts > 0
        sizes = np.bincount(group[keep], minlength=len(over))
        found = values.take(pa.array(code[keep]))
        return [
            lists_of(found, sizes), lists_of(array(counts[keep], pa.int64()), sizes),
            array(over + excess, pa.int64()),
        ]  # fmt: skip

    def result(self, columns: Sequence[Column]) -> Column:
        held = self.decoded(columns)
        owner = np.repeat(np.arange(len(held.sizes)), held.sizes)
        order = np.lexsort((held.code, -held.counts, owner))
        place = np.arange(len(order)) - held.starts[owner]
        best = order[place < self.k]
        sizes = np.minimum(held.sizes, self.k)
        low = held.counts[best]
        high = low + held.over[owner[best]]
        found = {"value": held.values.take(pa.array(held.code[best])), "count": pa.array(high)}
        if self.bounds:
            found |= {"low": pa.array(low), "high": pa.array(high)}
        return lists_of(pa.StructArray.from_arrays(list(found.values()), list(found)), sizes)


def _numbered(values: pa.Array) -> tuple[pa.Array, Index]:
    """The different values in order, and the place of each value among them."""
    if pa.types.is_floating(values.type):
        values = plain_floats(values)
    _, first, code = np.unique(codes(values).codes, return_index=True, return_inverse=True)
    return values.take(pa.array(first)), code.reshape(-1)
