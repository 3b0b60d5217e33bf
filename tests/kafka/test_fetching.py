"""Reading by the library's C functions gives what its messages give: every part, every batch."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import InputError, LogError
from headrace.log import kafka_native, kafka_reader
from headrace.log.kafka import Cluster, Properties
from headrace.log.kafka_fetch import ClientReport, KafkaRecords, MessageFetcher, Wanted, joined
from headrace.log.kafka_native import NativeFetcher
from headrace.schema import schema_of
from headrace.sources import kafka as kafka_source
from headrace.sources import open_source
from headrace.sources.contract import Range
from tests.kafka.running import broker, new_topic, produce, produce_transactions

pytestmark = pytest.mark.usefixtures("kafka")
ALL = Wanted(key=True, timestamp=True)


def wait(seconds: float) -> None:
    assert seconds < 30, "nothing comes"


def cluster(**properties: Any) -> Cluster:
    return Cluster(broker().address, Properties(properties))


def read(topic: str, end: int, start: int = 0, wanted: Wanted = ALL, **how: Any) -> KafkaRecords:
    where = how.pop("at", cluster())
    found = kafka_reader.read_range(
        where, topic, 0, start, end, wanted=wanted, committed=True, on_silence=wait
    )
    return joined(list(found))


def fetchers() -> list[type]:
    return [type(consumer._fetcher) for consumer in kafka_reader._idle.values()]


@pytest.fixture
def by_messages(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Read the same by messages."""

    def again(topic: str, end: int, start: int = 0, wanted: Wanted = ALL) -> KafkaRecords:
        kafka_reader.release()
        with monkeypatch.context() as patch:
            patch.setattr(kafka_reader, "native_fetcher", lambda config: None)
            found = read(topic, end, start, wanted)
        assert fetchers() == [MessageFetcher]
        kafka_reader.release()
        return found

    kafka_reader.release()
    yield again
    kafka_reader.release()


def same(a: KafkaRecords, b: KafkaRecords) -> bool:
    arrays = [(getattr(a, n), getattr(b, n)) for n in ("values", "keys", "timestamps")]
    return bool((a.offsets == b.offsets).all()) and all(
        x is y or (x is not None and x.equals(y)) for x, y in arrays
    )


