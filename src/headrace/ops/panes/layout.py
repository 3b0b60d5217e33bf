"""How panes are laid out so that windows can be made of them.

Both ways give the windows of each key that hold one of its panes, window by window and key
by key within one: a `Grid` where most keys have most panes, else `Ranges`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.ops.agg.grid import Grid, Shape
from headrace.ops.agg.groups import Index
from headrace.ops.agg.order import by_number
from headrace.ops.agg.span import Ranges, Span, stretches
from headrace.ops.window.aligned import Times, Window

_FEW_KEYS = 64  # fewer are not worth a step per line of the grid
_SPARSE = 3  # cells per pane beyond which a grid is mostly blank

Laid = tuple[Span, Times, Index]  # the windows, and the number and the key of each


@dataclass(frozen=True, slots=True)
class Layout:
    """Panes in order of time, and the numbers of the windows wanted of them."""

    window: Window
    key: Index  # the number of each pane's key
    keys: int
    starts: Times  # distinct, sorted
    count: Index  # panes that start at each of them
    first: Times  # window that holds these, and is wanted
    last: Times

    def made(self) -> Laid:
        shape = self._shape()
        if shape.keys < _FEW_KEYS or shape.cells > _SPARSE * len(self.key):
            return self._sparse()
        return self._dense(shape)

    def _shape(self) -> Shape:
        size, windows = self.window.pane_size, int(self.last[-1] - self.first[0]) + 1
        return Shape(windows, self.window.size // size, self.window.slide // size, self.keys)

    def _dense(self, shape: Shape) -> Laid:
        origin = self.window.end_of(self.first[0]) - self.window.size
        line = (self.starts - origin) // self.window.pane_size
        grid = Grid(shape, np.repeat(line, self.count), self.key, lambda: self._sparse()[0])
        number, key = np.divmod(grid.present, shape.keys)
        return grid, number + self.first[0], key

    def _sparse(self) -> Laid:
        rows = np.argsort(self.key, kind="stable")
        heads = np.searchsorted(self.key[rows], np.arange(self.keys))
        first, last = (np.repeat(w, self.count)[rows] for w in (self.first, self.last))
        low, high, number = _windows(first, last, heads)
        turn = by_number(number)
        low, high = low[turn], high[turn]
        return Ranges(low, high, rows), number[turn], self.key[rows[low]]


def _windows(first: Times, last: Times, heads: Index) -> tuple[Index, Index, Times]:
    """The stretch of rows [low, high) of each key's windows, and the windows' numbers.

    A row is in windows first to last, which rise within a key; keys begin at `heads`. Going
    by the row that a window begins with, and by the row that it ends with, gives the same
    windows in the same order.
    """
    fresh, until = first.copy(), last.copy()
    fresh[1:] = np.maximum(first[1:], last[:-1] + 1)
    fresh[heads] = first[heads]
    until[:-1] = np.minimum(last[:-1], first[1:] - 1)
    until[heads[1:] - 1] = last[heads[1:] - 1]
    begun, ended = (np.maximum(n, 0) for n in (last - fresh + 1, until - first + 1))
    rows = np.arange(len(first))
    return np.repeat(rows, begun), np.repeat(rows + 1, ended), stretches(fresh, begun)
