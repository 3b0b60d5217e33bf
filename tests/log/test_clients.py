"""Producers and consumers: what programs that are not jobs see of a log."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from datetime import UTC, datetime

import pandas as pd
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import LogError
from headrace.log import TopicPartition
from headrace.log.consumer_groups import GroupFiles
from headrace.log.group_membership import CommittedOffset

SCHEMA = "area string, n long"
HEARTBEAT = "headrace.log.heartbeats.Heartbeat.beat"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def refusal(call, *args, **kwargs) -> LogError:
    with pytest.raises(LogError) as caught:
        call(*args, **kwargs)
    assert caught.value.hint
    return caught.value


def drained(consumer):
    return [(r.topic, r.partition, r.offset) for r in consumer.records("50ms")]


def fill(log, topic="t", partitions=3, rows=30):
    log.create(topic, partitions)
    for p in range(partitions):
        log.append(topic, [b"%d" % i for i in range(rows // partitions)], partition=p)


# Producers


def test_what_was_sent_is_there_after_the_block_in_order_by_key(log):
    log.create("t", 3)
    with hr.Producer(log) as producer:
        for i in range(100):
            producer.send("t", {"n": i}, key=f"k{i % 5}")

    found = [r for r in hr.Consumer("t", log=log).records("20ms")]
    assert len(found) == 100
    for key in {r.key for r in found}:
        ours = [r for r in found if r.key == key]
        assert len({r.partition for r in ours}) == 1
        assert ours == sorted(ours, key=lambda r: int(r.value[6:-1]))


def test_flush_makes_durable_and_close_does_too(reopen):
    log = reopen()
    log.create("t", 1, SCHEMA)
    producer = hr.Producer(log)
    producer.send("t", {"area": "a", "n": 1})
    producer.send_all("t", pa.table({"area": ["b", "c"], "n": [2, 3]}))
    producer.flush()
    assert reopen().latest("t") == {0: 3}
    producer.send("t", ("d", 4))
    producer.close()
    assert [r["n"] for _, t in reopen().read("t", 0, 0) for r in t.to_pylist()] == [1, 2, 3, 4]
    assert refusal(producer.send, "t", ("e", 5)).code == "HR-LOG-027"


def test_a_few_records_are_appended_without_a_flush(log):
    log.create("t")
    producer = hr.Producer(log)
    producer.send("t", b"x")
    until = time.monotonic() + 10
    while log.latest("t") == {0: 0} and time.monotonic() < until:
        time.sleep(0.001)
    assert log.latest("t") == {0: 1}
    producer.close()


def test_a_record_that_does_not_fit_is_an_error_and_the_others_are_appended(log):
    log.create("t", 1, SCHEMA)
    producer = hr.Producer(log)
    with producer.transaction():  # the thread that lingers must not take some of them before
        pass
    for n in (1, "two", 3):
        producer._client._waiting.setdefault("t", type_of_buffer())
        producer._client._waiting["t"].add({"area": "a", "n": n}, None, None)
    assert refusal(producer.flush).code == "HR-LOG-006"
    assert [r["n"] for _, t in log.read("t", 0, 0) for r in t.to_pylist()] == [1, 3]
    producer.flush()  # it was reported
    producer.close()


@pytest.mark.parametrize("bad", [{"key": None}, {"key": "x", "partition": 7}])
def test_records_beside_one_without_a_key_or_partition_are_appended(log, bad, monkeypatch):
    monkeypatch.setattr("headrace.log.embedded_producer._LINGER", 1)  # all in one append
    log.create("t", 2, compact=True)
    producer = hr.Producer(log)
    for n in range(10):
        producer.send("t", b"%d" % n, **(bad if n == 4 else {"key": f"k{n}"}))
    assert refusal(producer.flush).code in ("HR-LOG-005", "HR-LOG-031")
    producer.close()
    found = [int(r.value) for r in hr.Consumer("t", log=log).records("0s")]
    assert sorted(found) == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_an_error_that_nobody_thought_of_is_reported_by_the_next_call(log, monkeypatch):
    log.create("t")
    producer = hr.Producer(log)
    with monkeypatch.context() as broken:
        broken.setattr(log, "append", lambda *_, **__: 1 / 0)
        producer.send("t", b"a")
        producer._client._append_waiting()  # as the thread does after a moment
    with pytest.raises(ZeroDivisionError):
        producer.send("t", b"b")
    producer.close()
    assert [r.value for r in hr.Consumer("t", log=log).records("0s")] == [b"b"]


@pytest.mark.parametrize("beside", [{"partition": 0}, {"key": "other"}])
@pytest.mark.parametrize("transaction", [False, True])
@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_a_record_goes_where_it_would_go_alone(log, monkeypatch, schema, transaction, beside):
    monkeypatch.setattr("headrace.log.embedded_producer._LINGER", 1)  # all in one append
    log.create("t", 5, schema, "area" if schema else None)
    log.create("alone", 5, schema, "area" if schema else None)
    value = (lambda n: (f"k{n % 7}", n)) if schema else b"%d".__mod__
    own = (lambda n: {}) if schema else (lambda n: {"key": f"k{n % 7}"})
    with hr.Producer(log) as producer:
        with producer.transaction() if transaction else nullcontext():
            for n in range(30):
                producer.send("t", value(n), **own(n))
            producer.send("t", value(99), **beside)
        for n in range(30):
            producer.send("alone", value(n), **own(n))

    def places(topic):
        found = hr.Consumer(topic, log=log).records("0s")
        return {str(r.value): r.partition for r in found if "99" not in str(r.value)}

    assert len(places("t")) == 30
    assert places("t") == places("alone")


def test_records_without_a_key_are_dealt_out_also_beside_some_with_one(log):
    log.create("t", 4)
    with hr.Producer(log) as producer:
        for n in range(40):
            producer.send("t", b"%d" % n, key="k" if n == 7 else None)
    log.append("t", [b"x"] * 40, key=[None] * 39 + ["k"])
    assert min(log.latest("t").values()) > 15


def test_a_send_that_reports_an_earlier_record_sends_its_own(log):
    log.create("t", 1, SCHEMA)
    producer = hr.Producer(log)
    for send in (
        lambda n: producer.send("t", ("a", n)),
        lambda n: producer.send_all("t", [("a", n)]),
    ):
        producer.send("t", ("a", "bad"))
        producer._client._append_waiting()  # as the thread does after a moment
        assert refusal(send, 1).code == "HR-LOG-006"
        send(2)
    producer.close()
    assert [r["n"] for _, t in log.read("t", 0, 0) for r in t.to_pylist()] == [1, 2, 1, 2]


def type_of_buffer():
    from headrace.log.embedded_producer import _Buffer

    return _Buffer()


def test_records_with_a_partition_and_records_with_a_key_stay_in_order(log):
    log.create("t", 2)
    with hr.Producer(log) as producer:
        for i in range(20):
            producer.send("t", b"%d" % i, key=b"k", partition=1 if i % 2 else None)
        producer.send("t", b"last", partition=0)
    by_partition = {0: [], 1: []}
    for record in hr.Consumer("t", log=log).records("20ms"):
        by_partition[record.partition].append(record.value)
    assert all(v == sorted(v, key=lambda b: int(b) if b != b"last" else 99)
               for v in by_partition.values())  # fmt: skip
    assert b"last" in by_partition[0]
    assert sum(map(len, by_partition.values())) == 21


@pytest.mark.parametrize("transaction", [False, True])
@pytest.mark.parametrize("all_at_once", [False, True])
def test_what_the_caller_fills_again_was_sent_as_it_was(log, transaction, all_at_once):
    log.create("bytes")
    log.create("typed", 1, "n long, inner struct<m long>, many array<long>, raw binary")
    d, inner, many, raw, key = {}, {}, [0], bytearray(b"0"), bytearray(b"0")
    whole: list = []
    numbers = pd.DataFrame({"n": [0.0, 0.0]})
    log.create("numbers", 1, "n double")
    with hr.Producer(log) as producer, producer.transaction() if transaction else nullcontext():
        for n in range(5):
            d["n"], inner["m"], many[0], raw[0], key[0] = n, n, n, 48 + n, 48 + n
            typed = d | {"inner": inner, "many": many, "raw": raw}
            for row, topic in ((d, "bytes"), (typed, "typed")):
                if all_at_once:
                    whole[:] = [row]
                    keys = [key] if topic == "bytes" else None
                    producer.send_all(topic, whole, key=keys)
                else:
                    producer.send(topic, row, key=key if topic == "bytes" else None)
            numbers.loc[:, "n"] = float(n)
            producer.send_all("numbers", numbers)
            producer.send("bytes", raw, key=memoryview(key))
    found = pa.concat_tables(t for _, t in log.read("bytes", 0, 0))
    expected = [(b"%d" % n, v % n) for n in range(5) for v in (b'{"n": %d}', b"%d")]
    pairs = zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)
    assert sorted(pairs) == sorted(expected)
    rows = [r for _, t in log.read("typed", 0, 0) for r in t.to_pylist()]
    assert rows == [{"n": n, "inner": {"m": n}, "many": [n], "raw": b"%d" % n} for n in range(5)]
    values = [v for _, t in log.read("numbers", 0, 0) for v in t["n"].to_pylist()]
    assert values == [float(n) for n in range(5) for _ in range(2)]


def test_a_record_that_cannot_be_copied_is_refused_when_it_is_sent(log):
    log.create("t")
    with hr.Producer(log) as producer:
        error = refusal(producer.send, "t", {"lock": threading.Lock()})
    assert error.code == "HR-LOG-006" and "dict" in error.message


def test_headers_are_refused_where_they_cannot_be_stored(embedded):
    embedded.create("t")
    with hr.Producer(embedded) as producer:
        assert refusal(producer.send, "t", b"x", headers=[("a", b"1")]).code == "HR-LOG-026"


# Consumers without a group


def test_a_batch_has_table_rows_offsets_and_times(log, clock):
    log.create("t", 1, SCHEMA, key="area")
    log.append("t", [("a", 1), ("b", 2)])
    clock.advance(5_000)
    log.append("t", [("c", 3)])
    with hr.Consumer("t", log=log) as consumer:
        batch = consumer.poll()
        assert (batch.topic, batch.partition, len(batch), batch.end) == ("t", 0, 3, 3)
        assert batch.rows() == [{"area": a, "n": n} for a, n in (("a", 1), ("b", 2), ("c", 3))]
        assert batch.offsets.tolist() == [0, 1, 2]
        assert batch.times.tolist() == [1_000_000, 1_000_000, 1_005_000]
        record = list(batch.records())[2]
        assert (record.key, record.value, record.offset) == ("c", {"area": "c", "n": 3}, 2)
        assert consumer.poll("0s") is None
        assert consumer.positions() == {T0: 3}
        assert refusal(consumer.commit).code == "HR-LOG-022"


def test_max_rows_limits_a_batch_and_partitions_take_turns(log):
    fill(log)
    consumer = hr.Consumer("t", log=log)
    batches = [consumer.poll("0s", max_rows=4) for _ in range(9)]
    assert [len(b) for b in batches] == [4] * 6 + [2] * 3
    assert len({b.partition for b in batches[:3]}) == 3
    assert consumer.poll("0s") is None


def test_seek_by_offset_and_by_time(log, clock):
    log.create("t", 2)
    for i in range(4):
        log.append("t", [b"%d" % i] * 2, partition=0)
        log.append("t", [b"%d" % i], partition=1)
        clock.advance(1_000)
    with hr.Consumer("t", log=log) as consumer:
        consumer.seek("t", 0, 7)
        consumer.seek("t", 1, "latest")
        assert drained(consumer) == [("t", 0, 7)]
        assert consumer.seek_to_time(1_002_000) == {
            T0: 4,
            T1: 2,
        }
        assert consumer.lag() == {T0: 4, T1: 2}
        consumer.seek_to_time(datetime.fromtimestamp(1_003, UTC))
        assert sorted(drained(consumer)) == [("t", 0, 6), ("t", 0, 7), ("t", 1, 3)]
        for text in ("1970-01-01T00:16:43Z", "1970-01-01 01:16:43+01:00", "1970-01-01T00:16:43"):
            assert consumer.seek_to_time(text) == {T0: 6, T1: 3}
        assert consumer.seek_to_time(datetime(1970, 1, 1, 0, 16, 43)) == {T0: 6, T1: 3}
        for wrong in ("10m ago", "", None, 1.5):
            assert refusal(consumer.seek_to_time, wrong).code == "HR-LOG-019"
        assert refusal(consumer.seek, "t", 0, 9).code == "HR-LOG-007"
        assert refusal(consumer.seek, "t", 5, 0).code == "HR-LOG-028"


def test_the_rest_of_an_iterated_batch_is_not_lost_by_a_poll(log):
    fill(log, partitions=1, rows=10)
    consumer = hr.Consumer("t", log=log)
    records = iter(consumer)
    assert [next(records).offset for _ in range(3)] == [0, 1, 2]
    assert consumer.positions() == {T0: 3}
    assert consumer.lag() == {T0: 7}
    assert consumer.poll("0s").offsets.tolist() == list(range(3, 10))


# Groups


def test_a_group_goes_on_where_it_has_committed_and_another_sees_all(reopen):
    fill(reopen(), partitions=1, rows=10)
    with hr.Consumer("t", "g", log=reopen()) as consumer:
        assert len(consumer.poll(max_rows=4)) == 4
    with hr.Consumer("t", "g", log=reopen()) as consumer:
        assert drained(consumer) == [("t", 0, i) for i in range(4, 10)]
    with hr.Consumer("t", "other", log=reopen()) as consumer:
        assert len(drained(consumer)) == 10


def test_what_was_being_processed_when_the_program_failed_is_read_again(reopen):
    fill(reopen(), partitions=1, rows=10)
    with pytest.raises(ZeroDivisionError), hr.Consumer("t", "g", log=reopen()) as consumer:
        consumer.poll(max_rows=3)
        consumer.commit()
        consumer.poll(max_rows=3)
        raise ZeroDivisionError
    with hr.Consumer("t", "g", log=reopen()) as consumer:
        assert drained(consumer)[0] == ("t", 0, 3)


def test_breaking_out_of_an_iteration_commits_what_was_yielded(reopen):
    fill(reopen(), partitions=1, rows=10)
    with hr.Consumer("t", "g", log=reopen()) as consumer:
        for record in consumer:
            if record.offset == 4:
                break
        assert consumer.positions() == {T0: 5}
    with hr.Consumer("t", "g", log=reopen()) as consumer:
        assert drained(consumer)[0] == ("t", 0, 5)


def test_without_auto_commit_only_commit_commits(reopen):
    fill(reopen(), partitions=1, rows=10)
    with hr.Consumer("t", "g", log=reopen(), auto_commit=None) as consumer:
        consumer.poll(max_rows=2)
        consumer.commit()
        consumer.poll()
        consumer.poll("0s")
    with hr.Consumer("t", "g", log=reopen()) as consumer:
        assert consumer.committed() == {T0: 2}
        assert drained(consumer)[0] == ("t", 0, 2)


def test_a_group_that_starts_at_the_end_does_not_skip_what_comes_before_its_first_commit(reopen):
    fill(reopen(), partitions=1, rows=10)
    first = hr.Consumer("t", "g", log=reopen(), start="latest", auto_commit=None)
    assert first.poll("0s") is None
    first.close()
    reopen().append("t", [b"new"])
    with hr.Consumer("t", "g", log=reopen(), start="latest") as consumer:
        assert drained(consumer) == [("t", 0, 10)]


def test_members_share_the_partitions_and_take_over_when_one_leaves(reopen):
    fill(reopen(), partitions=4, rows=40)
    one, two = (hr.Consumer("t", "g", log=reopen()) for _ in range(2))
    for _ in range(4):
        one.poll("0s", max_rows=1)
        two.poll("0s", max_rows=1)
    assert len(one.assignment()) == len(two.assignment()) == 2
    assert not set(one.assignment()) & set(two.assignment())
    one.close()
    drained(two)
    assert len(two.assignment()) == 4
    assert sum(two.committed().values()) <= 40
    two.close()
    assert sum(reopen().group("g").lag.values()) == 0


def test_handing_over_loses_and_repeats_nothing(reopen):
    fill(reopen(), partitions=4, rows=400)
    seen, consumers = [], [hr.Consumer("t", "g", log=reopen())]
    for turn in range(60):
        if turn % 6 == 5:
            consumers.append(hr.Consumer("t", "g", log=reopen()))
        if turn % 9 == 8:
            consumers.pop(0).close()
        for consumer in consumers:
            batch = consumer.poll("0s", max_rows=3)
            seen += [] if batch is None else [(batch.partition, o) for o in batch.offsets.tolist()]
    for _ in range(3):
        for consumer in consumers:
            while batch := consumer.poll("0s"):
                seen += [(batch.partition, o) for o in batch.offsets.tolist()]
    for consumer in consumers:
        consumer.close()
    assert sorted(seen) == [(p, o) for p in range(4) for o in range(100)]


def test_a_member_whose_session_ended_cannot_commit_over_its_successor(embedded, monkeypatch):
    fill(embedded, partitions=1, rows=10)
    old = hr.Consumer("t", "g", log=embedded, session="100ms")
    assert len(old.poll(max_rows=3)) == 3
    monkeypatch.setattr(HEARTBEAT, lambda self: None)  # it hangs
    new = hr.Consumer("t", "g", log=embedded, session="1h")
    batch = new.poll("20s", max_rows=5)
    assert batch.offsets.tolist() == [0, 1, 2, 3, 4]
    new.commit()
    assert refusal(old.commit).code == "HR-LOG-021"
    assert new.committed() == {T0: 5}
    old.commit()  # what it had is forgotten: nothing to commit
    assert new.committed() == {T0: 5}
    new.close()


def test_a_group_that_is_ahead_of_its_topic_gets_an_error_and_skips_nothing(embedded):
    fill(embedded, partitions=1, rows=3)
    ahead = {T0: CommittedOffset(embedded.describe("t").id, 5)}  # the log is an older copy
    GroupFiles(embedded.root, "g", 1).reset(ahead)
    with hr.Consumer("t", "g", log=embedded) as consumer:
        assert refusal(consumer.poll, "0s").code == "HR-LOG-007"
        consumer.seek("t", 0, "latest")
        embedded.append("t", [b"new"])
        assert [r.value for r in consumer.records("0s")] == [b"new"]


def test_a_refused_commit_of_a_partition_that_is_not_held_skips_no_record(log):
    fill(log, partitions=1, rows=10)
    seen = []
    with hr.Consumer("t", "g", log=log) as consumer:
        for record in consumer.records("50ms"):
            seen.append(record.offset)
            if record.offset == 3:
                assert refusal(consumer.commit, {("t", 7): 1}).code == "HR-LOG-021"
                assert consumer.positions() == {T0: 4}
    assert seen == list(range(10))
    assert log.group("g").committed == {T0: 10}


def test_what_was_iterated_when_the_member_was_lost_is_read_again(embedded, monkeypatch):
    fill(embedded, partitions=1, rows=10)
    old = hr.Consumer("t", "g", log=embedded, session="100ms")
    records = iter(old)
    assert [next(records).offset for _ in range(3)] == [0, 1, 2]
    with monkeypatch.context() as patch:
        patch.setattr(HEARTBEAT, lambda self: None)
        new = hr.Consumer("t", "g", log=embedded, session="1h")
        assert len(new.poll("20s", max_rows=2)) == 2
        new.close()
    assert refusal(old.commit).code == "HR-LOG-021"
    assert [r.offset for r in old.records("50ms")] == list(range(2, 10))
    old.close()
    assert embedded.group("g").committed == {T0: 10}


def test_a_lost_partition_that_comes_back_goes_on_where_the_other_was(embedded, monkeypatch):
    fill(embedded, partitions=1, rows=10)
    old = hr.Consumer("t", "g", log=embedded, session="100ms")
    assert len(old.poll(max_rows=3)) == 3
    with monkeypatch.context() as patch:
        patch.setattr(HEARTBEAT, lambda self: None)
        new = hr.Consumer("t", "g", log=embedded, session="1h")
        assert len(new.poll("20s", max_rows=7)) == 7
        new.close()
    assert old.poll("20s").offsets.tolist() == [7, 8, 9]
    old.close()
    assert embedded.group("g").committed == {T0: 10}


def test_iterating_a_batch_commits_when_due_and_counts_as_polling(embedded):
    fill(embedded, partitions=1, rows=60)
    options = {"auto_commit": "50ms", "max_poll": "300ms", "session": "1s"}
    with hr.Consumer("t", "g", log=embedded, **options) as consumer:
        seen = []
        for record in consumer.records("50ms"):
            seen.append(record.offset)
            time.sleep(0.01)
            if record.offset == 40:
                assert 20 <= embedded.group("g").committed[T0] <= 40  # not the one at hand
    assert seen == list(range(60))
    assert embedded.group("g").committed == {T0: 60}


def test_a_member_that_iterates_a_batch_shares_with_one_that_joins(embedded):
    fill(embedded, partitions=2, rows=200)
    one = hr.Consumer("t", "g", log=embedded, max_poll="300ms")
    two, seen = None, []
    for record in one.records("200ms"):
        seen.append((record.partition, record.offset))
        time.sleep(0.005)
        if len(seen) == 10:
            two = hr.Consumer("t", "g", log=embedded)
            two.poll("0s")
        if len(seen) > 10 and two is not None:
            batch = two.poll("0s", max_rows=100)
            seen += [] if batch is None else [(batch.partition, o) for o in batch.offsets.tolist()]
    assert len(one.assignment()) == len(two.assignment()) == 1
    one.close()
    two.close()
    assert sorted(seen) == [(p, o) for p in range(2) for o in range(100)]


def test_a_member_that_does_not_poll_loses_its_partitions(embedded):
    fill(embedded, partitions=1, rows=10)
    idle = hr.Consumer("t", "g", log=embedded, session="100ms", max_poll="50ms")
    idle.poll(max_rows=3)
    with hr.Consumer("t", "g", log=embedded) as other:
        assert other.poll("20s").offsets[0] == 0
        assert refusal(idle.commit).code == "HR-LOG-021"
    idle.close()


def test_retention_that_overtakes_a_group_is_an_error_and_seek_goes_on(embedded):
    embedded.create("t", 1, segment_bytes=1)
    for i in range(4):
        embedded.append("t", [b"%d" % i])
    hr.Consumer("t", "g", log=embedded).close()
    with hr.Consumer("t", "g", log=embedded) as consumer:
        assert consumer.poll(max_rows=1).end == 1
    embedded.forget("t", {0: 3})
    with hr.Consumer("t", "g", log=embedded) as consumer:
        assert refusal(consumer.poll).code == "HR-LOG-023"
        consumer.seek("t", 0, "earliest")
        assert consumer.poll().offsets.tolist() == [3]


def test_offsets_of_a_topic_that_was_made_again_are_not_those_of_the_new_one(log):
    fill(log, partitions=1, rows=10)
    with hr.Consumer("t", "g", log=log) as consumer:
        consumer.poll()
        log.delete("t")
        fill(log, partitions=1, rows=3)
        assert refusal(consumer.poll).code == "HR-LOG-002"
    with hr.Consumer("t", "g", log=log) as consumer:
        assert len(consumer.poll()) == 3


def test_a_group_is_described_reset_when_nobody_is_in_it_and_deleted(log, clock):
    fill(log, partitions=2, rows=8)
    assert log.groups() == []
    assert refusal(log.group, "g").code == "HR-LOG-025"
    consumer = hr.Consumer("t", "g", log=log)
    consumer.poll()
    consumer.commit()
    info = log.group("g")
    assert info.active and len(info.members[0].partitions) == 2
    assert sorted(info.lag.values()) == [0, 4]
    assert refusal(log.reset_offsets, "g", "t", "latest").code == "HR-LOG-024"
    assert refusal(log.delete_group, "g").code == "HR-LOG-024"
    consumer.close()
    assert not log.group("g").active
    assert log.reset_offsets("g", "t", "latest") == {
        T0: 4,
        T1: 4,
    }
    assert log.group("g").lag == {T0: 0, T1: 0}
    assert log.reset_offsets("g", "t", {1: 2}) == {T1: 2}
    assert log.group("g").committed == {T0: 4, T1: 2}
    assert log.reset_offsets("g", "t", time=0) == {
        T0: 0,
        T1: 0,
    }
    assert refusal(log.reset_offsets, "g", "t", 5).code == "HR-LOG-007"
    assert refusal(log.reset_offsets, "g", "t", {2: 0}).code == "HR-LOG-005"
    assert refusal(log.reset_offsets, "g", "t").code == "HR-LOG-019"
    assert log.groups() == ["g"]
    log.delete_group("g")
    assert log.groups() == []


def test_names_of_groups_may_be_any_text(log):
    fill(log, partitions=1, rows=2)
    for name in ("a/b", "..", "grüße \N{SNOWMAN}", "x y"):
        with hr.Consumer("t", name, log=log) as consumer:
            assert len(consumer.poll()) == 2
    assert log.groups() == sorted(["a/b", "..", "grüße \N{SNOWMAN}", "x y"])
    for name in ("", "é" * 80, "日" * 40, "\ud800"):
        assert refusal(hr.Consumer, "t", name, log=log).code == "HR-LOG-022"
    assert log.topics() == ["t"]


def test_a_consumer_that_was_thrown_away_leaves_the_group(embedded):
    fill(embedded, partitions=1, rows=4)
    lost = hr.Consumer("t", "g", log=embedded, session="200ms")
    lost.poll(max_rows=1)
    del lost
    with hr.Consumer("t", "g", log=embedded) as consumer:
        assert consumer.poll("20s").offsets[0] == 0


def test_a_damaged_file_of_a_group_is_an_error(embedded):
    fill(embedded, partitions=1, rows=4)
    with hr.Consumer("t", "g", log=embedded) as consumer:
        consumer.poll()
    path = embedded.root / ".groups" / "g" / "offsets"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with hr.Consumer("t", "g", log=embedded) as consumer:
        assert refusal(consumer.poll).code == "HR-LOG-011"


def test_arguments_that_cannot_be_used_are_refused(log):
    fill(log)
    assert refusal(hr.Consumer, [], log=log).code == "HR-LOG-019"
    assert refusal(hr.Consumer, "t", log=log, start="middle").code == "HR-LOG-019"
    assert refusal(hr.Consumer, "nope", log=log).code == "HR-LOG-002"
    assert refusal(hr.Consumer, "t", log=log, colour="red").code == "HR-LOG-019"
    assert refusal(hr.Producer, log, colour="red").code == "HR-LOG-019"


def test_many_members_in_threads_share_everything_once(embedded):
    fill(embedded, partitions=6, rows=600)
    seen, lock = [], threading.Lock()

    def work():
        with hr.Consumer("t", "g", log=embedded.root) as consumer:
            for _ in range(40):
                batch = consumer.poll("10ms", max_rows=7)
                if batch is not None:
                    with lock:
                        seen.extend((batch.partition, o) for o in batch.offsets.tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with hr.Consumer("t", "g", log=embedded) as consumer:
        seen += [(r.partition, r.offset) for r in consumer.records("50ms")]
    assert sorted(seen) == [(p, o) for p in range(6) for o in range(100)]
