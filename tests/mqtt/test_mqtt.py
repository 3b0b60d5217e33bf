"""MQTT with a real broker: nothing is lost when the job, the driver or the broker is down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.mqtt.broker import Broker, ScriptedBroker, needs_broker

import headrace as hr
from headrace.connect.mqtt import Broker as Address
from headrace.connect.mqtt import MqttPublisher, publisher
from headrace.errors import InputError, OutputError
from headrace.schema import schema_of
from headrace.sinks import AT_LEAST_ONCE, open_sink
from headrace.sources import Source, open_source
from headrace.state import faults
from headrace.testing import InputCase, InputSuite, OutputCase, OutputSuite, drive
from headrace.testing.input_suite import chunks
from headrace.testing.output_drivers import ALONE, SCHEMA, expected, made, stage

SCHEMA_IN = schema_of("n bigint, name string")
ROWS = [{"n": i, "name": f"row {i} é"} for i in range(300)]
PATIENCE = 30.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    started = Broker(tmp_path_factory.mktemp("mosquitto"))
    yield started
    started.stop()


def opened(broker: Broker, folder: Path, topic: str = "t", **options: Any) -> Source:
    uri = f"mqtt:127.0.0.1:{broker.port}/{topic}"
    return open_source(uri, SCHEMA_IN, options=options, folder=str(folder), name="in")


def publish(broker: Broker, rows: list[Any], topic: str = "t") -> None:
    session = MqttPublisher(Address("127.0.0.1", broker.port))
    try:
        assert session.publish(topic, [json.dumps(r).encode() for r in rows], PATIENCE)
    finally:
        session.close()


def wait_for(source: Source, lines: int) -> None:
    end = time.monotonic() + PATIENCE
    while source.latest("lines") < lines:
        assert time.monotonic() < end, source.latest("lines")
        time.sleep(0.01)


def subscribed(source: Source, broker: Broker, topic: str) -> None:
    """Wait until a message gets through, which is not among those that count."""
    source.latest("lines")
    end = time.monotonic() + PATIENCE
    while source.latest("lines") == 0:
        publish(broker, [{"n": -1}], topic)
        assert time.monotonic() < end
        time.sleep(0.05)


def numbers(source: Source) -> list[int]:
    found = chunks(source, "lines", 0, source.received.end)  # type: ignore[attr-defined]
    lines = [v for t, _ in found for v in t["__raw"].to_pylist()]
    return [n for line in lines if (n := json.loads(line)["n"]) >= 0]


@needs_broker
class TestMqttInput(InputSuite):
    @pytest.fixture
    def case(self, broker, tmp_path, request):
        topic, job = f"suite/{tmp_path.name}", tmp_path / "job"
        sources = [opened(broker, job, topic)]
        sources[0].latest("lines")
        assert sources[0]._receiver.subscribed.wait(PATIENCE)  # type: ignore[attr-defined]
        publish(broker, ROWS, topic)
        wait_for(sources[0], len(ROWS))

        def open_one() -> Source:
            for source in sources:
                source.close()
            sources.append(opened(broker, job, topic))
            return sources[-1]

        def spoil() -> None:
            publish(broker, [{"n": "one"}], topic)
            wait_for(sources[-1], len(ROWS) + 1)

        yield InputCase(open_one, ROWS, spoil)
        for source in sources:
            source.close()

    def test_a_check_changes_nothing_and_is_content_with_where_a_job_may_stand(
        self, case, tmp_path
    ):
        super().test_a_check_changes_nothing_and_is_content_with_where_a_job_may_stand(
            case, tmp_path
        )


@needs_broker
def test_what_comes_while_the_job_is_down_is_there_when_it_is_back(broker, tmp_path):
    source = opened(broker, tmp_path, "down")
    subscribed(source, broker, "down")
    source.close()
    publish(broker, ROWS[:50], "down")

    source = opened(broker, tmp_path, "down")
    wait_for(source, 51)
    publish(broker, ROWS[50:60], "down")
    wait_for(source, 61)
    assert numbers(source) == list(range(60))
    source.close()


@needs_broker
def test_a_message_is_acknowledged_only_when_it_is_stored(broker, tmp_path):
    source = opened(broker, tmp_path, "ack")
    subscribed(source, broker, "ack")
    source.close()
    publish(broker, ROWS[:20], "ack")

    def fail(name: str) -> None:
        if name.startswith("log.") and "receiver" in threading.current_thread().name:
            raise OSError(28, "No space left on device")

    source = opened(broker, tmp_path, "ack")
    with faults.hooked(fail):
        assert failed(source) == "HR-INPUT-003"

    source = opened(broker, tmp_path, "ack")
    wait_for(source, 21)
    assert sorted(set(numbers(source))) == list(range(20))
    source.close()


DRIVER = """
import sys, time
from pathlib import Path
from headrace.schema import schema_of
from headrace.sources import open_source
source = open_source(sys.argv[1], schema_of("n bigint, name string"), folder=sys.argv[2], name="in")
while True:
    source.latest("lines")
    time.sleep(0.01)
