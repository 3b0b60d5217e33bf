"""Where windows end: after how many of a key's new rows.

Only arithmetic over the rows of one epoch and what was remembered of each key: how many of
its rows came since its last window ended, and the number that a delta is measured from. What
windows hold is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.ops.agg.groups import Column, Index, Mask
from headrace.ops.agg.span import stretches
from headrace.ops.row_windows.delta import moved
from headrace.ops.row_windows.order import Ordered
from headrace.ops.window.by_rows import (
    CountWindow,
    DeltaWindow,
    LastRows,
    LastTime,
    RowWindow,
    UntilWindow,
)


@dataclass(frozen=True, slots=True)
class Ends:
    """Window i of key key[i] ends after after[i] of the key's new rows; both rise.

    `since` has, for each key, the rows that came after its last end.
    """

    key: Index
    after: Index
    since: Index
    reference: Column | None = None  # of each key, for a delta

    @property
    def count(self) -> Index:
        """How many windows of each key end."""
        return np.bincount(self.key, minlength=len(self.since))

    @property
    def number(self) -> Index:
        """The number of each window among those of its key that end here."""
        count = self.count
        return np.arange(len(self.key)) - np.repeat(np.cumsum(count) - count, count)

    @property
    def last(self) -> Index:
        """After how many new rows of each key its last window ends; zero if none does."""
        last = np.zeros(len(self.since), np.int64)
        last[self.key] = self.after  # the last to be written is the last
        return last

    def only(self, which: Index) -> Ends:
        """The same for these keys, which have all the ends, under new numbers."""
        place = np.zeros(len(self.since), np.int64)
        place[which] = np.arange(len(which))
        return Ends(place[self.key], self.after, self.since[which])


def ends_of(spec: RowWindow, rows: Ordered, since: Index, reference: Column | None) -> Ends:
    """The windows that end among these rows, given what is remembered of their keys."""
    match spec:
        case CountWindow():
            return _every(spec.step, rows.sizes, since)
        case LastTime():
            return _every(spec.every, rows.sizes, since)
        case LastRows():
            return _ticks(spec.every, rows)
        case UntilWindow():
            flags = rows.column(spec.column).fill_null(False).to_numpy(zero_copy_only=False)
            return _at(rows, np.flatnonzero(flags), since, inside=spec.inside)
        case DeltaWindow():
            assert reference is not None
            places, after = moved(spec, rows.starts, rows.column(spec.column), reference)
            return _at(rows, places, since, inside=False, reference=after)


def _every(every: int, sizes: Index, since: Index) -> Ends:
    total = since + sizes
    count = total // every
    key = np.repeat(np.arange(len(count)), count)
    number = stretches(np.ones(len(count), np.int64), count)
    return Ends(key, number * every - since[key], total % every)


def _ticks(every: int, rows: Ordered) -> Ends:
    """After the last row before each multiple of `every`."""
    ticks = rows.times(np.arange(len(rows.order))) // every
    ends: Mask = np.ones(len(ticks), np.bool_)
    ends[:-1] = np.diff(ticks) != 0
    ends[rows.starts[1:] - 1] = True
    return _at(rows, np.flatnonzero(ends), np.zeros(len(rows.starts), np.int64), inside=True)


def _at(
    rows: Ordered, places: Index, since: Index, inside: bool, reference: Column | None = None
) -> Ends:
    """Ends at these rows: after them, or (not `inside`) before, where there is a window."""
    key = np.searchsorted(rows.starts, places, side="right") - 1
    after = places - rows.starts[key] + inside
    some = after + since[key] > 0
    key, after = key[some], after[some]
    left = since + rows.sizes
    left[key] = rows.sizes[key] - after  # of a key's ends, the last is the last to be written
    return Ends(key, after, left, reference)
