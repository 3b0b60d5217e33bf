"""A driver that stands still within an output's own code, while a newer one delivers.

As a process that the machine does not run for a while: it goes on afterwards, as if nothing had
been. The newer one is a thread; if it waits for something that the older one holds (a lock, a
transaction), the older goes on as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from headrace.errors import HeadraceError
from headrace.testing.crash_lines import CrashPoints
from headrace.testing.output_drivers import ALONE, OutputCase, agree, copied, expected, made, stage

_WAITS = 0.5  # seconds for a newer driver that is kept waiting


class StopPoints(CrashPoints):
    """Calls `meanwhile` at the n-th place in an output's code, instead of crashing there."""

    def __init__(self, sink: Any, at: int | None, meanwhile: Callable[[], object]) -> None:
        super().__init__(sink, at)
        self._meanwhile = meanwhile

    def _pass(self, frame: FrameType) -> None:
        self.passed.append(f"{frame.f_code.co_name}, line {frame.f_lineno}")
        if len(self.passed) == self._at:
            self._meanwhile()


def stop_inside(case: OutputCase, at: int | None) -> list[str]:
    """Publish an epoch that stops at the `at`-th place while a newer driver publishes it and the
    next one, and compare; what was passed."""
    sink = made(case.open())
    sink.publish(0, stage(sink, 0), ALONE)
    first, second = stage(sink, 1), stage(sink, 2)

    def newer() -> None:
        other = made(case.open())
        other.publish(1, first, ALONE)
        other.publish(2, second, ALONE)

    def deliver() -> None:
        with suppress(HeadraceError):  # it may be refused, as long as nothing is lost
            newer()

    driver = threading.Thread(target=deliver, daemon=True)

    def meanwhile() -> None:
        driver.start()
        driver.join(_WAITS)

    points = StopPoints(copied(case.open()), at, meanwhile)
    with suppress(HeadraceError):
        points.run(lambda: points.sink.publish(1, first, ALONE))
    where = points.passed[at - 1] if at is not None and at <= len(points.passed) else ""
    if driver.ident is not None:
        driver.join()
    newer()  # as a start does
    try:
        agree(case, expected(3))
    except AssertionError as cause:
        raise AssertionError(
            f"rows are lost or doubled if another driver delivers while one is at {where}: {cause}"
        ) from cause
    return points.passed
