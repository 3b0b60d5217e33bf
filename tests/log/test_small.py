"""Appends of a few rows that wait together: one block, one sync, each with its own answer."""

from __future__ import annotations

import os
import threading
from collections import Counter

import pytest

from headrace.errors import LogError
from headrace.log import EmbeddedLog, writer
from headrace.state import faults


@pytest.fixture(autouse=True)
def _only_syncs_of_appends(monkeypatch):
    """The head is synced once a second: not here, where syncs are counted."""
    monkeypatch.setattr(writer, "_HEAD_SYNC", 1e9)


def together(log: EmbeddedLog, calls: list[dict]) -> tuple[list[object], Counter[str]]:
    """What each append got, all of them waiting for one group; and the points passed."""
    group, found = log._topics.find("t").group, [None] * len(calls)
    passed: Counter[str] = Counter()

    def work(n: int) -> None:
        try:
            found[n] = log.append("t", **calls[n])
        except Exception as error:
            found[n] = error

    group._busy = True
    with faults.hooked(lambda name: passed.update((name,))):
        threads = []
        with group._leading:  # else one that has waited for a while leads
            for n in range(len(calls)):
                threads.append(threading.Thread(target=work, args=(n,)))
                threads[-1].start()
                while len(group._waiting) <= n:
                    os.sched_yield()
        group._hand_over()
        for thread in threads:
            thread.join()
    return found, passed


def rows(log: EmbeddedLog, partition: int = 0) -> list[dict]:
    return [r for _, t in log.read("t", partition, 0) for r in t.to_pylist()]


def test_small_appends_that_wait_together_are_one_block_and_one_sync(folder):
    log = EmbeddedLog(folder)
    log.create("t")
    calls = [{"records": r} for r in ([b"a"], ["b", None], [{"c": 1}], [b""])]
    found, passed = together(log, calls)
    assert found == [{0: (0, 1)}, {0: (1, 3)}, {0: (3, 4)}, {0: (4, 5)}]
    assert (passed["log.block"], passed["log.sync"]) == (1, 1)
    assert [r["value"] for r in rows(log)] == [b"a", b"b", None, b'{"c": 1}', b""]


class Evil:
    def __index__(self) -> int:
        raise RuntimeError("evil")


@pytest.mark.parametrize("bad", [{"a": "x"}, {"b": 1}, {"a": Evil()}, {"a": 1.5}, {"a": 2**70}])
def test_a_row_that_does_not_fit_fails_alone(folder, bad):
    log = EmbeddedLog(folder)
    log.create("t", 1, "a bigint, s string")
    good = [{"records": [{"a": n, "s": str(n)}]} for n in range(4)]
    found, _ = together(log, [*good[:2], {"records": [{"a": 9, "s": ""}, bad]}, *good[2:]])
    assert isinstance(found.pop(2), Exception)
    assert found == [{0: (n, n + 1)} for n in range(4)]
    assert [r["a"] for r in rows(log)] == [0, 1, 2, 3]


def test_retries_in_a_group_are_left_out_of_its_block(folder):
    log = EmbeddedLog(folder)
    log.create("t")
    one = {"records": [b"one"], "producer": "p", "sequence": 1}
    two = {"records": [b"two"], "producer": "p", "sequence": 2}
    log.append("t", **one)
    found, _ = together(log, [{"records": [b"x"]}, one, two, two, {"records": [b"y"]}])
    assert found == [{0: (1, 2)}, {0: (0, 1)}, {0: (2, 3)}, {0: (2, 3)}, {0: (3, 4)}]
    assert [r["value"] for r in rows(log)] == [b"one", b"x", b"two", b"y"]
    assert EmbeddedLog(folder).append("t", **two) == {0: (2, 3)}


def test_rows_and_tables_of_several_partitions_keep_their_order(folder):
    log = EmbeddedLog(folder)
    log.create("t", 3)
    calls: list[dict] = [{"records": [b"%d" % n] * 4, "partition": n % 3} for n in range(9)]
    calls[4]["key"] = ["k"] * 4  # comes as a table
    found, passed = together(log, calls)
    assert found == [{n % 3: (n // 3 * 4, n // 3 * 4 + 4)} for n in range(9)]
    assert (passed["log.block"], passed["log.sync"]) == (3, 1)
    for p in range(3):
        values = [r["value"] for r in rows(log, p)]
        assert values == [b"%d" % n for n in range(9) if n % 3 == p for _ in range(4)]


def test_rows_are_dealt_in_turn_as_tables_are(folder):
    log = EmbeddedLog(folder)
    log.create("t", 3)
    log.append("t", [b"%d" % n for n in range(5)], producer="p", sequence=1)
    got = [[r["value"] for r in rows(log, p)] for p in range(3)]
    assert got == [[b"2"], [b"0", b"3"], [b"1", b"4"]]


def test_a_refused_row_says_why(folder):
    log = EmbeddedLog(folder)
    log.create("t")
    with pytest.raises(LogError) as caught:
        log.append("t", [b"a", 5])
    assert caught.value.code == "HR-LOG-006"
    assert log.latest("t") == {0: 0}
