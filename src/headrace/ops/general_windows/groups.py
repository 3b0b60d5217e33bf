"""From rows to windows: one row per window and key, with its bounds and its partials.

Done twice for most rows: where they are read, to one partial per window, and where these
meet those of other tasks. Windows that merge are joined here as far as they are in sight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.hashing import hash_keys
from headrace.ops.agg.keys import key_numbers
from headrace.ops.agg.named import Aggregate, merge, partial
from headrace.ops.general_windows.book import END, START
from headrace.ops.window.aligned import Times
from headrace.ops.window.assigners import Assigner

_GROUP = "__group"
Fold = Callable[[pa.Table, Sequence[str], Mapping[str, Aggregate]], pa.Table]


class WindowGroups:
    def __init__(
        self, assigner: Assigner, keys: Sequence[str], aggs: Mapping[str, Aggregate]
    ) -> None:
        self._assigner, self._identity, self._aggs = assigner, [HASH, *keys], aggs

    def of_rows(self, rows: pa.Table) -> pa.Table:
        """The windows that hold these rows."""
        if HASH not in rows.column_names:
            keys = [rows.column(k) for k in self._identity[1:]]
            rows = _with(rows, HASH, hash_keys(keys, rows.num_rows))
        placed = self._assigner.place(rows.column(TIME).to_numpy(), rows)
        if not np.array_equal(placed.row, np.arange(rows.num_rows)):
            rows = rows.take(pa.array(placed.row))
        rows = _with(_with(rows, START, placed.start), END, placed.end)
        return self._joined(rows, partial) if self._assigner.merges else self._same(rows, partial)

    def merged(self, windows: pa.Table) -> pa.Table:
        """Windows that are the same, or that meet, as one."""
        return self._joined(windows, merge) if self._assigner.merges else self._same(windows, merge)

    def _same(self, rows: pa.Table, fold: Fold) -> pa.Table:
        number, first = key_numbers(rows.select(self._identity))
        length = rows.column(END).to_numpy() - rows.column(START).to_numpy()
        alike = bool(len(length)) and bool((length == length[0]).all())
        bounds = [START] if alike else [START, END]  # of windows alike, one says it all
        made = fold(_with(rows, _GROUP, number), [_GROUP, *bounds], self._aggs)
        start = made.column(START).to_numpy()
        end = start + length[0] if alike else made.column(END).to_numpy()
        owner = first[made.column(_GROUP).to_numpy()]
        return self._windows(rows, owner, start, end, made.drop_columns([_GROUP, *bounds]))

    def _joined(self, rows: pa.Table, fold: Fold) -> pa.Table:
        number, first = key_numbers(rows.select(self._identity))
        bounds = (rows.column(n).to_numpy() for n in (START, END))
        found = self._assigner.join(number, *bounds)
        if fold is merge and len(found.key) == rows.num_rows:
            return rows
        made = fold(_with(rows, _GROUP, found.group), [_GROUP], self._aggs)
        at = made.column(_GROUP).to_numpy()
        owner = first[found.key[at]]
        parts = made.drop_columns([_GROUP])
        return self._windows(rows, owner, found.start[at], found.end[at], parts)

    def _windows(
        self, rows: pa.Table, owner: Times, start: Times, end: Times, parts: pa.Table
    ) -> pa.Table:
        """The windows with the keys of the rows `owner`."""
        keys = rows.select(self._identity).take(pa.array(owner))
        columns = [*keys.columns, pa.array(start), pa.array(end), *parts.columns]
        names = [*self._identity, START, END, *parts.column_names]
        return pa.table(columns, names=names)


def _with(rows: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    return rows.append_column(name, pa.array(values))
