"""A broker that is killed under load: the job waits, says so, goes on, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.schema import schema_of
from headrace.sources import open_source
from headrace.testing import Driver
from tests.kafka.running import broker, new_topic, produce, wait_for


def job(topic: str) -> hr.Job:
    job = hr.Job("gone")
    read = job.read(f"kafka://{broker().address}/{topic}", schema="n bigint", name="in")
    read.write("collect:", name="out")
    return job


class Load:
    """Appends numbers until it is stopped, whatever the broker does."""

    def __init__(self, topic: str) -> None:
        self.count, self._topic, self._stop = 0, topic, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": broker().address, "enable.idempotence": True, "log_level": 0,
             "reconnect.backoff.max.ms": 200}
        )  # fmt: skip
        while not self._stop.wait(0.001):
            with suppress(BufferError):  # full: the broker is gone
                for _ in range(20):
                    value = b'{"n": %d}' % self.count
                    producer.produce(self._topic, value, partition=self.count % 3)
                    self.count += 1
            producer.poll(0)
        assert producer.flush(60) == 0

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.count


def test_nothing_is_lost_when_the_broker_is_killed_under_load(kafka: Any, tmp_path: Path) -> None:
    topic = new_topic(3)
    load = Load(topic)
    driver = Driver(job(topic), tmp_path, until=None)
    wait_for(lambda: [driver.epoch(), driver.output("out").num_rows][1] > 100)
    source: Any = driver.start.bundle.sources["in"]
    said: list[str] = []

    def waits() -> bool:
        said.extend(filter(None, [source.waiting]))
        return bool(said)

    def restart() -> None:
        """Beside the epochs: one that has read its records waits until the topic is looked at."""
        try:
            wait_for(waits, 60)
            time.sleep(1.0)
        finally:
            kafka.start()

    kafka.kill()
    restarting = threading.Thread(target=restart)
    restarting.start()
    while restarting.is_alive():
        driver.epoch()
    before = driver.output("out").num_rows
    wait_for(lambda: [driver.epoch(), driver.output("out").num_rows][1] > before, 60)
    total = load.stop()
    wait_for(lambda: [driver.epoch(), driver.output("out").num_rows][1] >= total, 60)
    assert sorted(driver.output("out")["n"].to_pylist()) == list(range(total))
    assert f"no Kafka broker answers at {kafka.address}" in said[0] and source.waiting is None
    driver.close()


def test_a_task_waits_in_the_middle_of_a_range(kafka: Any, tmp_path: Path) -> None:
    topic = new_topic()
    produce(topic, [b'{"n": %d}' % n for n in range(1000)])
    source = open_source(
        f"kafka://{kafka.address}/{topic}", schema_of("n bigint"), folder=str(tmp_path), name="i"
    )
    source.discover()
    (piece,) = source.cut("0", 0, 1000, 1)
    kafka.kill()
    restarted = threading.Timer(4.0, kafka.start)
    restarted.start()
    began = time.monotonic()
    found = [offset for _, offsets in source.read(piece) for offset in offsets]
    restarted.join()
    assert found == list(range(1000)) and time.monotonic() - began > 2
    source.close()


def test_clients_that_are_left_without_a_broker_print_nothing(kafka: Any, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kafka.left_behind", str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("1 record\n", "", 0)
