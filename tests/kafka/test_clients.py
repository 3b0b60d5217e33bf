"""hr.Producer and hr.Consumer over Kafka: what they promise over every log."""

from __future__ import annotations

import time
import traceback
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import LogError
from headrace.log import TopicPartition
from headrace.log.kafka import Cluster, describe, properties
from tests.kafka.running import (
    add_partitions,
    delete_records,
    delete_topic,
    new_topic,
    produce,
)
from tests.kafka.written import fresh, messages


@pytest.fixture
def place(kafka: Any) -> str:
    return f"kafka://{kafka.address}"


def refusal(call, *args, **kwargs) -> LogError:
    with pytest.raises(LogError) as caught:
        call(*args, **kwargs)
    assert caught.value.hint
    return caught.value


def fill(place: str, partitions: int = 3, each: int = 10) -> str:
    topic = new_topic(partitions)
    with hr.Producer(place) as producer:
        for p in range(partitions):
            producer.send_all(topic, [b"%d" % i for i in range(each)], partition=p)
    return topic


def test_what_was_sent_is_there_after_the_block_in_order_by_key(place):
    topic = new_topic(3)
    with hr.Producer(place) as producer:
        for i in range(100):
            producer.send(topic, {"n": i}, key=f"k{i % 5}", headers=[("h", b"%d" % i)])
    found = list(hr.Consumer(topic, log=place).records("1s"))
    assert len(found) == 100
    assert all(r.headers == [("h", r.value[6:-1].strip())] for r in found)
    for key in {r.key for r in found}:
        ours = [r for r in found if r.key == key]
        assert len({r.partition for r in ours}) == 1
        assert ours == sorted(ours, key=lambda r: int(r.value[6:-1]))


def test_many_records_are_sent_as_a_table(place):
    topic = new_topic(1)
    with hr.Producer(place) as producer:
        producer.send_all(topic, pa.table({"value": [b"a", b"b"], "key": [b"x", None]}))
        producer.send_all(topic, ["c", {"d": 1}], key=["y", "z"])
    assert [(m.key(), m.value()) for m in messages(topic)] == [
        (b"x", b"a"), (None, b"b"), (b"y", b"c"), (b"z", b'{"d": 1}'),
    ]  # fmt: skip


def test_what_a_transaction_sends_appears_together_or_not_at_all(place):
    one, two = new_topic(1), new_topic(1)
    producer = hr.Producer(place)
    with producer.transaction():
        producer.send(one, b"a")
        producer.send_all(two, [b"b", b"c"])
        assert messages(one) == []
    assert [len(messages(t)) for t in (one, two)] == [1, 2]
    with pytest.raises(ZeroDivisionError), producer.transaction():
        producer.send(one, b"never")
        1 / 0  # noqa: B018
    with producer.transaction():
        producer.send(one, b"d")
    producer.send(two, b"e")
    producer.close()
    assert [m.value() for m in messages(one)] == [b"a", b"d"]
    assert [m.value() for m in messages(two)] == [b"b", b"c", b"e"]


def test_a_group_goes_on_after_what_it_has_committed(place):
    topic, group = fill(place), fresh()
    with hr.Consumer(topic, group=group, log=place, auto_commit=None) as consumer:
        first = consumer.poll("20s", max_rows=4)
        assert first is not None and len(first) <= 4
        consumer.commit()
        assert consumer.committed() == {first.place: first.end}
    with hr.Consumer(topic, group=group, log=place) as consumer:
        rest = [r for r in consumer.records("5s")]
        assert sum(consumer.lag().values()) == 0
    assert len(rest) == 30 - len(first)
    assert {(r.partition, r.offset) for r in rest}.isdisjoint(
        {(first.partition, o) for o in first.offsets.tolist()}
    )
    with hr.Consumer(topic, group=group, log=place) as consumer:
        assert consumer.poll("1s") is None
        assert consumer.committed() == {TopicPartition(topic, p): 10 for p in range(3)}


def test_two_members_share_the_partitions_and_one_takes_over(place):
    topic, group = fill(place, partitions=4), fresh()
    one = hr.Consumer(topic, group=group, log=place)
    two = hr.Consumer(topic, group=group, log=place)
    end, found = time.monotonic() + 40, set[tuple[int, int]]()
    while not (one.assignment() and two.assignment()):
        for consumer in (one, two):
            batch = consumer.poll("200ms")
            found |= {(batch.partition, o) for o in batch.offsets.tolist()} if batch else set()
        assert time.monotonic() < end
    shared = [set(one.assignment()), set(two.assignment())]
    assert shared[0] | shared[1] == {TopicPartition(topic, p) for p in range(4)}
    assert not shared[0] & shared[1]
    one.close()
    while len(two.assignment()) < 4 or len(found) < 40:
        batch = two.poll("200ms")
        found |= {(batch.partition, o) for o in batch.offsets.tolist()} if batch else set()
        assert time.monotonic() < end
    two.close()


def test_a_consumer_seeks_by_offset_and_by_time_and_says_how_far_it_is(place):
    topic = fill(place, partitions=1)
    consumer = hr.Consumer(topic, log=place)
    assert consumer.lag() == {TopicPartition(topic, 0): 10}
    records = list(consumer.records("1s"))
    assert [r.offset for r in records] == list(range(10))
    consumer.seek(topic, 0, 7)
    assert [r.offset for r in consumer.records("1s")] == [7, 8, 9]
    assert consumer.seek_to_time(records[0].time) == {TopicPartition(topic, 0): 0}
    assert consumer.seek_to_time(records[-1].time + 10**9) == {TopicPartition(topic, 0): 10}
    assert refusal(consumer.seek, topic, 0, 11).code == "HR-LOG-007"
    assert refusal(consumer.commit).code == "HR-LOG-022"
    latest = hr.Consumer(topic, log=place, start="latest")
    assert latest.positions() == {TopicPartition(topic, 0): 10}


