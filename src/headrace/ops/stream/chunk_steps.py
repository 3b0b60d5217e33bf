"""Steps over a chunk without state: `explode`, and a sample by fraction.

Rows stay in order; every column that a step does not compute, hidden ones too, is that of the
row it came from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.arrays import Index, integers
from headrace.chunk import HASH, OFFSET, SOURCE, TIME, visible
from headrace.hashing import Hashes, hash_keys, seed_of
from headrace.ops.agg.order import repeats
from headrace.ops.contract import ChunkSpec


@dataclass(frozen=True)
class Explode(ChunkSpec):
    """The elements of `column` as `into`; with `outer` a row without elements stays, as null."""

    column: str
    into: str
    outer: bool

    kind = "explode"
    several = True  # a row becomes any number of rows

    def __str__(self) -> str:
        also = ", and rows without any" if self.outer else ""
        return f"a row for each element of {self.column}{also}"

    @property
    def reads(self) -> str | None:
        return self.column

    def run(self, chunk: pa.Table, schema: pa.Schema) -> tuple[pa.Table, list[tuple[int, Any]]]:
        """A row for each element; none fails."""
        lists = _plain(chunk.column(self.column))
        counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        values = pc.list_flatten(lists)
        if self.outer:
            values = values.take(_places(counts))
            counts = np.maximum(counts, 1)
        rows = chunk.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
        at = chunk.column_names.index(self.column)
        return rows.set_column(at, schema.field(self.into), values), []


def _plain(column: pa.ChunkedArray) -> pa.Array:
    lists = column.combine_chunks()
    if pt.is_fixed_size_list(lists.type):
        return lists.cast(pa.list_(lists.type.value_type))
    return lists


def _places(counts: np.ndarray) -> pa.Array:
    """The position of each row's elements among all; null for a row that has none."""
    empty = np.repeat(counts == 0, np.maximum(counts, 1))
    return pa.array(np.cumsum(~empty) - 1, mask=empty)


def is_array(t: pa.DataType) -> bool:
    return bool(pt.is_list(t) or pt.is_large_list(t) or pt.is_fixed_size_list(t))


# A hash of where each row came from: samples go by it, so that a replay takes the same rows.
#
# Rows from one record have one place, and are numbered in it. The place of a computed row is its
# key and time; a row that has lost these is known by its values.


def place_hashes(rows: pa.Table, seed: int, step: str, keyed: bool = False) -> Hashes:
    """One hash per row, evenly spread; another seed, "job/step" or key gives other ones."""
    columns = [pa.array(np.full(rows.num_rows, seed_of(seed, step)))]
    if OFFSET in rows.column_names:
        sources = _sources(rows)
        times = integers(rows.column(TIME)) if TIME in rows.column_names else sources
        place = [sources, integers(rows.column(OFFSET)), np.where(sources < 0, times, 0)]
        place += [integers(rows.column(HASH))] if keyed else []
        columns += [pa.array(part) for part in (*place, repeats(place))]
    else:
        columns += [c for c in visible(rows).columns if not pt.is_nested(c.type)]
    return hash_keys(columns, rows.num_rows)


def _sources(rows: pa.Table) -> Index:
    if SOURCE not in rows.column_names:
        return np.full(rows.num_rows, -1, np.int64)
    return integers(rows.column(SOURCE))


# A share of the rows, chosen by where each came from: without state, and the same in a replay.


_ALL = 2**64


@dataclass(frozen=True)
class Share(ChunkSpec):
    """About `fraction` of the rows."""

    fraction: float
    seed: int
    step: str = ""

    kind = "sample"

    def __str__(self) -> str:
        return f"{self.fraction:.6g} of the rows"

    @property
    def chosen_by(self) -> str:
        return f" by seed {self.seed}" if self.seed else ""

    def for_step(self, name: str) -> Share:
        return replace(self, step=name)

    def run(self, chunk: pa.Table, schema: pa.Schema) -> tuple[pa.Table, list[tuple[int, Any]]]:
        """The rows of a chunk that are sampled; none fails."""
        limit = round(self.fraction * _ALL)
        if limit >= _ALL:
            return chunk, []
        sampled = place_hashes(chunk, self.seed, self.step) < np.uint64(limit)
        return chunk.filter(pa.array(sampled)), []
