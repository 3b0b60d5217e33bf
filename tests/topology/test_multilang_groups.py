"""Bolts in other languages that ack tuples together: every few, or when a tick comes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.look.in_process import Driver
from headrace.ops.topology import multilang
from headrace.testing import Harness, drive
from tests.topology.dying import dies
from tests.topology.shells import PROGRAMS, numbers, python

GROUPS = """
stored = globals().setdefault("stored", []) + [(id, values[0])]
if len(stored) == 3:
    emit(" ".join(str(v) for _, v in stored), anchors=[i for i, _ in stored])
    [ack(i) for i, _ in stored]
    stored = []
"""


def groups(code: str = GROUPS, **options: Any) -> hr.ShellBolt:
    return python(code, "s string", acks=True, **options)


def members(texts: list[str]) -> list[list[int]]:
    return [[int(v) for v in text.split()] for text in texts]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    sizes=st.lists(st.tuples(st.sampled_from(["", "crash", "kill"]), st.integers(0, 5)), max_size=6)
)
def test_each_tuple_is_in_one_group_whatever_the_batches_and_crashes(sizes: Any) -> None:
    """A tuple that waits is sent again to another process, and what was emitted for it is not."""
    code = f"os.environ['X'] = str(os.getpid()){GROUPS}"
    sent, found = 0, list[list[int]]()
    with Harness(numbers(groups(code), timeout="1h", max_replays=0)) as test:
        for how, size in sizes:
            if how == "crash":
                test.crash()
            elif how == "kill":
                kill_children()
            test.send("numbers", [(sent + i,) for i in range(size)])
            sent += size
            found += members([row["s"] for row in test.output("out")])
            assert all(len(group) == 3 for group in found)
            assert len(found) == sent // 3
        test.end()
        found += members([row["s"] for row in test.output("out")])
        letters = [json.loads(letter["record"])["v"] for letter in test.dead()]
    assert len(found) == sent // 3
    assert sorted([v for group in found for v in group] + letters) == list(range(sent))


def kill_children() -> None:
    """All processes of bolts that this one has started."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            about, command = (place / "stat").read_text(), (place / "cmdline").read_text()
        except OSError:
            continue
        parent = int(about.rsplit(")", 1)[1].split()[1])
        if parent == os.getpid() and "child.py" in command:
            os.kill(int(place.name), 9)


def test_its_process_goes_on_from_batch_to_batch() -> None:
    code = f"emit(str(os.getpid()), anchors=[]){GROUPS}"
    with Harness(numbers(groups(code), timeout="1h")) as test:
        pids = set()
        for v in range(5):
            test.send("numbers", [(v,)])
            pids |= {row["s"] for row in test.output("out") if " " not in row["s"]}
    assert len(pids) == 1


