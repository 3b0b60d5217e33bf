"""Bolts that ack by hand, against plain Python: what waits, what times out, what is emitted."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness

EXAMPLES = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


class Pairs(hr.Bolt):
    """A tuple waits for the next one with its key: then both are acked. The texts say what else
    a tuple does when it is processed: u: emits unanchored, a: anchored, f: fails the first time,
    F: fails the other one, k: is acked at once, x: raises the first time."""

    output = "kind string, v bigint"
    outputs = {"side": "v bigint"}  # noqa: RUF012
    acks = True
    first = hr.map_of(int, str)

    def process(self, tup: Any, collector: Any) -> None:
        if "u" in tup.does:
            collector.emit(("unanchored", tup.v))
        if "a" in tup.does:
            collector.emit(("anchored", tup.v), anchors=tup)
            collector.emit((tup.v,), "side", anchors=[tup])
        if "x" in tup.does and collector.attempt == 0:
            raise RuntimeError("first")
        other = self.first.get(tup.key)
        if other == collector.id:  # it was not acked in time, or failed, and is here again
            other = None
        if other is not None and "F" in tup.does:
            collector.fail(other, "by the next one")
            collector.ack(tup)
            del self.first[tup.key]
        elif "k" in tup.does:
            collector.ack(tup)
        elif other is None:
            self.first[tup.key] = collector.id
        else:
            collector.emit(("pair", tup.v), anchors=[tup, other])
            collector.ack(other)
            collector.ack(tup)
            del self.first[tup.key]
        if "f" in tup.does and collector.attempt == 0:
            collector.fail(tup, "first")


class Model:
    """The same for tuples in order, one at a time, in dicts; a timeout never passes."""

    def __init__(self) -> None:
        self.out: list[tuple[str, int]] = []
        self.first: dict[int, tuple[int, bool]] = {}  # by key: a tuple that waits, and if anchored
        self.later: list[tuple[int, int, str]] = []

    def process(self, key: int, v: int, does: str, attempt: int) -> None:
        if "x" in does and attempt == 0:
            self.later.append((key, v, does))
            return
        if "u" in does:
            self.out.append(("unanchored", v))
        if "f" in does and attempt == 0:
            self.later.append((key, v, does))
            return
        anchored, other = "a" in does, self.first.get(key)
        if "k" in does:
            pass
        elif other is None:
            self.first[key] = (v, anchored)
            return
        else:
            self.out += [("pair", v), *([("anchored", other[0])] if other[1] else [])]
            del self.first[key]
        if anchored:
            self.out.append(("anchored", v))


def pairs(timeout: str = "30s", **options: Any) -> hr.Topology:
    topology = hr.Topology("pairs", slots=4)
    topology.spout("in", "log:in", schema="key int, v bigint, does string")
    topology.bolt("pairs", Pairs(), tasks=2, timeout=timeout, **options).fields("in", "key")
    topology.bolt("out", "collect:").shuffle("pairs")
    topology.bolt("side", "collect:").shuffle("pairs", "side")
    return topology


def kinds(test: Harness) -> list[tuple[str, int]]:
    return sorted((row["kind"], row["v"]) for row in test.output("out"))


@EXAMPLES
@given(
    batches=st.lists(
        st.tuples(
            st.sampled_from(["", "crash", "restart"]),
            st.lists(
                st.tuples(
                    st.integers(0, 2), st.sampled_from(["", "a", "u", "ua", "k", "ak", "uak"])
                ),
                max_size=4,
            ),
        ),
        max_size=5,
    ),
    bad=st.dictionaries(st.integers(0, 20), st.sampled_from(["f", "uf", "xu", "kuf"]), max_size=3),
    processes=st.lists(st.integers(1, 4), min_size=6, max_size=6),
)
def test_pairs_are_those_of_a_model(
    batches: Any, bad: Any, processes: Any, tmp_path_factory: Any
) -> None:
    """Tuples that fail have a key of their own: when they come again depends on the batches."""
    folder, number = tmp_path_factory.mktemp("pairs"), 0
    test, model = Harness(pairs(), folder=folder, tasks=processes[0]), Model()
    for (what, rows), count in zip(batches, processes[1:], strict=False):
        sent: list[tuple[int, int, str]] = []
        for key, does in rows:
            number += 1
            fails = bad.get(number)
            sent.append((key, number, does) if not fails else (100 + number, number, fails))
        if what == "crash":
            test.crash()
        elif what:
            test.close()
            test = Harness(pairs(), folder=folder, tasks=count)
        test.send("in", sent)
        for row in sent:
            model.process(*row, 0)
        again, model.later = model.later, []
        for row in again:
            model.process(*row, 1)
    found = sorted((r["kind"], r["v"]) for r in test.table("out").to_pylist())
    assert found == sorted(model.out)
    side = sorted(r["v"] for r in test.table("side").to_pylist())
    assert side == sorted(v for kind, v in model.out if kind == "anchored")
    state = test.state("pairs")
    assert state["waiting"].num_rows == len(model.first)
    assert set(state["waiting"]["why"].to_pylist()) <= {"unacked"}
    test.close()


def test_a_tuple_that_is_not_acked_in_time_has_failed() -> None:
    with Harness(pairs("10s", max_replays=2)) as test:
        test.send("in", [(1, 7, "ua")])
        for _ in range(3):
            assert kinds(test) == [("unanchored", 7)] and test.dead() == []
            test.advance("9s")
            assert kinds(test) == [] and test.dead() == []
            test.advance("1s")
        (letter,) = test.dead()
        assert letter["error"].endswith(": neither acked nor failed within 10s; attempts: 3")
        assert kinds(test) == [] and not test.state("pairs")["waiting"].num_rows
        assert test.table("out")["kind"].to_pylist() == ["unanchored"] * 3


def test_anchored_tuples_come_with_the_ack_and_unanchored_ones_at_once() -> None:
    with Harness(pairs()) as test:
        test.send("in", [(1, 1, "ua")])
        assert kinds(test) == [("unanchored", 1)]
        test.crash()
        test.send("in", [(1, 2, "")])
        assert kinds(test) == [("anchored", 1), ("pair", 2)]
        test.send("in", [(1, 3, "a")])
        test.send("in", [(1, 4, "Fu")])  # fails 3, which is processed again and waits
        assert kinds(test) == [("unanchored", 4)]
        test.send("in", [(1, 5, "")])
        assert kinds(test) == [("anchored", 3), ("pair", 5)]


def test_the_end_of_the_input_does_not_wait_for_acks() -> None:
    with Harness(pairs("1h", max_replays=1)) as test:
        test.send("in", [(1, 1, "a"), (2, 2, "a"), (2, 3, "a")])
        test.end()
        (letter,) = test.dead()
        assert letter["error"].endswith("before the end of the input; attempts: 2")
        assert kinds(test) == [("anchored", 2), ("anchored", 3), ("pair", 3)]


def test_what_waits_for_an_ack_holds_the_windows_after_it() -> None:
    topology = hr.Topology("held")
    schema = "key int, v bigint, does string, at bigint"
    topology.spout("in", "log:in", schema=schema, time="at", in_order=True)
    topology.bolt("pairs", Pairs(), timeout="1h").fields("in", "key")
    windows = topology.stream("pairs").where("kind = 'anchored'").window(hr.tumbling("10s"))
    windows.agg(n=hr.count()).write("collect:", name="out")
    topology.bolt("side", "collect:").shuffle("pairs", "side")
    with Harness(topology) as test:
        test.send("in", [(1, 1, "a", 1_000), (2, 2, "ak", 2_000)])
        test.send("in", [(2, 3, "ak", 30_000)])
        assert test.output("out") == []
        test.send("in", [(1, 4, "", 31_000)])
        assert [row["n"] for row in test.output("out")] == [2]


class Wrong(hr.Bolt):
    output = "v bigint"
    acks = True
    ids = hr.list_of(str)
    transient = ("last",)

    def process(self, tup: Any, collector: Any) -> None:
        self.ids.append(collector.id)
        if tup.v == 1:
            collector.emit((1,), anchors=[tup, self.ids[0]])  # which it does not ack
        if tup.v == 2:
            collector.ack(("no tuple",))
        if tup.v == 3:
            collector.ack("an id that there is not")
        collector.ack(tup)


def test_what_an_ack_cannot_mean() -> None:
    topology = hr.Topology("wrong", max_replays=0)
    topology.spout("in", "log:in", schema="v bigint")
    topology.bolt("wrong", Wrong()).shuffle("in")
    topology.bolt("out", "collect:").shuffle("wrong")
    with Harness(topology) as test:
        test.send("in", [(0,)])
        test.send("in", [(1,), (2,), (3,)])
        one, two = sorted(row["error"] for row in test.dead())
        assert "which this call neither processes nor acks" in one
        assert "only the tuple of this call" in two
        progress = test.progress
        assert progress is not None
        assert progress.metrics["wrong"] == {"acks without effect": 1}


class NoAcks(Pairs):
    """The same bolt, which no longer acks by hand."""

    acks = False


def test_acks_may_be_turned_off_while_tuples_wait(tmp_path: Path) -> None:
    def program() -> hr.Topology:
        topology = hr.Topology("pairs", slots=4)
        topology.spout("in", "log:in", schema="key int, v bigint, does string")
        topology.bolt("pairs", NoAcks(), tasks=2).fields("in", "key")
        topology.bolt("out", "collect:").shuffle("pairs")
        topology.bolt("side", "collect:").shuffle("pairs", "side")
        return topology

    with Harness(pairs(), folder=tmp_path) as test:
        test.send("in", [(1, 1, "a")])
        assert kinds(test) == []
        test.restart(program())
        test.advance("30s")  # its time is over: it is processed again, and acked by that
        assert kinds(test) == [("anchored", 1)]
        assert not test.state("pairs")["waiting"].num_rows


class EventTicks(Pairs):
    tick_every, tick_by = "10s", "event"

    def tick(self, collector: Any) -> None:
        pass


class Lives(hr.Bolt):
    output = "v bigint"
    n = hr.value(int, default=0, ttl="1m")

    def process(self, tup: Any, collector: Any) -> None:
        collector.emit((tup.v,))


@pytest.mark.parametrize(
    ("bolt", "options", "code"),
    [
        (EventTicks(), {}, "HR-TOPOLOGY-032"),
        (Lives(), {"max_replays": 1}, "HR-TOPOLOGY-032"),
        (Pairs(), {"max_replays": -1}, "HR-TOPOLOGY-031"),
        (Pairs(), {"max_replays": "3"}, "HR-TOPOLOGY-031"),
        (Pairs(), {"timeout": "0s"}, "HR-TOPOLOGY-031"),
        (Pairs(), {"backoff": -1}, "HR-TOPOLOGY-031"),
        (Pairs(), {"retries": 1}, "HR-TOPOLOGY-004"),
    ],
)
def test_refused_when_built(bolt: hr.Bolt, options: Any, code: str) -> None:
    topology = hr.Topology("t")
    schema = "key int, v bigint, does string, at bigint"
    topology.spout("in", "log:in", schema=schema, in_order=True, time="at")
    topology.bolt("b", bolt, **options).shuffle("in")
    topology.bolt("out", "collect:").shuffle("b")
    if bolt.outputs:
        topology.bolt("side", "collect:").shuffle("b", "side")
    with pytest.raises(hr.PlanError, match=code):
        topology.check()


class Told(hr.Bolt):
    """The first tuple waits; later ones ack it or fail it, as they say."""

    output = "v bigint"
    acks = True
    first = hr.value(str, default="")

    def process(self, tup: Any, collector: Any) -> None:
        if not self.first:
            self.first = collector.id
        if collector.id == self.first:
            collector.emit((tup.v,), anchors=tup)
            return
        collector.ack(tup)
        if tup.does == "fail":
            collector.fail(self.first, "by a later one")
        else:
            collector.ack(self.first)


@pytest.mark.parametrize("says", list(product(["ack", "fail"], repeat=2)))
@pytest.mark.parametrize("sizes", [[3], [1, 2], [2, 1], [1, 1, 1]])
def test_the_first_call_decides_however_tuples_are_cut(says: Any, sizes: Any) -> None:
    topology = hr.Topology("first")
    topology.spout("in", "log:in", schema="v bigint, does string")
    topology.bolt("told", Told(), timeout="1h", max_replays=0).shuffle("in")
    topology.bolt("out", "collect:").shuffle("told")
    with Harness(topology) as test:
        left = [(0, ""), *[(v, does) for v, does in enumerate(says, 1)]]
        for count in sizes:
            test.send("in", left[:count])
            left = left[count:]
        assert [row["v"] for row in test.output("out")] == ([0] if says[0] == "ack" else [])
        assert len(test.dead()) == (says[0] == "fail")
        progress = test.progress
        assert progress is not None
        assert progress.metrics["told"] == {"acks without effect": 1}


class Patient(hr.Bolt):
    """Keeps the first tuple waiting: "more" gives it more time, "done" acks it."""

    output = "v string"
    acks = True
    first = hr.value(str)

    def process(self, tup: Any, collector: Any) -> None:
        if tup.says == "wait":
            self.first = collector.id
            collector.emit((f"attempt {collector.attempt}",), anchors=tup)
            return
        if "more" in tup.says:
            collector.reset_timeout(self.first)
        if "none" in tup.says:
            collector.reset_timeout("no id of it")
        if "raises" in tup.says:
            raise ValueError("and so nothing of the call counts")
        if "done" in tup.says:
            collector.ack(self.first)
        collector.ack(tup)


@pytest.mark.parametrize("says", ["more", "more none", "nothing", "more raises"])
def test_the_time_of_a_tuple_begins_again(says: str) -> None:
    """As in Storm's testResetTimeout: after twice the time it is acked, and has not failed."""
    topology = hr.Topology("patient", timeout="10s", max_replays=0)
    topology.spout("in", "log:in", schema="says string")
    topology.bolt("patient", Patient()).shuffle("in")
    topology.bolt("out", "collect:").shuffle("patient")
    with Harness(topology) as test:
        test.send("in", [("wait",)])
        for time in (1, 2):
            test.advance("9s")
            test.crash()
            test.send("in", [(says,)])
            if "none" in says:
                assert test.progress is not None
                assert test.progress.metrics["patient"] == {"acks without effect": time}
        test.advance("2s")
        test.send("in", [("done",)])
        in_time = says.startswith("more") and "raises" not in says
        assert [row["v"] for row in test.output("out")] == (["attempt 0"] if in_time else [])
        failed = [row["error"] for row in test.dead() if "within 10s" in row["error"]]
        assert len(failed) == (0 if in_time else 1)
        assert not test.state("patient")["waiting"].num_rows
        test.advance("1h")
        assert test.dead() == []


def test_the_time_of_a_tuple_that_is_settled_does_not_begin_again() -> None:
    topology = hr.Topology("settled", timeout="10s", max_replays=0)
    topology.spout("in", "log:in", schema="says string")
    topology.bolt("patient", Patient()).shuffle("in")
    topology.bolt("out", "collect:").shuffle("patient")
    for batches in ([["wait"], ["done", "more"]], [["wait"], ["more done"]], [["wait", "more"]],
                    [["wait"], ["more", "done"]], [["wait", "more", "done", "more"]]):  # fmt: skip
        with Harness(topology) as test:
            for says in batches:
                test.send("in", [(text,) for text in says])
            acked = "done" in " ".join(" ".join(says) for says in batches)
            assert test.state("patient")["waiting"].num_rows == (0 if acked else 1)
            assert len(test.output("out")) == (1 if acked else 0)
