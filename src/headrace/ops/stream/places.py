"""A hash of where each row came from: what samples go by, so that a replay takes the same rows.

Rows that one record gave have one place. A row that was computed has its key and time for a
place; one that has lost all that is known by its values.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace.chunk import OFFSET, SOURCE, TIME, visible
from headrace.hashing import Hashes, hash_keys
from headrace.ops.agg.groups import Index, integers


def place_hashes(rows: pa.Table, seed: int) -> Hashes:
    """One hash per row, evenly spread; another seed gives other ones."""
    columns = [_seed(rows.num_rows, seed)]
    if OFFSET in rows.column_names:
        sources = _sources(rows)
        times = integers(rows.column(TIME)) if TIME in rows.column_names else sources
        columns += [pa.array(sources), rows.column(OFFSET)]
        columns += [pa.array(np.where(sources < 0, times, 0))]
    else:
        columns += [c for c in visible(rows).columns if not pt.is_nested(c.type)]
    return hash_keys(columns, rows.num_rows)


def _seed(count: int, seed: int) -> pa.Array:
    return pa.array(np.full(count, seed, np.int64))


def _sources(rows: pa.Table) -> Index:
    if SOURCE not in rows.column_names:
        return np.full(rows.num_rows, -1, np.int64)
    return integers(rows.column(SOURCE))
