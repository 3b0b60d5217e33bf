"""Transactions: all topics or none, whoever looks and whenever somebody dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading

import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import LogError
from headrace.log import EmbeddedLog
from headrace.state import faults

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
FORK = multiprocessing.get_context("fork")


def values(log, topic):
    tables = [table for p in log.latest(topic) for _, table in log.read(topic, p, 0)]
    return [value for table in tables for value in table["value"].to_pylist()]


def made(log):
    log.create("a", 2)
    log.create("b")
    log.create("c", 1, "n long")


def test_records_of_several_topics_are_appended(log):
    made(log)
    assert log.transact({"a": [b"1", b"2"], "b": [b"3"], "c": pa.table({"n": [4]})})
    assert (sorted(values(log, "a")), values(log, "b")) == ([b"1", b"2"], [b"3"])
    assert log.latest("c") == {0: 1}
    assert log.producers("a") == {}


def test_the_block_of_a_producer_is_one_transaction_and_a_failed_one_leaves_nothing(log):
    made(log)
    with hr.Producer(log) as producer:
        producer.send("a", b"before")
        with producer.transaction() as tx:
            tx.send("a", b"1", key=b"k")
            tx.send_all("b", [b"2", b"3"])
            tx.send("b", b"4")
            assert values(log, "a") == [b"before"]
            assert values(log, "b") == []
        assert values(log, "b") == [b"2", b"3", b"4"]
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send("a", b"never")
            raise ZeroDivisionError
        producer.send("a", b"after")
    assert sorted(values(log, "a")) == [b"1", b"after", b"before"]


def test_records_that_do_not_fit_one_topic_are_appended_to_none(log):
    made(log)
    with pytest.raises(LogError) as caught:
        log.transact({"a": [b"1"], "c": [{"n": "one"}]})
    assert caught.value.code == "HR-LOG-006"
    assert values(log, "a") == []


def test_a_repeated_transaction_is_committed_once(reopen):
    made(reopen())
    assert reopen().transact({"a": [b"1"], "b": [b"1"]}, producer="p", sequence=7)
    assert not reopen().transact({"a": [b"1"], "b": [b"1"]}, producer="p", sequence=7)
    assert reopen().transact({"a": [b"2"]}, producer="p", sequence=8)
    assert not reopen().transact({"a": [b"2"]}, producer="p", sequence=8)
    assert (sorted(values(reopen(), "a")), values(reopen(), "b")) == ([b"1", b"2"], [b"1"])


@pytest.mark.parametrize("first", ["a", "c"])
def test_a_kill_at_any_point_leaves_all_or_none_whichever_topic_is_read_first(folder, first):
    outcomes = []
    for nth in range(1, 100):
        log = EmbeddedLog(folder / str(nth))
        made(log)
        log.transact({"a": [b"0"], "b": [b"0"]})
        killed = died_at(log.root, nth)
        log.latest(first)
        seen = [sum(log.latest(topic).values()) for topic in "abc"]
        assert seen in ([1, 1, 0], [3, 2, 1])
        assert values(log, "b") == [b"0", b"1"][: seen[1]]
        outcomes.append(seen[2])
        log.transact({"a": [b"9"], "b": [b"9"]})
        assert values(log, "b") == [*[b"0", b"1"][: seen[1]], b"9"]
        assert not (log.root / ".transactions" / "pending").exists()
        if not killed:
            break
    assert outcomes == sorted(outcomes)  # none up to the commit, all from there on
    assert len(outcomes) > 20


def died_at(root, nth) -> bool:
    """Whether a process that commits a transaction passed a point for the n-th time, and died."""

    def work():
        passed = []

        def hook(name):
            passed.append(name)
            if len(passed) == nth:
                os.kill(os.getpid(), signal.SIGKILL)

        log = EmbeddedLog(root)
        with faults.hooked(hook):
            log.transact({"a": [b"1", b"2"], "b": [b"1"], "c": [(1,)]})

    process = FORK.Process(target=work)
    process.start()
    process.join(20)
    return process.exitcode == -signal.SIGKILL


def test_whoever_sees_a_part_sees_all(embedded):
    """Readers look at the topics in the order in which they are written, and the other way."""
    made(embedded)
    wrong, stop = [], threading.Event()

    def watch(first, second):
        log = EmbeddedLog(embedded.root)
        while not stop.is_set():
            seen = log.latest(first)[0]
            then = log.latest(second)[0]
            if then < seen:
                wrong.append((first, seen, second, then))

    threads = [threading.Thread(target=watch, args=pair) for pair in (("b", "c"), ("c", "b"))]
    for thread in threads:
        thread.start()
    for n in range(100):
        embedded.transact({"b": [b"%d" % n], "c": [(n,)]})
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert embedded.latest("b") == embedded.latest("c") == {0: 100}


def test_a_topic_that_was_deleted_meanwhile_is_left_out(embedded):
    made(embedded)

    def hook(name):
        if name == "log.transaction.committed":
            raise OSError("stopped")

    with faults.hooked(hook), pytest.raises(LogError) as caught:
        embedded.transact({"a": [b"1"], "b": [b"1"]})
    assert caught.value.code == "HR-LOG-029"
    os.rename(embedded.root / "b", embedded.root / "elsewhere.b")  # as a delete does
    other = EmbeddedLog(embedded.root)
    other.create("b")
    assert values(other, "a") == [b"1"]
    assert values(other, "b") == []


def test_a_damaged_transaction_is_an_error_for_the_readers_of_its_topics(embedded):
    made(embedded)

    def hook(name):
        if name == "log.transaction.committed":
            raise OSError("stopped")

    with faults.hooked(hook), pytest.raises(LogError):
        embedded.transact({"a": [b"1"], "b": [b"1"]})
    (records,) = (embedded.root / ".transactions").glob("*.records")
    whole = records.read_bytes()
    broken = bytearray(whole)
    broken[100] ^= 4
    records.write_bytes(broken)
    with pytest.raises(LogError) as caught:
        embedded.latest("a")
    assert caught.value.code == "HR-LOG-008"
    assert embedded.latest("c") == {0: 0}
    records.write_bytes(whole)
    assert embedded.latest("b") == {0: 1}