def test_retention_that_overtakes_a_group_is_an_error_and_no_gap(place):
    topic, wanted = fill(place, partitions=1), {"group": fresh()}
    with hr.Consumer(topic, log=place, **wanted) as consumer:
        first = consumer.poll("20s", max_rows=4).end
        consumer.commit()
    consumer = hr.Consumer(topic, log=place, **wanted)
    delete_records(topic, 0, 7)
    error = refusal(lambda: [consumer.poll("1s") for _ in range(20)])
    assert error.code == "HR-LOG-023" and f"records {first} to 6 of partition 0" in str(error)
    assert refusal(consumer.poll, "1s").code == "HR-LOG-023"  # until somebody decides
    consumer.seek(topic, 0, "earliest")
    assert [r.offset for r in consumer.records("2s")] == [7, 8, 9]
    consumer.close()


@pytest.mark.parametrize("more", [3, 30])
def test_a_topic_that_is_made_again_is_another(place, more, monkeypatch):
    monkeypatch.setattr("headrace.log.kafka_clients._LOOK", 0.0, raising=False)
    topic = fill(place, partitions=1)
    consumer = hr.Consumer(topic, log=place)
    assert len(list(consumer.records("1s"))) == 10
    delete_topic(topic)
    new_topic(name=topic)
    produce(topic, [b"new"] * more)
    codes, end = set[str](), time.monotonic() + 30
    while not codes:
        assert time.monotonic() < end
        try:
            assert consumer.poll("1s") is None
        except LogError as error:
            codes.add(error.code)
    assert codes == {"HR-LOG-002"}
    consumer.close()


def test_a_partition_that_is_added_is_read_from_its_beginning(place):
    topic, soon = fill(place, partitions=1), {"topic.metadata.refresh.interval.ms": 200}
    options = {"group": fresh(), "start": "latest", "log": place, "options": soon}
    with hr.Consumer(topic, **options) as consumer:
        produce(topic, [b"since"])  # before the group is joined
        batch = consumer.poll("20s")
        assert batch is not None and batch.offsets.tolist() == [10]
        add_partitions(topic, 2)
        produce(topic, [b"first", b"second"], 1)
        batch = consumer.poll("30s")
        assert batch is not None and (batch.partition, batch.offsets[0]) == (1, 0)


def test_what_is_not_there_is_named(place):
    assert refusal(hr.Consumer, fresh(), log=place).code == "HR-LOG-002"
    assert refusal(hr.Producer, place, keys=1).code == "HR-LOG-019"
    assert refusal(hr.Producer, "kafka://u@h:1").code == "HR-KAFKA-003"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sasl_pasword": "hunter2"}, "sasl.pasword"),
        ({"options": {"sasl.passwort": "hunter2"}}, "sasl.passwort"),
        ({"security_protocol": "hunter2"}, "security.protocol"),
        ({"options": {"socket.timeout.ms": "hunter2"}}, "socket.timeout.ms"),
    ],
)
def test_a_property_that_the_client_does_not_take_is_named_without_its_value(place, options, named):
    topic = new_topic()
    for call in (
        lambda: hr.Producer(place, **options),
        lambda: hr.Consumer(topic, log=place, **options),
        lambda: describe(Cluster("127.0.0.1:1", properties(options, "it")), topic),
    ):
        error = refusal(call)
        shown = "".join(traceback.format_exception(error, chain=True)[-1:]) + repr(error.__cause__)
        assert error.code == "HR-KAFKA-005" and repr(named) in str(error)
        assert "hunter2" not in shown + str(error) and error.__context__ is None


def test_a_full_queue_is_waited_for(place):
    topic = new_topic()
    with hr.Producer(place, options={"queue.buffering.max.kbytes": 1}) as producer:
        for i in range(50):
            producer.send(topic, b"%d" % i + b"x" * 500, partition=0)
    assert [int(m.value()[:2].strip(b"x")) for m in messages(topic)] == list(range(50))


@pytest.mark.parametrize(
    "wrong", [{"headers": 5}, {"headers": [5]}, {"headers": [("a", 1.5)]}, {"partition": "0"}]
)
def test_headers_and_partitions_that_are_none_are_refused(place, wrong):
    with hr.Producer(place) as producer:
        assert refusal(producer.send, new_topic(), b"", **wrong).code == "HR-LOG-019"


@pytest.mark.parametrize("many", [True, False])
def test_a_producer_never_makes_a_topic(kafka, tmp_path, many):
    from confluent_kafka.admin import AdminClient
    from tools.kafka.broker import Broker

    with Broker(tmp_path, properties={"auto.create.topics.enable": "true"}) as own:
        producer = hr.Producer(f"kafka://{own.address}")
        send = (
            (lambda: producer.send_all("nope", [b"a"]))
            if many
            else (lambda: producer.send("nope", b"a"))
        )
        assert refusal(send).code == "HR-LOG-002"
        producer.close()
        asked = AdminClient({"bootstrap.servers": own.address})
        assert "nope" not in asked.list_topics(timeout=10).topics
