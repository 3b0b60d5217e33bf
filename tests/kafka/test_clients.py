"""hr.Producer and hr.Consumer over Kafka: what they promise over every log."""

from __future__ import annotations

import time
import traceback
from collections import deque
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
    produce_transactions,
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
    monkeypatch.setattr("headrace.log.kafka_consumer._LOOK", 0.0)
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
    topic = fill(place, partitions=1)
    with hr.Consumer(topic, group=fresh(), start="latest", log=place) as consumer:
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
        ({"options": {"sasl.jaas.config": "hunter2"}}, "sasl.jaas.config"),  # not named by it
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
        assert error.code == "HR-KAFKA-005" and f"take {named!r} as" in str(error)
        assert "hunter2" not in shown + str(error) and error.__context__ is None


def test_a_full_queue_is_waited_for(place):
    topic = new_topic()
    with hr.Producer(place, options={"queue.buffering.max.kbytes": 1}) as producer:
        for i in range(50):
            producer.send(topic, b"%d" % i + b"x" * 500, partition=0)
    assert [int(m.value()[:2].strip(b"x")) for m in messages(topic)] == list(range(50))


@pytest.mark.parametrize("wrong", [{"headers": 5}, {"headers": [5]}, {"headers": [("a", 1.5)]}])
def test_headers_that_are_none_are_refused(place, wrong):
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


def test_markers_of_transactions_are_no_lag(place):
    topic = new_topic()
    produce_transactions(topic, [b"%d" % i for i in range(6)], 2)
    for group in (None, fresh()):
        with hr.Consumer(topic, group=group, log=place) as consumer:
            assert [r.value for r in consumer.records("1s")] == [b"%d" % i for i in range(6)]
            assert consumer.lag() == {TopicPartition(topic, 0): 0}
            produce(topic, [b"more"])
            assert [r.value for r in consumer.records("1s")] == [b"more"]
            consumer.seek(topic, 0, "earliest")
            assert [r.value for r in consumer.records("1s")][:6] == [b"%d" % i for i in range(6)]
            assert consumer.lag() == {TopicPartition(topic, 0): 0}
        delete_records(topic, 0, 0)
        topic = new_topic()
        produce_transactions(topic, [b"%d" % i for i in range(6)], 2)


def test_a_partition_between_two_leaders_is_asked_again(place, monkeypatch):
    from confluent_kafka import KafkaError, KafkaException

    topic = new_topic()
    produce(topic, [b"a", b"b"])
    consumer = hr.Consumer(topic, log=place)
    client = consumer._client
    real, left = client._consumer, [KafkaError.NOT_LEADER_FOR_PARTITION] * 2

    class Electing:
        def __getattr__(self, name):
            if left and name in ("get_watermark_offsets", "offsets_for_times"):
                raise KafkaException(KafkaError(left.pop()))
            return getattr(real, name)

    monkeypatch.setattr(client, "_consumer", Electing())
    assert consumer.lag() == {(topic, 0): 2} and left == []
    left += [KafkaError.LEADER_NOT_AVAILABLE]
    assert consumer.seek_to_time(0) == {(topic, 0): 0} and left == []
    left += [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(hr.LogError):
        consumer.lag()
    consumer.close()


def test_partitions_that_are_added_are_read_without_a_group(place):
    topic = new_topic(1)
    produce(topic, [b"a"])
    with hr.Consumer(topic, log=place, start="latest") as consumer:
        assert consumer.poll("200ms") is None
        add_partitions(topic, 3)
        produce(topic, [b"b"], 2)
        produce(topic, [b"c"], 0)
        found = {(r.partition, r.value) for r in consumer.records("3s")}
        assert found == {(2, b"b"), (0, b"c")}
        assert len(consumer.assignment()) == 3


def test_a_header_name_that_is_no_text_spoils_only_the_headers(place):
    from confluent_kafka import Producer

    topic = new_topic()
    with hr.Producer(place) as producer:
        producer.send(topic, b"1", headers=[("h", b"1")])
    raw = Producer({"bootstrap.servers": place.removeprefix("kafka://")})
    raw.produce(topic, b"2", headers=[("h", b"2")])
    assert raw.flush(30) == 0
    with hr.Consumer(topic, log=place) as consumer:
        client = consumer._client
        taken = client._batch

        def batch(at, rows):
            client._waiting[at] = deque([_Spoilt(m) for m in client._waiting[at]])
            return taken(at, rows)

        client._batch = batch
        found = list(consumer.records("1s"))
    assert [r.value for r in found] == [b"1", b"2"]
    for record in found:
        assert refusal(list, record.headers).code == "HR-KAFKA-052"
        assert "cannot be read" in repr(record)


class _Spoilt:
    """A message as the library has it when the name of a header is not UTF-8."""

    def __init__(self, message: Any) -> None:
        self._message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def headers(self) -> Any:
        return b"\xff".decode()


def test_a_record_may_be_as_large_as_the_options_and_the_topic_say(place):
    large = b"x" * (3 << 20)
    topic = new_topic(config={"max.message.bytes": str(8 << 20)})
    with hr.Producer(place) as producer:
        error = refusal(producer.send, topic, large)
        assert error.code == "HR-KAFKA-051" and "message.max.bytes" in error.hint
        assert refusal(producer.send_all, topic, [large]).code == "HR-KAFKA-051"
    with hr.Producer(place, options={"message.max.bytes": 8 << 20}) as producer:
        producer.send(topic, large)
        producer.send_all(topic, [large, b"small"])
    assert [len(r.value) for r in hr.Consumer(topic, log=place).records("1s")] == [
        len(large), len(large), 5,
    ]  # fmt: skip
    small = new_topic(config={"max.message.bytes": str(1 << 20)})
    producer = hr.Producer(place, options={"message.max.bytes": 8 << 20})
    producer.send(small, large)
    assert refusal(producer.flush).code == "HR-KAFKA-051"
    producer.close()
    wrong = {"message.max.bytes": "much"}
    assert refusal(hr.Producer, place, options=wrong).code == "HR-KAFKA-005"


def test_any_number_of_rows_and_any_time_may_be_asked_for(place):
    topic = fill(place, partitions=1)
    with hr.Consumer(topic, log=place) as consumer:
        assert len(consumer.poll("10s", 2**63)) == 10
        for moment, offset in ((-5, 0), (0, 0), (2**70, 10)):
            assert consumer.seek_to_time(moment) == {(topic, 0): offset}
        for wrong in (0, 1.5, True, "many"):
            assert refusal(consumer.poll, "1s", wrong).code == "HR-LOG-019"
        for wrong in ("noon", 1.5, None):
            assert refusal(consumer.seek_to_time, wrong).code == "HR-LOG-019"
