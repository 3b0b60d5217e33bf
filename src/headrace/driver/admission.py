"""Admission control: how many rows the next epoch may read.

The aim is a batch time, from the first batch on: it starts small, grows while batches are quick
and shrinks when they are slow. What a batch costs whatever it holds cannot be made less by reading
less, so where that alone takes more than half the aim, the aim is twice that. With `max_batch`
every epoch takes up to that many rows instead, for those who want throughput more than latency.
"""

from __future__ import annotations

_FIRST = 20_000
_LEAST = 1_000
_GROWTH = 4.0
_SHRINK = 0.25
_INFORMATIVE = 1.5  # batches whose rows differ by this factor show what rows cost


class Admission:
    def __init__(
        self, target_ms: int, max_batch: int | None = None, first: int | None = None
    ) -> None:
        self._target, self._max = target_ms, max_batch
        self._allowed = _FIRST if first is None else first
        self._least = min(_LEAST, self._allowed)
        self._admitted: int | None = None
        self._shed = False  # the epoch drops records, which take time as well
        self._batches = 0
        self._last: tuple[int, float] | None = None  # rows and time of a batch before
        self._fixed = 0.0  # about what a batch takes without rows

    @property
    def rows(self) -> int:
        return self._max if self._max is not None else self._allowed

    @property
    def admitted(self) -> int:
        """Rows of the epoch that was planned last."""
        return self._admitted or 0

    def took(self, rows: int, *, shed: bool = False) -> None:
        """An epoch of so many rows is about to run, besides those that it sheds."""
        self._admitted, self._shed = rows, shed

    def lasted(self, ms: float) -> None:
        """The epoch that was planned last has taken this long."""
        if self._admitted is None:
            return
        admitted, self._admitted = self._admitted, None
        self._batches += 1
        if self._batches == 1:  # says more about the start of the JVM than about rows
            self._allowed *= 2
            return
        if not self._shed:
            self._learn(admitted, ms)
        aim = max(self._target, 2 * self._fixed)
        if admitted * 2 >= self._allowed or ms > aim:
            factor = (aim - self._fixed) / max(ms - self._fixed, 1.0)
            factor = min(_GROWTH, max(_SHRINK, factor))
            self._allowed = max(self._least, int(min(admitted, self._allowed) * factor))

    def _learn(self, rows: int, ms: float) -> None:
        """From two batches of different size: what a row costs, and what is left without rows."""
        if self._last is None:
            self._last = rows, ms
            return
        other, took = self._last
        if max(rows, other) <= _INFORMATIVE * min(rows, other):
            self._fixed = min(self._fixed, ms)
            return
        per_row = max(0.0, (took - ms) / (other - rows))
        fixed = max(0.0, min(ms, took, ms - per_row * rows))
        self._fixed, self._last = (self._fixed + fixed) / 2, (rows, ms)
