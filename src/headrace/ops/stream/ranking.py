"""The best rows of each group: by a column, then by whatever decides between equals.

A row without a value (null or NaN) is worse than every other. Order only: no state here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.ops.agg.groups import Column, Index, flat
from headrace.ops.agg.order import codes, sorted_by


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
    found = []
    for column in columns:
        values = flat(column)
        missing = values.is_null().to_numpy(zero_copy_only=False)
        found += [missing.astype(np.int64), np.where(missing, 0, codes(values).codes)]
    return found
