"""What a loop's body sees, and when the loop is over.

The body is called with the rows that go round and a `Loop`; what it gives goes round again.
Nothing here knows of state or batches.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import pyarrow as pa

SAME, EMPTY = "same", "empty"
Until = str | Callable[[pa.Table, pa.Table], bool] | None


class Loop:
    """The loop that the body is called by."""

    def __init__(self, rows: pa.Table, kept: MutableMapping[str, pa.Table]) -> None:
        self.rows = rows  # the new rows of this batch
        self.kept = kept  # Arrow tables by name; assign to keep another one
        self.turn = 0  # how often the rows went round
        self.scratch: dict[str, Any] = {}  # for the body, forgotten after the batch
        self.emitted: list[Any] = []

    def emit(self, rows: Any) -> None:
        """Give rows to the output."""
        self.emitted.append(rows)


class Endless(Exception):
    """A loop that did not come to its end."""


def is_over(until: Until, before: pa.Table, after: pa.Table) -> bool:
    """Whether to stop after a turn; with nothing left to go round, always."""
    if not after.num_rows:
        return True
    if until == SAME:
        return bool(after.equals(before))
    return bool(until(before, after)) if callable(until) else False
