"""A job on Spark that writes to two topics: every result once, also when it goes on later."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import headrace as hr
from tests.kafka.written import fresh, messages


def values(topic: str) -> Counter[tuple[object, ...]]:
    return Counter(tuple(json.loads(m.value()).values()) for m in messages(topic))


@pytest.mark.spark
def test_a_job_writes_to_two_topics_of_kafka_once(kafka, spark, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HEADRACE_LOG", str(tmp_path / "log"))
    log = hr.EmbeddedLog(tmp_path / "log")
    log.create("numbers", partitions=2, schema="n bigint, half bigint")
    even, every = fresh(), fresh()

    def run() -> None:
        job = hr.Job("numbers")
        numbers = job.read("log:numbers")
        place = f"kafka://{kafka.address}"
        numbers.where("n % 2 = 0").write(f"{place}/{even}", key="n", partitions=2)
        numbers.write(f"{place}/{every}", key="half", partitions=2, headers=["n"])
        hr.run(job, folder=str(tmp_path / "job"), until="now", quiet=True, max_batch=300).wait()

    for start in (0, 1_000):
        log.append("numbers", [{"n": n, "half": n // 2} for n in range(start, start + 1_000)])
        run()
        wanted = Counter((n, n // 2) for n in range(start + 1_000))
        assert values(every) == wanted
        assert values(even) == Counter({r: 1 for r in wanted if r[0] % 2 == 0})
