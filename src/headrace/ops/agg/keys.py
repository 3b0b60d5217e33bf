"""Keys as numbers: 0, 1, 2, ... in the order of their hash, exact under collisions.

Rows are told apart by hash and then compared with the first row of their number; only where
two keys do share a hash are all key columns hashed again, by Arrow.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, flat, valid
from headrace.chunk import HASH
from headrace.ops.agg.groups import Grouping
from headrace.ops.agg.order import group_numbers


def key_numbers(identity: pa.Table) -> tuple[Index, Index]:
    """The number of each row's key, and each key's first row; `identity` has "__h" and keys."""
    codes, hashes = _encoded(identity[HASH])
    order = np.argsort(hashes)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    number = place[codes]
    first = np.empty(len(order), np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]  # the last to be written is the first
    keys = identity.drop_columns([HASH]).columns
    if all(_same(column, first[number]) for column in keys):
        return number, first
    return _exact(identity)


def _encoded(hashes: Column) -> tuple[Index, npt.NDArray[np.uint64]]:
    encoded = pc.dictionary_encode(flat(hashes))
    return encoded.indices.to_numpy(), encoded.dictionary.to_numpy()


def _same(column: Column, other: Index) -> bool:
    """Whether each value equals the one in the other row; NaN does not."""
    values = flat(column)
    there = values.take(pa.array(other))
    if values.null_count and (valid(values) != valid(there)).any():
        return False
    return pc.all(pc.equal(values, there), min_count=0).as_py() is not False


def _exact(identity: pa.Table) -> tuple[Index, Index]:
    grouping = Grouping(identity)
    ticket = grouping.ask_rows()
    order = np.argsort(grouping.run()[HASH].to_numpy(), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    rows, starts = grouping.rows_of(ticket)
    number = np.empty(len(rows), np.int64)
    number[rows] = place[group_numbers(starts, len(rows))]
    return number, rows[starts[order]]
