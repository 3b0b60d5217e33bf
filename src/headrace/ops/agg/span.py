"""Stretches of one sequence, each reduced to one value, all at once.

`RangeSpan` are arbitrary overlapping stretches (sliding windows over panes), `RunningSpan` are all
beginnings of each group (running aggregates). Neither ever subtracts, so floats do not
drift and an inf or NaN touches only the stretches that hold it. What is reduced is numbers;
where they come from is not known here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace.arrays import Index

Numbers = npt.NDArray[Any]

_BAND = 1 << 21  # rows exploded at a time


class Op(Protocol):
    """A commutative merge of values that are kept in one or more arrays."""

    def merge(self, a: Sequence[Numbers], b: Sequence[Numbers]) -> list[Numbers]: ...
    def scan(self, blocks: Sequence[Numbers]) -> list[Numbers]:
        """Running values along axis 1."""

    def fold(self, columns: Sequence[Numbers], starts: Index) -> list[Numbers]:
        """One value for each part, which begin at `starts`."""

    def blank(self) -> Sequence[Any]:
        """What merges with anything and changes nothing."""


@dataclass(frozen=True, slots=True)
class Ufunc:
    """An operation on one array by a NumPy ufunc: add, maximum, fmin."""

    ufunc: np.ufunc
    zero: float

    def merge(self, a: Sequence[Numbers], b: Sequence[Numbers]) -> list[Numbers]:
        return [self.ufunc(a[0], b[0])]

    def scan(self, blocks: Sequence[Numbers]) -> list[Numbers]:
        return [self.ufunc.accumulate(blocks[0], axis=1)]

    def fold(self, columns: Sequence[Numbers], starts: Index) -> list[Numbers]:
        return [self.ufunc.reduceat(columns[0], starts)]

    def blank(self) -> Sequence[Any]:
        return [self.zero]


ADD = Ufunc(np.add, 0)


class Span(ABC):
    """Stretches of rows, none of them empty."""

    widest: int  # rows in the longest, at most

    @abstractmethod
    def reduce(self, op: Op, columns: Sequence[Numbers]) -> list[Numbers]:
        """The value of each stretch."""

    @abstractmethod
    def explode(self) -> Iterator[tuple[Index, Index]]:
        """Bands of (row, number of the stretch that holds it), stretch by stretch."""


def exploded(low: Index, high: Index) -> Iterator[tuple[Index, Index]]:
    """The numbers from low to high of each stretch, a bounded number of them at a time."""
    sizes = high - low
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        done = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, done + _BAND, side="right")), start + 1)
        part = slice(start, stop)
        yield stretches(low[part], sizes[part]), np.repeat(np.arange(start, stop), sizes[part])
        start = stop


def stretches(low: Index, sizes: Index) -> Index:
    """low[0], low[0] + 1, ... for sizes[0] numbers, then low[1], ..."""
    ends = np.cumsum(sizes)
    steps = np.arange(ends[-1] if len(ends) else 0)
    steps += np.repeat(low - (ends - sizes), sizes)
    return steps


@dataclass(frozen=True, slots=True)
class _BlockLevel:
    """Stretches settled with blocks of one size: across a border, or from or to one."""

    size: int
    across: Index
    head: Index
    tail: Index


class RangeSpan(Span):
    """Overlapping stretches, by running values within blocks (van Herk, Gil and Werman).

    A stretch that crosses one border of blocks is the tail of the left block and the head of
    the right one, whatever its length. Full windows cross or touch a border of blocks as
    long as they are; what lies inside a block is settled by smaller ones, half the size each
    time. So the cost is that of the rows and stretches, times the few sizes that are needed.
    """

    def __init__(self, low: Index, high: Index, rows: Index) -> None:
        """Stretch i holds rows[low[i]], ..., rows[high[i] - 1]."""
        self.low, self.high, self.rows = low, high, rows
        self.widest = int((high - low).max(initial=0))

    def explode(self) -> Iterator[tuple[Index, Index]]:
        for place, stretch in exploded(self.low, self.high):
            yield self.rows[place], stretch

    def reduce(self, op: Op, columns: Sequence[Numbers]) -> list[Numbers]:
        if self._direct is not None:
            rows, starts = self._direct
            return op.fold([c[rows] for c in columns], starts)
        columns = [c[self.rows] for c in columns]
        out = [c[self.low] for c in columns]
        for level in self._levels:
            head, tail = _scans(op, columns, level.size)
            low, last = self.low[level.across], self.high[level.across] - 1
            _put(out, level.across, op.merge([t[low] for t in tail], [h[last] for h in head]))
            _put(out, level.head, [h[self.high[level.head] - 1] for h in head])
            _put(out, level.tail, [t[self.low[level.tail]] for t in tail])
        return out

    @cached_property
    def _direct(self) -> tuple[Index, Index] | None:
        """Where stretches hardly overlap: all their rows, and where each starts among them."""
        sizes = self.high - self.low
        if sizes.sum() > 2 * len(self.rows):
            return None
        return self.rows[stretches(self.low, sizes)], np.cumsum(sizes) - sizes

    @cached_property
    def _levels(self) -> list[_BlockLevel]:
        left = np.flatnonzero(self.high - self.low > 1)
        levels, size = [], self.widest
        while len(left):
            level, left = self._settle(left, size)
            levels.append(level)
            power = 1 << (size - 1).bit_length()
            size = power if power > size else size // 2
        return levels

    def _settle(self, left: Index, size: int) -> tuple[_BlockLevel, Index]:
        low, high = self.low[left], self.high[left]
        across = low // size != (high - 1) // size
        head = ~across & (low % size == 0)
        tail = ~across & ~head & (high % size == 0)
        rest = left[~(across | head | tail)]
        return _BlockLevel(size, left[across], left[head], left[tail]), rest


def _put(out: Sequence[Numbers], where: Index | slice, values: Sequence[Numbers]) -> None:
    for column, new in zip(out, values, strict=True):
        column[where] = new


def _scans(op: Op, columns: Sequence[Numbers], size: int) -> tuple[list[Numbers], list[Numbers]]:
    """For each row, its block up to it and its block from it on."""
    padding = -len(columns[0]) % size
    blocks = []
    for column, zero in zip(columns, op.blank(), strict=True):
        padded = np.append(column, np.full(padding, zero, column.dtype)) if padding else column
        blocks.append(padded.reshape(-1, size))
    head = [b.reshape(-1) for b in op.scan(blocks)]
    tail = [b[:, ::-1].reshape(-1) for b in op.scan([b[:, ::-1] for b in blocks])]
    return head, tail


class RunningSpan(Span):
    """For each row, its group from the start up to it; floats add up in row order."""

    def __init__(self, starts: Index, rows: int) -> None:
        self.starts, self.rows = starts, rows
        self.sizes = np.diff(starts, append=rows)
        self.groups = np.repeat(np.arange(len(starts)), self.sizes)  # each row's group
        self.widest = int(self.sizes.max(initial=0))

    def explode(self) -> Iterator[tuple[Index, Index]]:
        return exploded(self.starts[self.groups], np.arange(1, self.rows + 1))

    @property
    def last(self) -> Index:
        """The last row of each group."""
        return self.starts + self.sizes - 1

    def reduce(self, op: Op, columns: Sequence[Numbers]) -> list[Numbers]:
        if op is ADD and columns[0].dtype.kind == "i":
            return [self.differences(columns[0])]
        out = [c.copy() for c in columns]
        order = np.argsort(-self.sizes, kind="stable")
        sizes, starts = self.sizes[order], self.starts[order]
        alone = _alone(sizes)
        for start, size in zip(starts[:alone], sizes[:alone], strict=True):
            part = slice(start, start + size)
            _put(out, part, [s[0] for s in op.scan([c[None, part] for c in columns])])
        self._abreast(op, out, starts[alone:], sizes[alone:])
        return out

    def differences(self, values: Numbers) -> Numbers:
        """Sums that may be subtracted: of integers, or of doubles that add up without rounding."""
        total = np.cumsum(values)
        before = (total - values)[self.starts]
        sums: Numbers = total - before[self.groups]
        return sums

    def _abreast(self, op: Op, out: Sequence[Numbers], starts: Index, sizes: Index) -> None:
        """All groups a row at a time; `sizes` fall."""
        state = [c[starts] for c in out]
        for step in range(1, int(sizes.max(initial=0))):
            live = int(np.searchsorted(-sizes, -step, side="left"))
            here = starts[:live] + step
            state = op.merge([s[:live] for s in state], [c[here] for c in out])
            _put(out, here, state)


def _alone(sizes: Index) -> int:
    """How many of the longest groups to run one by one, so that there are fewest steps."""
    if not len(sizes):
        return 0
    return int(np.argmin(np.arange(len(sizes) + 1) + np.append(sizes, 0)))
