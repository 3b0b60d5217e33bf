"""Which windows of a key are open, for assigners whose windows merge.

A row per key with the bounds of its windows, so that those which a new row meets are found
without a scan. The windows themselves are stored elsewhere, by their end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, Times, flat
from headrace.chunk import HASH, TIME
from headrace.ops.general_windows.window_state import START
from headrace.ops.keys import key_numbers
from headrace.ops.tables import side_by_side
from headrace.ops.window.triggers import Windowing
from headrace.state.table import KeyedTable, TableSpec

OPEN = "open"
_BEGINS, ENDS = "$begins", "$ends"
_TIMES = pa.list_(pa.int64())


class Bounds(NamedTuple):
    """Windows of numbered keys."""

    key: Times
    start: Times
    end: Times


class OpenWindows:
    def __init__(self, keys: Sequence[str], windowing: Windowing) -> None:
        self._identity, self._floor = [HASH, *keys], windowing.floor
        self._join = windowing.assigner.join

    def spec(self, keys: pa.Schema) -> TableSpec:
        return TableSpec(OPEN, keys, pa.schema([(_BEGINS, _TIMES), (ENDS, _TIMES)]))

    def meet(
        self, fresh: pa.Table, index: KeyedTable, windows: KeyedTable, before: int
    ) -> tuple[pa.Table, Times, pa.Table]:
        """The stored windows that `fresh` ones meet, the group of each, and the merged windows.

        Groups are those of the stored windows, then those of the fresh ones.
        """
        number, keys = self._numbered(fresh)
        open_bounds = self._bounds(index, keys, before)
        arrived = Bounds(number, fresh.column(START).to_numpy(), fresh.column(TIME).to_numpy())
        joined = self._join(*map(np.concatenate, zip(open_bounds, arrived, strict=True)))
        open_group, fresh_group = np.split(joined.group, [len(open_bounds.key)])
        grows = np.zeros(len(joined.key), np.bool_)
        grows[fresh_group] = True
        met = grows[open_group]
        stored = self._identities(keys, Bounds(*(column[met] for column in open_bounds)))
        values, present = windows.get(stored)
        stored = side_by_side(stored, values)
        place = np.cumsum(grows) - 1
        group = np.concatenate([place[open_group[met]][present], place[fresh_group]])
        merged = Bounds(joined.key[grows], joined.start[grows], joined.end[grows])
        return stored.filter(pa.array(present)), group, self._identities(keys, merged)

    def update(
        self, windows: pa.Table, touched: Mask, expired: Mask, index: KeyedTable, after: int
    ) -> None:
        """Store the bounds of windows that were touched, and delete those that have expired."""
        changed = windows.filter(pa.array(touched | expired))
        if not changed.num_rows:
            return
        number, keys = self._numbered(changed)
        old = self._bounds(index, keys, after)
        new = Bounds(number, changed.column(START).to_numpy(), changed.column(TIME).to_numpy())
        joined = self._join(*map(np.concatenate, zip(old, new, strict=True)))
        alive = joined.end >= self._floor(after)
        key, start, end = joined.key[alive], joined.start[alive], joined.end[alive]
        counts = np.bincount(key, minlength=keys.num_rows)
        offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
        rows = keys
        for name, values in ((_BEGINS, start), (ENDS, end)):
            rows = rows.append_column(name, pa.ListArray.from_arrays(offsets, pa.array(values)))
        some = pa.array(counts > 0)
        index.put(rows.filter(some))
        none = keys.filter(pa.array(counts == 0))
        if none.num_rows:
            index.delete(none)

    def _numbered(self, windows: pa.Table) -> tuple[Times, pa.Table]:
        identity = windows.select(self._identity)
        number, first = key_numbers(identity)
        return number, identity.take(pa.array(first))

    def _bounds(self, index: KeyedTable, keys: pa.Table, watermark: int) -> Bounds:
        """The windows of these keys that are still open."""
        lists, _ = index.get(keys)
        begins, ends = (flat(lists.column(n)) for n in (_BEGINS, ENDS))
        counts = begins.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        key = np.repeat(np.arange(keys.num_rows), counts)
        start, end = (c.flatten().to_numpy(zero_copy_only=False) for c in (begins, ends))
        live = end >= self._floor(watermark)
        return Bounds(key[live], start[live], end[live])

    def _identities(self, keys: pa.Table, bounds: Bounds) -> pa.Table:
        owners = keys.take(pa.array(bounds.key))
        columns = [pa.array(bounds.end), *owners.columns, pa.array(bounds.start)]
        return pa.table(columns, names=[TIME, *owners.column_names, START])
