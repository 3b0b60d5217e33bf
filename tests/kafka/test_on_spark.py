"""A Kafka input on real Spark: read in the tasks, while the broker is killed and started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from tests.kafka.running import new_topic, produce, wait_for


@pytest.mark.spark
def test_a_job_on_spark_survives_its_broker(spark: Any, kafka: Any, tmp_path: Path) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    topic = new_topic(2)
    for p in (0, 1):
        produce(topic, [b'{"n": %d}' % n for n in range(p * 1000, p * 1000 + 1000)], p)
    job = hr.Job("kafka on spark", folder=str(tmp_path / "job"))
    uri = f"kafka://{kafka.address}/{topic}"
    read = job.read(uri, schema="n bigint, p int", partition="p", group="on-spark", name="in")
    sums = read.key_by("p").agg(c=hr.count(), s=hr.sum("n"), unbounded=True)
    sums.write("collect:", name="sums")
    run = hr.run(job, master="local[2]")

    def counted() -> dict[int, int]:
        rows = run.output("sums").to_pylist()
        return {r["p"]: r["c"] for r in rows}

    wait_for(lambda: counted() == {0: 1000, 1: 1000}, 60)
    kafka.kill()
    wait_for(lambda: any("no Kafka broker answers" in w for w in run.status.warnings), 60)
    kafka.start()
    produce(topic, [b'{"n": 1}'] * 10, 1)
    wait_for(lambda: counted() == {0: 1000, 1: 1010}, 60)
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "on-spark"})
    places = [TopicPartition(topic, p) for p in (0, 1)]

    def committed() -> list[int]:
        """Beside the job, and the broker has to load its groups again."""
        try:
            return [p.offset for p in consumer.committed(places, timeout=30)]
        except KafkaException:
            return []

    wait_for(lambda: committed() == [1000, 1010], 60)
    consumer.close()
    run.stop()
    assert not run.status.warnings
