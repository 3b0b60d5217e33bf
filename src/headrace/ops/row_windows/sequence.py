"""The rows of some keys as one sequence, and the stretches of it that are windows.

Each key's stored rows come first and then its new ones. The rows stay where they are: a
sequence says in which order they are to be read. Knows nothing of tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.arrays import Column, Index, integers
from headrace.chunk import TIME
from headrace.ops.agg.order import distinct, inverse, rises, sorted_by
from headrace.ops.agg.span import stretches
from headrace.ops.row_windows.ends import Ends, reference_type
from headrace.ops.row_windows.store import Ordered, fitted
from headrace.ops.window.by_rows import CountWindow, DeltaWindow, LastRows, LastTime, RowWindow


@dataclass(frozen=True, slots=True)
class RowRanges:
    """Rows in order: the i-th is row index[i] of the pool. Window j has those from low to high."""

    pool: pa.Table
    index: Index
    low: Index
    high: Index
    arrival: Index | None = None  # of each row, its place by arrival; None where that is the order


@dataclass(frozen=True, slots=True)
class RowSequence:
    """Row index[i] of the pool is the i-th; keys follow each other."""

    pool: pa.Table
    index: Index
    stored: Index  # stored rows of each key
    new: Index  # new rows of each key

    @classmethod
    def of(
        cls, stored: pa.Table, counts: Index, rows: Ordered, which: Index, schema: pa.Schema
    ) -> RowSequence:
        """The stored rows, `counts` per key, and the new ones of the keys `which`."""
        fresh, count = fitted(rows.rows, schema), stored.num_rows
        pool = pa.concat_tables([stored.select(fresh.column_names), fresh]).combine_chunks()
        sizes = rows.sizes[which]
        low = np.stack([np.cumsum(counts) - counts, count + rows.starts[which]], axis=1)
        place = stretches(low.reshape(-1), np.stack([counts, sizes], axis=1).reshape(-1))
        index = np.concatenate([np.arange(count), count + rows.order])[place]
        return cls(pool, index, counts, sizes)

    @classmethod
    def of_stored(cls, stored: pa.Table, counts: Index, schema: pa.Schema) -> RowSequence:
        """Stored rows alone."""
        pool = fitted(stored, schema).combine_chunks()
        return cls(pool, np.arange(stored.num_rows), counts, np.zeros_like(counts))

    @property
    def starts(self) -> Index:
        return self.stops - (self.stored + self.new)

    @property
    def stops(self) -> Index:
        return np.cumsum(self.stored + self.new)

    @property
    def key(self) -> Index:
        """The key of each row."""
        return np.repeat(np.arange(len(self.stored)), self.stored + self.new)

    @property
    def times(self) -> Index:
        times: Index = integers(self.pool[TIME])[self.index]
        return times

    def windows(self, spec: RowWindow, key: Index, after: Index) -> RowRanges:
        """The windows that end after so many new rows of their key."""
        high = (self.starts + self.stored)[key] + after
        match spec:
            case CountWindow(tumbles=False):
                low = np.maximum(self.starts[key], high - spec.size)
            case LastRows():
                low = np.maximum(self.starts[key], high - spec.rows)
            case LastTime():
                return self._by_time(spec.size, key, high)
            case _:
                low = np.maximum(self.starts[key], np.append(0, high[:-1]))
        return RowRanges(self.pool, self.index, low, high)

    def _by_time(self, size: int, key: Index, high: Index) -> RowRanges:
        """What had come by then, by time: the rows up to the one that ends the window."""
        owner, times, index, order = self.key, self.times, self.index, None
        if not rises([owner, times]):
            order = sorted_by([owner, times])
            index, times, high = index[order], times[order], inverse(order)[high - 1] + 1
        low = _first_after(owner, times, key, times[high - 1] - size)
        return RowRanges(self.pool, index, low, high, order)

    def needed(self, spec: RowWindow, ends: Ends, watermark: int) -> Index:
        """From where on windows after these `ends` may hold each key's rows."""
        match spec:
            case CountWindow(
                tumbles=False
            ):  # one short of a window, or all of one if the input ends
                first = self.stops - (spec.size - (ends.since == 0))
            case LastRows():
                first = self.stops - (spec.rows - 1)
            case LastTime():
                return self._within(spec.size, ends.since, watermark)
            case _:
                first = self.starts + self.stored + ends.last
        return np.asarray(np.maximum(first, self.starts))

    def _within(self, size: int, since: Index, watermark: int) -> Index:
        """From the first row on that is within `size` of where a window may yet end: at a row
        that is to come, not older than the watermark, or, if the input ends, at a key's last."""
        times, stops = self.times, self.stops
        last = np.where(since > 0, times[stops - 1], watermark)
        alive = times > (np.minimum(last, watermark) - size)[self.key]
        places = np.where(alive, np.arange(len(times)), len(times))
        return np.asarray(np.minimum(np.minimum.reduceat(places, self.starts), stops))

    def between(self, low: Index, high: Index) -> pa.Table:
        """The rows of each key from low to high."""
        return self.pool.take(pa.array(self.index[stretches(low, high - low)]))


