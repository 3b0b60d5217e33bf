"""Headrace without what a job measures of itself: only for the benchmark of what that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch


@contextmanager
def unmeasured() -> Iterator[None]:
    """In here no step is timed, no latency taken, and nothing of it is in a manifest."""
    from headrace.driver.measuring import Measuring
    from headrace.driver.unread_records import UnreadRecords
    from headrace.epoch.values import InputLooks
    from headrace.state.measures import Measures
    from headrace.task import split_reader
    from headrace.task.stopwatch import Stopwatch

    nothing: Any = nullcontext()
    with (
        patch.object(Stopwatch, "at", lambda self, step: nothing),
        patch.object(Stopwatch, "each", lambda self, step, items: items),
        patch.object(split_reader, "histogram", lambda numbers: Counter()),
        patch.object(UnreadRecords, "look", lambda self, *_: None),
        patch.object(UnreadRecords, "taken", lambda self, *_: InputLooks()),
        patch.object(Measuring, "after", lambda self, *_: Measures()),
        patch.object(Measuring, "published", lambda self, *_: None),
    ):
        yield
