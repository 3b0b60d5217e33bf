"""Windows over a grid of panes by keys: the way for keys that have most of their panes.

Partials are laid into cells, a line for each pane and a column for each key, blank where a
key has none, so that every window is the same number of lines. Windows then cost two passes
over the cells (van Herk, Gil and Werman), whatever their overlap, and nothing is subtracted.
Everything comes out window by window, and key by key within one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace.ops.agg.groups import Index
from headrace.ops.agg.span import ADD, Numbers, Op, Span

_SHORT = 1 << 15  # rows of a window that 16 bits can count


@dataclass(frozen=True, slots=True)
class Shape:
    """`windows` windows of `width` panes, one every `step` panes, for `keys` keys."""

    windows: int
    width: int
    step: int
    keys: int

    @property
    def panes(self) -> int:
        return (self.windows - 1) * self.step + self.width

    @property
    def cells(self) -> int:
        return self.panes * self.keys


class Grid(Span):
    """Stretches are the windows of each key that hold a row; `rows` explodes them."""

    def __init__(self, shape: Shape, pane: Index, key: Index, rows: Callable[[], Span]) -> None:
        self.shape, self.widest = shape, shape.width
        self._at = pane * shape.keys + key
        self._rows = rows

    @cached_property
    def present(self) -> Index:
        """window * keys + key, for the windows of each key that hold a row."""
        ones = np.ones(len(self._at), np.int16 if self.widest < _SHORT else np.int64)
        return np.flatnonzero(self._windows(ADD, [ones])[0])

    def reduce(self, op: Op, columns: Sequence[Numbers]) -> list[Numbers]:
        return [values[self.present] for values in self._windows(op, columns)]

    def explode(self) -> Iterator[tuple[Index, Index]]:
        return self._rows().explode()

    def _windows(self, op: Op, columns: Sequence[Numbers]) -> list[Numbers]:
        cells = [self._laid(c, zero) for c, zero in zip(columns, op.blank(), strict=True)]
        shape = self.shape
        hardly = shape.windows * shape.width <= 3 * shape.panes  # overlap: the plain way is less
        made = self._each(op, cells) if hardly else self._shared(op, cells)
        return [values.reshape(-1) for values in made]

    def _laid(self, column: Numbers, zero: object) -> Numbers:
        lines = -(-self.shape.panes // self.shape.width) * self.shape.width
        cells = np.full(lines * self.shape.keys, zero, column.dtype)
        cells[self._at] = column
        return cells.reshape(lines, self.shape.keys)

    def _each(self, op: Op, cells: Sequence[Numbers]) -> list[Numbers]:
        """Every window from its own lines, all windows a line at a time."""
        first = np.arange(self.shape.windows) * self.shape.step
        state = [c[first] for c in cells]
        for line in range(1, self.shape.width):
            state = op.merge(state, [c[first + line] for c in cells])
        return state

    def _shared(self, op: Op, cells: Sequence[Numbers]) -> list[Numbers]:
        """Every window from the end of one block of lines and the beginning of the next."""
        width, keys = self.shape.width, self.shape.keys
        blocks = [c.reshape(-1, width, keys) for c in cells]
        head = _scan(op, blocks, range(width))
        tail = _scan(op, blocks, range(width - 1, -1, -1))
        first = np.arange(self.shape.windows) * self.shape.step
        out = [t[first] for t in tail]
        across = first[first % width != 0]
        merged = op.merge([t[across] for t in tail], [h[across + width - 1] for h in head])
        for values, new in zip(out, merged, strict=True):
            values[first % width != 0] = new
        return out


def _scan(op: Op, blocks: Sequence[Numbers], lines: range) -> list[Numbers]:
    """Running values along the lines of each block, as lines again."""
    out = [np.empty_like(b) for b in blocks]
    state = [b[:, lines[0]] for b in blocks]
    for line in lines:
        if line != lines[0]:
            state = op.merge(state, [b[:, line] for b in blocks])
        for values, new in zip(out, state, strict=True):
            values[:, line] = new
    return [values.reshape(-1, values.shape[2]) for values in out]