@pytest.mark.parametrize("at", range(1, 16))
def test_a_driver_that_dies_anywhere(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that outlives it has tuples of an epoch which was given up: it is ended."""

    def program() -> hr.Topology:
        topology = hr.Topology("groups", timeout="1h")
        topology.spout("numbers", hr.rows([{"v": v} for v in range(9)]))
        topology.bolt("bolt", bolt).shuffle("numbers")
        topology.bolt("out", "collect:").shuffle("bolt")
        return topology

    bolt = groups()
    with monkeypatch.context() as patch:
        patch.setattr(multilang, "close_children", lambda owner: None)
        dies(program(), tmp_path, 2 * at)
    driver = Driver(program(), tmp_path, max_batch=2)
    try:
        driver.drain()
        found = members(driver.output("out").column("s").to_pylist())
    finally:
        driver.close()
    assert sorted(v for group in found for v in group) == list(range(9))
    assert len(found) == 3


LEADER = """
if values[0] == 0:
    leader = id
else:
    emit(f"seen {values[0]}", anchors=[leader])
    if values[0] == 8: ack(leader)
    ack()
"""


@pytest.mark.parametrize("at", [11, 14, 16])
def test_a_process_that_was_sent_an_epoch_which_was_given_up(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has just the tuple that waits, and has emitted for it what the epoch emits once more."""

    def program() -> hr.Topology:
        topology = hr.Topology("leader", timeout="1h")
        topology.spout("numbers", hr.rows([{"v": v} for v in range(9)]))
        topology.bolt("bolt", bolt).shuffle("numbers")
        topology.bolt("out", "collect:").shuffle("bolt")
        return topology

    bolt = groups(LEADER)
    with monkeypatch.context() as patch:
        patch.setattr(multilang, "close_children", lambda owner: None)
        assert dies(program(), tmp_path, 2 * at)
    driver = Driver(program(), tmp_path, max_batch=2)
    try:
        driver.drain()
        found = driver.output("out").column("s").to_pylist()
    finally:
        driver.close()
    assert found
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("crash", [False, True])
def test_a_bolt_that_flushes_at_ticks(crash: bool) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    command = ["node", str(PROGRAMS / "flush.js")]
    bolt = hr.ShellBolt(command, "s string", timeout="20s", acks=True, tick_every="10s")
    with Harness(numbers(bolt, timeout="1h")) as test:
        found = []
        for v in range(8):
            test.send("numbers", [(v,), (v + 100,)])
            if crash and v % 3 == 1:
                test.crash()
            test.advance("4s")
            found.append(sorted(v for row in test.output("out") for v in members([row["s"]])[0]))
        test.end()
        found.append(sorted(v for row in test.output("out") for v in members([row["s"]])[0]))
        assert test.dead() == []
    assert sum(1 for flushed in found if flushed) >= 3
    assert sorted(v for flushed in found for v in flushed) == sorted([*range(8), *range(100, 108)])


def test_a_tick_comes_without_acks_too() -> None:
    """What it emits then is not anchored to any tuple."""
    code = """
if message["stream"] == "__tick":
    every = setup["conf"]["topology.tick.tuple.freq.secs"]
    emit(f"tick of {values[0]} from {message['comp']}, every {every} s")
    globals()["n"] -= 1
else:
    emit(f"tuple {n}")
ack()
"""
    with Harness(numbers(python(code, "s string", tick_every="5s"))) as test:
        test.send("numbers", [(1,)])
        test.advance("6s")
        test.send("numbers", [(2,)])
        assert [row["s"] for row in test.output("out")] == [
            "tuple 1",
            "tick of 5 from __system, every 5.0 s",
            "tuple 2",
        ]


def test_a_tuple_that_is_not_acked_in_time_is_sent_again_to_a_new_process() -> None:
    code = f"emit(f'{{os.getpid()}}', anchors=[]){GROUPS}"
    with Harness(numbers(groups(code), timeout="10s", max_replays=1)) as test:
        test.send("numbers", [(1,)])
        test.send("numbers", [(2,)])
        first = {row["s"] for row in test.output("out")}
        assert len(first) == 1
        test.advance("11s")
        again = [row["s"] for row in test.output("out")]
        assert first.isdisjoint(again)
        assert again
        test.advance("11s")
        letters = sorted((json.loads(x["record"])["v"], x["error"]) for x in test.dead())
    why = "TupleFailedError: neither acked nor failed within 10s; attempts: 2"
    assert letters == [(1, why), (2, why)]


def test_tuples_that_share_what_was_emitted_are_done_together() -> None:
    """1 is acked, and what is emitted for 1 and 2 is not there yet: neither is 1 done."""
    code = """
stored = globals().setdefault("stored", []) + [(id, values[0])]
if len(stored) == 2:
    emit(" ".join(str(v) for _, v in stored), anchors=[i for i, _ in stored])
    ack(stored[0][0])
elif len(stored) == 3:
    ack(stored[1][0])
    ack()
"""
    for crash in (False, True):
        with Harness(numbers(groups(code), timeout="1h")) as test:
            test.send("numbers", [(1,), (2,)])
            assert test.output("out") == []
            if crash:
                test.crash()
            test.send("numbers", [(3,)])
            assert [row["s"] for row in test.output("out")] == ["1 2"]
            assert test.dead() == []


def test_acks_that_fail_tuples_of_earlier_batches() -> None:
    code = """
stored = globals().setdefault("stored", []) + [id]
if len(stored) == 2:
    send(command="error", msg="not both")
    fail(stored[0])
    emit("second")
    ack()
"""
    with Harness(numbers(groups(code), timeout="1h", max_replays=0)) as test:
        test.send("numbers", [(1,)])
        test.send("numbers", [(2,)])
        assert [row["s"] for row in test.output("out")] == ["second"]
        assert [x["error"] for x in test.dead()] == ["TupleFailedError: not both"]


def test_a_fatal_tuple_among_groups() -> None:
    code = f"die(4) if values[0] == 13 else None{GROUPS}"
    bolt = groups(code, max_restarts=0)
    with Harness(numbers(bolt, timeout="1h", max_replays=0)) as test:
        test.send("numbers", [(v,) for v in (1, 2, 13, 3, 4)])
        test.send("numbers", [(v,) for v in (5, 6)])
        found = members([row["s"] for row in test.output("out")])
        assert sorted(v for group in found for v in group) == [1, 2, 3, 4, 5, 6]
        assert [json.loads(x["record"])["v"] for x in test.dead()] == [13]


def test_a_bounded_input_whose_tuples_fill_its_groups(tmp_path: Path) -> None:
    topology = hr.Topology("bounded")
    topology.spout("numbers", hr.rows([{"v": v} for v in range(30)]))
    topology.bolt("bolt", groups()).shuffle("numbers")
    topology.bolt("out", "collect:").shuffle("bolt")
    found = drive(topology, tmp_path, max_batch=4).output("out").column("s").to_pylist()
    assert sorted(v for group in members(found) for v in group) == list(range(30))


@pytest.mark.parametrize("says", ["error", "log", None])
@pytest.mark.parametrize("acks", [False, True])
def test_a_sync_that_nobody_has_asked_for_ends_no_batch(acks: bool, says: str | None) -> None:
    """pystorm sends one with each exception: most of the batch has not even been sent by then."""
    error = "" if says is None else f"send(command='{says}', msg='not a good one')"
    code = f"""
if n in (1, 2, 20_002):
    {error or "pass"}
    send(command='sync')
    sys.stdout.flush()
emit(values[0])
ack()
"""
    with Harness(numbers(python(code, acks=acks), timeout="1h")) as test:
        for first in (0, 20_000, 40_000):
            test.send("numbers", [(v,) for v in range(first, first + 20_000)])
            assert [row["v"] for row in test.output("out")] == [*range(first, first + 20_000)]
        assert test.dead() == []


def test_an_error_right_before_a_heartbeat_is_no_reason_to_wait() -> None:
    code = "emit(values[0])\nack()\nsend(command='error', msg='by the way')"
    with Harness(numbers(python(code, acks=True, timeout="5s"), timeout="1h")) as test:
        for v in range(3):
            test.send("numbers", [(v,)])
            assert [row["v"] for row in test.output("out")] == [v]
