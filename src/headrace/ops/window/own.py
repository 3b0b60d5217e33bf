"""Windows of the user's own: a class that says where a row goes and which windows merge.

The user's code is called once per row, and once per pair of neighbouring windows; all that
happens inside the windows stays vectorised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.arrays import Times
from headrace.at_rest import Identified
from headrace.chunk import visible
from headrace.clock import FURTHEST, MIN_TIME
from headrace.ops.window.aligned import Interval
from headrace.ops.window.assigners import Joined, Placed
from headrace.rows import rows_of


class WindowAssigner:
    """Subclass me: `assign(time, row)` gives the windows of a row, (start, end) in ms.

    With a method `merge(first, second)` windows of a key may become one: it is asked for two
    neighbours, the earlier first, and gives the window they make together, or None.
    """

    def assign(self, time: int, row: object) -> Iterable[tuple[int, int]]:
        """The windows of a row, each [start, end) in milliseconds."""
        raise NotImplementedError


@dataclass(frozen=True)
class OwnAssigner(Identified):
    """A user's assigner, as the operator sees it."""

    user: WindowAssigner
    slack: int = 0
    by_time: bool = False
    merges: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "merges", callable(getattr(self.user, "merge", None)))

    def at_rest(self) -> str:
        return type(self.user).__qualname__.split("<locals>.")[-1]

    def place(self, times: Times, rows: pa.Table) -> Placed:
        found: list[tuple[int, int, int]] = []
        for i, (time, row) in enumerate(zip(times.tolist(), rows_of(visible(rows)), strict=True)):
            found.extend((i, *self._bounds(window)) for window in self.user.assign(time, row))
        placed = np.array(found, np.int64).reshape(-1, 3)
        return Placed(placed[:, 0], placed[:, 1], placed[:, 2])

    def _bounds(self, window: tuple[int, int]) -> tuple[int, int]:
        start, end = window
        if not -FURTHEST <= start < end <= FURTHEST:
            raise ValueError(f"{self} gave the window ({start}, {end}), which is empty or endless")
        return start, end

    def reach(self, times: Times, rows: pa.Table) -> Times:
        placed = self.place(times, rows)
        last = np.full(len(times), MIN_TIME)  # a row in no window is late for all
        np.maximum.at(last, placed.row, placed.end)
        return last

    def join(self, key: Times, start: Times, end: Times) -> Joined:
        order = np.lexsort((end, start, key)).tolist()
        group = np.empty(len(key), np.int64)
        found: list[tuple[int, Interval]] = []
        for i in order:
            mine, owner = Interval(int(start[i]), int(end[i])), int(key[i])
            merged = self._merge(found[-1][1], mine) if found and found[-1][0] == owner else None
            if merged is None:
                found.append((owner, mine))
            else:
                found[-1] = (owner, merged)
            group[i] = len(found) - 1
        bounds = np.array([(k, *w) for k, w in found], np.int64).reshape(-1, 3)
        return Joined(group, bounds[:, 1], bounds[:, 2], bounds[:, 0])

    def _merge(self, first: Interval, second: Interval) -> Interval | None:
        if first == second:
            return first
        made = self.user.merge(first, second)  # type: ignore[attr-defined]
        return None if made is None else Interval(*self._bounds(made))
