"""State as people look at it: without hashes, with times as times."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.schema import TIMESTAMP
from headrace.state.table import KeyedTable


def plain_view(table: KeyedTable, since: int, until: int) -> pa.Table:
    """The rows of a table; the time of a timed one is the column `time`."""
    rows = (table.scan(since, until) if table.spec.timed else table.scan()).drop_columns([HASH])
    hidden = [n for n in rows.column_names if n.startswith(("__", "$")) and n != TIME]
    rows = rows.drop_columns(hidden)
    if not table.spec.timed:
        return rows
    times = timestamps(rows.column(TIME).to_numpy())
    return rows.set_column(rows.column_names.index(TIME), "time", times)


def free(name: str, taken: Collection[str]) -> str:
    """A name for a column of ours that no column of the user's has."""
    return free(f"{name}_", taken) if name in taken else name


def timestamps(millis: np.ndarray) -> pa.Array:
    return pa.array(millis * 1_000).cast(TIMESTAMP)


def with_bounds(keys: pa.Table, start: np.ndarray, end: np.ndarray, values: pa.Table) -> pa.Table:
    """Keys, the bounds of a window or stretch, and values, as results of windows look."""
    columns = [*keys.columns, timestamps(start), timestamps(end), *values.columns]
    names = [*keys.column_names, "window_start", "window_end", *values.column_names]
    return pa.table(columns, names=names)
