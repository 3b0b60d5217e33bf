"""A Python function over every so many rows of a key.

`op.collect` would do, but asks for the time with every row; a logic of one's own that takes
all new rows of a key at once is a good deal faster.
"""

from __future__ import annotations

from typing import Any

import bytewax.operators as op
import pyarrow as pa
from bytewax.dataflow import Dataflow

from bench.flows.files import ABOUT, Files, Out
from bench.functions import spread

SIZE = ABOUT["size"]
SCHEMA = pa.schema(
    [("sensor", pa.string()), ("n", pa.int64()), ("median", pa.float64()), ("range", pa.float64())]
)


class Hundreds(op.StatefulBatchLogic[float, list[float], list[float]]):
    """Holds the values of a key's open window."""

    def __init__(self, held: list[float] | None) -> None:
        self._held = held or []

    def on_batch(self, values: list[float]) -> tuple[list[list[float]], bool]:
        held = self._held
        held += values
        whole = len(held) // SIZE * SIZE
        full = [held[i : i + SIZE] for i in range(0, whole, SIZE)]
        del held[:whole]
        return full, not held

    def on_eof(self) -> tuple[list[list[float]], bool]:
        return [self._held], self.DISCARD

    def snapshot(self) -> list[float]:
        return [*self._held]


def result(window: tuple[str, list[float]]) -> tuple[Any, ...]:
    sensor, values = window
    return sensor, len(values), *spread(values)


flow = Dataflow("hundreds")
readings = op.input("readings", flow, Files("sensor", "celsius"))
windows = op.stateful_batch("windows", readings, Hundreds)
op.output("out", op.map("spread", windows, result), Out(SCHEMA))
