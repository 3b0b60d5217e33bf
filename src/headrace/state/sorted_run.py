"""Sorted runs in memory or mapped: looked up, cut and merged.

A run is an Arrow table of a spec's `run` columns, sorted by ([__t,] __h), one row per
identity; a row marked `__gone` is a tombstone. A `SortedRun` is a view of one: of a share of
the hashes, from a floor in time on. Runs are never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, numbers
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.hashing import Hashes, Ints
from headrace.state.identity import Identities, Probe, distinct, find, newest, seek, sort_order
from headrace.state.spec import GONE, TableSpec

ALL_HASHES = 2**64


class SortedRun:
    """Rows of a sorted run with `lo` <= hash < `hi` and, if timed, `floor` <= time.

    `share` is about how much of the table these hashes are.
    """

    __slots__ = ("floor", "hi", "lo", "rows", "share", "table")

    def __init__(
        self,
        table: pa.Table,
        rows: Identities,
        lo: int = 0,
        hi: int = ALL_HASHES,
        floor: int = MIN_TIME,
        share: float = 1.0,
    ) -> None:
        self.table, self.rows = table, rows
        self.lo, self.hi, self.floor, self.share = lo, hi, floor, share

    @classmethod
    def of(cls, spec: TableSpec, table: pa.Table) -> SortedRun:
        return cls(table, identities(spec, table))

    def __len__(self) -> int:
        return len(self.rows)

    def count(self, floor: int = MIN_TIME) -> int:
        """About how many rows from `floor` on, tombstones included; 0 only where there are none."""
        times = self.rows.times
        dead = 0 if times is None else int(np.searchsorted(times, max(floor, self.floor)))
        return ceil((len(self) - dead) * self.share)

    def part(self, lo: int, hi: int, floor: int = MIN_TIME, share: float = 1.0) -> SortedRun:
        """The rows with lo <= hash < hi and floor <= time; nothing is copied."""
        if self.rows.times is not None:  # sorted by time first: foreign rows are passed over
            return SortedRun(self.table, self.rows, lo, hi, floor, share)
        hashes = self.rows.hashes
        first = int(np.searchsorted(hashes, np.uint64(lo)))
        last = int(np.searchsorted(hashes, np.uint64(hi - 1), "right"))
        keys = [k.slice(first, last - first) for k in self.rows.keys]
        return SortedRun(
            self.table.slice(first, last - first), Identities(None, hashes[first:last], keys)
        )

    def find(self, probe: Probe) -> Ints:
        """The row here with each identity of the probe; -1 where there is none."""
        overlap = self._overlap(probe)
        at = np.full(len(probe.hashes), -1, np.int64)
        at[overlap] = find(self.rows, probe.only(overlap))
        return at

    def having(self, hashes: Hashes, times: Ints | None = None) -> pa.Table:
        """The rows with one of these hashes (and times), which are sorted and distinct."""
        if times is None:
            first = np.searchsorted(self.rows.hashes, hashes, "left")
            count = np.searchsorted(self.rows.hashes, hashes, "right") - first
        else:
            own = (times >= self.floor) & self._within(hashes)
            first, count = self._alike(times[own], hashes[own])
        at = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())
        return self.table.take(pa.array(at))

    def _alike(self, times: Ints, hashes: Hashes) -> tuple[Ints, Ints]:
        """The first row of each time and hash, and how many there are."""
        first = seek(self.rows.times, self.rows.hashes, times, hashes)
        last = hashes == np.uint64(ALL_HASHES - 1)  # what follows is the next time
        beyond = seek(self.rows.times, self.rows.hashes, times + last, hashes + np.uint64(1))
        return first, beyond - first

    def _overlap(self, probe: Probe) -> Mask | slice:
        """The part of the probe that this run can hold at all."""
        if probe.times is not None:
            return self._overlap_in_time(probe)
        if not len(self):
            return slice(0)
        first, last = self.rows.hashes[0], self.rows.hashes[-1]  # both sides are sorted by hash
        a = np.searchsorted(probe.hashes, first, "left")
        b = np.searchsorted(probe.hashes, last, "right")
        return slice(int(a), int(b))

    def _overlap_in_time(self, probe: Probe) -> Mask | slice:
        """Both sides are sorted by time: the stretch of times that this run has."""
        times = self.rows.times
        if times is None or probe.times is None or not len(times):
            return slice(0)
        first = max(int(times[0]), self.floor)
        a, b = np.searchsorted(probe.times, [first, int(times[-1]) + 1]).tolist()
        if self.lo == 0 and self.hi == ALL_HASHES:
            return slice(a, b)
        mask = np.zeros(len(probe.hashes), np.bool_)
        mask[a:b] = self._within(probe.hashes[a:b])
        return mask

    def _within(self, hashes: Hashes) -> Mask:
        if self.lo == 0 and self.hi == ALL_HASHES:
            return np.ones(len(hashes), np.bool_)
        return (hashes >= np.uint64(self.lo)) & (hashes <= np.uint64(self.hi - 1))

    def first_time(self, floor: int) -> int | None:
        """The first time not before `floor`, tombstones included; None if not timed."""
        times = self.rows.times
        at = 0 if times is None else int(np.searchsorted(times, max(floor, self.floor)))
        return None if times is None or at == len(times) else int(times[at])

    def last_time(self) -> int | None:
        """The last time, tombstones and foreign rows included; None if not timed."""
        times = self.rows.times
        return None if times is None or not len(times) else int(times[-1])

    def slice(self, lo: int = MIN_TIME, hi: int = MAX_TIME) -> pa.Table:
        """The rows with lo <= time < hi; all rows if not timed."""
        table, hashes = self.table, self.rows.hashes
        if self.rows.times is not None:
            first, last = np.searchsorted(self.rows.times, [max(lo, self.floor), hi])
            table, hashes = table.slice(first, max(last - first, 0)), hashes[first:last]
        within = self._within(hashes)
        return table if within.all() else table.filter(pa.array(within))


def identities(spec: TableSpec, table: pa.Table) -> Identities:
    """The identity columns of `table`, without a copy if each is in one piece."""
    times = numbers(table[TIME]) if spec.timed else None
    return Identities(times, numbers(table[HASH]), [_whole(table[n]) for n in spec.key.names])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def merge_runs(
    spec: TableSpec,
    runs: Sequence[SortedRun | pa.Table],
    floor: int = MIN_TIME,
    bottom: bool = False,
) -> pa.Table:
    """One run for several, newest first; `bottom`: nothing lies below, so tombstones go."""
    parts = [as_run(spec, run).slice(floor) for run in runs]
    parts = [part for part in parts if part.num_rows]
    table = pa.concat_tables(parts or [spec.run.empty_table()]).combine_chunks()
    keep = _newest_rows(spec, table) if len(parts) > 1 else None
    if bottom and table.num_rows:
        keep = _living(table, keep)
    return table if keep is None else table.take(pa.array(keep))


def _newest_rows(spec: TableSpec, table: pa.Table) -> Ints | None:
    rows = identities(spec, table)
    return sort_order(rows.times, rows.hashes) if spec.once else newest(rows)


def _living(table: pa.Table, keep: Ints | None) -> Ints | None:
    deleted: Mask = numbers(table[GONE])
    if not deleted.any():
        return keep
    return np.flatnonzero(~deleted) if keep is None else keep[~deleted[keep]]


def as_run(spec: TableSpec, run: SortedRun | pa.Table) -> SortedRun:
    return run if isinstance(run, SortedRun) else SortedRun.of(spec, run)


def sorted_run(spec: TableSpec, rows: pa.Table) -> SortedRun:
    """Rows in any order as a run; of rows with one identity the last counts."""
    keys = identities(spec, rows)
    order = sort_order(keys.times, keys.hashes) if spec.once else distinct(keys)
    if order is not None and len(order) < rows.num_rows:
        rows = rows.take(pa.array(np.arange(rows.num_rows)[::-1]))
        order = newest(identities(spec, rows))
    return SortedRun.of(spec, rows if order is None else rows.take(pa.array(order)))
