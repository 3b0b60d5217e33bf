"""L: the embedded log: appending and reading, typed rows and small byte records, one process.

Everything is on disk and synced before it counts. Typed rows come as Arrow tables; byte records of
about 60 bytes are sent one by one with `hr.Producer`, and read as tables and one by one with
`hr.Consumer`. What was read is compared with what was written. Beside it Kafka on the same machine,
by confluent-kafka, for information: typed rows are JSON records there (made and read by columns), a
broker holds them, and it does not sync its files.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import kafka
from bench.measure import OURS, Lab, Sample
from bench.rows import Row, speed

KAFKA = "by_kafka"
SHARE = 5  # Kafka gets so much fewer typed rows, which it takes longer for
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
    try:
        with kafka.broker() as address:
            found = _rounds(lab, {**params, "brokers": address}, (OURS, KAFKA))
    except kafka.NoKafka as why:
        lab.say(f"  L: {why}")
        found = _rounds(lab, params, (OURS,))
    return [_row(name, *WHAT[name], found) for name in WHAT]


def _rounds(lab: Lab, params: Mapping[str, Any], whos: tuple[str, ...]) -> list[Sample]:
    """Contenders in turn; results are checked in each."""
    pairs = [whos[:: 1 if rep % 2 == 0 else -1] for rep in range(lab.pairs_of(2))]
    return [lab.one("L", "l", who, params) for pair in pairs for who in pair]


def _row(name: str, what: str, target: float, found: list[Sample]) -> Row:
    def rate(who: str) -> float | None:
        rates = [float(s.figures[name]) for s in found if s.who == who]
        return statistics.median(rates) if rates else None

    ours, theirs = rate(OURS) or 0.0, rate(KAFKA)
    beside = "none" if theirs is None else f"{speed(theirs)} Kafka"
    return Row(f"L {name}", what, speed(ours), beside, ours / 1e3, target=target, unit="k/s")


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import headrace as hr

    log = hr.EmbeddedLog(place / "log")
    return _typed(log, params["typed"], params["table"]) | _records(log, params["records"])


def _rate(count: int, work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def _typed(log: Any, count: int, size: int) -> dict[str, float]:
    import pyarrow.compute as pc

    log.create("typed", 2, "sensor long, at timestamp, celsius double", key="sensor")
    table, total = _table(size)
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
    assert seen == {"rows": count, "sum": total * (count // size)}
    return figures


def _table(size: int) -> tuple[Any, int]:
    """Typed rows, and the sum of their sensors."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(7)
    times = pa.array(np.arange(size)).cast(pa.timestamp("us", "UTC"))
    sensors, celsius = random.integers(0, 10_000, size), random.random(size)
    table = pa.table({"sensor": sensors, "at": times, "celsius": celsius})
    return table, int(sensors.sum())


def _records(log: Any, count: int) -> dict[str, float]:
    import headrace as hr

    log.create("records", 2)
    values = _values()
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


def _values() -> list[bytes]:
    """Small records."""
    return [
        b'{"sensor": %6d, "celsius": 21.5, "area": "hall of the mill"}' % i for i in range(1_000)
    ]


def by_kafka(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    """The same by confluent-kafka, in two topics of two partitions."""
    typed, size = params["typed"] // SHARE, params["table"]
    figures = _typed_in_kafka(params["brokers"], f"typed-{place.name}", typed, size)
    return figures | _records_in_kafka(
        params["brokers"], f"records-{place.name}", params["records"]
    )


def _typed_in_kafka(brokers: str, topic: str, count: int, size: int) -> dict[str, float]:
    import io

    import pyarrow.compute as pc
    import pyarrow.json as pj

    from headrace.sinks.formats import json_values

    kafka.create(brokers, topic)
    table, total = _table(size)
    seen = {"rows": 0, "sum": 0}
    producer = kafka.producer(brokers)

    def append() -> None:
        for _ in range(count // size):
            values = json_values(table).to_pylist()
            for at in range(0, size, 10_000):
                some = [{"value": value} for value in values[at : at + 10_000]]
                assert producer.produce_batch(topic, some) == len(some)
                producer.poll(0)
        assert producer.flush(60) == 0

    def read() -> None:
        for some in kafka.values(brokers, topic):
            if some:
                rows = pj.read_json(io.BytesIO(b"\n".join(some)))
                seen["rows"] += rows.num_rows
                seen["sum"] += pc.sum(rows["sensor"]).as_py()

    figures = {"append": _rate(count, append), "read": _rate(count, read)}
    assert seen == {"rows": count, "sum": total * (count // size)}
    return figures


def _records_in_kafka(brokers: str, topic: str, count: int) -> dict[str, float]:
    import pyarrow as pa

    kafka.create(brokers, topic)
    values = _values()
    seen = {"poll": 0, "iterate": 0}
    producer = kafka.producer(brokers)

    def send() -> None:
        for n in range(count):
            producer.produce(topic, values[n % 1_000])
            if n % 1_000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0

    def poll() -> None:
        for some in kafka.values(brokers, topic):
            seen["poll"] += len(pa.array(some, pa.binary()))

    def iterate() -> None:
        with kafka.consumer(brokers, topic) as consumer:
            while seen["iterate"] < count:
                message = consumer.poll(1.0)
                if message is not None and message.error() is None:
                    seen["iterate"] += len(message.value()) > 0

    works = {"send": send, "poll": poll, "iterate": iterate}
    figures = {name: _rate(count, work) for name, work in works.items()}
    assert seen == {"poll": count, "iterate": count}
    return figures
