"""Kafka outputs while things fail: killed drivers, killed brokers, fenced producers."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import FencedError
from headrace.log import kafka_delivery
from headrace.sinks import EpochWriter, Sink
from headrace.state import faults
from headrace.testing.output_drivers import ALONE, SCHEMA, expected, made, stage
from tests.kafka.output_life import EPOCHS, sinks_of
from tests.kafka.running import broker
from tests.kafka.written import fresh, messages, opened
from tests.sinks.writing import refusal

ROOT = Path(__file__).resolve().parents[2]


def rows(topic: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(json.loads(m.value()).values()) for m in messages(topic))


def lived(folder: Path, topics: list[str], crash: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.kafka.output_life", str(folder), broker().address]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "HEADRACE_CRASH": crash, "PYTHONPATH": path}
    return subprocess.run(
        [*command, *topics], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("sink.kafka.begun:2", marks=pytest.mark.chaos),
        "sink.kafka.produced:2",
        "sink.kafka.committed:2",
    ],
)
def test_a_driver_that_is_killed_is_taken_up_and_both_topics_have_the_same(kafka, tmp_path, point):
    topics = [fresh(), fresh()]
    assert lived(tmp_path, topics, point).returncode == -signal.SIGKILL
    seen = [rows(t) for t in topics]
    assert seen[0] == seen[1] and seen[0] in (expected(1), expected(2))

    second = lived(tmp_path, topics)
    assert (second.returncode, second.stderr) == (0, "")
    assert [rows(t) for t in topics] == [expected(EPOCHS)] * 2


def at(point: str, do: Callable[[], None], times: int = 1) -> Any:
    """Do something when the point is passed, so many times."""
    left = [times]

    def passed(name: str) -> None:
        if name == point and left[0]:
            left[0] -= 1
            do()

    return faults.hooked(passed)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("sink.kafka.fenced", marks=pytest.mark.chaos),
        pytest.param("sink.kafka.begun", marks=pytest.mark.chaos),
        "sink.kafka.produced",
    ],
)
def test_a_broker_that_is_killed_between_two_steps_is_waited_for(kafka, tmp_path, point):
    topics = [fresh(), fresh()]
    sinks = sinks_of(tmp_path, kafka.address, topics)
    for epoch in range(3):
        both = [(sink, stage(sink, epoch)) for sink in sinks]
        with at(point, kafka.restart, times=int(epoch == (point != "sink.kafka.fenced"))):
            sinks[0].publish_group(epoch, both, ALONE)
    assert [rows(t) for t in topics] == [expected(3)] * 2


def test_a_broker_that_is_gone_for_a_while_is_waited_for_and_that_is_said(
    kafka, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr("headrace.log.kafka_topics.PATIENCE", 1.0)
    monkeypatch.setattr("headrace.log.kafka_delivery.PATIENCE", 1.0)
    monkeypatch.setattr("headrace.log.kafka_produce.PATIENCE", 1.0)
    topic = fresh()
    sink = made(opened(topic, SCHEMA, tmp_path))
    sink.publish(0, stage(sink, 0), ALONE)
    staged = stage(sink, 1)
    kafka.kill()
    later = threading.Timer(3.0, kafka.start)
    later.start()
    with caplog.at_level(logging.WARNING, "headrace.kafka"):
        sink.publish(1, staged, ALONE)
    later.join()
    said = [r.getMessage() for r in caplog.records]
    assert any("does not answer" in text and kafka.address in text for text in said)
    assert any("answers again" in text for text in said)
    assert sink.reached(1)
    assert rows(topic) == expected(2)


def fence(sink: Sink) -> None:
    """As a driver that was stopped just after it had looked at the folder's fence."""
    from confluent_kafka import Producer

    job = sink._identity.get()  # type: ignore[attr-defined]
    id = f"{kafka_delivery.ID}{job}"
    quiet = {"log_level": 0, "logger": logging.getLogger("headrace.kafka.client")}
    Producer(
        {"bootstrap.servers": broker().address, "transactional.id": id, **quiet}
    ).init_transactions(30)


@pytest.mark.parametrize("point", ["sink.kafka.begun", "sink.kafka.produced"])
def test_a_producer_that_is_fenced_begins_again_while_the_folder_is_its_own(kafka, tmp_path, point):
    topic = fresh()
    sink = made(opened(topic, SCHEMA, tmp_path))
    for epoch in range(3):
        with at(point, lambda: fence(sink)):
            sink.publish(epoch, stage(sink, epoch), ALONE)
    assert rows(topic) == expected(3)


def test_a_producer_that_is_fenced_and_has_lost_the_folder_stops(kafka, tmp_path):
    topic = fresh()
    sink, lost = made(opened(topic, SCHEMA, tmp_path)), [False]

    def check() -> None:
        if lost[0]:
            raise FencedError("HR-STATE-007", "another driver has taken the folder", "stop one")

    def take() -> None:
        lost[0] = True
        fence(sink)

    with at("sink.kafka.produced", take), pytest.raises(FencedError):
        sink.publish(0, stage(sink, 0), EpochWriter(1, check))
    assert rows(topic) == []


def test_a_producer_that_is_always_fenced_is_an_error(kafka, tmp_path):
    topic = fresh()
    sink = made(opened(topic, SCHEMA, tmp_path))
    staged = stage(sink, 0)
    with at("sink.kafka.begun", lambda: fence(sink), times=99):
        assert refusal(sink.publish, 0, staged, ALONE).code == "HR-KAFKA-036"
    sink.publish(0, staged, ALONE)
    assert rows(topic) == expected(1)


def test_a_transaction_that_takes_too_long_is_an_error(kafka, tmp_path):
    topic = fresh()
    sink = made(opened(topic, SCHEMA, tmp_path, transaction_timeout="1s"))
    staged = stage(sink, 0)

    def expire() -> None:
        time.sleep(1.1)
        fence(sink)  # as the coordinator does it, which looks every ten seconds

    with at("sink.kafka.begun", expire):
        assert refusal(sink.publish, 0, staged, ALONE).code == "HR-KAFKA-037"
    sink.publish(0, staged, ALONE)
    assert rows(topic) == expected(1)


def test_what_is_staged_and_lost_is_an_error_and_nothing_of_the_epoch_is_seen(kafka, tmp_path):
    topic = fresh()
    sink = made(opened(topic, SCHEMA, tmp_path))
    staged = stage(sink, 0)
    next(iter(tmp_path.rglob(staged[-1]["file"]))).unlink()
    assert refusal(sink.publish, 0, staged, ALONE).code == "HR-OUTPUT-005"
    assert rows(topic) == []
