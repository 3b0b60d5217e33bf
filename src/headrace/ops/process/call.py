"""The call that a process function is in: what it may ask, and what it asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

EVENT, CLOCK = 0, 1


class Call:
    """One for all calls of an epoch; what it holds is set before each."""

    __slots__ = (
        "asked", "by_clock", "clock", "given", "input", "key", "time", "watermark",
    )  # fmt: skip

    def __init__(self, watermark: int, clock: int) -> None:
        self.watermark, self.clock = watermark, clock
        self.key: Any = None
        self.input = ""
        self.time: int | None = None
        self.by_clock = False  # in a timer: whether it was set by the clock
        self.asked: list[tuple[int, int, bool]] = []
        self.given: list[tuple[str, Any]] = []

    def timer(self, at: int) -> None:
        """Call on_timer when the watermark passes `at`, in ms."""
        self.asked.append((EVENT, int(at), True))

    def cancel(self, at: int) -> None:
        """Forget the timer at `at`."""
        self.asked.append((EVENT, int(at), False))

    def clock_timer(self, at: int) -> None:
        """Call on_timer when the clock passes `at`, in ms."""
        self.asked.append((CLOCK, int(at), True))

    def cancel_clock(self, at: int) -> None:
        """Forget the timer that the clock would have fired at `at`."""
        self.asked.append((CLOCK, int(at), False))

    def emit(self, output: str, row: Any) -> None:
        """Give a row to a side output."""
        self.given.append((output, row))

    def forget(self) -> None:
        self.asked.clear()
        self.given.clear()


def many(given: Any) -> list[Any]:
    """Nothing, one row, a list of rows or a generator: as rows."""
    if given is None:
        return []
    if isinstance(given, list):
        return given
    return list(given) if isinstance(given, Iterator) else [given]
