"""State as people look at it: without hashes, with times as times.

An operator that keeps partials or bookkeeping says itself what there is to see (`Viewed`);
of others it is the rows of their first table. What an operator keeps beside, for all keys or in
further tables, has names of its own (`Beside`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.schema import TIMESTAMP
from headrace.state.table import KeyedTable


@runtime_checkable
class Viewed(Protocol):
    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """What it keeps of [since, until), in the words of the user."""


@runtime_checkable
class Beside(Protocol):
    def beside(self) -> Mapping[str, Sequence[str]]:
        """What it keeps beside: the name of each thing, and the columns that a row is found by."""

    def beside_view(self, name: str, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """One of them, in the words of the user."""


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
