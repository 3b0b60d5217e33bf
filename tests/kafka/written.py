"""Kafka topics as outputs under test, on the broker of this test run."""

from __future__ import annotations

import json
import os
import time
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.sinks import Sink, open_sink
from headrace.testing.output_drivers import SCHEMA, OutputCase
from tests.kafka.running import admin, broker

_numbers = count()


def messages(topic: str) -> list[Any]:
    """All committed messages of a topic, by partition and offset; none if there is no topic."""
    from confluent_kafka import KafkaError, TopicPartition

    consumer = _consumer(os.getpid())
    about = consumer.list_topics(topic, timeout=10).topics[topic]
    if about.error is not None:
        return []
    waiting, found = set(about.partitions), list[Any]()
    _settled([TopicPartition(topic, p) for p in waiting])
    consumer.assign([TopicPartition(topic, p, 0) for p in sorted(waiting)])
    while waiting:
        for message in consumer.consume(1_000, 0.02):
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                waiting.discard(message.partition())
    consumer.unassign()
    return sorted(found, key=lambda m: (m.partition(), m.offset()))


def _settled(places: list[Any]) -> None:
    """Wait a moment until what is committed can be seen: Kafka answers before that. What a driver
    that crashed has left open stays so."""
    from confluent_kafka import IsolationLevel
    from confluent_kafka.admin import OffsetSpec

    end = time.monotonic() + 2
    latest = {place: OffsetSpec.latest() for place in places}
    while time.monotonic() < end:
        levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        asked = [admin().list_offsets(latest, isolation_level=level) for level in levels]
        committed, written = ([a[p].result().offset for p in places] for a in asked)
        if committed == written:
            return


@cache
def _consumer(pid: int) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": broker().address, "group.id": "tests", "log_level": 0,
            "isolation.level": "read_committed", "enable.partition.eof": True,
            "enable.auto.commit": False, "fetch.wait.max.ms": 5,
            "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200,
        }
    )  # fmt: skip


def opened(topic: str, schema: pa.Schema, tmp: Path, name: str = "o", **options: Any) -> Sink:
    uri = f"kafka://{broker().address}/{topic}"
    return open_sink(uri, schema, {"partitions": 3, **options}, str(tmp / "job"), name)


def fresh() -> str:
    """The name of a topic that no other test has; it is not there yet."""
    return f"out-{os.getpid()}-{next(_numbers)}"


def case(tmp: Path, **options: Any) -> OutputCase:
    """An output to a topic of its own, for the suite of all outputs."""
    topic = fresh()

    def rows() -> list[tuple[Any, ...]]:
        return sorted(tuple(json.loads(m.value()).values()) for m in messages(topic))

    return OutputCase(lambda: opened(topic, SCHEMA, tmp, **options), rows)