"""


@needs_broker
def test_nothing_is_lost_when_the_driver_and_the_broker_are_killed_under_load(tmp_path):
    broker = Broker(tmp_path / "broker")
    job, topic = tmp_path / "job", "load"
    source = opened(broker, job, topic)
    subscribed(source, broker, topic)
    source.close()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    sent = 0
    try:
        for round in range(3):
            driver = subprocess.Popen(
                [sys.executable, "-c", DRIVER, f"mqtt:127.0.0.1:{broker.port}/{topic}", str(job)],
                env=environment,
                stderr=subprocess.DEVNULL,
            )
            publish(broker, [{"n": n} for n in range(sent, sent + 400)], topic)
            sent += 400
            time.sleep(0.5)
            driver.send_signal(signal.SIGKILL)
            driver.wait(PATIENCE)
            publish(broker, [{"n": n} for n in range(sent, sent + 100)], topic)
            sent += 100
            if round == 1:  # mosquitto has written what it holds every second, and at SIGTERM
                broker.stop(signal.SIGTERM)
                broker.start()
        source = opened(broker, job, topic)
        end = time.monotonic() + PATIENCE
        while set(numbers(source)) != set(range(sent)) and time.monotonic() < end:
            source.latest("lines")
            time.sleep(0.1)
        assert set(numbers(source)) == set(range(sent))
        source.close()
    finally:
        broker.stop(signal.SIGKILL)


@needs_broker
def test_a_broker_that_comes_back_is_connected_to_again(tmp_path):
    broker = Broker(tmp_path / "broker")
    source = opened(broker, tmp_path / "job", "back")
    try:
        subscribed(source, broker, "back")
        broker.stop(signal.SIGTERM)
        assert source.latest("lines") > 0
        broker.start()
        publish(broker, ROWS[:10], "back")
        end = time.monotonic() + PATIENCE
        while numbers(source) != list(range(10)) and time.monotonic() < end:
            source.latest("lines")
            time.sleep(0.05)
        assert numbers(source) == list(range(10))
    finally:
        source.close()
        broker.stop()


@needs_broker
def test_a_session_that_is_gone_is_an_error_unless_that_is_accepted(tmp_path):
    broker = Broker(tmp_path / "one")
    source = opened(broker, tmp_path / "job", "gone")
    subscribed(source, broker, "gone")
    source.close()
    broker.stop()
    other = Broker(tmp_path / "two")
    other.stop()
    other.port = broker.port
    other._config.write_text(f"listener {broker.port} 127.0.0.1\nallow_anonymous true\nuser root\n")
    other.start()
    try:
        assert failed(opened(other, tmp_path / "job", "gone")) == "HR-MQTT-001"
        assert failed(opened(other, tmp_path / "job", "gone")) == "HR-MQTT-001"  # and again
        source = opened(other, tmp_path / "job", "gone", new_session=True)
        before = source.latest("lines")
        end = time.monotonic() + PATIENCE
        while source.latest("lines") == before and time.monotonic() < end:
            publish(other, [{"n": 7}], "gone")
            time.sleep(0.05)
        assert 7 in numbers(source)
        source.close()
        source = opened(other, tmp_path / "job", "gone")  # it was accepted
        source.latest("lines")
        assert source._receiver.subscribed.wait(PATIENCE)  # type: ignore[attr-defined]
        source.close()
    finally:
        other.stop()


def failed(source: Source) -> str:
    """The code with which the input fails."""
    try:
        source.latest("lines")
        source._receiver._thread.join(PATIENCE)  # type: ignore[attr-defined]
        source.latest("lines")
    except InputError as error:
        return error.code
    finally:
        source.close()
    return ""


@needs_broker
def test_a_first_start_without_a_broker_has_no_session_to_lose(tmp_path):
    broker = Broker(tmp_path / "broker")
    broker.stop()
    try:
        for _ in range(2):
            assert failed(opened(broker, tmp_path / "job", "late")) == "HR-INPUT-015"
        broker.start()
        source = opened(broker, tmp_path / "job", "late")
        subscribed(source, broker, "late")
        source.close()
    finally:
        broker.stop()


@needs_broker
def test_retained_messages_come_once_and_a_new_topic_is_subscribed_to(broker, tmp_path):
    session = MqttPublisher(Address("127.0.0.1", broker.port))
    for topic, n in (("kept/a", 1), ("kept/b", 2)):
        sent = session._client.publish(topic, json.dumps({"n": n}), qos=1, retain=True)
        sent.wait_for_publish(PATIENCE)
    session.close()
    for round in range(3):
        source = opened(broker, tmp_path, "kept/a")
        source.latest("lines")
        assert source._receiver.subscribed.wait(PATIENCE)  # type: ignore[attr-defined]
        publish(broker, [{"n": 10 + round}], "kept/a")
        wait_for(source, 2 + round)
        assert numbers(source) == [1, *range(10, 11 + round)]
        source.close()
    source = opened(broker, tmp_path, "kept/b")
    wait_for(source, 5)
    assert numbers(source)[-1] == 2
    source.close()


def test_a_subscription_that_is_refused_is_an_error(tmp_path):
    for granted in (0x80, 0):  # refused; with QoS 0 only
        broker = ScriptedBroker(granted)
        for _ in range(2):
            assert failed(opened(broker, tmp_path / str(granted), "secret")) == "HR-MQTT-004"
        broker.stop()


class Taken:
    """What a subscriber of a topic has got, each message once."""

    def __init__(self, broker: Broker, topic: str) -> None:
        from headrace.connect.mqtt import MqttSubscription

        self._session = MqttSubscription(
            Address("127.0.0.1", broker.port), f"reader-{abs(hash(topic))}", topic
        )
        time.sleep(0.1)
        self._found: list[dict[str, Any]] = []

    def rows(self) -> list[tuple[Any, ...]]:
        while messages := self._session.take(0.05, 10_000):
            self._session.acknowledge(messages)
            self._found += [json.loads(m.payload) for m in messages]
        return sorted(tuple(row.values()) for row in self._found)

    def close(self) -> None:
        self._session.close()


@needs_broker
class TestMqttOutput(OutputSuite):
    rounds = 1

    @pytest.fixture
    def make(self, broker):
        readers = []

        def case(folder: Path) -> OutputCase:
            topic = f"out{folder}"
            readers.append(Taken(broker, topic))
            uri = f"mqtt:127.0.0.1:{broker.port}/{topic}"
            return OutputCase.of(uri, folder, readers[-1].rows)

        yield case
        for reader in readers:
            reader.close()


@needs_broker
def test_an_output_waits_for_a_broker_that_is_away(tmp_path):
    broker = Broker(tmp_path / "broker")
    reader = Taken(broker, "away")
    uri = f"mqtt:127.0.0.1:{broker.port}/away"
    try:
        sink = made(open_sink(uri, SCHEMA, {"patience": "300ms"}, str(tmp_path), "o"))
        assert sink.guarantee == AT_LEAST_ONCE
        staged = stage(sink, 0)
        broker.stop()
        with pytest.raises(OutputError) as caught:
            sink.publish(0, staged, ALONE)
        assert caught.value.code == "HR-MQTT-003"
        broker.start()
        sink.publish(0, staged, ALONE)
        end = time.monotonic() + PATIENCE
        while reader.rows() != expected(1) and time.monotonic() < end:
            time.sleep(0.05)
        assert reader.rows() == expected(1)
    finally:
        reader.close()
        broker.stop()


def test_patience_counts_from_the_last_acknowledgement():
    for most, published in ((20, True), (5, False)):
        broker = ScriptedBroker(pause=0.05, most=most)
        session = publisher(Address("127.0.0.1", broker.port))
        began = time.monotonic()
        assert session.publish("slow", [b"x"] * 20, 0.5) is published
        assert time.monotonic() - began < 5
        session.close()
        broker.stop()


@needs_broker
def test_messages_that_the_broker_does_not_take_are_an_error(tmp_path):
    """By MQTT 3.1.1 it acknowledges them, and drops them."""
    rules = tmp_path / "rules"
    rules.write_text("topic read #\ntopic write open/#\n")
    broker = Broker(tmp_path / "broker", f"acl_file {rules}\n")
    job = hr.Job("sent")
    rows = job.read(hr.rows([{"n": i} for i in range(500)]))
    rows.write(f"mqtt:127.0.0.1:{broker.port}/closed/t", name="out")
    try:
        reader = Taken(broker, "#")
        with pytest.raises(OutputError) as caught:
            drive(job, tmp_path / "job")
        assert caught.value.code == "HR-MQTT-005"
        assert reader.rows() == []
        reader.close()
        broker.stop()
        rules.write_text("topic readwrite #\n")
        broker.start()
        reader = Taken(broker, "#")
        drive(job, tmp_path / "job")
        assert len(reader.rows()) == 500
        reader.close()
    finally:
        broker.stop()


@needs_broker
def test_a_job_from_one_topic_to_another(broker, tmp_path):
    reader = Taken(broker, "program/out")
    job = hr.Job("relay")
    job.read(hr.rows([{"n": i} for i in range(9)])).where("n % 2 = 0").write(
        f"mqtt:127.0.0.1:{broker.port}/program/out"
    )
    drive(job, tmp_path / "job")
    end = time.monotonic() + PATIENCE
    while len(reader.rows()) < 5 and time.monotonic() < end:
        time.sleep(0.05)
    assert reader.rows() == [(0,), (2,), (4,), (6,), (8,)]
    reader.close()


def test_a_broker_that_is_not_there_is_an_error(tmp_path):
    source = open_source("mqtt:127.0.0.1:9/t", SCHEMA_IN, folder=str(tmp_path), name="in")
    assert failed(source) == "HR-INPUT-015"
    with pytest.raises(OutputError) as caught:
        open_sink("mqtt:127.0.0.1:9/t", SCHEMA, {}, str(tmp_path), "o").check()
    assert caught.value.code == "HR-MQTT-003"


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("mqtt:localhost", {}),
        ("mqtt:localhost:0/t", {}),
        ("mqtt:/t", {}),
        ("mqtt:localhost/t", {"password": "geheim"}),
        ("mqtt:localhost/t", {"password_env": "X", "user": 1}),
        ("mqtt:localhost/t", {"tls": "yes"}),
        ("mqtt:localhost/t", {"qos": 2}),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, uri, options):
    with pytest.raises(InputError) as read:
        open_source(uri, SCHEMA_IN, options=options)
    with pytest.raises(OutputError) as written:
        open_sink(uri, SCHEMA, options, str(tmp_path), "o")
    assert "geheim" not in f"{read.value} {written.value}"


def test_a_topic_that_is_written_to_has_no_wildcards(tmp_path):
    with pytest.raises(OutputError) as caught:
        open_sink("mqtt:localhost/a/+/b", SCHEMA, {}, str(tmp_path), "o")
    assert caught.value.code == "HR-OUTPUT-001"
