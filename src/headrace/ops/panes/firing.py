"""From panes to windows: what each window that ends now makes of its panes.

All windows that end in (before, after] are made in few passes, whatever their overlap: by a
grid of panes and keys where most keys have most panes, else by the stretch of panes that
each window of a key holds. How panes are stored, and until when, is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.arrays import Column, Index, Times, integers, take, timestamps
from headrace.chunk import HASH, TIME
from headrace.ops.agg.named import Aggregate, columns_of, naming
from headrace.ops.agg.order import by_number
from headrace.ops.agg.span import ADD, Numbers, Op, RangeSpan, Span, stretches
from headrace.ops.keys import key_numbers
from headrace.ops.window.aligned import Window

_BAND = 1 << 18  # panes taken at a time, or four windows' worth: bounds memory


@np.errstate(all="ignore")  # inf and NaN are values here, not accidents
def fire(
    panes: pa.Table,
    keys: Sequence[str],
    window: Window,
    aggs: Mapping[str, Aggregate],
    before: int,
    after: int,
) -> pa.Table:
    """A row for each key and window with before < end <= after that holds a pane of the key.

    `panes` has "__t" (where the pane starts), "__h", the keys and the partials, one row per
    pane and key, sorted by ("__t", "__h"). The result has the keys, "__h", "window_start",
    "window_end" and the aggregates, sorted by (window_end, "__h").
    """
    work = _PaneFiring([*keys, HASH], window, aggs)
    times = integers(panes[TIME])
    bands = _bands(times, window, before, after)
    return pa.concat_tables([work.band(panes, times, *band) for band in bands])


def _bands(times: Times, window: Window, before: int, after: int) -> list[tuple[int, int]]:
    """(before, after] in parts, so that each has a bounded number of panes."""
    cuts = [before]
    for time in times[_BAND::_BAND].tolist():
        if cuts[-1] + 4 * window.size <= time < after:
            cuts.append(time)
    return [*zip(cuts, [*cuts[1:], after], strict=True)]


@dataclass(frozen=True, slots=True)
class _PaneFiring:
    names: Sequence[str]  # of the columns that tell keys apart
    window: Window
    aggs: Mapping[str, Aggregate]

    def band(self, panes: pa.Table, times: Times, before: int, after: int) -> pa.Table:
        low, high = np.searchsorted(times, self.window.panes_between(before, after)).tolist()
        due, times = panes.slice(low, high - low), times[low:high]
        if self.window.tumbles or low == high:
            return self._tumbled(due, times)
        return self._slid(due, times, before, after)

    def _tumbled(self, panes: pa.Table, times: Times) -> pa.Table:
        results = {n: a.synopsis.result(columns_of(panes, n, a)) for n, a in self.aggs.items()}
        return self._table(panes.select(self.names), times + self.window.size, results)

    def _slid(self, panes: pa.Table, times: Times, before: int, after: int) -> pa.Table:
        identity = panes.select(self.names)
        key, first_row = key_numbers(identity)
        starts, count = _runs(times)
        first, last = self.window.end_range(before, after, starts)
        layout = PaneLayout(self.window, key, len(first_row), starts, count, first, last)
        span, number, key = layout.spans()
        results = {}
        for name, agg in self.aggs.items():
            with naming(name, agg):
                merged = agg.synopsis.combine(columns_of(panes, name, agg), span)
                results[name] = agg.synopsis.result(merged)
        keys = pa.table(take(identity.columns, first_row[key]), identity.column_names)
        return self._table(keys, self.window.end_of(number), results)

    def _table(self, identity: pa.Table, ends: Times, results: Mapping[str, Column]) -> pa.Table:
        columns = {name: identity[name] for name in self.names}
        starts = timestamps(ends - self.window.size)
        bounds = {"window_start": starts, "window_end": timestamps(ends)}
        return pa.table(columns | bounds | dict(results))


def _runs(times: Times) -> tuple[Times, Index]:
    """The distinct times of a sorted array, and how often each comes."""
    heads = np.flatnonzero(np.diff(times, prepend=times[0] - 1))
    return times[heads], np.diff(heads, append=len(times))


# How panes are arranged so that windows can be merged from them.
#
# Both ways give the windows of each key that hold one of its panes, window by window and key
# by key within one: a `Grid` where most keys have most panes, else `RangeSpan`.


_FEW_KEYS = 64  # fewer are not worth a step per line of the grid
_SPARSE = 3  # cells per pane beyond which a grid is mostly blank

Layout = tuple[Span, Times, Index]  # the windows, and the number and the key of each


@dataclass(frozen=True, slots=True)
class PaneLayout:
    """Panes in order of time, and the numbers of the windows to merge from them."""

    window: Window
    key: Index  # the number of each pane's key
    keys: int
    starts: Times  # distinct, sorted
    count: Index  # panes that start at each of them
    first: Times  # window that holds these and fires
    last: Times

    def spans(self) -> Layout:
        shape = self._shape()
        if shape.keys < _FEW_KEYS or shape.cells > _SPARSE * len(self.key):
            return self._sparse()
        return self._dense(shape)

    def _shape(self) -> Shape:
        size, windows = self.window.pane_size, int(self.last[-1] - self.first[0]) + 1
        return Shape(windows, self.window.size // size, self.window.slide // size, self.keys)

    def _dense(self, shape: Shape) -> Layout:
        origin = self.window.end_of(self.first[0]) - self.window.size
        line = (self.starts - origin) // self.window.pane_size
        grid = Grid(shape, np.repeat(line, self.count), self.key, lambda: self._sparse()[0])
        number, key = np.divmod(grid.present, shape.keys)
        return grid, number + self.first[0], key

    def _sparse(self) -> Layout:
        rows = np.argsort(self.key, kind="stable")
        heads = np.searchsorted(self.key[rows], np.arange(self.keys))
        first, last = (np.repeat(w, self.count)[rows] for w in (self.first, self.last))
        low, high, number = windows_of_keys(first, last, heads)
        order = by_number(number)
        low, high = low[order], high[order]
        return RangeSpan(low, high, rows), number[order], self.key[rows[low]]


def windows_of_keys(first: Times, last: Times, heads: Index) -> tuple[Index, Index, Times]:
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


# Windows over a grid of panes by keys: the way for keys that have most of their panes.
#
# Partials are put into cells, a line for each pane and a column for each key, blank where a
# key has none, so that every window is the same number of lines. Windows then cost two passes
# over the cells (van Herk, Gil and Werman), whatever their overlap, and nothing is subtracted.
# Everything comes out window by window, and key by key within one.


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
        cells = [self._cells(c, zero) for c, zero in zip(columns, op.blank(), strict=True)]
        shape = self.shape
        if shape.windows * shape.width <= 3 * shape.panes:  # little overlap
            reduced = self._each(op, cells)
        else:
            reduced = self._shared(op, cells)
        return [values.reshape(-1) for values in reduced]

    def _cells(self, column: Numbers, zero: object) -> Numbers:
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
