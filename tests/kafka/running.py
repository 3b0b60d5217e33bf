"""The Kafka broker of this test run: started when the first test asks for it, stopped at the end.

A test that kills it starts it again: `kafka.restart()`. Topics are named apart by `new_topic`.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_names = itertools.count()


@cache
def broker() -> Any:
    """The broker, running; skips the test where Java, the jars or the client cannot be had."""
    pytest.importorskip("confluent_kafka", reason="there is no client: pip install confluent-kafka")
    from tools.kafka.broker import Broker, NoBroker

    folder = Path(tempfile.mkdtemp(prefix="headrace-kafka-"))
    try:
        lasting = {"log.retention.ms": "-1"}  # tests write records of any time
        started = Broker(folder, properties={"auto.create.topics.enable": "false", **lasting})
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(started.kill)
        started.start()
    except NoBroker as reason:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(str(reason))
    return started


@cache
def admin() -> Any:
    from confluent_kafka.admin import AdminClient

    soon = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}
    return AdminClient({"bootstrap.servers": broker().address, **soon})


def new_topic(
    partitions: int = 1, name: str | None = None, config: Mapping[str, str] | None = None
) -> str:
    """A topic that no other test has; it is there when this returns."""
    from confluent_kafka.admin import NewTopic

    name = name or f"topic-{os.getpid()}-{next(_names)}"
    lasting = {"retention.ms": "-1", **(config or {})}
    made = admin().create_topics([NewTopic(name, partitions, 1, config=lasting)])
    made[name].result(30)
    wait_for(lambda: _partitions(name) == partitions)
    return name


def delete_topic(name: str) -> None:
    admin().delete_topics([name])[name].result(30)
    wait_for(lambda: _partitions(name) == 0)


def add_partitions(name: str, total: int) -> None:
    from confluent_kafka.admin import NewPartitions

    admin().create_partitions([NewPartitions(name, total)])[name].result(30)
    wait_for(lambda: _partitions(name) == total)


def produce(topic: str, values: Iterable[Any], partition: int = 0, timestamp: int = 0) -> None:
    """Append values, or (key, value) pairs, to one partition; durable when this returns."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker().address, "linger.ms": 5})
    for one in values:
        key, value = one if isinstance(one, tuple) else (None, one)
        producer.produce(topic, value=value, key=key, partition=partition, timestamp=timestamp)
        producer.poll(0)
    assert producer.flush(60) == 0


def _partitions(name: str) -> int:
    found = admin().list_topics(timeout=10).topics.get(name)
    if found is None or found.error is not None:
        return 0
    return sum(p.leader >= 0 for p in found.partitions.values())


def wait_for(condition: Any, seconds: float = 30) -> None:
    """Until it holds; what a broker does by itself it does soon."""
    import time

    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.02)


def produce_transactions(topic: str, values: list[bytes], size: int) -> None:
    """Append values in transactions of `size`; after each, one of other values is aborted."""
    from confluent_kafka import Producer

    config = {"bootstrap.servers": broker().address, "transactional.id": f"{topic}-producer"}
    producer = Producer(config | {"log_level": 0})
    producer.init_transactions(60)
    for i in range(0, len(values), size):
        producer.begin_transaction()
        for value in values[i : i + size]:
            producer.produce(topic, value, partition=0)
        producer.commit_transaction(60)
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"never committed", partition=0)
        producer.flush(60)
        producer.abort_transaction(60)


def delete_records(topic: str, partition: int, before: int) -> None:
    """Remove the records before an offset, as retention does."""
    from confluent_kafka import TopicPartition

    for answer in admin().delete_records([TopicPartition(topic, partition, before)]).values():
        answer.result(30)
