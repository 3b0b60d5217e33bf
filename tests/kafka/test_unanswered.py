"""hr.Producer and hr.Consumer over Kafka while the brokers do not answer, or refuse."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

import headrace as hr
from headrace.errors import LogError
from headrace.log import kafka_topics
from headrace.log.kafka import Cluster
from headrace.log.kafka_produce import flush
from headrace.log.kafka_topics import patiently
from headrace.sources import kafka_view
from tests.kafka.running import new_topic
from tests.kafka.written import fresh, messages


@pytest.fixture
def place(kafka: Any) -> str:
    return f"kafka://{kafka.address}"


class Stalled:
    """A producer of the library that says nothing at first, and later that nothing was sent."""

    def __init__(self):
        self.reports, self.flushes = [], 0

    def produce(self, topic, on_delivery, **message):
        self.reports.append(on_delivery)

    def poll(self, timeout):
        pass

    def purge(self):
        pass

    def flush(self, timeout):
        self.flushes += 1
        if self.flushes > 2:
            for report in self.reports:
                report(KafkaError(KafkaError._MSG_TIMED_OUT), None)
            self.reports = []
        return len(self.reports)


def test_what_is_reported_after_a_flush_is_raised_by_the_next(place, monkeypatch):
    monkeypatch.setattr("headrace.log.kafka_produce.PATIENCE", 0)
    producer, topic = hr.Producer(place), new_topic()
    producer._client._plain = producer._client._current = Stalled()
    producer.send(topic, b"x")
    for _ in ("it waits no longer", "it was not sent"):
        with pytest.raises(LogError) as caught:
            producer.flush()
        assert caught.value.code == "HR-KAFKA-050"
    producer.close()


def test_what_cannot_be_sent_is_reported_when_the_others_are_there():
    failed, left = [], [3, 2, 1, 0]

    class Slow:
        def flush(self, timeout):
            failed[:] = [KafkaError(KafkaError._UNKNOWN_PARTITION)]
            return left.pop(0)

    with pytest.raises(KafkaException, match="Unknown partition"):
        flush(Slow(), failed, others=True)
    assert not left


@pytest.mark.parametrize(
    "options, code", [({}, "HR-KAFKA-058"), ({"txn_requires_abort": True}, "HR-KAFKA-050")]
)
def test_a_commit_that_is_not_answered_is_said_to_be_in_doubt(place, options, code):
    topic = new_topic()
    with hr.Producer(place) as producer:
        with pytest.raises(LogError) as caught, producer.transaction():
            producer.send(topic, b"perhaps")
            real = producer._client._current
            producer._client._current = SimpleNamespace(
                flush=real.flush, commit_transaction=raising(KafkaError._TIMED_OUT, **options)
            )
        assert caught.value.code == code
        del real
        with producer.transaction():
            producer.send(topic, b"after")
    assert [m.value() for m in messages(topic)] == [b"after"]


def raising(code, **options):
    def fail(timeout):
        raise KafkaException(KafkaError(code, "no answer", **options))

    return fail


def test_a_member_that_was_taken_for_dead_reads_again_what_it_has_not_committed(place):
    topic = new_topic()
    with hr.Producer(place) as producer:
        producer.send_all(topic, [b"%d" % i for i in range(9)])
    consumer = hr.Consumer(topic, fresh(), log=place, session="6s", max_poll="6s", auto_commit=None)
    assert consumer.poll("20s", 2).offsets.tolist() == [0, 1]
    consumer.commit()
    assert consumer.poll("20s", 1).offsets.tolist() == [2]
    real = consumer._client._consumer

    class Refusing:
        def __getattr__(self, name):
            return getattr(real, name)

        def commit(self, **_):
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))

    consumer._client._consumer = Refusing()
    with pytest.raises(LogError) as caught:
        consumer.commit()
    assert caught.value.code == "HR-LOG-021"
    consumer._client._consumer = real
    assert consumer.poll("20s", 1).offsets.tolist() == [2]
    consumer.commit()
    consumer.close()


@pytest.mark.parametrize("late, code", [(False, "HR-KAFKA-059"), (True, "HR-KAFKA-058")])
def test_a_transaction_whose_id_another_producer_has_taken_is_aborted(place, late, code):
    topic, id = new_topic(), fresh()

    def send(producer, value):
        with producer.transaction():
            producer.send(topic, value)

    with (
        hr.Producer(place, transactional_id=id) as one,
        hr.Producer(place, transactional_id=id) as two,
    ):
        send(one, b"1")
        with pytest.raises(LogError) as caught, one.transaction():
            if late:
                one.send(topic, b"never")
                one._client._current.flush()
            send(two, b"2")
            if not late:
                one.send(topic, b"never")
        assert caught.value.code == code
        assert "another producer uses" in str(caught.value)
        send(one, b"3")
    assert [m.value() for m in messages(topic)] == [b"1", b"2", b"3"]


def test_a_partition_that_has_the_next_offset_after_all_is_read_on(place):
    topic = new_topic()
    with hr.Producer(place) as producer, hr.Consumer(topic, log=place) as consumer:
        producer.send_all(topic, [b"1", b"2"])
        producer.flush()
        assert len(consumer.poll("20s", 2)) <= 2
        at = consumer.positions()
        consumer._client._outside = set(at)  # as a broker says that takes over
        producer.send_all(topic, [b"3"])
        producer.flush()
        assert [r.value for r in consumer.records("2s")][-1:] == [b"3"]


PASSING = [
    "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE", "NOT_CONTROLLER",
    "UNSTABLE_OFFSET_COMMIT", "THROTTLING_QUOTA_EXCEEDED", "NOT_LEADER_FOR_PARTITION", "_TRANSPORT",
]  # fmt: skip
LASTING = [
    "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART", "MSG_SIZE_TOO_LARGE", "_BAD_MSG",
    "INVALID_TXN_STATE",
]  # fmt: skip


@pytest.mark.parametrize("name", PASSING + LASTING)
def test_what_the_protocol_calls_retriable_is_waited_for(place, name, monkeypatch):
    said = [KafkaException(KafkaError(getattr(KafkaError, name)))]
    monkeypatch.setattr("headrace.log.kafka_topics._FIRST_PAUSE", 0)

    def work():
        if said:
            raise said.pop()
        return "done"

    cluster = Cluster(place.removeprefix("kafka://"), {})
    if name in PASSING:
        assert patiently(cluster, work) == "done"
    else:
        with pytest.raises(KafkaException):
            patiently(cluster, work)


def test_what_brokers_need_to_take_over_is_no_news(place, caplog):
    patience = kafka_topics.Patience(Cluster(place.removeprefix("kafka://"), {}))
    with caplog.at_level(logging.WARNING, "headrace.kafka"):
        patience.pause("no leader")
        patience.over()
    assert not caplog.records


def test_no_warning_follows_when_brokers_are_back(place, caplog, monkeypatch):
    """An attempt that began while they were gone fails after they have answered somebody else."""
    monkeypatch.setattr(kafka_topics, "NO_NEWS", 0.0)
    patience = kafka_topics.Patience(Cluster(place.removeprefix("kafka://"), {}))
    said = []
    with caplog.at_level(logging.WARNING, "headrace.kafka"):
        for attempt in ("late", "and again"):
            patience.pause(attempt)
            said.append([r.getMessage() for r in caplog.records])
        patience.over()
    assert said[0] == [] and "(and again)" in said[1][0]
    assert "answers again" in caplog.records[-1].getMessage() and len(caplog.records) == 2


def test_an_input_reports_only_brokers_that_are_gone_for_longer(place):
    said = []
    cluster = Cluster(place.removeprefix("kafka://"), {})
    view = kafka_view.TopicView(cluster, new_topic(), committed=True, say=said.append)
    view.refresh()
    said.clear()
    gone = LogError("HR-KAFKA-001", "no Kafka broker answers", None)
    view._failed(gone, time.monotonic())
    view._answered()
    assert said == [None]
    view._failed(gone, time.monotonic() - kafka_topics.NO_NEWS)
    assert said == [None, "no Kafka broker answers"]
