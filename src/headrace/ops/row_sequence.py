"""Rows of some keys laid end to end, and the stretches of them that are windows.

Each key's kept rows come first and then its new ones. The rows stay where they are: a
sequence says in which order they are to be read. Knows nothing of tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.chunk import TIME
from headrace.ops.agg_groups import Index, Mask, integers
from headrace.ops.agg_order import distinct, rises, sorted_by
from headrace.ops.agg_span import stretches
from headrace.ops.row_ends import Ends
from headrace.ops.row_order import Ordered
from headrace.ops.row_specs import Count, LastRows, LastTime, RowWindow
from headrace.ops.row_store import fitted


@dataclass(frozen=True, slots=True)
class Laid:
    """Rows in order: the i-th is row index[i] of the pool; window j has those from low to high."""

    pool: pa.Table
    index: Index
    low: Index
    high: Index


@dataclass(frozen=True, slots=True)
class RowSequence:
    pool: pa.Table
    index: Index
    kept: Index  # kept rows of each key
    new: Index  # new rows of each key

    @classmethod
    def of(
        cls, kept: pa.Table, counts: Index, rows: Ordered, which: Index, schema: pa.Schema
    ) -> RowSequence:
        """The kept rows, `counts` per key, and the new ones of the keys `which`."""
        fresh, held = fitted(rows.rows, schema), kept.num_rows
        pool = pa.concat_tables([kept.select(fresh.column_names), fresh]).combine_chunks()
        sizes = rows.sizes[which]
        low = np.stack([np.cumsum(counts) - counts, held + rows.starts[which]], axis=1)
        place = stretches(low.reshape(-1), np.stack([counts, sizes], axis=1).reshape(-1))
        index = np.concatenate([np.arange(held), held + rows.order])[place]
        return cls(pool, index, counts, sizes)

    @classmethod
    def of_kept(cls, kept: pa.Table, counts: Index, schema: pa.Schema) -> RowSequence:
        """Kept rows alone."""
        pool = fitted(kept, schema).combine_chunks()
        return cls(pool, np.arange(kept.num_rows), counts, np.zeros_like(counts))

    @property
    def starts(self) -> Index:
        return self.stops - (self.kept + self.new)

    @property
    def stops(self) -> Index:
        return np.cumsum(self.kept + self.new)

    @property
    def key(self) -> Index:
        """The key of each row."""
        return np.repeat(np.arange(len(self.kept)), self.kept + self.new)

    @property
    def times(self) -> Index:
        times: Index = integers(self.pool[TIME])[self.index]
        return times

    def windows(self, spec: RowWindow, key: Index, after: Index) -> Laid:
        """The windows that end after so many new rows of their key."""
        high = (self.starts + self.kept)[key] + after
        match spec:
            case Count(tumbles=False):
                low = np.maximum(self.starts[key], high - spec.size)
            case LastRows():
                low = np.maximum(self.starts[key], high - spec.rows)
            case LastTime():
                return self._by_time(spec.size, key, high)
            case _:
                low = np.maximum(self.starts[key], np.append(0, high[:-1]))
        return Laid(self.pool, self.index, low, high)

    def _by_time(self, size: int, key: Index, high: Index) -> Laid:
        """What had come by then, by time: the rows up to the one that ends the window."""
        owner, times = self.key, self.times
        index = self.index
        if not rises([owner, times]):
            turn = sorted_by([owner, times])
            place = np.empty(len(turn), np.int64)
            place[turn] = np.arange(len(turn))
            index, times, high = index[turn], times[turn], place[high - 1] + 1
        low = _first_after(owner, times, key, times[high - 1] - size)
        return Laid(self.pool, index, low, high)

    @property
    def is_new(self) -> Mask:
        return np.arange(len(self.index)) >= (self.starts + self.kept)[self.key]

    def alive(self, spec: RowWindow, ends: Ends, watermark: int) -> Mask:
        """The rows that windows after these `ends` may hold."""
        match spec:
            case Count(tumbles=False):
                first = self.stops - (spec.size - spec.step + ends.since)
            case LastRows():
                first = self.stops - (spec.rows - 1)
            case LastTime():
                return self._within(spec.size, ends.since, watermark)
            case _:
                first = self.starts + self.kept + ends.last
        return np.arange(len(self.index)) >= first[self.key]

    def _within(self, size: int, since: Index, watermark: int) -> Mask:
        """The rows within `size` of where a window may yet end: at a row that is to come, not
        older than the watermark, or, if the input ends, at a key's last."""
        times = self.times
        last = np.where(since > 0, times[self.stops - 1], watermark)
        return np.asarray(times > (np.minimum(last, watermark) - size)[self.key])


def _first_after(owner: Index, times: Index, key: Index, bound: Index) -> Index:
    """The first row of each key that is later than its bound; rows rise by owner and time."""
    known = distinct(times)
    rank = np.searchsorted(known, times)
    wanted = np.searchsorted(known, bound, side="right") - 1
    places = owner * len(known) + rank
    return np.searchsorted(places, key * len(known) + wanted, side="right")
