"""Columns as arrays: what joins compute with."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.hashing import Hashes
from headrace.ops.window.aligned import Times


def numbers(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[Any]:
    """A column without nulls as NumPy: a view if it is in one piece and not of booleans."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found


def distinct(hashes: Hashes, buckets: Times) -> tuple[Hashes, Times]:
    """Pairs of bucket and hash, sorted so, each once."""
    rising = buckets[1:] > buckets[:-1]
    rising |= (buckets[1:] == buckets[:-1]) & (hashes[1:] >= hashes[:-1])
    if not rising.all():
        order = np.lexsort((hashes, buckets))
        hashes, buckets = hashes[order], buckets[order]
    fresh = np.ones(len(hashes), np.bool_)
    fresh[1:] = (hashes[1:] != hashes[:-1]) | (buckets[1:] != buckets[:-1])
    return hashes[fresh], buckets[fresh]
