"""The broker that tests and `make kafka` start: it answers, and survives being killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools.kafka.jars import jars

from headrace import Consumer
from tests.kafka.running import new_topic, produce, wait_for

ROOT = Path(__file__).resolve().parents[2]


def count(address: str, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "count"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return int(high - low)
    finally:
        consumer.close()


def test_what_was_written_is_there_after_a_kill(kafka: Any) -> None:
    topic = new_topic()
    produce(topic, [b"a", b"b"])
    address = kafka.address
    kafka.restart()
    assert kafka.address == address and count(address, topic) == 2
    produce(topic, [b"c"])
    assert count(address, topic) == 3


def test_make_kafka_prints_its_address_and_stops_on_an_interrupt(kafka: Any, tmp_path: Any) -> None:
    running = subprocess.Popen(
        [
            sys.executable, "-m", "tools.kafka", "--folder", str(tmp_path / "kafka"), "--port", "0",
            "--topic", "readings:3", "--topic", "alarms",
        ],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(4)]
        assert "Kafka is at 127.0.0.1:" in lines[1] and '/readings"' in lines[2]
        address = lines[1].partition(" at ")[2].partition(";")[0]
        places = dict.fromkeys(("readings", "alarms"), 0)
        for name in places:
            with Consumer(name, log=f"kafka://{address}") as consumer:
                places[name] = len(consumer.positions())
        assert places == {"readings": 3, "alarms": 1}
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
    finally:
        running.kill()
        running.communicate()


def test_a_broker_dies_with_the_process_that_started_it(kafka: Any, tmp_path: Any) -> None:
    program = (
        "import pathlib, sys, time; from tools.kafka.broker import Broker\n"
        "b = Broker(pathlib.Path(sys.argv[1])); b.start(); print(b.pid, flush=True)\n"
        "time.sleep(600)"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    pid = int(running.stdout.readline())
    running.kill()
    running.communicate()
    wait_for(lambda: not _alive(pid))


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_a_jar_that_is_not_the_listed_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    monkeypatch.setenv("HEADRACE_KAFKA_JARS", str(tmp_path / "jars"))
    monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", repository.as_uri())
    monkeypatch.setenv("HOME", str(tmp_path))
    for line in (ROOT / "tools" / "kafka" / "jars.txt").read_text().splitlines():
        jar = repository / line.split()[1]
        jar.parent.mkdir(parents=True, exist_ok=True)
        jar.write_bytes(b"another")
    with pytest.raises(OSError, match=r"is not the file that tools/kafka lists"):
        jars()
    assert [*(tmp_path / "jars").iterdir()] == []
