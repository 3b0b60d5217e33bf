"""Kafka topics as outputs: what a record holds, and what happens when something goes wrong."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import OutputError, StateError
from headrace.log import kafka_delivery, kafka_produce
from headrace.schema import schema_of
from headrace.sinks import AT_LEAST_ONCE, Timelines, check_output, in_groups, open_sink, reopen_sink
from headrace.sinks.formats import csv_values
from headrace.sources.formats import decode
from headrace.state.manifest import FIRST
from headrace.testing import Driver, drive
from headrace.testing.output_suite import OutputSuite
from tests.kafka.running import admin, broker, delete_topic, new_topic
from tests.kafka.written import case, fresh, messages, opened
from tests.sinks.writing import ALONE, SCHEMA, expected, made, refusal, stage, table


class TestKafkaOutput(OutputSuite):
    passings, rounds = 2, 1
    crashes_inside = 20  # each leaves a client of Kafka behind; HEADRACE_LONG: all

    @pytest.fixture
    def make(self, kafka):
        return case


@pytest.mark.parametrize("options", [{"key": "n"}, {"headers": ["text"], "timestamp": "n"}])
def test_so_it_is_with_keys_and_with_records_one_by_one(kafka, tmp_path, options):
    output = case(tmp_path, **options)
    sink = made(output.open())
    for epoch in (1, 2):  # in epoch 0 there is a time 0
        sink.publish(epoch, stage(sink, epoch), ALONE)
    assert output.rows() == [r for r in expected(3) if r[0]]


ROWS = schema_of("id bigint, area string, body string, at timestamp, place int, raw binary")


def rows(*values: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(ROWS.names, v, strict=True)) for v in values], ROWS)


def written(tmp: Path, data: pa.Table, **options: Any) -> list[Any]:
    topic = fresh()
    sink = made(opened(topic, data.schema, tmp, **options))
    sink.publish(0, sink.stage(data, 0, "a"), ALONE)
    return messages(topic)


SAMPLE = rows(
    (1, "a", 'x,"1"', 1_700_000_000_123_456, 2, b"\x00\xff"),
    (2, None, None, None, None, None),
    (3, "ä", "", 1_700_000_000_000_000, 0, b""),
)


def test_a_record_has_key_value_headers_partition_and_time(kafka, tmp_path):
    found = written(
        tmp_path, SAMPLE, key="area", format="text", value="body", partition="place",
        timestamp="at", headers={"from": "area", "raw": "raw"},
    )  # fmt: skip
    by_value = {m.value(): m for m in found}
    first, second, third = by_value[b'x,"1"'], by_value[None], by_value[b""]
    assert (first.key(), first.partition(), first.timestamp()[1]) == (b"a", 2, 1_700_000_000_123)
    assert first.headers() == [("from", b"a"), ("raw", b"\x00\xff")]
    assert (second.key(), second.headers()) == (None, [("from", None), ("raw", None)])
    assert abs(second.timestamp()[1] - 1_700_000_000_000) > 10**9  # the time of writing
    assert (third.key(), third.partition(), third.headers()[1]) == ("ä".encode(), 0, ("raw", b""))


def test_values_are_json_csv_or_bytes(kafka, tmp_path):
    plain = SAMPLE.select(["id", "area", "body"])
    parsed = [json.loads(m.value()) for m in written(tmp_path / "json", plain)]
    assert sorted(parsed, key=lambda r: r["id"]) == plain.to_pylist()
    lines = written(tmp_path / "csv", plain, format="csv", key="id")
    assert {(m.key(), m.value()) for m in lines} == {
        (b"1", b'1,a,"x,""1"""'), (b"2", b"2,,"), (b"3", '3,ä,""'.encode()),
    }  # fmt: skip
    raw = written(tmp_path / "raw", SAMPLE, format="bytes", value="raw", partition=1)
    assert [(m.value(), m.partition()) for m in raw] == [(b"\x00\xff", 1), (None, 1), (b"", 1)]
    where = written(tmp_path / "where", SAMPLE, key="id", format="bytes", value="raw",
                    partition="place")  # fmt: skip
    assert {m.key(): m.partition() for m in where if m.key() != b"2"} == {b"1": 2, b"3": 0}
    assert len(where) == 3


def test_csv_values_are_read_back_by_an_input():
    data = pa.table(
        {
            "t": ["a", "", None, 'q"', "c,d", " s "],
            "f": [1.5, float("nan"), None, float("-inf"), -0.0, 1e300],
            "b": [True, None, False, True, None, False],
            "at": pa.array([0, None, 1, 2, 3, 10**15], pa.timestamp("us", "UTC")),
            "n": [1, None, -(2**62), 4, 5, 6],
        }
    )
    back, bad, _ = decode("csv", csv_values(data), data.schema)
    assert not bad.any()
    assert str(back.to_pylist()) == str(data.to_pylist())


