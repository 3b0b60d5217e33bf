"""Partials that arrive and partials that are held: brought together, each in its place."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.ops.agg.groups import flat
from headrace.ops.agg.named import Aggregate, merge, part_names

_NUMBER = "__number"


def with_held(
    fresh: pa.Table, held: pa.Table, found: npt.NDArray[np.bool_], aggs: Mapping[str, Aggregate]
) -> pa.Table:
    """`fresh`, with the partials of `aggs` merged with those in the same row of `held`.

    Rows where nothing was `found` stay as they are, and every row stays where it is.
    """
    names = [part for name, agg in aggs.items() for part in part_names(name, agg)]
    if not names or not found.any():
        return fresh
    at = pa.array(np.flatnonzero(found))
    both = pa.concat_tables([held.select(names).take(at), fresh.select(names).take(at)])
    number = np.tile(np.arange(len(at)), 2)
    merged = merge(both.append_column(_NUMBER, pa.array(number)), [_NUMBER], aggs)
    if not np.array_equal(merged.column(_NUMBER).to_numpy(), number[: len(at)]):
        merged = merged.sort_by(_NUMBER)
    index = np.arange(fresh.num_rows)
    index[found] = fresh.num_rows + np.arange(len(at))
    where = pa.array(index)
    for name in names:
        column = pa.concat_arrays([flat(fresh.column(name)), flat(merged.column(name))])
        fresh = fresh.set_column(fresh.column_names.index(name), name, column.take(where))
    return fresh
