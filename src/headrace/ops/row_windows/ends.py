"""Where windows end: after how many of a key's new rows.

Only arithmetic over the rows of one epoch and the counters of each key: how many of its rows
came since its last window ended, and the number that a delta is measured from. What windows
hold is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace.arrays import Column, Index, Mask, array, floats, integers, valid
from headrace.ops.agg.order import run_starts
from headrace.ops.agg.span import Numbers, stretches
from headrace.ops.row_windows.store import Ordered
from headrace.ops.window.by_rows import (
    FIRST,
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


@dataclass(frozen=True, slots=True)
class Pieces:
    """New rows cut where windows end. A key's first piece goes on from its stored partial."""

    piece: Index  # of each row, in order
    key: Index  # of each piece; they rise
    size: Index  # rows in each: none in a window that ended before all of them
    first: Index  # each key's first piece
    last: Index

    @classmethod
    def cut(cls, rows: Ordered, ends: Ends) -> Pieces:
        marks = np.zeros(len(rows.order), np.int64)
        marks[rows.starts] = 1
        inner = ends.after < rows.sizes[ends.key]
        marks[rows.starts[ends.key[inner]] + ends.after[inner]] += 1
        piece = np.cumsum(marks) - 1
        count = np.add.reduceat(marks, rows.starts)
        last = np.cumsum(count) - 1
        key = np.repeat(np.arange(len(count)), count)
        return cls(piece, key, np.bincount(piece, minlength=len(key)), last - count + 1, last)


def ends_of(spec: RowWindow, rows: Ordered, since: Index, reference: Column | None) -> Ends:
    """The windows that end among these rows, by the counters of their keys."""
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


# Deltas: at which rows a number has moved too far from the one it is measured from.
#
# Integers are compared exactly, whatever their width; all else as doubles. Rows lie key by
# key in order. There is no state here: what a key is measured from comes in and goes out.


_SIGN = np.uint64(2**63)


def reference_type(kind: pa.DataType) -> pa.DataType:
    """The stored type of the number that a key is measured from."""
    return pa.int64() if pt.is_integer(kind) else pa.float64()


@dataclass(frozen=True, slots=True)
class Measured:
    """The rows that have a number, in order, and what each key is measured from at first."""

    values: Numbers
    key: Index  # of each of these rows
    start: Numbers
    started: Mask  # keys that have a start

    @property
    def heads(self) -> Index:
        """Each key's first row."""
        return run_starts(self.key)


def moved(
    spec: DeltaWindow, starts: Index, column: pa.Array, reference: Column
) -> tuple[Index, Column]:
    """The rows that a new window starts with, and what each key is measured from after them."""
    values, present = _numbers(column)
    places = np.flatnonzero(present)
    key = np.searchsorted(starts, places, side="right") - 1
    start = integers(reference) if values.dtype == np.int64 else floats(reference)
    rows = Measured(values[places], key, start, valid(reference))
    if not len(places):
        return places, reference
    from_where = _from_first if spec.since == FIRST else _from_previous
    far, after = from_where(rows, spec.threshold)
    measured = rows.started.copy()
    measured[key] = True
    return places[far], array(after, reference.type, measured)


def _numbers(column: pa.Array) -> tuple[Numbers, Mask]:
    """As int64 or float64, and where there is one; of unsigned ones the distances stay right."""
    if pt.is_uint64(column.type):
        wide = column.fill_null(0).to_numpy(zero_copy_only=False) ^ _SIGN
        return wide.view(np.int64), valid(column)
    if pt.is_integer(column.type):
        return integers(column), valid(column)
    values = floats(column)
    return values, ~np.isnan(values)


def _from_previous(rows: Measured, threshold: float) -> tuple[Mask, Numbers]:
    """Whether each row is too far from the one before, and the last of each key."""
    heads = rows.heads
    before = np.roll(rows.values, 1)
    before[heads] = rows.start[rows.key[heads]]
    far = _too_far(rows.values, before, threshold)
    far[heads] &= rows.started[rows.key[heads]]
    after = rows.start.copy()
    after[rows.key] = rows.values  # the last to be written is the last
    return far, after


@np.errstate(all="ignore")  # equal infinities have no distance
def _too_far(a: Numbers, b: Numbers, threshold: float) -> Mask:
    if a.dtype != np.int64:
        return np.asarray(np.abs(a - b) > threshold)
    distance = np.where(a > b, a - b, b - a).view(np.uint64)  # right even if it wraps
    return np.asarray(distance > np.uint64(min(int(threshold), 2**64 - 1)))


def _from_first(rows: Measured, threshold: float) -> tuple[Mask, Numbers]:
    """Whether each row starts a window, and what each key's last window started with.

    Where a window starts depends on where the one before did: the one loop over rows.
    """
    values: list[Any] = rows.values.tolist()
    heads, after, begins = rows.heads, rows.start.copy(), list[int]()
    keys, stops = rows.key[heads].tolist(), [*heads[1:].tolist(), len(values)]
    for key, head, stop in zip(keys, heads.tolist(), stops, strict=True):
        base = after[key].item() if rows.started[key] else values[head]
        for at in range(head, stop):
            distance = values[at] - base
            if distance > threshold or -distance > threshold:
                base = values[at]
                begins.append(at)
        after[key] = base
    far = np.zeros(len(values), np.bool_)
    far[begins] = True
    return far, after