def drawn(count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values: missing, empty, of one byte, and long ones that lie far apart."""
    rng = random.Random(7)
    sizes = [None, 0, 1, 30, 100, 5_000]

    def some() -> bytes | None:
        size = rng.choice(sizes)
        return None if size is None else rng.randbytes(size)

    return [(some(), some()) for _ in range(count)]


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "lz4", "snappy", "zstd"])
@pytest.mark.parametrize("size", ["single", "many"])
def test_drawn_records_are_read_as_their_messages_say(
    codec: str, size: str, by_messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(config={"compression.type": codec})
    records = drawn(300)
    if size == "single":  # a batch for each record, so that no two values lie together
        records = records[:60]
        for record in records:
            produce(topic, [record], timestamp=1_700_000_000_000)
    else:
        produce(topic, records, timestamp=1_700_000_000_000)

    native = read(topic, len(records))

    assert fetchers() == [NativeFetcher]
    assert [*zip(native.keys.to_pylist(), native.values.to_pylist(), strict=True)] == records
    assert same(native, by_messages(topic, len(records)))
    for cut in (1, 7, 10_000):
        kafka_reader.release()
        monkeypatch.setattr(kafka_reader, "BATCH", cut)
        assert same(read(topic, len(records)), native)


def test_transactions_are_read_past_their_markers_and_to_the_end(by_messages: Any) -> None:
    topic, values = new_topic(), [b"%d" % n for n in range(50)]
    produce_transactions(topic, values, size=5)
    end = 50 + 10 * (1 + 3 + 1)  # a marker, an aborted transaction, and its marker

    native = read(topic, end, wanted=Wanted())

    assert native.values.to_pylist() == values
    assert same(native, by_messages(topic, end, wanted=Wanted()))
    for start, stop, there in ((0, 5, values[:5]), (11, 17, values[6:10]), (90, end, values[45:])):
        assert read(topic, stop, start, Wanted()).values.to_pylist() == there


def test_what_only_messages_can_do_is_read_by_them() -> None:
    topic = new_topic()
    produce(topic, [b"a", b"b"])
    kafka_reader.release()

    found = read(topic, 2, wanted=Wanted(headers=True))

    assert fetchers() == [MessageFetcher]
    assert found.headers is not None and found.headers.to_pylist() == [[], []]
    kafka_reader.release()
    said: list[str] = []
    assert len(read(topic, 2, at=cluster(stats_cb=said.append))) == 2
    assert fetchers() == [MessageFetcher]
    kafka_reader.release()


def test_properties_that_do_not_go_together_are_named() -> None:
    with pytest.raises(LogError) as caught:
        read("any", 1, at=cluster(**{"fetch.max.bytes": 1_000}))
    assert caught.value.code == "HR-KAFKA-005" and "'fetch.max.bytes'" in caught.value.message


def test_a_property_that_the_library_does_not_take_has_no_native_consumer() -> None:
    assert kafka_native.native_fetcher({"no.such.property": "x"}) is None
    assert kafka_native.native_fetcher({"group.id": "a", "security.protocol": "wrong"}) is None


@pytest.mark.parametrize("gap", [0, 3, 100_000])
def test_bytes_are_copied_wherever_they_lie(gap: int) -> None:
    random_bytes = np.random.default_rng(3).integers(0, 256, 1_200_000, np.uint8)
    sizes = np.array([5, 0, 17, 1_000, 1, 1, 1, 1, 1, 1, 1], np.int64)
    starts = np.cumsum(np.concatenate([[64], sizes[:-1] + gap]))
    wanted = [random_bytes[a : a + n].tobytes() for a, n in zip(starts, sizes, strict=True)]
    at = starts + random_bytes.ctypes.data

    for order in (np.arange(len(at)), np.arange(len(at))[::-1]):
        found = kafka_native._copied(at[order], sizes[order])
        assert found.type == pa.binary()
        assert found.to_pylist() == [wanted[i] for i in order]
    at[3] = 0
    assert kafka_native._copied(at, sizes).to_pylist()[3] is None
    assert kafka_native._copied(at[3:4], sizes[3:4]).to_pylist() == [None]


class Script:
    """A consumer that returns what is written here."""

    def __init__(self, *batches: Any) -> None:
        self.batches, self.assigned = list(batches), list[int]()

    def assign(self, topic: str, partition: int, offset: int) -> None:
        self.assigned.append(offset)

    def fetch(self, count: int, seconds: float, wanted: Wanted) -> Any:
        return self.batches.pop(0)

    def close(self) -> None: ...


def records(*offsets: int) -> KafkaRecords:
    return KafkaRecords(np.array(offsets), pa.array([b"%d" % o for o in offsets]))


def test_records_behind_a_report_of_the_end_are_read_with_the_next_range() -> None:
    """0 to 4 are aborted; 5 is committed just after the end was reported."""
    ends = [ClientReport("_PARTITION_EOF", at) for at in (5, 7)]
    script = Script([ends[0], records(5)], [records(5, 6), ends[1]])
    consumer = kafka_reader._PartitionConsumer((0,), script, "t", 0)
    found = [
        [r.offsets.tolist() for r in consumer.read(*bounds, Wanted(), wait)]
        for bounds in ((0, 5), (5, 7))
    ]
    assert found == [[], [[5, 6]]] and script.assigned == [0, 5]


@pytest.mark.parametrize("name", sorted(kafka_reader._LASTING))
def test_what_the_client_reports_and_does_not_pass_is_an_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_reader, "_REFUSED", 0.0)
    script = Script([records(0, 1), ClientReport(name, 2)], *[[] for _ in range(9)])
    consumer = kafka_reader._PartitionConsumer((0,), script, "t", 0)
    with pytest.raises(kafka_reader.Unreadable) as caught:
        list(consumer.read(0, 5, Wanted(), wait))
    assert (caught.value.offset, caught.value.name) == (2, name)


@pytest.mark.parametrize("name", ["_TRANSPORT", "NOT_LEADER_FOR_PARTITION", "_BAD_MSG"])
def test_what_passes_is_waited_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_reader, "_REFUSED", 0.0 if name != "_BAD_MSG" else 60.0)
    script = Script([records(0), ClientReport(name, 1)], [], [], [records(1)])
    consumer = kafka_reader._PartitionConsumer((0,), script, "t", 0)
    (found,) = consumer.read(0, 2, Wanted(), wait)
    assert found.offsets.tolist() == [0, 1]


@pytest.mark.parametrize("headers", [False, True])
def test_a_damaged_record_is_named(headers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte is another on the broker's disk."""
    monkeypatch.setattr(kafka_reader, "_REFUSED", 0.5)
    topic = new_topic()
    for n in range(6):
        produce(topic, [b"value-%d" % n])
    damage(topic, b"value-3", b"value-9")
    uri = f"kafka://{broker().address}/{topic}"
    parts = {"headers": "h"} if headers else {}
    columns = schema_of(f"value binary{', h map<string, binary>' if headers else ''}")
    source = open_source(uri, columns, "bytes", parts, until="end")
    with pytest.raises(InputError) as caught:
        list(source.read(Range("0", 0, 6)))
    assert caught.value.code == "HR-KAFKA-011"
    assert "partition 0" in caught.value.message and "at offset 3" in caught.value.message
    with hr.Consumer(topic, log=f"kafka://{broker().address}") as consumer:
        with pytest.raises(LogError) as refused:
            list(consumer.records("10s"))
        assert refused.value.code == "HR-KAFKA-011" and "offset 3" in refused.value.message
    kafka_reader.release()


def damage(topic: str, before: bytes, after: bytes) -> None:
    broker().stop()
    (path,) = (broker()._folder / "data" / f"{topic}-0").glob("*.log")
    path.write_bytes(path.read_bytes().replace(before, after))
    broker().start()


def test_brokers_that_answer_and_send_nothing_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that is larger than what the client takes: it tries again for ever."""
    monkeypatch.setattr(kafka_source, "QUIET", 1.0)
    topic = new_topic(config={"max.message.bytes": "4000000"})
    produce(topic, [b"a"])
    produce(topic, [bytes(900_000)])
    limits = {"receive.message.max.bytes": 600_000, "fetch.max.bytes": 300_000,
              "message.max.bytes": 300_000, "fetch.message.max.bytes": 300_000}  # fmt: skip
    uri = f"kafka://{broker().address}/{topic}"
    options = {"options": limits}
    source = open_source(uri, None, "bytes", options, folder=tmp_path, until="end")
    said = list[str]()

    class Enough(Exception): ...

    def enough(text: str | None) -> None:
        said.append(text or "")
        raise Enough

    with monkeypatch.context() as patch:
        patch.setattr(source._view, "_say", enough)
        with pytest.raises(Enough):
            list(source.read(Range("0", 0, 2)))
    assert "partition 0" in said[0] and "receive.message.max.bytes" in said[0]
    kafka_reader.release()


def test_a_forked_child_ends_and_reads_with_clients_of_its_own() -> None:
    """A client of the parent that is freed in the child waits for ever, or ends the process."""
    topics = [new_topic() for _ in range(3)]
    for topic in topics:
        produce(topic, [b"v"] * 100)
    program = f"""
import os, sys, headrace as hr
from headrace.log import kafka, kafka_reader
from headrace.log.kafka_fetch import Wanted
at = kafka.Cluster({broker().address!r})
def read(topic, headers):
    found = kafka_reader.read_range(at, topic, 0, 0, 50, wanted=Wanted(headers=headers),
                                    committed=True, on_silence=lambda seconds: None)
    return sum(map(len, found))
topics = {topics!r}
kafka.describe(at, topics[0])
consumer = hr.Consumer(topics[0], log="kafka://" + at.brokers)
producer = hr.Producer("kafka://" + at.brokers)
assert [read(t, h) for t in topics for h in (True, False)] == [50] * 6
if not (pid := os.fork()):
    assert [read(t, h) for t in topics for h in (True, False)] == [50] * 6
    del consumer, producer
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0, "the child did not end well"
assert read(topics[0], True) == 50
consumer.close(), producer.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()


def test_an_interrupt_while_it_reads_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic()
    produce(topic, [b"v"] * 1_000)

    fetcher = kafka_native.native_fetcher(
        {"bootstrap.servers": broker().address, "group.id": "interrupted", "log_level": 0}
    )
    assert fetcher is not None
    fetcher.assign(topic, 0, 0)
    with monkeypatch.context() as patch:
        taken = fetcher._do.consume_batch_queue

        def leaves(*arguments: Any) -> int:
            taken(*arguments)
            raise KeyboardInterrupt

        patch.setattr(fetcher._do, "consume_batch_queue", leaves)
        with pytest.raises(KeyboardInterrupt):
            fetcher.fetch(100, 5.0, Wanted())
    fetcher.close()
