"""Admission control: how many rows the next epoch may read.

The aim is a batch time, from the first batch on: it starts small, grows while batches are
quick and shrinks when they are slow. With `max_batch` every epoch takes up to that many
rows instead, for those who want throughput more than latency.
"""

from __future__ import annotations

_FIRST = 20_000
_LEAST = 1_000
_GROWTH = 4.0
_SHRINK = 0.25


class Admission:
    def __init__(self, target_ms: int, max_batch: int | None = None) -> None:
        self._target, self._max = target_ms, max_batch
        self._allowed = _FIRST
        self._asked: int | None = None
        self._batches = 0

    @property
    def rows(self) -> int:
        return self._max if self._max is not None else self._allowed

    def took(self, rows: int) -> None:
        """An epoch of so many rows is about to run."""
        self._asked = rows

    def lasted(self, ms: float) -> None:
        """The epoch that was asked for has taken this long."""
        if self._asked is None:
            return
        asked, self._asked = self._asked, None
        self._batches += 1
        if self._batches == 1:  # says more about the start of the JVM than about rows
            self._allowed *= 2
        elif asked * 2 >= self._allowed or ms > self._target:
            factor = min(_GROWTH, max(_SHRINK, self._target / max(ms, 1.0)))
            self._allowed = max(_LEAST, int(min(asked, self._allowed) * factor))
