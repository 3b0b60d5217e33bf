"""Which rows match: searches by key and time, for all rows at once.

Keys are small ids that both sides share (`ops/keys.py`). A pair costs what it takes to
write it down; a row without a partner costs one search. Arrays only.
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
    """Rows by key number and time."""

    def __init__(self, number: Index, at: Times) -> None:
        self._times: Times | None = None
        self._base, self._width = (int(at.min()), int(at.max())) if len(at) else (0, 0)
        self._width += 2 - self._base
        if self._width * (int(number.max(initial=0)) + 2) > _ROOM:
            self._times, at = np.unique(at, return_inverse=True)
            self._base, self._width = 0, len(self._times) + 1
        codes = number * self._width + (at - self._base)
        self.order = np.argsort(codes, kind="stable")
        self._codes = codes[self.order]

    def before(self, number: Index, at: Times) -> Index:
        """How many rows come before each (number, time), in this order."""
        since = at - self._base if self._times is None else np.searchsorted(self._times, at)
        since = np.clip(since, 0, self._width - 1)
        return np.searchsorted(self._codes, number * self._width + since)


class MatchRanges(NamedTuple):
    """For each row that asked, where its matches are in the order of the others."""

    first: Index
    many: Index
    order: Index

    def pairs(self) -> tuple[Index, Index]:
        """Every pair, as the number of the row that asked and that of the other."""
        row, place = expanded(self.first, self.many)
        return row, self.order[place]

    def nearest(self) -> Index:
        """The earliest row that each matches, and -1 for those without a match."""
        if not len(self.order):
            return np.full(len(self.many), -1)
        at = np.take(self.order, self.first, mode="clip")
        return np.where(self.many > 0, at, -1)

    def last(self) -> Index:
        """The latest row that each matches, and -1 for those without a match."""
        if not len(self.order):
            return np.full(len(self.many), -1)
        at = np.take(self.order, self.first + self.many - 1, mode="clip")
        return np.where(self.many > 0, at, -1)


def matches(asking: Index, low: Times, high: Times, others: Index, at: Times) -> MatchRanges:
    """The others of the same key with low <= time <= high."""
    there = SortedRows(others, at)
    first = there.before(asking, low)
    return MatchRanges(first, np.maximum(there.before(asking, high + 1) - first, 0), there.order)


def shared_key_ids(parts: list[pa.Table], identity: list[str]) -> list[Index]:
    """A number for each row's key, the same in all parts."""
    counts = [part.num_rows for part in parts]
    if not sum(counts):
        return [np.zeros(0, np.int64) for _ in parts]
    number, _ = key_numbers(pa.concat_tables([p.select(identity) for p in parts]))
    return np.split(number, np.cumsum(counts)[:-1])
