"""Kafka for the benchmarks: a broker of the run's own, topics filled from files, topics read back.

The broker is started on free ports when a job needs it, and stopped with the job. Spark's
connector comes from Maven Central as the broker does; there is none for this version of Spark, so
it is the newest that runs on it.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.data import CACHE
from bench.measure import Failed

PARTITIONS = 2
_BATCH = 10_000  # records passed to a producer, or taken from a consumer, at once
_PATIENCE = 60  # seconds
PRODUCER = {
    "log_level": 0,
    "linger.ms": 5,
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 1 << 20,
    "batch.num.messages": 100_000,
}


class NoKafka(Failed):
    """There is no broker to be had here."""


@contextmanager
def broker() -> Iterator[str]:
    """The address of a broker that runs meanwhile."""
    from tools.kafka.broker import Broker, NoBroker

    folder = CACHE / "work" / f"broker-{uuid.uuid4().hex[:12]}"
    try:
        with Broker(folder) as running:
            yield running.address
    except NoBroker as cause:
        raise NoKafka(f"Kafka: {cause}") from cause
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def connector() -> str:
    """Spark's connector and what it needs, as `spark.jars` wants them."""
    from tools.kafka.jars import connector_jars

    return ",".join(str(path) for path in connector_jars())


def create(address: str, topic: str, partitions: int = PARTITIONS) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    wanted = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([wanted])[topic].result(_PATIENCE)


def fill(address: str, topic: str, folder: str) -> None:
    """The lines of all files as records, dealt out to the partitions in turn."""
    create(address, topic)
    to = producer(address)
    for file in sorted(Path(folder).iterdir()):
        lines = file.read_bytes().splitlines()
        for at in range(0, len(lines), _BATCH):
            for p in range(PARTITIONS):
                some = [{"value": line} for line in lines[at + p : at + _BATCH : PARTITIONS]]
                if to.produce_batch(topic, some, partition=p) < len(some):
                    raise Failed(f"Kafka: topic {topic} could not be filled")
            to.poll(0)
        if to.flush(_PATIENCE):
            raise Failed(f"Kafka: topic {topic} could not be filled")


def producer(address: str, **more: Any) -> Any:
    """As a careful user sets it up for throughput; a record counts when the broker has it."""
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": address, "acks": "all", **PRODUCER, **more})


@contextmanager
def consumer(address: str, topic: str, partitions: int = PARTITIONS) -> Iterator[Any]:
    """A consumer of committed records from the beginning, which says where a partition ends."""
    from confluent_kafka import Consumer, TopicPartition

    opened: Any = Consumer(
        {
            "bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "enable.partition.eof": True,
            "isolation.level": "read_committed", "fetch.queue.backoff.ms": 5,
        }
    )  # fmt: skip
    opened.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    try:
        yield opened
    finally:
        opened.close()


def values(address: str, topic: str, partitions: int = PARTITIONS) -> Iterator[list[bytes]]:
    """The committed values of a topic, to its end."""
    from confluent_kafka import KafkaError

    left = set(range(partitions))
    with consumer(address, topic, partitions) as opened:
        while left:
            messages = opened.consume(_BATCH, 0.1)
            errors = [m for m in messages if m.error() is not None]
            for message in errors:
                if message.error().code() != KafkaError._PARTITION_EOF:
                    raise Failed(f"Kafka: topic {topic} cannot be read: {message.error()}")
                left.discard(message.partition())
            good = [m for m in messages if m.error() is None] if errors else messages
            yield [m.value() for m in good]


def read_to_files(address: str, topic: str, schema: str, out: Path) -> None:
    """The JSON records of a topic as a Parquet file, for a digest."""
    import duckdb
    import pyarrow as pa

    found = pa.table({"value": [v.decode() for some in values(address, topic) for v in some]})
    out.mkdir()
    columns = ", ".join(f"json_extract_string(value, '$.{c}')::{t} AS {c}"
                        for c, t in (column.split() for column in schema.split(", ")))  # fmt: skip
    with duckdb.connect() as connection:
        connection.register("found", found)
        connection.execute(f"COPY (SELECT {columns} FROM found) TO '{out}/rows.parquet'")
