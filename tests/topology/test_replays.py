"""Tuples that fail are processed again, against plain Python; batches cut anywhere, crashes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.inspect.why import why
from headrace.plan.program import build
from headrace.state.epochs import EpochLog
from headrace.testing import Harness, drive
from tests.topology.dying import dies

EXAMPLES = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


class Flaky(hr.Bolt):
    """Fails at the attempts that a tuple names, after it has emitted and changed its state."""

    output = "v bigint, attempt int, n bigint"
    outputs = {"side": "v bigint"}  # noqa: RUF012
    n = hr.value(int, default=0)
    seen = hr.map_of(int, int)

    def process(self, tup: Any, collector: Any) -> None:
        self.n += 1
        self.seen[tup.v] = self.seen.get(tup.v, 0) + 1
        collector.emit((tup.v, collector.attempt, self.n))
        collector.emit((tup.v,), "side")
        collector.counter("processed").add()
        if str(collector.attempt) in tup.fails:
            if tup.v % 2:
                raise RuntimeError(f"attempt {collector.attempt}")
            collector.fail(tup, f"attempt {collector.attempt}")


def flaky(tasks: int = 2, **options: Any) -> hr.Topology:
    topology = hr.Topology("flaky", slots=4)
    topology.spout("numbers", "log:numbers", schema="v bigint, fails string")
    topology.bolt("flaky", Flaky(), tasks=tasks, **options).fields("numbers", "v")
    topology.bolt("out", "collect:").shuffle("flaky")
    topology.bolt("side", "collect:").shuffle("flaky", "side")
    return topology


def model(tuples: list[tuple[int, str]], most: int) -> tuple[list[Any], list[Any]]:
    """What comes out, with the attempt that did it; and the dead, with the reason."""
    out, dead = [], []
    for v, fails in tuples:
        good = [a for a in range(most + 1) if str(a) not in fails]
        if good:
            out.append((v, good[0]))
        else:
            text = f"attempt {most}"
            kind = f"RuntimeError: {text}" if v % 2 else f"TupleFailedError: {text}"
            if most:
                reason = f"RuntimeError: {text}" if v % 2 else text
                kind = f"TupleFailedError: {reason}; attempts: {most + 1}"
            dead.append((v, kind))
    return sorted(out), sorted(dead)


TUPLES = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["", "", "0", "01", "12", "012", "0123", "013"])),
    max_size=5,
)


@EXAMPLES
@given(
    batches=st.lists(st.tuples(st.sampled_from(["", "crash", "restart"]), TUPLES), max_size=5),
    tasks=st.integers(1, 3),
    most=st.integers(0, 3),
    backoff=st.sampled_from([0, 0, 1, 7]),
    processes=st.lists(st.integers(1, 4), min_size=6, max_size=6),
    ends=st.booleans(),
)
def test_replays_are_those_of_a_model(
    batches: Any, tasks: int, most: int, backoff: int, processes: Any, ends: bool,
    tmp_path_factory: Any,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("flaky")

    def start(count: int) -> Harness:
        program = flaky(tasks, max_replays=most, backoff=f"{backoff}s")
        return Harness(program, folder=folder, tasks=count)

    test, sent = start(processes[0]), list[tuple[int, str]]()
    for (what, tuples), count in zip(batches, processes[1:], strict=False):
        if what == "crash":
            test.crash()
        elif what:
            test.close()
            test = start(count)
        test.send("numbers", tuples)
        sent += tuples
        test.advance(f"{backoff / 2}s")
    if ends:
        test.end()
    else:
        for _ in range(most):
            test.advance(f"{backoff * 8 + 1}s")
    out, dead = model(sent, most)
    found = [tuple(row.values()) for row in test.table("out").to_pylist()]
    assert sorted(row[:2] for row in found) == out
    assert sorted(row["v"] for row in test.table("side").to_pylist()) == [v for v, _ in out]
    letters = test._all("dead:letters").to_pylist()
    assert sorted((json.loads(row["record"])["v"], row["error"]) for row in letters) == dead
    state = test.state("flaky")
    assert not state["waiting"].num_rows and not state["waiting_due"].num_rows
    assert sum(state["values"]["n"].to_pylist()) == len(out)  # no call that failed is in it
    seen = Counter({k: n for row in state["values"]["seen"].to_pylist() for k, n in row})
    assert +seen == Counter(v for v, _ in out)
    if test.progress is not None:
        counts = test.progress.counts["numbers"]
        assert (counts["read"], counts["dead"]) == (len(sent), len(dead))
        assert test.progress.metrics.get("flaky", {}).get("processed", 0) == len(out)
    test.close()


def test_the_attempts_are_in_later_epochs_and_wait_longer_each_time() -> None:
    with Harness(flaky(1, backoff="2s"), clock=10_000) as test:
        test.send("numbers", [(2, "01"), (4, "")])
        moments = {0: test.output("out")}
        for second in range(1, 8):
            test.advance("1s")
            moments[second] = test.output("out")
        found = {at: [(r["v"], r["attempt"]) for r in rows] for at, rows in moments.items() if rows}
        assert found == {0: [(4, 0)], 6: [(2, 2)]}  # after 2 s, and 4 s after that


def test_a_bounded_job_does_not_end_while_tuples_wait(tmp_path: Path) -> None:
    topology = hr.Topology("bounded", backoff="1h")
    rows = [{"v": v, "fails": fails} for v, fails in [(0, "0"), (1, "012"), (2, "0123"), (3, "")]]
    topology.spout("numbers", hr.rows(rows))
    topology.bolt("flaky", Flaky()).shuffle("numbers")
    topology.bolt("out", "collect:").shuffle("flaky")
    topology.bolt("side", "collect:").shuffle("flaky", "side")
    topology.dead.write("collect:", name="letters")
    driver = drive(topology, tmp_path, max_batch=3)
    found = driver.output("out").to_pylist()
    assert sorted((r["v"], r["attempt"]) for r in found) == [(0, 1), (1, 3), (3, 0)]
    (letter,) = driver.output("letters").to_pylist()
    assert letter["error"] == "TupleFailedError: attempt 3; attempts: 4"


class Halves(hr.Bolt):
    """Sends numbers back until they are 1; every other one fails the first time."""

    output = "start bigint, turns bigint"
    outputs = {"again": "start bigint, n bigint, turns bigint"}  # noqa: RUF012

    def process(self, tup: Any, collector: Any) -> None:
        if tup.n == 1:
            collector.emit((tup.start, tup.turns))
        else:
            collector.emit((tup.start, tup.n // 2, tup.turns + 1), "again")
        if tup.n % 3 != collector.attempt:
            raise RuntimeError("not yet")


@pytest.mark.parametrize("batch", [1, 2, 100])
@pytest.mark.parametrize("backoff", ["0s", "1h"])
def test_tuples_of_a_cycle_fail_and_still_go_round(
    batch: int, backoff: str, tmp_path: Path
) -> None:
    topology = hr.Topology("halves", backoff=backoff)
    numbers = [{"start": n, "n": n, "turns": 0} for n in (1, 2, 8, 9, 30, 31)]
    topology.spout("numbers", hr.rows(numbers))
    topology.bolt("halves", Halves(), tasks=2).shuffle("numbers").shuffle("halves", "again")
    topology.bolt("out", "collect:").shuffle("halves")
    found = drive(topology, tmp_path, max_batch=batch).output("out").to_pylist()
    expected = [(n, n.bit_length() - 1) for n in (1, 2, 8, 9, 30, 31)]
    assert sorted((row["start"], row["turns"]) for row in found) == expected


# event time


class Late(hr.Bolt):
    """Fails the first attempts of a tuple that says so."""

    output = "v bigint"

    def process(self, tup: Any, collector: Any) -> None:
        if collector.attempt < tup.failures:
            raise RuntimeError("not yet")
        collector.emit((tup.v,))


def windowed(backoff: str = "0s") -> hr.Topology:
    topology = hr.Topology("windowed")
    schema = "at bigint, v bigint, failures int"
    topology.spout("in", "log:in", schema=schema, time="at", in_order=True)
    topology.bolt("late", Late(), tasks=2, backoff=backoff).fields("in", "v")
    counts = topology.stream("late").key_by("v").window(hr.tumbling("10s")).agg(n=hr.count())
    counts.write("collect:", name="out")
    again = counts.key_by("v").window(hr.tumbling("20s")).agg(n=hr.sum("n"))
    again.write("collect:", name="sums")
    return topology


@EXAMPLES
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 2), st.sampled_from([0, 0, 0, 1, 2, 3])),
        max_size=9,
    ),
    cuts=st.lists(st.integers(1, 3), min_size=9, max_size=9),
    backoff=st.sampled_from(["0s", "3s"]),
)
def test_what_is_emitted_later_is_not_late(rows: Any, cuts: Any, backoff: str) -> None:
    at, sent = 0, []
    for step, v, failures in rows:
        at += step * 1_000
        sent.append((at, v, failures))
    with Harness(windowed(backoff)) as test:
        left = list(sent)
        for count in cuts:
            if left:
                test.send("in", left[:count])
                left = left[count:]
                test.advance("1s")
        test.end()
        found = Counter({(r["v"], int(r["window_start"])): r["n"] for r in _plain(test, "out")})
        assert found == Counter((v, at // 10_000 * 10_000) for at, v, _ in sent)
        sums = Counter({(r["v"], int(r["window_start"])): r["n"] for r in _plain(test, "sums")})
        assert sums == Counter((v, at // 20_000 * 20_000) for at, v, _ in sent)


def _plain(test: Harness, name: str) -> list[dict[str, Any]]:
    table = test.table(name)
    at = table.schema.get_field_index("window_start")
    column = table["window_start"].cast("timestamp[ms]").cast("int64")
    return table.set_column(at, "window_start", column).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("on", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_waiting_tuple_holds_the_windows_after_it_and_then_lets_them_go(
    on: str, tmp_path: Path
) -> None:
    with Harness(windowed("5s"), on=on, folder=tmp_path, tasks=2) as test:
        test.send("in", [(1_000, 1, 1), (2_000, 2, 0)])
        test.send("in", [(50_000, 2, 0)])
        assert test.output("out") == []
        if on == "local":
            latest = test._stage.start.log.latest()
            assert latest is not None
            reasons = {r.kind: r.text for r in why(build(windowed()), latest, test.now)}
            assert "wait in 'late'" in reasons["waits"] and "split" not in reasons
        test.advance("4s")
        assert test.output("out") == []
        test.advance("1s")
        assert sorted((r["v"], r["n"]) for r in test.output("out")) == [(1, 1), (2, 1)]


class Counted(hr.Bolt):
    output = "task int, n bigint"
    tick_every = "1h"
    n = hr.value(int, default=0)

    def process(self, tup: Any, collector: Any) -> None:
        if str(collector.attempt) in tup.fails:
            collector.fail(tup)
        self.n += 1

    def tick(self, collector: Any) -> None:
        collector.emit((collector.task, self.n))


def test_the_last_tick_at_the_end_has_seen_what_was_processed_again_there() -> None:
    topology = hr.Topology("ticks", backoff="1m")
    topology.spout("numbers", "log:numbers", schema="v bigint, fails string")
    topology.bolt("counted", Counted(), tasks=2).custom("numbers", lambda tup, tasks: tup.v % tasks)
    topology.bolt("out", "collect:").shuffle("counted")
    with Harness(topology) as test:
        test.send("numbers", [(0, ""), (1, ""), (2, "0"), (4, "01")])
        test.end()
        assert test.dead() == []
        ticks = sorted(tuple(row.values()) for row in test.table("out").to_pylist())
        assert ticks == [(0, 1), (0, 2), (0, 3), (1, 1)]


# crashes


@pytest.mark.parametrize("at", range(1, 12))
def test_a_driver_that_dies_anywhere_repeats_nothing(at: int, tmp_path: Path) -> None:
    tuples = [(0, "0"), (1, "012"), (2, "0123"), (3, ""), (4, "01")]

    def program() -> hr.Topology:
        topology = hr.Topology("dies")
        topology.spout("numbers", hr.rows([{"v": v, "fails": f} for v, f in tuples]))
        topology.bolt("flaky", Flaky(), tasks=2).fields("numbers", "v")
        topology.bolt("out", "collect:").shuffle("flaky")
        topology.bolt("side", "collect:").shuffle("flaky", "side")
        topology.dead.write("collect:", name="letters")
        return topology

    dies(program(), tmp_path, 3 * at)
    driver = drive(program(), tmp_path, max_batch=4)
    out, dead = model(tuples, 3)
    assert sorted((r["v"], r["attempt"]) for r in driver.output("out").to_pylist()) == out
    assert [r["error"] for r in driver.output("letters").to_pylist()] == [
        error for _, error in dead
    ]


class Words(hr.Bolt):
    output = "word string"

    def process(self, tup: Any, collector: Any) -> None:
        for word in tup.text.split():
            collector.emit((word,))


class Picky(hr.Bolt):
    """Fails a word as long as it has an attempt left: "bad3" fails three times."""

    output = "word string"

    def process(self, tup: Any, collector: Any) -> None:
        if tup.word.startswith("bad") and collector.attempt < int(tup.word[3:]):
            raise RuntimeError(tup.word)
        collector.emit((tup.word,))


def test_a_record_whose_tuples_die_in_several_epochs_is_one_dead_record(tmp_path: Path) -> None:
    topology = hr.Topology("words")
    topology.spout("texts", "log:texts", schema="text string")
    topology.bolt("words", Words()).shuffle("texts")
    for name, most in (("once", 0), ("twice", 1), ("often", 2)):
        topology.bolt(name, Picky(), max_replays=most, backoff="1s").shuffle("words")
        topology.bolt(f"of {name}", "collect:").shuffle(name)
    topology.dead.write("collect:", name="letters")
    with Harness(topology, folder=tmp_path) as test:
        test.send("texts", [("bad9 good bad9",), ("good",), ("bad1",)])
        assert test.progress is not None
        assert test.progress.counts["texts"]["dead"] == 2  # of `once`
        test.crash()
        for _ in range(4):
            test.advance("4s")
        counts = {fate: n for fate, n in test.progress.counts["texts"].items() if n}
        assert counts == {"read": 3, "used": 1, "dead": 2}  # only "good" was used
        latest = EpochLog(tmp_path / "job").latest()
        assert latest is not None and latest.settled is None  # nothing waits any more
        assert len(test._all("dead:letters")) == 3 * 2 + 1


# a changed program


def test_other_numbers_of_replays_and_of_tasks(tmp_path: Path) -> None:
    class Plain(hr.Bolt):
        output = "v bigint, task int"

        def process(self, tup: Any, collector: Any) -> None:
            if str(collector.attempt) in tup.fails:
                raise RuntimeError("not yet")
            collector.emit((tup.v, collector.task))

    def program(tasks: int, **options: Any) -> hr.Topology:
        topology = hr.Topology("plain")
        topology.spout("numbers", "log:numbers", schema="v bigint, fails string")
        topology.bolt("plain", Plain(), tasks=tasks, **options).shuffle("numbers")
        topology.bolt("out", "collect:").shuffle("plain")
        return topology

    with Harness(program(3, backoff="1m"), folder=tmp_path) as test:
        test.send("numbers", [(v, "0" if v < 5 else "01") for v in range(6)])
        assert test.output("out") == []
        test.restart(program(2, max_replays=1, backoff="1s"))
        assert test.output("out") == []
        test.advance("1m")
        found = test.output("out")
        assert sorted(r["v"] for r in found) == [0, 1, 2, 3, 4]
        assert {r["task"] for r in found} <= {0, 1}
        (letter,) = test.dead()
        assert letter["error"] == "TupleFailedError: RuntimeError: not yet; attempts: 2"


def test_an_input_that_is_gone_or_changed_is_a_dead_letter(tmp_path: Path) -> None:
    def program(column: dict[str, str], second: bool) -> hr.Topology:
        topology = hr.Topology("gone", backoff="1m")
        numbers = topology.read("log:numbers", schema="v bigint", name="numbers")
        topology.spout("a", numbers.select(**column))
        topology.spout("b", numbers.where("v > 0").select(v="v"))
        bolt = topology.bolt("fails", Fails()).shuffle("a")
        if second:
            bolt.shuffle("b")
        else:
            topology.bolt("b out", "collect:").shuffle("b")
        topology.bolt("out", "collect:").shuffle("fails")
        return topology

    class Fails(hr.Bolt):
        output = "v bigint"

        def process(self, tup: Any, collector: Any) -> None:
            collector.fail(tup)

    with Harness(program({"v": "v"}, True), folder=tmp_path) as test:
        test.send("numbers", [(1,)])
        test.restart(program({"w": "v + 1"}, False))
        test.advance("1m")
        assert sorted(r["error"].partition(", and ")[2] for r in test.dead()) == [
            "the bolt no longer reads 'b'", "the fields of its input have changed",
        ]  # fmt: skip


# on Spark


@pytest.mark.spark
def test_replays_on_spark(tmp_path: Path) -> None:
    with Harness(flaky(2), on="spark", folder=tmp_path, tasks=2) as test:
        tuples = [(0, "0"), (1, "01"), (2, "0123"), (3, "")]
        test.send("numbers", tuples)
        out, dead = model(tuples, 3)
        found = [tuple(row.values())[:2] for row in test.output("out")]
        assert sorted(found) == out
        assert [row["error"] for row in test.dead()] == [error for _, error in dead]
