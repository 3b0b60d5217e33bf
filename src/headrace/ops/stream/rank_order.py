"""Which of two rows is better: by a column, then by whatever decides between equals.

A row without a value (null or NaN) is worse than every other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, flat, integers
from headrace.ops.agg.order import codes, sorted_by
from headrace.ops.tables import TIES

RANK, CHANGE = pa.field("rank", pa.int32()), pa.field("change", pa.string())


def best_first(groups: Sequence[Index], by: Column, largest: bool, ties: Sequence[Index]) -> Index:
    """The rows by group and, in one, the best first."""
    values = flat(by)
    missing = values.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(values.type):
        missing = missing | pc.is_nan(values).fill_null(True).to_numpy(zero_copy_only=False)
    worth = codes(values).codes
    worth = np.where(missing, 0, ~worth if largest else worth)  # ~ turns the order round
    return sorted_by([*groups, missing.astype(np.int64), worth, *ties])


def order_of(columns: Sequence[Column]) -> list[Index]:
    """Columns as numbers that sort as they do; a null is after all others."""
    keys = []
    for column in columns:
        values = flat(column)
        missing = values.is_null().to_numpy(zero_copy_only=False)
        keys += [missing.astype(np.int64), np.where(missing, 0, codes(values).codes)]
    return keys


class RankOrder:
    """The order of stored rows: by a column, then earlier ones, then by what they are about."""

    def __init__(self, by: str, largest: bool, thing: Sequence[str]) -> None:
        self._by, self._largest, self._thing = by, largest, list(thing)
        self.columns = list(dict.fromkeys([by, *TIES, *thing]))

    def sort(self, groups: Sequence[Index], rows: pa.Table) -> Index:
        """The rows by group and, in one, the best first; no two are equal."""
        ties = [integers(rows.column(n)) for n in TIES]
        ties += order_of([rows.column(n) for n in self._thing])
        return best_first(groups, rows.column(self._by), self._largest, ties)