def _first_after(owner: Index, times: Index, key: Index, bound: Index) -> Index:
    """The first row of each key that is later than its bound; rows rise by owner and time."""
    distinct_times = distinct(times)
    rank = np.searchsorted(distinct_times, times)
    bound_rank = np.searchsorted(distinct_times, bound, side="right") - 1
    places = owner * len(distinct_times) + rank
    return np.searchsorted(places, key * len(distinct_times) + bound_rank, side="right")


# What is stored of every key, whatever its windows are: a few numbers.


SINCE, NUMBER, FIRST, NEXT, FROM = "__since", "__number", "__first", "__next", "__from"


def counter_fields(spec: RowWindow, input: pa.Schema, with_rows: bool) -> list[pa.Field]:
    """The columns of a table of counters; `with_rows`: of keys whose rows are stored."""
    names = [SINCE, NUMBER, *([FIRST, NEXT] if with_rows else [])]
    fields = [pa.field(name, pa.int64()) for name in names]
    if isinstance(spec, DeltaWindow):
        fields.append(pa.field(FROM, reference_type(input.field(spec.column).type)))
    return fields


@dataclass(frozen=True, slots=True)
class KeyCounters:
    """Numbers for each of some keys; zero for a key that is new."""

    since: Index  # rows since its last window ended
    number: Index  # windows that have ended
    first: Index  # its first parcel of stored rows
    next: Index  # its parcel to come
    reference: Column | None  # what a delta is measured from

    @classmethod
    def of(cls, stored: pa.Table) -> KeyCounters:
        names, nothing = stored.column_names, np.zeros(stored.num_rows, np.int64)
        since, number, first, next = (
            integers(stored[name]) if name in names else nothing
            for name in (SINCE, NUMBER, FIRST, NEXT)
        )
        return cls(since, number, first, next, stored[FROM] if FROM in names else None)

    def after(self, ends: Ends) -> KeyCounters:
        """When these windows have ended and a parcel has been added."""
        number, reference = self.number + ends.count, ends.reference
        return KeyCounters(ends.since, number, self.first, self.next + 1, reference)

    def ended(self) -> KeyCounters:
        """When the input has: every window is over, and nothing is measured from."""
        nothing = None if self.reference is None else pa.nulls(len(self.since), self.reference.type)
        since, number = np.zeros_like(self.since), self.number + 1
        return KeyCounters(since, number, self.first, self.next + 1, nothing)

    def starting_at(self, first: Index) -> KeyCounters:
        """With nothing stored before these parcels."""
        return replace(self, first=first)

    def only(self, which: Index) -> KeyCounters:
        """The same for these keys."""
        since, number, first, next = (
            values[which] for values in (self.since, self.number, self.first, self.next)
        )
        return KeyCounters(since, number, first, next, None)

    def columns(self) -> dict[str, Column]:
        numbers = {SINCE: self.since, NUMBER: self.number, FIRST: self.first, NEXT: self.next}
        columns: dict[str, Column] = {name: pa.array(values) for name, values in numbers.items()}
        return columns if self.reference is None else columns | {FROM: self.reference}
