"""Panes of panes, for windows that overlap hundreds of times.

A window of 3,600 panes that fires every second must not read 3,600 panes every second. So
panes are kept twice: as they are, and in *blocks* of many. While the watermark crosses one
block, every window that ends in it is the end of one block of panes, the same whole blocks,
and the beginning of another: those whole blocks are merged once and count as one pane.
Invariant: a block holds what its panes hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isqrt

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME
from headrace.ops.agg.groups import flat
from headrace.ops.agg.keys import key_numbers
from headrace.ops.agg.named import Aggregate, merge
from headrace.ops.panes.firing import fire
from headrace.ops.window.aligned import Times, Window
from headrace.schema import TIMESTAMP
from headrace.state.table import KeyedTable

_ENOUGH = 64  # overlaps from which it is worth keeping panes twice
_KEY = "__key"


def panes_per_block(window: Window) -> int | None:
    """How many panes to a block: about the root of a window's; None if it is not worth it."""
    overlaps = window.size // window.slide
    if overlaps < _ENOUGH or window.size % window.slide:
        return None
    root = isqrt(overlaps)
    best = min((d for d in range(2, 2 * root + 1) if not overlaps % d), default=None,
               key=lambda d: abs(d - root))  # fmt: skip
    return best if best is not None and 4 * best >= root else None


class CoarsePanes:
    def __init__(
        self, window: Window, panes: int, aggs: Mapping[str, Aggregate], keys: Sequence[str]
    ) -> None:
        self._window, self._panes, self._aggs, self._keys = window, panes, aggs, list(keys)
        self._pane = window.slide
        self._block = panes * window.slide
        self._blocks = window.size // self._block
        self._virtual = Window(panes + 1, 1)

    def blocks_of(self, times: Times) -> Times:
        """The start of the block that holds each time."""
        offset = self._window.offset
        return (times - offset) // self._block * self._block + offset

    def oldest_needed(self, pane: int) -> int:
        return pane if abs(pane) >= MAX_TIME else int(self.blocks_of(np.array([pane]))[0])

    def fire(
        self, panes: KeyedTable, blocks: KeyedTable, before: int, after: int
    ) -> Iterator[pa.Table]:
        """The results of windows that end in (before, after], a block at a time."""
        oldest = self._window.oldest_needed_pane(before)
        held = blocks.scan(self.oldest_needed(oldest), after)
        if not held.num_rows:
            return
        starts = held.column(TIME).to_numpy()
        for block in self._crossed(np.unique(starts), before, after).tolist():
            yield from self._cross(panes, held, starts, block, before, after)

    def _crossed(self, starts: Times, before: int, after: int) -> Times:
        """The blocks in which a window ends that holds one of those at `starts`."""
        ends = starts[:, None] + np.arange(self._blocks + 1) * self._block
        found = np.unique(ends)
        return found[(found + self._block > before) & (found < after)]

    def _cross(
        self, panes: KeyedTable, held: pa.Table, starts: Times, block: int, before: int, after: int
    ) -> Iterator[pa.Table]:
        """The windows that end within one block, from panes that stand in a row."""
        first = max(1, (before - block) // self._pane + 1)
        last = min(self._panes, (after - block) // self._pane)
        if first > last:
            return
        left = block - self._window.size
        parts = [
            self._row(panes.scan(left, left + self._block), left, 0),
            self._middle(held, starts, left + self._block, block),
            self._row(panes.scan(block, block + self._block), block, self._panes + 1),
        ]
        row = pa.concat_tables([p for p in parts if p.num_rows] or parts[:1])
        if row.num_rows:
            ends = (first + self._panes, last + self._panes + 1)
            yield self._real(fire(row, self._keys, self._virtual, self._aggs, *ends), block)

    def _row(self, panes: pa.Table, start: int, at: int) -> pa.Table:
        """Panes by their place in the row instead of by time."""
        place = (panes.column(TIME).to_numpy() - start) // self._pane + at
        return panes.set_column(panes.column_names.index(TIME), TIME, pa.array(place))

    def _middle(self, held: pa.Table, starts: Times, low: int, high: int) -> pa.Table:
        """The whole blocks that every window of the row holds, as one pane per key."""
        mine = held.filter(pa.array((starts >= low) & (starts < high)))
        number, first = key_numbers(mine.select([HASH, *self._keys]))
        merged = merge(mine.append_column(_KEY, pa.array(number)), [_KEY], self._aggs)
        at = pa.array(first[merged.column(_KEY).to_numpy()])
        place = pa.array(np.full(merged.num_rows, self._panes))
        columns = {n: flat(mine.column(n)).take(at) for n in (HASH, *self._keys)}
        columns |= {n: merged.column(n) for n in merged.column_names if n != _KEY}
        made = pa.table({TIME: place, **columns}).select(held.column_names)
        return made.sort_by(HASH)

    def _real(self, fired: pa.Table, block: int) -> pa.Table:
        """Results with the bounds of the windows they are of."""
        place = fired.column("window_end").cast(pa.int64()).to_numpy() // 1_000
        ends = block + (place - self._panes - 1) * self._pane
        for name, times in (("window_start", ends - self._window.size), ("window_end", ends)):
            stamps = pa.array(times * 1_000).cast(TIMESTAMP)
            fired = fired.set_column(fired.column_names.index(name), name, stamps)
        return fired
