"""L: the embedded log: appending and reading, typed rows and small byte records, one process.

Everything is on disk and synced before it counts. Typed rows come as Arrow tables; byte records of
about 60 bytes are sent one by one with `hr.Producer`, and read as tables and one by one with
`hr.Consumer`. What was read is compared with what was written. There is no contender.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.measure import OURS, Lab
from bench.rows import Row, speed

TYPED, RECORDS = 1_000.0, 300.0  # k/s
WHAT = {
    "append": ("typed rows appended, 100 k a table", TYPED),
    "read": ("typed rows read and summed", TYPED),
    "send": ("byte records sent one by one", RECORDS),
    "poll": ("byte records read as tables", RECORDS),
    "iterate": ("byte records read one by one", RECORDS),
}


def rows(lab: Lab) -> list[Row]:
    typed, records = (400_000, 100_000) if lab.quick else (10_000_000, 2_000_000)
    params = {"typed": typed, "records": records, "table": 100_000}
    found = [lab.one("L", "l", OURS, params).figures for _ in range(lab.pairs_of(3))]
    return [_row(name, *WHAT[name], [float(f[name]) for f in found]) for name in WHAT]


def _row(name: str, what: str, target: float, rates: list[float]) -> Row:
    rate = statistics.median(rates)
    return Row(f"L {name}", what, speed(rate), "none", rate / 1e3, target=target, unit="k/s")


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import headrace as hr

    log = hr.EmbeddedLog(place / "log")
    return _typed(log, params["typed"], params["table"]) | _records(log, params["records"])


def _rate(count: int, work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def _typed(log: Any, count: int, size: int) -> dict[str, float]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    log.create("typed", 2, "sensor long, at timestamp, celsius double", key="sensor")
    random = np.random.default_rng(7)
    times = pa.array(np.arange(size)).cast(pa.timestamp("us", "UTC"))
    sensors, celsius = random.integers(0, 10_000, size), random.random(size)
    table = pa.table({"sensor": sensors, "at": times, "celsius": celsius})
    seen = {"rows": 0, "sum": 0}

    def append() -> None:
        for _ in range(count // size):
            log.append("typed", table)

    def read() -> None:
        for p, end in log.latest("typed").items():
            for _, chunk in log.read("typed", p, 0, end):
                seen["rows"] += chunk.num_rows
                seen["sum"] += pc.sum(chunk["sensor"]).as_py()

    figures = {"append": _rate(count, append), "read": _rate(count, read)}
    assert seen == {"rows": count, "sum": int(sensors.sum()) * (count // size)}
    return figures


def _records(log: Any, count: int) -> dict[str, float]:
    import headrace as hr

    log.create("records", 2)
    values = [
        b'{"sensor": %6d, "celsius": 21.5, "area": "hall of the mill"}' % i for i in range(1_000)
    ]
    seen = {"poll": 0, "iterate": 0}

    def send() -> None:
        with hr.Producer(log) as producer:
            for n in range(count):
                producer.send("records", values[n % 1_000])

    def poll() -> None:
        with hr.Consumer("records", "polls", log=log) as consumer:
            while seen["poll"] < count:
                batch = consumer.poll()
                seen["poll"] += 0 if batch is None else len(batch)

    def iterate() -> None:
        with hr.Consumer("records", "iterates", log=log) as consumer:
            for record in consumer:
                seen["iterate"] += len(record.value) > 0
                if seen["iterate"] == count:
                    return

    works = {"send": send, "poll": poll, "iterate": iterate}
    figures = {name: _rate(count, work) for name, work in works.items()}
    assert (
        seen
        == {"poll": count, "iterate": count}
        == {n: sum(log.latest("records").values()) for n in seen}
    )
    return figures
