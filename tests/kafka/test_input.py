"""Kafka as an input, on a real broker: what is read, from where, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import InputError
from headrace.log import kafka_fetch
from headrace.schema import schema_of
from headrace.sources import Source, kafka_view, open_source
from headrace.sources.kafka_rows import RecordColumns
from headrace.testing import Driver
from tests.kafka.running import (
    add_partitions,
    admin,
    broker,
    delete_records,
    delete_topic,
    new_topic,
    produce,
    produce_transactions,
    wait_for,
)
from tests.sources.reading import again, read_all, refusal

pytestmark = pytest.mark.usefixtures("kafka")
NUMBER = "n bigint"


def uri(topic: str) -> str:
    return f"kafka://{broker().address}/{topic}"


def opened(topic: str, schema: str | None = NUMBER, **options: Any) -> Source:
    format, until = options.pop("format", None), options.pop("until", "end")
    folder = options.pop("folder", None)
    declared = None if schema is None else schema_of(schema)
    return open_source(uri(topic), declared, format, options, folder=folder, until=until)


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [json.dumps({"n": n}).encode() for n in range(first, first + count)]


def job(topic: str, **options: Any) -> hr.Job:
    job = hr.Job("kafka")
    job.read(uri(topic), schema=NUMBER, name="in", **options).write("collect:", name="out")
    return job


def read_by(driver: Driver) -> list[int]:
    return sorted(r["n"] for r in driver.output("out").to_pylist())


def run(topic: str, folder: Path, until: str = "now", **options: Any) -> list[int]:
    driver = Driver(job(topic, **options), folder, until=until)
    driver.drain()
    driver.close()
    return read_by(driver)


# what is read


@pytest.mark.parametrize(
    ("start", "first"),
    [("1969-12-31T23:59:59Z", 0), ("0001-01-01", 0), ("1970-01-01T00:00:01.002Z", 2),
     ("1970-01-01T00:00:01.002001Z", 3), ("1970-01-01T00:00:01.0019+00:00", 2), ("9999-12-31", 5)],
)  # fmt: skip
def test_a_start_is_never_before_its_time(start: str, first: int) -> None:
    topic = new_topic()
    for n in range(5):
        produce(topic, [b"%d" % n], timestamp=1_000 + n)
    assert opened(topic, None, start=start).start("0") == first


def test_formats_of_the_value() -> None:
    topic = new_topic()
    produce(topic, [b'{"n": 1}', b"2", b"x"])
    json_rows = opened(topic)
    (piece,) = json_rows.cut("0", 0, 3, 1)
    ((chunk, _),) = again(json_rows).read(piece)
    table, bad, reasons = json_rows.decode(chunk)
    assert table.to_pylist() == [{"n": 1}] and bad.tolist() == [False, True, True]
    assert reasons[0] == "the document is 2, not an object"
    assert read_all(opened(topic, None)) == [{"value": v} for v in (b'{"n": 1}', b"2", b"x")]
    assert read_all(opened(topic, None, format="text"))[2] == {"value": "x"}
    csv = opened(topic, "a string", format="csv")
    assert csv.decode(pa.table({"__raw": [b"a;b", b"c\n"]}))[0].to_pylist() == [
        {"a": "a;b"},
        {"a": "c"},
    ]


def test_the_parts_of_a_record_fill_the_columns_that_are_named_for_them() -> None:
    from confluent_kafka import Producer

    topic = new_topic(2)
    producer = Producer({"bootstrap.servers": broker().address})
    headers = [("trace", b"t1"), ("user", None)]
    at = 1_700_000_000_123
    producer.produce(topic, b'{"n": 7}', b"7", 1, timestamp=at, headers=headers)
    producer.produce(topic, b'{"n": 8}', b"x", 1, timestamp=at)
    producer.produce(topic, b'{"n": 9}', None, 1, timestamp=at, headers=[("a", b"1"), ("a", b"2")])
    assert producer.flush(30) == 0
    parts = {"key": "k", "headers": "h", "partition": "p", "offset": "o", "timestamp": "at"}
    schema = "k bigint, n bigint, h map<string, binary>, p int, o bigint, at timestamp"

    source = opened(topic, schema, **parts)
    (piece,) = source.cut("1", 0, 3, 1)
    ((chunk, _),) = again(source).read(piece)
    table, bad, reasons = source.decode(chunk)

    moment = dt.datetime.fromtimestamp(at / 1000, dt.UTC)
    assert table.to_pylist() == [
        {"k": 7, "n": 7, "h": [("trace", b"t1"), ("user", None)], "p": 1, "o": 0, "at": moment}
    ]
    assert table.schema.equals(source.schema)
    assert bad.tolist() == [False, True, True]
    assert reasons == [
        "column 'k': 'x' is not bigint",
        "column 'h': a header occurs twice, which a map cannot hold",
    ]
    exact = opened(topic, "h array<struct<key: string, value: binary>>", headers="h", format="json")
    found = read_all(exact)
    assert [one["h"] for one in found[1:]] == [
        [],
        [{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}],
    ]
    own = opened(topic, None, key="key", timestamp="at")
    assert own.schema.names == ["value", "key", "at"]
    assert read_all(own)[0] == {"value": b'{"n": 7}', "key": b"7", "at": moment}


@pytest.mark.parametrize(
    "kind", ["map<string, string>", "array<struct<key: string, value: string>>"]
)
def test_a_header_that_is_not_text_is_a_dead_letter_and_its_neighbours_are_not(kind: str) -> None:
    from confluent_kafka import Producer

    topic = new_topic()
    producer = Producer({"bootstrap.servers": broker().address})
    for n in range(100):
        headers = [("h", b"\xff" if n == 50 else b"%d" % n)]
        producer.produce(topic, numbers(1, n)[0], partition=0, headers=headers)
    assert producer.flush(30) == 0
    source = opened(topic, f"n bigint, h {kind}", headers="h")
    ((chunk, _),) = source.read(source.cut("0", 0, 100, 1)[0])
    table, bad, reasons = source.decode(chunk)
    good = [n for n in range(100) if n != 50]
    assert bad.nonzero()[0].tolist() == [50] and "a header is not" in reasons[0]
    assert table.column("n").to_pylist() == good
    values = [next(iter(dict(h).values()) if isinstance(h[0], tuple) else iter([h[0]["value"]]))
              for h in table.column("h").to_pylist()]  # fmt: skip
    assert values == [str(n) for n in good]


def test_a_record_whose_time_no_column_holds_is_a_dead_letter() -> None:
    from confluent_kafka import Producer

    topic = new_topic(config={"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    producer = Producer({"bootstrap.servers": broker().address})
    at = 1_700_000_000_000
    for n, stamp in enumerate([at, at * 1_000_000, at]):
        producer.produce(topic, numbers(1, n)[0], partition=0, timestamp=stamp)
    assert producer.flush(30) == 0
    wait_for(lambda: opened(topic).latest("0") == 3)
    source = opened(topic, "n bigint, at timestamp", timestamp="at")
    ((chunk, _),) = source.read(source.cut("0", 0, 3, 1)[0])
    table, bad, reasons = source.decode(chunk)
    assert table.column("n").to_pylist() == [0, 2] and bad.tolist() == [False, True, False]
    assert reasons == [f"column 'at': {at * 1_000_000} is not timestamp"]


class Misnamed:
    """A record with a header whose name is not UTF-8, which the library cannot write itself."""

    def headers(self) -> Any:
        return [(b"\xff".decode(), b"")]


@pytest.mark.parametrize("value", ["binary", "string"])
@pytest.mark.parametrize("kind", ["map<string, {}>", "array<struct<key: string, value: {}>>"])
def test_a_header_whose_name_is_not_text_is_a_dead_letter(kind: str, value: str) -> None:
    schema = schema_of(f"h {kind.format(value)}")
    found = [[("a", b"1")], kafka_fetch._headers(Misnamed()), []]
    headers = pa.array(found, kafka_fetch._HEADERS)
    records = kafka_fetch.KafkaRecords(np.arange(3), pa.array([b""] * 3), headers=headers)
    columns = RecordColumns(schema, {"headers": "h"})
    table, bad, reasons = columns.decode(columns.chunk(records, 0), lambda raw: None)  # type: ignore
    assert len(table) == 2 and bad.tolist() == [False, True, False]
    assert reasons == ["column 'h': the name of a header is not UTF-8"]


def test_a_tombstone_is_a_row_of_nulls_where_its_key_is_read_and_dead_elsewhere() -> None:
    topic = new_topic()
    produce(topic, [(b"a", b'{"n": 1}'), (b"a", None), (b"b", b'{"n": 2}'), (b"c", b"bad")])

    def decoded(source: Source) -> Any:
        ((chunk, _),) = source.read(source.cut("0", 0, 4, 1)[0])
        return source.decode(chunk)

    table, bad, _ = decoded(opened(topic, "k string, n bigint", key="k"))
    rows = [{"k": "a", "n": 1}, {"k": "a", "n": None}, {"k": "b", "n": 2}]
    assert table.to_pylist() == rows and bad.tolist() == [False] * 3 + [True]
    table, bad, reasons = decoded(opened(topic))
    assert table.to_pylist() == [{"n": 1}, {"n": 2}]
    assert reasons[0] == "the record has no value: it is a tombstone"
    _, bad, reasons = decoded(opened(topic, "k string, n bigint not null", key="k"))
    assert bad.tolist() == [False, True, False, True] and "'n' has no value" in reasons[0]


def test_the_time_of_the_record_may_be_event_time(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    topic = new_topic()
    producer = Producer({"bootstrap.servers": broker().address})
    for second in (1, 2, 11, 12, 25):
        producer.produce(topic, b'{"n": 1}', timestamp=1_700_000_000_000 + second * 1000)
    assert producer.flush(30) == 0
    job = hr.Job("times")
    read = job.read(uri(topic), schema="n bigint, at timestamp", timestamp="at", time="at",
                    in_order=True)  # fmt: skip
    read.key_by("n").window(hr.tumbling("10s")).agg(c=hr.count()).write("collect:", name="out")
    driver = Driver(job, tmp_path)
    driver.drain()
    assert [r["c"] for r in driver.output("out").to_pylist()] == [2, 2, 1]
    driver.close()


# from where


def test_where_a_new_job_starts(tmp_path: Path) -> None:
    topic = new_topic(2)
    produce(topic, numbers(5), timestamp=1_000_000)
    produce(topic, numbers(5, 5), timestamp=2_000_000)
    produce(topic, numbers(3, 10), 1, timestamp=2_000_000)

    def starts(start: Any) -> list[int]:
        source = opened(topic, start=start)
        source.check()
        return [source.start(s) for s in source.splits()]

    assert starts("earliest") == [0, 0] and starts("latest") == [10, 3]
    assert starts({0: 7}) == [7, 0]
    assert starts("1970-01-01T00:20:00Z") == starts(dt.datetime(1970, 1, 1, 0, 20)) == [5, 0]
    assert starts("2100-01-01") == [10, 3]
    for wrong in ({0: 11}, {2: 0}):
        assert refusal(opened(topic, start=wrong).check).code == "HR-KAFKA-008"
    for odd in ("soon", 5, {"0": 1}):
        assert refusal(opened, topic, start=odd).code == "HR-INPUT-013"


def test_a_job_that_starts_at_the_latest_misses_nothing_from_then_on(tmp_path: Path) -> None:
    topic = new_topic()
    produce(topic, numbers(5))
    first = Driver(job(topic, start="latest"), tmp_path, until=None)
    assert first.epoch() is None  # nothing new; where it starts is stored
    first.close()
    produce(topic, numbers(5, 5))
    assert run(topic, tmp_path, start="latest") == [5, 6, 7, 8, 9]
    (tmp_path / "inputs" / "in" / "start.json").write_text("{")
    source = opened(topic, folder=str(tmp_path), start="latest")
    source._home = tmp_path / "inputs" / "in"  # type: ignore[attr-defined]
    assert refusal(source.start, "0").code == "HR-INPUT-009"


def test_a_run_goes_on_where_the_last_one_stopped_and_new_partitions_are_read(
    tmp_path: Path,
) -> None:
    topic = new_topic()
    produce(topic, numbers(1000))
    driver = Driver(job(topic, start="latest"), tmp_path, until=None)
    assert driver.epoch() is None
    produce(topic, numbers(10))
    wait_for(lambda: driver.epoch() is not None)
    add_partitions(topic, 3)
    produce(topic, numbers(10, 10), 1)
    produce(topic, numbers(10, 20), 2)
    wait_for(lambda: [driver.epoch(), len(read_by(driver))][1] == 30)
    driver.close()
    produce(topic, numbers(5, 30), 2)
    assert run(topic, tmp_path, start="latest") == list(range(35))


def test_what_a_drain_gathers_is_there_however_seldom_the_brokers_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_view, "POLL", 3_600)
    monkeypatch.setattr(kafka_view, "SLOW_POLL", 3_600)
    topic = new_topic()
    produce(topic, numbers(5))
    source = opened(topic)
    source.discover()
    source.discover()
    add_partitions(topic, 2)
    produce(topic, numbers(5, 5), 1)
    source.discover()
    assert source.splits() == ["0"]

    source.gather()
    assert source.gathering("0")
    source.discover()
    assert not source.gathering("0") and source.splits() == ["0", "1"]
    assert source.latest("1") - source.start("1") == 5


# what is refused


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("kafka://user:hunter2@host/t", "HR-KAFKA-003"),
        ("kafka://host", "HR-KAFKA-003"),
        ("kafka:topic", "HR-KAFKA-003"),
        ("kafka://host:x/t", "HR-KAFKA-003"),
        ("kafka://host/a/b", "HR-KAFKA-003"),
    ],
)
def test_an_address_that_is_none(wrong: str, code: str) -> None:
    error = refusal(open_source, wrong, schema_of(NUMBER))
    assert error.code == code and "hunter2" not in str(error)


def test_options_that_make_no_sense_are_refused() -> None:
    def code(schema: str = NUMBER, **options: Any) -> str:
        declared = schema_of(schema)
        return refusal(open_source, "kafka://h/t", declared, None, options).code

    assert code(key="k") == code(timestamp="n", key="n") == "HR-KAFKA-007"
    assert code("h string", headers="h") == code("o string", offset="o") == "HR-KAFKA-007"
    assert code(nope=1) == code(group="") == code(isolation="x") == "HR-INPUT-013"
    assert code(on_data_loss="ignore") == "HR-INPUT-013"
    assert code(options={"group.id": "x"}) == code(options=5) == "HR-KAFKA-005"
    assert code(sasl_password="env:NO_SUCH_THING_1") == "HR-KAFKA-004"
    assert refusal(open_source, "kafka://h/t", None, "json").code == "HR-INPUT-012"
    assert refusal(open_source, "kafka://h/t", None, "parquet").code == "HR-INPUT-004"


def test_a_topic_or_a_broker_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(name="temperatures")
    error = refusal(opened("temperature").check)
    assert error.code == "HR-INPUT-010" and "temperatures" in str(error)
    delete_topic(topic)
    monkeypatch.setattr("headrace.log.kafka.PATIENCE", 1.0)
    nobody = open_source("kafka://127.0.0.1:1/t", schema_of(NUMBER))
    assert refusal(nobody.identity).code == "HR-KAFKA-001"


def test_a_topic_that_was_made_again_is_another(tmp_path: Path) -> None:
    topic = new_topic()
    produce(topic, numbers(5))
    driver = Driver(job(topic), tmp_path, until=None)
    driver.drain()
    delete_topic(topic)
    new_topic(name=topic)
    produce(topic, numbers(20))
    with pytest.raises(InputError) as caught:
        wait_for(lambda: driver.epoch() is not None)
    assert caught.value.code == "HR-INPUT-016"
    with pytest.raises(hr.HeadraceError) as refused:
        run(topic, tmp_path)
    assert refused.value.code.startswith(("HR-EVOLVE", "HR-STATE"))
    assert read_by(driver) == list(range(5))


# secrets


def test_secrets_are_taken_from_elsewhere_and_are_nowhere_to_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    (tmp_path / "user").write_text("hunter1\n")
    topic = new_topic()
    produce(topic, numbers(5))
    options = {
        "sasl_password": "env:KAFKA_PASSWORD",
        "sasl_username": f"file:{tmp_path}/user",
        "options": {"client.id": "hunter3"},
    }
    source: Any = again(opened(topic, **options))
    assert source._cluster.properties == {
        "sasl.password": "hunter2", "sasl.username": "hunter1", "client.id": "hunter3",
    }  # fmt: skip
    assert "hunter" not in f"{source._cluster!r} {source._cluster.properties} {source.identity()}"
    assert run(topic, tmp_path / "job", **options) == list(range(5))
    explained = str(job(topic, sasl_password="hunter2").explain())
    stored = b"".join(p.read_bytes() for p in (tmp_path / "job").rglob("*") if p.is_file())
    said = "".join(capfd.readouterr())
    assert b"hunter" not in stored and "hunter" not in explained + said
    wrong = opened(topic, sasl_password="hunter2", security_protocol="SASL_PLAINTEXT",
                   sasl_mechanism="PLAIN", sasl_username="u")  # fmt: skip
    monkeypatch.setattr("headrace.log.kafka.PATIENCE", 1.0)
    error = refusal(wrong.identity)
    assert error.code in ("HR-KAFKA-001", "HR-KAFKA-006") and "hunter" not in str(error)


# others can see how far it is


def test_a_consumer_group_shows_how_far_the_job_is(tmp_path: Path) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = new_topic(2)
    produce(topic, numbers(7))
    produce(topic, numbers(5, 7), 1)
    assert len(run(topic, tmp_path, group="fire-alarm")) == 12
    consumer = Consumer({"bootstrap.servers": broker().address, "group.id": "fire-alarm"})
    found = consumer.committed([TopicPartition(topic, p) for p in (0, 1)], timeout=30)
    consumer.close()
    assert [p.offset for p in found] == [7, 5]


# offsets with gaps


def test_transactions_are_read_when_they_are_committed_and_never_when_aborted(
    tmp_path: Path,
) -> None:
    from confluent_kafka import Producer

    topic = new_topic()
    produce_transactions(topic, numbers(50), 20)
    open_one = Producer({"bootstrap.servers": broker().address, "transactional.id": topic + "2"})
    open_one.init_transactions(30)
    open_one.begin_transaction()
    open_one.produce(topic, b'{"n": 50}', partition=0)
    open_one.flush(30)

    driver = Driver(job(topic), tmp_path, until=None, max_batch=7)
    driver.drain()
    assert read_by(driver) == list(range(50))
    uncommitted = read_all(opened(topic, None, isolation="read_uncommitted"))
    assert len(uncommitted) == 50 + 9 + 1
    open_one.commit_transaction(30)
    wait_for(lambda: [driver.epoch(), len(read_by(driver))][1] == 51)
    driver.drain()  # the marker at the end is read, too
    assert driver.manifest is not None
    end = opened(topic).latest("0")
    assert [s.at for s in driver.manifest.splits] == [end]
    driver.close()


@pytest.fixture(scope="module", autouse=True)
def compacting(kafka: Any) -> str:
    """Six hundred records of ten keys, of which most will soon be gone: begun before all tests."""
    quick = {
        "cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "50", "delete.retention.ms": "0",
    }  # fmt: skip
    topic = new_topic(config=quick)
    produce(topic, [(b"k%d" % (i % 10), v) for i, v in enumerate(numbers(600))])
    for _ in range(2):
        time.sleep(0.1)
        produce(topic, [(b"last", b'{"n": 1000}')])  # a new segment: the one before is closed
    return topic


# retention


def test_records_that_expire_before_they_are_read_stop_the_job(tmp_path: Path) -> None:
    topic = new_topic()
    produce(topic, numbers(10))
    driver = Driver(job(topic), tmp_path, until=None)
    driver.drain()
    produce(topic, numbers(10, 10))
    delete_records(topic, 0, 15)
    with pytest.raises(InputError) as caught:
        wait_for(lambda: driver.epoch() is not None)
    assert caught.value.code == "HR-INPUT-011"
    assert "records 10 to 14 of partition 0" in caught.value.message
    with pytest.raises(InputError) as refused:
        run(topic, tmp_path)
    assert refused.value.code == "HR-INPUT-011"
    assert read_by(driver) == list(range(10))


@pytest.mark.parametrize("choice", ["record", "skip"])
@pytest.mark.parametrize("rest", [5, 0])
def test_a_job_that_may_goes_on_without_them(tmp_path: Path, choice: str, rest: int) -> None:
    topic = new_topic()
    produce(topic, numbers(10))
    run(topic, tmp_path, on_data_loss=choice)
    produce(topic, numbers(10, 10))
    delete_records(topic, 0, 20 - rest)

    assert run(topic, tmp_path, on_data_loss=choice) == [*range(10), *range(20 - rest, 20)]

    letters = hr.read_output(tmp_path / "dead").to_pylist() if choice == "record" else []
    said = [(one["offset"], one["error"]) for one in letters]
    text = f"records 10 to {19 - rest} of partition 0 of topic {topic!r} were removed by retention"
    expected = [(10, f"{text} before they were read")]
    assert said == (expected if choice == "record" else [])
    produce(topic, numbers(2, 20))
    assert run(topic, tmp_path, on_data_loss=choice)[-2:] == [20, 21]


def test_what_expires_while_it_is_read_is_noticed() -> None:
    topic = new_topic()
    produce(topic, numbers(10))
    failing, recording = opened(topic), opened(topic, on_data_loss="record")
    (piece,) = failing.cut("0", 0, 10, 1)
    delete_records(topic, 0, 4)
    assert refusal(lambda: [*failing.read(piece)]).code == "HR-INPUT-011"
    lost, rest = again(recording).read(piece)
    assert (lost[1].tolist(), rest[1].tolist()) == ([0], list(range(4, 10)))


def test_groups_are_left_alone_unless_asked_for() -> None:
    groups = admin().list_consumer_groups(request_timeout=30).result().valid
    assert "headrace" not in {g.group_id for g in groups}


@pytest.mark.parametrize("max_batch", [3, 40, None])
def test_compacted_records_leave_gaps_that_are_passed_over(
    tmp_path: Path, compacting: str, max_batch: int | None
) -> None:
    topic = compacting
    wait_for(lambda: len(read_all(opened(topic, None))) < 100)
    driver = Driver(job(topic), tmp_path, max_batch=max_batch)
    driver.drain()
    found = [n for n in read_by(driver) if n < 1000]
    driver.close()
    assert found == list(range(590, 600))
