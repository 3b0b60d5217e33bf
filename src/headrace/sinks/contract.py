"""The contract of a sink: staged in tasks, published by epoch, published twice without harm.

    stage    in a task: durable, invisible to readers, under names that nobody else uses
    publish  on the driver, after the manifest: makes an epoch visible; in epoch order, and
             again after a crash, with the same references
    discard  removes what was staged and is in no manifest

A reference is a JSON-able dict with at least `file` (unique within the output) and `rows`.
A sink is small and picklable. Nothing here knows about Spark.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Protocol

import pyarrow as pa

EXACTLY_ONCE = "exactly once"
AT_LEAST_ONCE = "at least once"

Reference = dict[str, Any]


class Sink(Protocol):
    schema: pa.Schema

    @property
    def guarantee(self) -> str:
        """What a reader of the output sees when the job is killed: see the constants above."""
        ...

    def check(self) -> None:
        """Raise OutputError, with a hint, if the output cannot be written."""
        return None

    def stage(self, table: pa.Table, epoch: int, unique: str) -> list[Reference]:
        """Write the rows where no reader sees them; durable when this returns."""
        ...

    def publish(self, epoch: int, staged: list[Reference]) -> None:
        """Make what was staged visible; a second call changes nothing."""
        ...

    def discard(self, live: Set[str], upto: int | None = None) -> None:
        """Remove staged files that are not in `live`, the `file`s that manifests name.

        While tasks may be staging, say `upto`: only leftovers of that epoch and before go.
        """
        return None

    def close(self) -> None:
        return None
