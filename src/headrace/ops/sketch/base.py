"""What approximate aggregates have in common: sketches merged group by group, in bounded bands.

A sketch is decoded once, whatever number of windows it is part of. Sketches of one group are merged
together, so the cost is that of what the groups hold, and of nothing else. State is of bounded
size, which `memory` says beforehand.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from headrace.arrays import Column, Index, take
from headrace.ops.agg.base import Arguments, Synopsis
from headrace.ops.agg.groups import Finish, Grouping
from headrace.ops.agg.order import inverse, run_starts
from headrace.ops.agg.span import RunningSpan, Span
from headrace.ops.sketch.sizes import in_words

_ELEMENTS = 1 << 22  # elements of sketches that are merged at a time


class Decoded(Protocol):
    """The sketches of a column."""

    @property
    def sizes(self) -> Index:
        """The elements of each."""


D = TypeVar("D", bound=Decoded)


class Sketch(Synopsis, Generic[D]):
    """A synopsis of bounded size, whose result is not exact."""

    hashes = False  # it stores hashes of values: what they mean depends on the type of the column

    @abstractmethod
    def made(self, rows: Arguments, group: Index, groups: int) -> list[Column]:
        """The sketch of each group of rows."""

    @abstractmethod
    def decoded(self, columns: Sequence[Column]) -> D:
        """What the columns of partials hold."""

    @abstractmethod
    def union(self, sketches: D, rows: Index, group: Index, groups: int) -> list[Column]:
        """The sketch of each group of the sketches in `rows`, which lie group by group."""

    @abstractmethod
    def memory(self) -> int:
        """Bytes of state that a key, or a window of a key, has at most."""

    def room(self) -> str:
        """That, for `explain`."""
        return f"{in_words(self.memory())} per key at most"

    @abstractmethod
    def at_rest(self) -> dict[str, Any]:
        """What shapes the stored sketch besides its columns, as plain JSON."""

    @abstractmethod
    def words(self) -> list[str]:
        """The options as a user writes them."""

    @abstractmethod
    def numbers(self) -> list[int | float] | None:
        """The options as further arguments in SQL text; None if they cannot be written there."""

    def width(self) -> int:
        """Elements that the work on one group takes, besides those of its sketches."""
        return 0

    def partial(self, rows: Arguments, grouping: Grouping) -> Finish:
        ticket = grouping.ask_groups()
        return lambda: self.made(rows, grouping.groups_of(ticket), grouping.count)

    def merge(self, label: str, columns: Sequence[Column], grouping: Grouping) -> Finish:
        ticket = grouping.ask_groups()

        def finish() -> list[Column]:
            group = grouping.groups_of(ticket)
            rows = np.argsort(group, kind="stable")
            return self._banded(self.decoded(columns), rows, group[rows])

        return finish

    def combine(self, columns: Sequence[Column], span: Span) -> list[Column]:
        sketches = self.decoded(columns)
        bands = [self._banded(sketches, *band) for band in span.explode()]
        return _joined(bands)

    def running(self, columns: Sequence[Column], span: RunningSpan) -> tuple[Column, list[Column]]:
        """All groups a row at a time: as many steps as the longest group has rows."""
        state, live = take(columns, span.starts), np.arange(len(span.starts))
        results, at = [self.result(state)], [span.starts]
        final, ended = [], []
        for step in range(1, span.widest):
            lasts = span.sizes[live] > step
            final.append(take(state, np.flatnonzero(~lasts)))
            ended.append(live[~lasts])
            live = live[lasts]
            here = span.starts[live] + step
            before, added = take(state, np.flatnonzero(lasts)), take(columns, here)
            both = _joined([before, added])
            rows = np.arange(2 * len(live)).reshape(2, -1).T.reshape(-1)
            state = self._banded(self.decoded(both), rows, np.repeat(np.arange(len(live)), 2))
            results.append(self.result(state))
            at.append(here)
        after = take(_joined([*final, state]), inverse(np.concatenate([*ended, live])))
        return take(_joined([[r] for r in results]), inverse(np.concatenate(at)))[0], after

    def _banded(self, sketches: D, rows: Index, group: Index) -> list[Column]:
        """The union of each group; `group` rises, and no number of it is left out."""
        bands = []
        for low, high in self._bands(sketches.sizes[rows], group):
            first = int(group[low])
            count = int(group[high - 1]) - first + 1
            bands.append(self.union(sketches, rows[low:high], group[low:high] - first, count))
        return _joined(bands)

    def _bands(self, sizes: Index, group: Index) -> Iterator[tuple[int, int]]:
        """Stretches of whole groups with a bounded number of elements, or of one group."""
        starts = run_starts(group)
        ends = np.append(starts[1:], len(group))
        total = np.add.reduceat(sizes, starts) + self.width()
        used, first = np.cumsum(total), 0
        while first < len(starts):
            before = int(used[first - 1]) if first else 0
            stop = int(np.searchsorted(used, before + _ELEMENTS, side="right"))
            stop = max(stop, first + 1)
            yield int(starts[first]), int(ends[stop - 1])
            first = stop


def _joined(bands: Sequence[Sequence[Column]]) -> list[Column]:
    if len(bands) == 1:
        return list(bands[0])
    parts = zip(*bands, strict=True)
    return [pa.chunked_array([c for p in part for c in _chunks(p)]) for part in parts]


def _chunks(column: Column) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]
