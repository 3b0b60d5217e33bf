"""What `hr.Producer` and `hr.Consumer` promise, whatever log they are of."""

from __future__ import annotations

import time

import pytest
from tests.log.client_places import PLACES

import headrace as hr
from headrace.errors import LogError
from headrace.log import TopicPartition


@pytest.fixture(params=sorted(PLACES))
def at(request, folder):
    return PLACES[request.param](folder)


def sent(at, partitions=2, count=20):
    topic = at("t")
    at.create(topic, partitions)
    with hr.Producer(at.place) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, key=b"k%d" % (n % 5), partition=n % partitions)


def consumer(at, *topics, group=None, **options):
    names = [at(topic) for topic in topics or ["t"]]
    return hr.Consumer(names, group and at(group), log=at.place, **options)


def drained(at, consumer):
    return [int(record.value) for record in consumer.records(at.wait)]


def test_what_was_sent_comes_back_in_order_with_keys_times_and_offsets(at):
    before = time.time() * 1_000 - 1
    sent(at)
    with consumer(at) as reader:
        found = list(reader.records(at.wait))
    assert sorted(int(r.value) for r in found) == list(range(20))
    for partition in (0, 1):
        ours = [r for r in found if r.partition == partition]
        assert [r.offset for r in ours] == list(range(10))
        assert [int(r.value) for r in ours] == list(range(partition, 20, 2))
    assert all(r.key == b"k%d" % (int(r.value) % 5) and r.time >= before for r in found)


def test_equal_keys_go_to_one_partition(at):
    at.create(at("t"), 4)
    with hr.Producer(at.place) as producer:
        for n in range(100):
            producer.send(at("t"), b"%d" % n, key=b"k%d" % (n % 7))
    where: dict[bytes, set[int]] = {}
    with consumer(at) as reader:
        for record in reader.records(at.wait):
            where.setdefault(record.key, set()).add(record.partition)
    assert len(where) == 7 and all(len(partitions) == 1 for partitions in where.values())


def test_a_batch_is_an_arrow_table_and_positions_and_lag_follow(at):
    sent(at, partitions=1)
    with consumer(at) as reader:
        batch = None
        while batch is None:
            batch = reader.poll(at.wait, max_rows=6)
        n = len(batch)
        assert 0 < n <= 6
        assert batch.table["value"].to_pylist() == [b"%d" % i for i in range(n)]
        assert batch.offsets.tolist() == list(range(n)) and batch.end == n
        assert reader.positions() == {TopicPartition(at("t"), 0): n}
        assert reader.lag() == {TopicPartition(at("t"), 0): 20 - n}


def test_a_group_goes_on_where_it_has_committed_and_every_group_sees_all(at):
    sent(at, partitions=1)
    with consumer(at, group="g") as reader:
        taken = 0
        for record in reader:
            taken += 1
            if record.offset == 6:
                break
        assert taken == 7
    with consumer(at, group="g") as reader:
        assert drained(at, reader) == list(range(7, 20))
    with consumer(at, group="other") as reader:
        assert drained(at, reader) == list(range(20))


def test_only_what_was_committed_counts_after_a_failure(at):
    sent(at, partitions=1)
    with pytest.raises(ZeroDivisionError), consumer(at, group="g", auto_commit=None) as reader:
        for record in reader:
            if record.offset == 4:
                reader.commit()
            if record.offset == 9:
                raise ZeroDivisionError
    with consumer(at, group="g") as reader:
        assert drained(at, reader)[0] == 5
        assert reader.committed() == {TopicPartition(at("t"), 0): 5}


def test_members_share_the_partitions_and_the_rest_takes_over(at):
    sent(at, partitions=4, count=40)
    one, two = consumer(at, group="g"), consumer(at, group="g")
    until, seen = time.monotonic() + 30, []
    while time.monotonic() < until and not len(one.assignment()) == len(two.assignment()) == 2:
        for reader in (one, two):
            batch = reader.poll(at.wait, max_rows=1)
            seen += [] if batch is None else batch.table["value"].to_pylist()
    assert not set(one.assignment()) & set(two.assignment())
    one.close()
    while time.monotonic() < until and len(set(seen)) < 40:
        batch = two.poll(at.wait)
        seen += [] if batch is None else batch.table["value"].to_pylist()
    two.close()
    assert sorted(map(int, set(seen))) == list(range(40))


