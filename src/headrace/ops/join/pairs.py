"""Which rows match, or follow each other: searches by key and time, for all rows at once.

Keys are small ids that both sides share (`ops/keys.py`). A pair costs what it takes to
write it down; a row without a partner costs one search. Nothing is stored here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Times
from headrace.ops.keys import key_numbers
from headrace.ops.window.assigners import expanded

_ROOM = 2**62  # up to here a key and a time fit into one number


class SortedRows:
    """Rows by key id and time."""

    def __init__(self, ids: Index, at: Times) -> None:
        self._times: Times | None = None
        self._base, self._width = (int(at.min()), int(at.max())) if len(at) else (0, 0)
        self._width += 2 - self._base
        if self._width * (int(ids.max(initial=0)) + 2) > _ROOM:
            self._times, at = np.unique(at, return_inverse=True)
            self._base, self._width = 0, len(self._times) + 1
        codes = ids * self._width + (at - self._base)
        self.order = np.argsort(codes, kind="stable")
        self._codes = codes[self.order]

    def before(self, ids: Index, at: Times) -> Index:
        """How many rows come before each (key id, time), in this order."""
        since = at - self._base if self._times is None else np.searchsorted(self._times, at)
        since = np.clip(since, 0, self._width - 1)
        return np.searchsorted(self._codes, ids * self._width + since)


class MatchRanges(NamedTuple):
    """For each row, where its matches are in the order of the other side."""

    first: Index
    counts: Index
    order: Index

    def pairs(self) -> tuple[Index, Index]:
        """Every pair, as the number of the row and that of the other."""
        row, place = expanded(self.first, self.counts)
        return row, self.order[place]

    def nearest(self) -> Index:
        """The earliest row that each matches, and -1 for those without a match."""
        return self._rows(self.first)

    def last(self) -> Index:
        """The latest row that each matches, and -1 for those without a match."""
        return self._rows(self.first + self.counts - 1)

    def _rows(self, place: Index) -> Index:
        if not len(self.order):
            return np.full(len(self.counts), -1)
        return np.where(self.counts > 0, np.take(self.order, place, mode="clip"), -1)


def matches(ids: Index, low: Times, high: Times, other_ids: Index, at: Times) -> MatchRanges:
    """The others of the same key with low <= time <= high."""
    rows = SortedRows(other_ids, at)
    first = rows.before(ids, low)
    return MatchRanges(first, np.maximum(rows.before(ids, high + 1) - first, 0), rows.order)


def shared_key_ids(parts: list[pa.Table], identity: list[str]) -> list[Index]:
    """The key id of each row; ids are the same in all parts."""
    counts = [part.num_rows for part in parts]
    if not sum(counts):
        return [np.zeros(0, np.int64) for _ in parts]
    ids, _ = key_numbers(pa.concat_tables([p.select(identity) for p in parts]))
    return np.split(ids, np.cumsum(counts)[:-1])


def last_of_each(rows: pa.Table, identity: list[str]) -> Index:
    """The last row of each key."""
    ids, first = key_numbers(rows.select(identity))
    last = np.empty(len(first), np.int64)
    last[ids] = np.arange(rows.num_rows)  # the last to be written stays
    return last


def one_before(ids: Index) -> Index:
    """For each row the one with the same key id before it, or -1."""
    order = np.argsort(ids, kind="stable")
    before = np.full(len(order), -1)
    same = ids[order][1:] == ids[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def one_after(ids: Index) -> Index:
    """For each row the next one with the same key id, or -1."""
    before, after = one_before(ids), np.full(len(ids), -1)
    follows = np.flatnonzero(before >= 0)
    after[before[follows]] = follows
    return after
