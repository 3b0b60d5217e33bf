"""How long a task is at work in each step: its own time, without that of the steps behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Runs for one step at a time, or for none; a step entered from another interrupts it."""

    def __init__(self) -> None:
        self._step: str | None = None
        self._since = 0.0
        self._seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def at(self, step: str) -> Iterator[None]:
        """What happens in here is the work of `step`, but for what is that of others."""
        outer = self._to(step)
        try:
            yield
        finally:
            self._to(outer)

    def each(self, step: str, items: Iterable[T]) -> Iterator[T]:
        """The items; making each is the work of `step`, what is done with it is not."""
        rest = iter(items)
        while True:
            with self.at(step):
                try:
                    item = next(rest)
                except StopIteration:
                    return
            yield item

    @property
    def work(self) -> dict[str, float]:
        """Milliseconds by step, of what is over."""
        return {step: seconds * 1_000 for step, seconds in self._seconds.items()}

    def _to(self, step: str | None) -> str | None:
        now, before = perf_counter(), self._step
        if before is not None:
            self._seconds[before] += now - self._since
        self._step, self._since = step, now
        return before
