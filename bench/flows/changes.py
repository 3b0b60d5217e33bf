"""A row for each row: its number, and by how much it differs from the key's last.

A logic that takes all new rows of a key at once, which is a good deal faster than
`op.stateful_map`.
"""

from __future__ import annotations

from typing import Any

import bytewax.operators as op
import pyarrow as pa
from bytewax.dataflow import Dataflow

from bench.flows.files import Files, Out
from bench.functions import moved

SCHEMA = pa.schema([("sensor", pa.string()), ("n", pa.int64()), ("change", pa.float64())])
Seen = tuple[int, float | None]


class Changes(op.StatefulBatchLogic[float, tuple[int, float], Seen]):
    def __init__(self, seen: Seen | None) -> None:
        self._seen: Seen = seen or (0, None)

    def on_batch(self, values: list[float]) -> tuple[list[tuple[int, float]], bool]:
        n, last = self._seen
        given = []
        for celsius in values:
            n, change = moved(n, last, celsius)
            last = celsius
            given.append((n, change))
        self._seen = n, last
        return given, self.RETAIN

    def snapshot(self) -> Seen:
        return self._seen


def row(given: tuple[str, tuple[int, float]]) -> tuple[Any, ...]:
    return given[0], *given[1]


flow = Dataflow("changes")
readings = op.input("readings", flow, Files("sensor", "celsius"))
changes = op.stateful_batch("changes", readings, Changes)
op.output("out", op.map("row", changes, row), Out(SCHEMA))