def test_equal_keys_go_where_java_sends_them(kafka, tmp_path):
    keys = [f"key-{i}" for i in range(40)]
    data = pa.table({"k": keys, "v": keys})
    found = written(tmp_path, data, key="k", format="text", value="v", partitions=5)
    assert {m.key(): m.partition() for m in found} == {
        k.encode(): (murmur2(k.encode()) & 0x7FFFFFFF) % 5 for k in keys
    }


def murmur2(data: bytes) -> int:
    """As in org.apache.kafka.common.utils.Utils."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    for i in range(0, len(data) // 4 * 4, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    rest = data[len(data) // 4 * 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def test_outputs_of_a_job_are_one_group_and_have_an_epoch_together(kafka, tmp_path):
    one, two = fresh(), fresh()
    sinks = {t: made(opened(t, SCHEMA, tmp_path, name=t)) for t in (one, two)}
    sinks["alone"] = opened(one, SCHEMA, tmp_path, name="x", guarantee=AT_LEAST_ONCE)
    assert list(in_groups(sinks)) == [[one, two], ["alone"]]
    staged = {t: stage(sinks[t], 0) for t in (one, two)}
    both = [(sinks[t], staged[t]) for t in (one, two)]
    lost = [(sinks[one], staged[one]), (sinks[two], [{**r, "crc": 1} for r in staged[two]])]

    with pytest.raises(OutputError) as caught:
        sinks[one].publish_group(0, lost, ALONE)  # the second fails when the first is written
    assert caught.value.code == "HR-OUTPUT-012"
    assert (messages(one), messages(two)) == ([], [])
    sinks[one].publish_group(0, both, ALONE)
    sinks[two].publish_group(0, both[::-1], ALONE)

    assert [len(messages(t)) for t in (one, two)] == [len(expected(1))] * 2


def test_outputs_that_reach_a_cluster_in_different_ways_are_refused(kafka, tmp_path):
    one = opened(fresh(), SCHEMA, tmp_path, name="a")
    two = opened(fresh(), SCHEMA, tmp_path, name="b", options={"client.rack": "r"})
    assert refusal(one.check_group, [one, two]).code == "HR-KAFKA-040"
    one.check_group([one, one])


def test_at_least_once_is_written_again_by_the_next_driver(kafka, tmp_path):
    topic = fresh()
    sink = made(opened(topic, SCHEMA, tmp_path, guarantee=AT_LEAST_ONCE))
    staged = stage(sink, 0)
    for _ in range(2):
        sink.publish(0, staged, ALONE)
    assert (sink.held(), len(messages(topic))) == (None, 6)
    pickle.loads(pickle.dumps(sink)).publish(0, staged, ALONE)
    assert len(messages(topic)) == 12
    assert sink.check_same(0, staged) is None
    assert sink.reached(0) and opened(topic, SCHEMA, tmp_path, guarantee=AT_LEAST_ONCE).reached(0)
    delete_topic(topic)
    new_topic(3, topic)
    assert not sink.reached(0)


def test_a_topic_that_is_missing_is_refused_unless_it_may_be_made(kafka, tmp_path):
    uri = f"kafka://{broker().address}/{fresh()}"
    sink = open_sink(uri, SCHEMA, {}, str(tmp_path / "job"), "o")
    assert refusal(sink.check).code == "HR-KAFKA-031"


def test_a_topic_of_another_job_is_refused_unless_rows_are_to_be_appended(kafka, tmp_path):
    topic = fresh()
    sink = made(opened(topic, SCHEMA, tmp_path / "a"))
    sink.publish(0, stage(sink, 0), ALONE)
    assert refusal(opened(topic, SCHEMA, tmp_path / "b").check).code == "HR-OUTPUT-004"
    other = made(opened(topic, SCHEMA, tmp_path / "b", mode="append"))
    other.publish(0, stage(other, 0), ALONE)
    assert len(messages(topic)) == 12
    assert (sink.held().number, other.held().number) == (0, 0)


def test_what_a_copy_of_the_folder_has_delivered_is_not_taken_for_ours(kafka, tmp_path):
    topic = fresh()
    sink = made(opened(topic, SCHEMA, tmp_path))
    sink.publish(0, stage(sink, 0), ALONE)
    ours, other = stage(sink, 1, attempt="ours"), stage(sink, 1, attempt="other")
    sink.publish(1, other, ALONE)
    sink.publish(2, stage(sink, 2), ALONE)

    assert refusal(sink.publish, 1, ours, ALONE).code == "HR-OUTPUT-013"
    assert refusal(sink.check_same, 1, ours).code == "HR-OUTPUT-013"
    sink.check_same(1, other)
    assert len(messages(topic)) == len(expected(3))


def test_a_topic_that_was_deleted_holds_nothing_even_when_it_was_made_again(kafka, tmp_path):
    topic = fresh()
    sink = made(opened(topic, SCHEMA, tmp_path))
    sink.publish(1, stage(sink, 1), ALONE)
    assert sink.reached(1)
    staged = stage(sink, 2)
    delete_topic(topic)
    assert not sink.reached(1)
    again = opened(topic, SCHEMA, tmp_path)
    assert refusal(again.publish, 2, staged, ALONE).code == "HR-KAFKA-039"
    new_topic(3, topic)
    assert not sink.reached(1)
    assert opened(topic, SCHEMA, tmp_path).held().number == 0


def test_a_record_that_is_too_large_fails_its_batch(kafka, tmp_path):
    topic = new_topic(1, config={"max.message.bytes": "2000"})
    sink = made(opened(topic, schema_of("text string"), tmp_path, format="text"))
    large, small = pa.table({"text": ["x" * 1_900]}), pa.table({"text": ["y" * 900] * 50})
    assert refusal(sink.stage, large, 0, "a").code == "HR-KAFKA-034"
    sink.publish(0, sink.stage(small, 0, "a"), ALONE)
    assert len(messages(topic)) == 50


def test_a_topic_that_takes_less_than_before_is_an_error_and_nothing_is_lost(kafka, tmp_path):
    topic = new_topic(1)
    sink = made(opened(topic, schema_of("text string"), tmp_path, format="text"))
    staged = sink.stage(pa.table({"text": ["x" * 5_000]}), 0, "a")
    limit(topic, 2_000)
    assert refusal(sink.publish, 0, staged, ALONE).code == "HR-KAFKA-034"
    limit(topic, 100_000)
    sink.publish(0, staged, ALONE)
    assert len(messages(topic)) == 1


def limit(topic: str, size: int) -> None:
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    asked = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    next(iter(admin().incremental_alter_configs([asked]).values())).result(30)


def test_rows_that_no_partition_or_time_fits_fail_their_batch(kafka, tmp_path):
    sink = made(opened(fresh(), ROWS, tmp_path, partition="place", timestamp="at"))
    wrong = rows((1, "a", "b", 1, 3, None))
    early = rows((1, "a", "b", -5_000, 0, None))
    assert refusal(sink.stage, wrong, 0, "a").code == "HR-KAFKA-035"
    assert refusal(sink.stage, early, 0, "a").code == "HR-KAFKA-035"
    assert refusal(opened(fresh(), ROWS, tmp_path, partition=3).check).code == "HR-KAFKA-035"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"key": "none"}, "HR-OUTPUT-008"), ({"partition": "area"}, "HR-KAFKA-033"),
        ({"timestamp": "area"}, "HR-KAFKA-033"), ({"format": "text"}, "HR-KAFKA-033"),
        ({"format": "text", "value": "id"}, "HR-KAFKA-033"),
        ({"format": "csv"}, "HR-KAFKA-033"), ({"headers": ["none"]}, "HR-OUTPUT-008"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused(kafka, tmp_path, options, code):
    assert refusal(opened(fresh(), ROWS, tmp_path, **options).check).code == code


@pytest.mark.parametrize(
    ("uri", "options", "code"),
    [
        ("kafka:topic", {}, "HR-KAFKA-003"), ("kafka://u:p@host/topic", {}, "HR-KAFKA-003"),
        ("kafka://host/t", {"keys": "a"}, "HR-OUTPUT-008"),
        ("kafka://host/t", {"format": "avro"}, "HR-OUTPUT-008"),
        ("kafka://host/t", {"partition": -1}, "HR-OUTPUT-008"),
        ("kafka://host/t", {"partitions": 0}, "HR-OUTPUT-008"),
        ("kafka://host/t", {"partitioner": "best"}, "HR-OUTPUT-008"),
        ("kafka://host/t", {"guarantee": "maybe"}, "HR-OUTPUT-008"),
        ("kafka://host/t", {"transaction_timeout": "1ms"}, "HR-OUTPUT-008"),
        ("kafka://host/t", {"headers": 5}, "HR-OUTPUT-008"),
        ("kafka://host/t", {"options": {"transactional.id": "x"}}, "HR-KAFKA-005"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_when_the_program_is_built(uri, options, code):
    error = refusal(check_output, uri, options)
    assert error.code == code and "u:p" not in str(error)


def test_brokers_that_do_not_answer_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.log.kafka_topics.PATIENCE", 0.5)
    sink = open_sink("kafka://127.0.0.1:1/t", SCHEMA, {}, str(tmp_path / "job"), "o")
    error = refusal(sink.check)
    assert error.code == "HR-KAFKA-032" and "127.0.0.1:1" in error.message


def test_no_secret_is_stored_and_a_description_is_opened_with_those_of_the_program(kafka, tmp_path):
    topic, secret = fresh(), "swordfish"
    os.environ["KAFKA_RACK"] = "r1"
    options = {"options": {"sasl.password": secret, "client.rack": "env:KAFKA_RACK"}}
    sink = made(opened(topic, SCHEMA, tmp_path, **options))
    staged = stage(sink, 0)
    described = json.loads(json.dumps(sink.describe()))
    assert secret not in json.dumps(described) and secret not in repr(sink.__dict__["_cluster"])
    assert described["options"]["options"] == {"client.rack": "env:KAFKA_RACK"}
    described["options"]["brokers"] = "127.0.0.1:1"  # where the cluster was before

    again = reopen_sink(described, str(tmp_path / "job"), "o")
    again.publish(0, staged, ALONE)
    assert again._cluster.properties["sasl.password"] == secret
    assert len(messages(topic)) == len(expected(1))
    everything = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert secret.encode() not in everything


def test_going_back_says_what_will_be_there_twice(kafka, tmp_path):
    sink = made(opened(fresh(), SCHEMA, tmp_path))
    for epoch in range(5):
        sink.publish(epoch, stage(sink, epoch), ALONE)
    said = sink.go_back(Timelines(((FIRST, 2),)), ALONE)
    assert "epochs 3 to 4" in said and "twice" in said


def test_the_records_of_epochs_say_what_is_delivered():
    last = kafka_delivery.NOTHING
    for epoch in (1, 2, 5):
        last = last.plus(epoch, f"d{epoch}")
    last = kafka_delivery.Delivered.from_json(last.to_json().encode())
    assert not any(last.differs(e, f"d{e}") for e in (0, 1, 2, 5, 6))
    assert all(last.differs(e, "other") for e in (1, 2, 3, 4, 5))


def test_an_epoch_of_many_records_is_delivered_in_order(kafka, tmp_path, monkeypatch):
    monkeypatch.setattr(kafka_produce, "_BATCH", 7)
    monkeypatch.setattr(kafka_produce, "_QUEUED", 500)
    topic = fresh()
    sink = made(opened(topic, SCHEMA, tmp_path, partitions=1))
    sink.publish(0, sink.stage(table(0, *range(100)), 0, "a"), ALONE)
    assert [json.loads(m.value())["n"] for m in messages(topic)] == list(range(100))


def test_a_plan_shows_no_secret():
    job = hr.Job("j")
    job.read(hr.rows([{"a": 1}])).write(
        "kafka://h/t", sasl_password="swordfish", options={"ssl.key.password": "swordfish"}
    )
    assert "swordfish" not in str(job.explain()) and "kafka://h/t" in str(job.explain())


def numbers_to(topic: str, guarantee: str, source: Path) -> hr.Job:
    job = hr.Job("guarantees")
    numbers = job.read(f"files:{source}", schema="n bigint", format="json", name="in")
    numbers.write(f"kafka://{broker().address}/{topic}", name="out", guarantee=guarantee)
    return job


def test_the_guarantee_may_change_between_runs(kafka, tmp_path):
    topic, source, exact = fresh(), tmp_path / "in", "exactly once"
    new_topic(1, topic)
    source.mkdir()
    for run, guarantee in enumerate(
        [AT_LEAST_ONCE, exact, exact, AT_LEAST_ONCE, exact, AT_LEAST_ONCE, exact]
    ):
        if run != 1:  # a run without rows does not forget what was changed
            (source / f"{run}.json").write_text(f'{{"n": {run}}}\n')
        driver = Driver(numbers_to(topic, guarantee, source), tmp_path / "job", until="now")
        driver.drain()
        driver.close()
    assert [json.loads(m.value())["n"] for m in messages(topic)] == [0, 2, 3, 4, 5, 6]
    delete_topic(topic)  # what is recorded is still missed
    new_topic(1, topic)
    with pytest.raises(StateError) as caught:
        Driver(numbers_to(topic, exact, source), tmp_path / "job", until="now")
    assert caught.value.code == "HR-STATE-023"


def test_the_producer_that_outputs_prints_is_what_the_cluster_records(kafka, tmp_path):
    topic, folder = fresh(), tmp_path / "job"
    job = hr.Job("told")
    job.read(hr.rows([{"n": 1}, {"n": 2}])).write(
        f"kafka://{broker().address}/{topic}", name="k", partitions=1
    )
    drive(job, folder)
    shown = hr.outputs(folder).outputs[0]
    assert (shown.shows, shown.holds) == (1, 1)
    records = messages(f"headrace-epochs-{shown.producer.partition('/')[0]}")
    assert any(shown.producer in m.key().decode() for m in records)
