"""A Python function over every so many rows of a key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import bytewax.operators as op
import pyarrow as pa
from bytewax.dataflow import Dataflow

from bench.flows.files import ABOUT, Files, Out
from bench.functions import spread

SCHEMA = pa.schema(
    [("sensor", pa.string()), ("n", pa.int64()), ("median", pa.float64()), ("range", pa.float64())]
)


def result(window: tuple[str, list[float]]) -> tuple[Any, ...]:
    sensor, values = window
    return sensor, len(values), *spread(values)


flow = Dataflow("hundreds")
readings = op.input("readings", flow, Files("sensor", "celsius"))
windows = op.collect("windows", readings, timedelta(hours=1), max_size=ABOUT["size"])
op.output("out", op.map("spread", windows, result), Out(SCHEMA))
