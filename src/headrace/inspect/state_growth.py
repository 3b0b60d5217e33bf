"""State that grows while a run goes on: a warning when that of a step has doubled.

A step whose state has no bound is refused when the program is built, unless the user allows it.
This is about what was allowed, and becomes larger than expected: the warning comes while there
is time to do something about it, and seldom enough to be read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.files import size
from headrace.inspect.progress import Progress, short, span

FLOOR = 256_000_000  # bytes: below, no warning
_SOON = 7 * 86_400_000  # ms in which the disk would be full


class _Mark(NamedTuple):
    clock: int
    bytes: int


class StateGrowth:
    """What a run has seen of its state."""

    def __init__(self, free: Callable[[], int]) -> None:
        self._free = free  # bytes that the disk has left
        self._marks: dict[str, _Mark] = {}
        self._warned: dict[str, tuple[int, str]] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """The last warning of each step, unless its state has become small again."""
        return tuple(warning for _, warning in self._warned.values())

    def see(self, progress: Progress) -> list[str]:
        """Take note of an epoch; returns new warnings."""
        new = []
        for step, now in progress.held_bytes.items():
            mark = self._marks.setdefault(step, _Mark(progress.clock, now))
            if now >= max(FLOOR, 2 * mark.bytes):
                warning = self._sentence(step, progress, mark)
                self._marks[step], self._warned[step] = _Mark(progress.clock, now), (now, warning)
                new.append(warning)
            elif step in self._warned and now < self._warned[step][0] // 2:
                del self._warned[step]
                self._marks[step] = _Mark(progress.clock, now)
        return new

    def _sentence(self, step: str, progress: Progress, mark: _Mark) -> str:
        now, rows = progress.held_bytes[step], short(progress.held[step])
        grown, took = now - mark.bytes, max(progress.clock - mark.clock, 1)
        left = int(self._free() / grown * took)
        full = f"; at this pace the disk is full in {span(left)}" if left < _SOON else ""
        return (
            f"the state of {step!r} has grown from {size(mark.bytes)} to {size(now)} "
            f"({rows} rows) within {span(took)}{full}"
        )
