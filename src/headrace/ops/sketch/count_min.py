"""count_min: about how many rows have each of some values, whatever other values there are.

A value has a cell in each of a few tables, by its hash, and every row adds one to the cells of its
value. The smallest of a value's cells is its count: never too low, and too high by the rows that
share all of them. State holds the cells that are not zero; sums of cells are exact, so it does not
depend on how rows are cut. Nulls are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, e
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, array, flat, integers, valid
from headrace.hashing import Hashes, hash_keys
from headrace.ops.agg.base import Arguments, UnsuitableType
from headrace.ops.agg.order import is_sortable
from headrace.ops.agg.ordered import lists_of
from headrace.ops.agg.span import RunningSpan, stretches
from headrace.ops.sketch.base import Sketch
from headrace.ops.sketch.hll import BOUNDED

DEFAULT_ERROR, MOST_BUCKETS = 0.001, 1_000_000
_CELL_BYTES = 12  # its number and its count
_TABLES = 3  # of 20 values, one is too high by more than the error, at most: e**-3


@dataclass(frozen=True)
class CellCounts:
    """The cells of all rows that are not zero, their counts, and where each row's begin."""

    cells: Index
    counts: Index
    starts: Index
    sizes: Index


@dataclass(frozen=True)
class CountMin(Sketch[CellCounts]):
    values: tuple[Any, ...] = ()
    error: float | None = None
    size: int | None = None
    bounds: bool = False

    hashes = True

    @property
    def buckets(self) -> int:
        """The cells of one table."""
        if self.size is not None:
            return min(self.size // (_CELL_BYTES * _TABLES), MOST_BUCKETS)
        error = DEFAULT_ERROR if self.error is None else self.error
        return ceil(min(e / error, 2 * MOST_BUCKETS))

    def words(self) -> list[str]:
        said = {"error": self.error, "size": self.size, "bounds": self.bounds or None}
        options = [f"{name}={value}" for name, value in said.items() if value is not None]
        return [str(list(self.values)), *options]

    def numbers(self) -> list[int | float] | None:
        return None

    def memory(self) -> int:
        return _CELL_BYTES * _TABLES * self.buckets

    def at_rest(self) -> dict[str, Any]:
        return {"format": 1, "tables": _TABLES, "buckets": self.buckets}

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        if not is_sortable(kind):
            raise UnsuitableType("a number, text, a time or a boolean")
        try:
            asked = pa.array(list(self.values), kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise UnsuitableType(f"values of its own type, not {list(self.values)}") from None
        if not np.array_equal(hash_keys([asked]), self._asked):
            raise UnsuitableType(f"values written as the column has them, not {list(self.values)}")
        return pa.list_(BOUNDED if self.bounds else pa.int64())

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {"c": pa.list_(pa.int32()), "n": pa.list_(pa.int64())}

    @property
    def _asked(self) -> Hashes:
        return hash_keys([pa.array(list(self.values))])

    def _cells(self, hashes: Hashes) -> Index:
        """The cells of each value, a row each."""
        tables = []
        for table in range(_TABLES):
            parts = [pa.array(hashes), pa.array(np.full(len(hashes), table))]
            tables.append(
                hash_keys(parts) % np.uint64(self.buckets) + np.uint64(table * self.buckets)
            )
        return np.stack(tables, axis=1).astype(np.int64)

    def made(self, rows: Arguments, group: Index, groups: int) -> list[Column]:
        present = valid(rows.column)
        cells = self._cells(hash_keys([pc.drop_null(rows.column)]))
        owner = np.repeat(group[present], _TABLES)
        return self._summed(cells.reshape(-1), np.ones(cells.size, np.int64), owner, groups)

    def single(self, rows: Arguments) -> list[Column]:
        return self.made(rows, np.arange(rows.count), rows.count)

    def decoded(self, columns: Sequence[Column]) -> CellCounts:
        sizes = integers(pc.list_value_length(flat(columns[0])))
        cells, counts = (integers(flat(c).flatten()) for c in columns)
        return CellCounts(cells, counts, np.cumsum(sizes) - sizes, sizes)

    def union(self, sketches: CellCounts, rows: Index, group: Index, groups: int) -> list[Column]:
        sizes = sketches.sizes[rows]
        chosen = stretches(sketches.starts[rows], sizes)
        owner = np.repeat(group, sizes)
        return self._summed(sketches.cells[chosen], sketches.counts[chosen], owner, groups)

    def _summed(self, cells: Index, counts: Index, group: Index, groups: int) -> list[Column]:
        """The cells of each group in order, those that are the same added up."""
        pair = group * (_TABLES * self.buckets) + cells
        order = np.argsort(pair, kind="stable")
        pair = pair[order]
        first = np.flatnonzero(np.diff(pair, prepend=-1))
        total = np.add.reduceat(counts[order], first) if len(first) else counts
        group, cells = np.divmod(pair[first], _TABLES * self.buckets)
        sizes = np.bincount(group, minlength=groups)
        return [
            lists_of(array(cells, pa.int32()), sizes),
            lists_of(array(total, pa.int64()), sizes),
        ]

    def result(self, columns: Sequence[Column]) -> Column:
        held, rows = self.decoded(columns), np.arange(len(columns[0]))
        owner = np.repeat(rows, held.sizes)
        total = self._rows(held, owner, len(rows)) if self.bounds else rows
        return self._least(self._found(held, owner, len(rows)), total)

    def running(self, columns: Sequence[Column], span: RunningSpan) -> tuple[Column, list[Column]]:
        """Only the cells of what is asked for are followed from row to row."""
        held = self.decoded(columns)
        owner = np.repeat(np.arange(span.rows), held.sizes)
        found = self._found(held, owner, span.rows)
        sums = np.stack([span.differences(column) for column in found.T], axis=1)
        total = span.groups
        if self.bounds:
            total = span.differences(self._rows(held, owner, span.rows))
        return self._least(sums, total), self._banded(held, np.arange(span.rows), span.groups)

    def _rows(self, held: CellCounts, owner: Index, rows: int) -> Index:
        """How many rows of input each sketch is of: all that its first table counts."""
        first = held.cells < self.buckets
        out = np.zeros(rows, np.int64)
        np.add.at(out, owner[first], held.counts[first])
        return out

    def _found(self, held: CellCounts, owner: Index, rows: int) -> Index:
        """What each row has in the cells that are asked for."""
        asked, place = np.unique(self._cells(self._asked).reshape(-1), return_inverse=True)
        at = np.searchsorted(asked, held.cells)
        hit = asked[np.minimum(at, len(asked) - 1)] == held.cells
        out = np.zeros((rows, len(asked)), np.int64)
        out[owner[hit], at[hit]] = held.counts[hit]
        return out[:, place.reshape(-1)]

    def _least(self, cells: Index, total: Index) -> pa.Array:
        """The counts of the values asked for; `total` rows are needed for bounds only."""
        counts = cells.reshape(len(cells), len(self.values), _TABLES).min(axis=2)
        sizes = np.full(len(counts), len(self.values))
        value = array(counts.reshape(-1), pa.int64())
        if not self.bounds:
            return lists_of(value, sizes)
        off = np.floor(e / self.buckets * total).astype(np.int64)[:, None]
        low = array(np.maximum(counts - off, 0).reshape(-1), pa.int64())
        bounded = pa.StructArray.from_arrays([value, low, value], fields=list(BOUNDED))
        return lists_of(bounded, sizes)
