"""The timers of one key that are due in an epoch, and how far its rows may run before the next.

A row at a time runs before the timers at that time: these mean that everything up to it has been
seen. Timers by the clock have no place among rows; they come after them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headrace.clock import MIN_TIME
from headrace.ops.process.function import CLOCK, EVENT

DueTimer = tuple[int, int]  # its time and its domain


@dataclass(frozen=True, slots=True)
class TimerLimits:
    """Up to which times timers are due in an epoch."""

    event: int
    clock: int
    ordered: bool  # rows are held until the watermark has passed them

    def of(self, domain: int) -> int:
        return self.clock if domain == CLOCK else self.event


class TimersOfKey:
    """The due timers of a key, those of each domain as a heap."""

    __slots__ = ("clock", "event")

    def __init__(self, due: Iterable[DueTimer]) -> None:
        self.event: list[int] = []
        self.clock: list[int] = []
        for at, domain in due:
            heapq.heappush(self._of(domain), at)

    def __iter__(self) -> Iterator[DueTimer]:
        yield from ((at, EVENT) for at in self.event)
        yield from ((at, CLOCK) for at in self.clock)

    def _of(self, domain: int) -> list[int]:
        return self.clock if domain == CLOCK else self.event

    def add(self, at: int, domain: int) -> None:
        """Add a timer, unless the key has it."""
        if at not in self._of(domain):
            heapq.heappush(self._of(domain), at)

    def discard(self, at: int, domain: int) -> None:
        heap = self._of(domain)
        if at in heap:
            heap.remove(at)
            heapq.heapify(heap)

    def pop(self, before: int | None) -> DueTimer | None:
        """Take the next timer: by event time and before a row's time; None: of both domains."""
        if before is not None:
            found = bool(self.event) and self.event[0] < before
            return (heapq.heappop(self.event), EVENT) if found else None
        if not self.event and not self.clock:
            return None
        _, domain = min((heap[0], d) for d in (EVENT, CLOCK) if (heap := self._of(d)))
        return heapq.heappop(self._of(domain)), domain

    def end_of_rows(self, times: Sequence[int | None], rows: range) -> int:
        """The end of those of a key's rows that come before its next timer by event time."""
        if not self.event or not rows:
            return rows.stop
        return bisect_right(times, self.event[0], rows.start, rows.stop, key=_or_first)


def _or_first(time: int | None) -> int:
    """A row without event time comes before those that have one."""
    return MIN_TIME if time is None else time