def test_seek_by_offset_to_the_ends_and_by_time(at):
    sent(at, partitions=1, count=10)
    time.sleep(0.02)
    moment = round(time.time() * 1_000)
    with hr.Producer(at.place) as producer:
        producer.send(at("t"), b"10", partition=0)
    with consumer(at) as reader:
        assert len(drained(at, reader)) == 11
        reader.seek(at("t"), 0, 8)
        assert drained(at, reader) == [8, 9, 10]
        reader.seek(at("t"), 0, "earliest")
        assert len(drained(at, reader)) == 11
        assert reader.seek_to_time(moment) == {TopicPartition(at("t"), 0): 10}
        assert drained(at, reader) == [10]
        reader.seek(at("t"), 0, "latest")
        assert drained(at, reader) == []
        for offset in (-1, 12):
            with pytest.raises(LogError) as caught:
                reader.seek(at("t"), 0, offset)
            assert caught.value.code == "HR-LOG-007"


def test_a_transaction_is_seen_as_a_whole_and_a_failed_one_never(at):
    at.create(at("a"), 1)
    at.create(at("b"), 1)
    with hr.Producer(at.place, **at.transactional) as producer:
        with producer.transaction():
            producer.send(at("a"), b"1")
            producer.send(at("b"), b"2")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(at("a"), b"3")
            producer.send(at("b"), b"4")
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(at("b"), b"5")
    with consumer(at, "a", "b") as reader:
        assert sorted(drained(at, reader)) == [1, 2, 5]


def test_a_consumer_that_starts_at_the_end_sees_what_comes(at):
    sent(at, partitions=1, count=5)
    with consumer(at, group="g", start="latest") as reader:
        assert drained(at, reader) == []
        with hr.Producer(at.place) as producer:
            producer.send(at("t"), b"99")
        assert drained(at, reader) == [99]


def test_a_commit_of_what_is_not_there_or_is_anothers_stores_nothing(at):
    sent(at)
    with consumer(at, group="g", auto_commit=None) as one:
        while len(one.assignment()) < 2:
            one.poll(at.wait)
        one.commit({(at("t"), 0): 3, (at("t"), 1): 4})
        with consumer(at, group="g", auto_commit=None) as two:
            while [len(c.assignment()) for c in (one, two)] != [1, 1]:
                one.poll("50ms")
                two.poll("50ms")
            ((own,), (theirs,)) = one.assignment(), two.assignment()
            wrong = [({theirs: 1}, 21), ({own: 5, theirs: 5}, 21), ({own: 11}, 7), ({own: -1}, 7),
                     ({(at("t"), 7): 0}, 21), ({(at("other"), 0): 0}, 21)]  # fmt: skip
            for positions, code in wrong:
                with pytest.raises(LogError) as caught:
                    one.commit(positions)
                assert caught.value.code == f"HR-LOG-{code:03}"
            one.commit({own: 10})
            two.commit({theirs: 0})
            assert one.committed() == {own: 10, theirs: 0}


@pytest.mark.parametrize("partition", [1.5, -1, "0", True, 2**70, float("nan")])
def test_a_partition_that_is_none_is_refused_and_the_other_records_are_sent(at, partition):
    at.create(at("t"), 2)
    with hr.Producer(at.place) as producer:
        producer.send(at("t"), b"1", partition=0)
        for send in (producer.send, lambda t, value, **o: producer.send_all(t, [value], **o)):
            with pytest.raises(LogError) as caught:
                send(at("t"), b"2", partition=partition)
            assert caught.value.code == "HR-LOG-005"
        producer.send(at("t"), b"3", partition=0)
    with consumer(at) as reader:
        assert drained(at, reader) == [1, 3]


def test_what_cannot_be_done_is_refused_by_name(at):
    sent(at)
    with consumer(at) as reader, pytest.raises(LogError) as caught:
        reader.commit()
    assert caught.value.code == "HR-LOG-022"
    with pytest.raises(LogError) as caught:
        reader.poll()
    assert caught.value.code == "HR-LOG-027"
    producer = hr.Producer(at.place)
    producer.close()
    with pytest.raises(LogError) as caught:
        producer.send(at("t"), b"x")
    assert caught.value.code == "HR-LOG-027"
