"""Tuples that wait in a bolt when the program is changed: processed as they came, or dead letters
that say why; never lost, and never with another value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Harness

TIMED: dict[str, Any] = {"time": "at", "in_order": True}


class FailsOnce(hr.Bolt):
    output = "v string"

    def process(self, tup: Any, collector: Any) -> None:
        if collector.attempt == 0 and str(tup.v).startswith("5"):
            collector.fail(tup)
        collector.emit((repr(tup.v),))


class NextAcks(hr.Bolt):
    """A tuple is acked by the next one."""

    output = "v string"
    acks = True
    before = hr.map_of(int, str)
    made: Any = staticmethod(repr)

    def process(self, tup: Any, collector: Any) -> None:
        collector.emit((self.made(tup.v),), anchors=tup)
        if 0 in self.before and self.before[0] != collector.id:
            collector.ack(self.before[0])
        self.before[0] = collector.id


class Numbers(NextAcks):
    output = "v bigint"
    made = staticmethod(int)


def program(bolt: Any, kind: str = "bigint", *, window: bool = False, **time: Any) -> Any:
    field = "w" if "w " in bolt.output else "v"
    topology = hr.Topology("changes", backoff="1m", timeout="1h", max_replays=1)
    read = topology.read("log:in", schema="at bigint, v bigint", name="in", **time)
    value = "timestamp_millis(v)" if kind == "timestamp" else f"cast(v as {kind})"
    topology.spout("values", read.select(at="at", v=value))
    topology.bolt("bolt", bolt).shuffle("values")
    out = topology.stream("bolt").select(v=f"cast({field} as string)")
    out.write("collect:", name="out")
    if window:
        counts = topology.stream("bolt").key_by("v").window(hr.tumbling("10s"))
        counts.agg(n=hr.count()).write("collect:", name="counts")
    return topology


def errors(test: Harness) -> list[str]:
    return [row["error"].removeprefix("TupleFailedError: ") for row in test.dead()]


@pytest.mark.parametrize(
    ("bolt", "waited"),
    [(FailsOnce, "it waited to be processed again"), (NextAcks, "its tuples waited for its ack")],
)
def test_a_tuple_without_event_time_where_there_is_some_now(
    bolt: Any, waited: str, tmp_path: Path
) -> None:
    with Harness(program(bolt()), folder=tmp_path) as test:
        test.send("in", [(1_000, 5)])
        test.restart(program(bolt(), window=True, **TIMED))
        test.send("in", [(1_500, 6), (2_000, 7)])
        test.advance("2m")
        assert errors(test) == [f"{waited}, and it has no event time as its input has now"]
        test.end()
        counted = {row["v"]: row["n"] for row in test.table("counts").to_pylist()}
        out = [row["v"] for row in test.table("out").to_pylist()]
        assert counted == dict.fromkeys(out, 1) and "6" in out and "5" not in out


@pytest.mark.parametrize("bolt", [FailsOnce, NextAcks])
def test_a_tuple_with_event_time_where_there_is_none_now(bolt: Any, tmp_path: Path) -> None:
    with Harness(program(bolt(), **TIMED), folder=tmp_path) as test:
        test.send("in", [(1_000, 5)])
        test.restart(program(bolt()))
        test.send("in", [(1_500, 6)])
        test.send("in", [(1_600, 7)])
        test.advance("2m")
        out = sorted(row["v"] for row in test.table("out").to_pylist())
        assert out[:2] == ["5", "6"] and errors(test) == []


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [
        ("bigint", "timestamp", None),
        ("bigint", "string", None),
        ("bigint", "double", None),
        ("bigint", "int", None),
        ("double", "bigint", None),
        ("string", "bigint", None),
        ("bigint", "bigint", "5"),
        ("int", "bigint", "5"),
        ("smallint", "int", "5"),
        ("int", "double", "5.0"),
        ("decimal(5,1)", "decimal(7,2)", "Decimal('5.00')"),
        ("decimal(7,2)", "decimal(7,1)", None),
    ],
)
def test_a_field_of_another_type(
    before: str, after: str, value: str | None, tmp_path: Path
) -> None:
    with Harness(program(FailsOnce(), before), folder=tmp_path) as test:
        test.send("in", [(1_000, 5)])
        test.restart(program(FailsOnce(), after))
        test.advance("2m")
        assert [row["v"] for row in test.output("out")] == ([] if value is None else [value])
        changed = "it waited to be processed again, and the fields of its input have changed"
        assert errors(test) == ([changed] if value is None else [])


@pytest.mark.parametrize(
    "changed", [{"output": "v string", "made": staticmethod(str)}, {"output": "w bigint"}, {}]
)
def test_what_waits_for_an_ack_where_the_bolt_emits_other_fields(
    changed: Any, tmp_path: Path
) -> None:
    kind: Any = type("Changed", (Numbers,), changed)
    with Harness(program(Numbers()), folder=tmp_path) as test:
        test.send("in", [(1_000, 5)])
        test.restart(program(kind()))
        test.send("in", [(2_000, 6)])
        why = "its tuples waited for its ack, and the fields of the stream 'default' have changed"
        assert errors(test) == ([why] if changed else [])
        assert [row["v"] for row in test.output("out")] == ([] if changed else ["5"])


class Both(hr.Bolt):
    """Passes tuples on to two streams."""

    output = "v bigint"
    outputs = {"side": "v bigint"}  # noqa: RUF012

    def process(self, tup: Any, collector: Any) -> None:
        collector.emit((tup.v,))
        collector.emit((tup.v + 1,), "side")


def renamed(bolt: hr.Bolt, spout: str, first: str, *, was: Any = ()) -> hr.Topology:
    topology, was = hr.Topology("renamed", backoff="1m", timeout="1h"), dict(was)
    topology.spout(spout, "log:in", schema="v bigint", was=was.get(spout))
    topology.bolt(first, Both(), was=was.get(first)).shuffle(spout)
    topology.bolt("bolt", bolt).shuffle(spout).shuffle(first).shuffle(first, "side")
    topology.bolt("out", "collect:").shuffle("bolt")
    return topology


class Sources(hr.Bolt):
    output = "v string"

    def process(self, tup: Any, collector: Any) -> None:
        if collector.attempt == 0:
            collector.fail(tup)
        collector.emit((f"{tup.v} {collector.source} {collector.stream}",))


@pytest.mark.parametrize(
    ("spout", "first", "was"),
    [
        ("in", "first", {}),
        ("new", "first", {"new": "in"}),
        ("in", "new", {"new": "first"}),
        ("new", "newer", {"new": "in", "newer": "first"}),
    ],
)
def test_tuples_of_a_component_that_is_renamed(
    spout: str, first: str, was: Any, tmp_path: Path
) -> None:
    with Harness(renamed(Sources(), "in", "first"), folder=tmp_path) as test:
        test.send("in", [(5,), (7,)])
        test.restart(renamed(Sources(), spout, first, was=was))
        test.advance("1m")
        assert sorted(row["v"] for row in test.output("out")) == sorted(
            text
            for v in (5, 7)
            for text in (f"{v} {spout} default", f"{v} {first} default", f"{v + 1} {first} side")
        )
        assert errors(test) == [] and not test.state("bolt")["waiting"].num_rows


def test_a_tuple_by_another_event_time_than_that_of_its_input_now(tmp_path: Path) -> None:
    def timed(column: str, window: bool) -> hr.Topology:
        topology = hr.Topology("retimed", backoff="1m")
        schema = "at bigint, other bigint, v bigint"
        topology.spout("in", "log:in", schema=schema, time=column, in_order=True)
        topology.bolt("bolt", FailsOnce()).shuffle("in")
        topology.bolt("out", "collect:").shuffle("bolt")
        if window:
            counts = topology.stream("bolt").window(hr.tumbling("10s")).agg(n=hr.count())
            counts.write("collect:", name="counts")
        return topology

    with Harness(timed("at", False), folder=tmp_path) as test:
        test.send("in", [(1_000, 101_000, 5)])
        test.restart(timed("other", True))
        test.send("in", [(2_000, 102_000, 6)])
        test.advance("2m")
        assert len(errors(test)) == 1
        test.end()
        assert [row["n"] for row in test.table("counts").to_pylist()] == [1]


@pytest.mark.parametrize("bolt", [FailsOnce, Numbers])
def test_one_tuple_waits_and_there_are_more_tasks_now(bolt: Any, tmp_path: Path) -> None:
    """A run of state is then shared by several tasks, each with less than half a tuple of it."""
    with Harness(program(bolt()), folder=tmp_path, tasks=1) as test:
        test.send("in", [(1_000, 5)])
    for tasks in (4, 3):
        with Harness(program(bolt()), folder=tmp_path, tasks=tasks) as test:
            test.advance("2h")
    with Harness(program(bolt()), folder=tmp_path, tasks=4) as test:
        test.advance("2h")
        (row,) = test.table("out").to_pylist() or test.dead()
    assert row.get("v") == "5" or row["error"].endswith("within 1h; attempts: 2")
