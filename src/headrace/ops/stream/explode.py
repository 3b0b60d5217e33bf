"""One row for each element of an array: a step without state, over whole columns.

Invariant: rows keep their order, and elements theirs; every other column, hidden ones too, is
that of the row which the element came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

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
