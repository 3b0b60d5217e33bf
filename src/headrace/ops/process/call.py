"""The call that a process function is in: what it may ask, and what it asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.defensive_copy import RowCopier
from headrace.errors import PlanError

EVENT, CLOCK = 0, 1


class Call:
    """One for all calls of an epoch; what it holds is set before each.

    `no_timer` and `no_event_timer` say why timers cannot be set, where they cannot.
    """

    __slots__ = (
        "asked", "by_clock", "clock", "counts", "given", "input", "key", "no_event_timer",
        "no_timer", "outputs", "time", "watermark",
    )  # fmt: skip

    def __init__(
        self, watermark: int, clock: int, outputs: Mapping[str, RowCopier] | None = None
    ) -> None:
        self.watermark, self.clock, self.outputs = watermark, clock, outputs or {}
        self.no_timer = self.no_event_timer = ""
        self.key: Any = None
        self.input = ""
        self.time: int | None = None
        self.by_clock = False  # in a timer: whether it was set by the clock
        self.asked: list[tuple[int, int, bool]] = []
        self.given: list[tuple[str, Any]] = []
        self.counts: Counter[str] = Counter()

    def timer(self, at: int) -> None:
        """Call on_timer when the watermark passes `at`, in ms."""
        self._ask(EVENT, at, True)

    def cancel(self, at: int) -> None:
        """Forget the timer at `at`."""
        self._ask(EVENT, at, False)

    def clock_timer(self, at: int) -> None:
        """Call on_timer when the clock passes `at`, in ms."""
        self._ask(CLOCK, at, True)

    def cancel_clock(self, at: int) -> None:
        """Forget the timer that the clock would have fired at `at`."""
        self._ask(CLOCK, at, False)

    def _ask(self, domain: int, at: int, wanted: bool) -> None:
        why_not = self.no_timer or (self.no_event_timer if domain == EVENT else "")
        if why_not:
            raise PlanError(
                "HR-PROCESS-010",
                f"a timer cannot be set here: {why_not}",
                "See docs/guide/state-and-process.md, Timers.",
            )
        if not MIN_TIME < (at := int(at)) < MAX_TIME:
            raise ValueError(f"a timer at {at} ms would never fire: times are within ±2**62")
        self.asked.append((domain, at, wanted))

    def emit(self, output: str, row: Any) -> None:
        """Give a row to a side output."""
        if output not in self.outputs:
            raise PlanError(
                "HR-PROCESS-011",
                f"there is no side output {output!r}; there is "
                f"{', '.join(map(repr, self.outputs)) or 'none'}",
                'Declare it in the class: outputs = {"name": "column type, ..."}.',
            )
        self.given.extend((output, row) for row in self.outputs[output].all([row]))

    def count(self, name: str, n: int = 1) -> None:
        """Add `n` to a figure of your own, that the run shows."""
        self.counts[name] += int(n)

    def forget(self) -> None:
        self.asked.clear()
        self.given.clear()


def many(given: Any) -> list[Any]:
    """Nothing, one row, a list of rows or a generator: as rows."""
    if isinstance(given, list):
        return given
    if given is None:
        return []
    if isinstance(given, tuple | dict):  # asking for iterators takes longer
        return [given]
    return list(given) if isinstance(given, Iterator) else [given]
