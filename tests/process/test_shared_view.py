"""What all keys share, looked at from outside: shared maps, and rules of patterns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness
from tests.process.playing import SCHEMA


@dataclass
class Limit:
    above: int
    note: str


class Ruled(hr.KeyedProcess):
    output = "k string"
    limits = hr.shared_map(str, Limit)
    last = hr.shared_map(int, "double")
    n = hr.value(int, default=0)

    def on_rules(self, row: Any, ctx: Any) -> None:
        self.last[0] = float(row.v)
        if row.v < 0:
            self.limits.pop(row.k, None)
        else:
            self.limits[row.k] = Limit(row.v, f"of {row.k}")

    def on_rows(self, row: Any, ctx: Any) -> None:
        self.n += 1


def job_of(fn: hr.KeyedProcess, **reading: Any) -> hr.Job:
    job = hr.Job("sharing")
    rows = job.read("log:rows", schema=SCHEMA, name="rows", **reading)
    rules = job.read("log:rules", schema=SCHEMA, name="rules", **reading)
    both = hr.connect(by="k", rows=rows, rules=rules.broadcast())
    both.process(fn, unbounded=True, name="p").write("collect:", name="out")
    return job


def peek(job: hr.Job, folder: Path, name: str) -> hr.StepState:
    return hr.peek(job, name, folder=str(folder / "job"))


CHANGE = st.tuples(st.sampled_from("abcd"), st.integers(-2, 5))


@settings(max_examples=30)
@given(st.lists(st.lists(CHANGE, min_size=1, max_size=4), min_size=1, max_size=4),
       st.sampled_from([1, 3]))  # fmt: skip
def test_a_shared_map_shows_what_a_dict_would_hold(batches: Any, tasks: int) -> None:
    held: dict[str, int] = {}
    job = job_of(Ruled())
    with TemporaryDirectory() as folder, Harness(job, folder=Path(folder), tasks=tasks) as test:
        for batch in batches:
            test.send("rules", [(k, v, 0) for k, v in batch])
            for k, v in batch:
                held.pop(k, None) if v < 0 else held.update({k: v})
            state = peek(job, Path(folder), "p.limits")
            model = [{"key": k, "value": {"above": v, "note": f"of {k}"}} for k, v in held.items()]
            by_key = lambda row: row["key"]  # noqa: E731
            assert sorted(state.to_arrow().to_pylist(), key=by_key) == sorted(model, key=by_key)
            assert len(state) == len(held)
            # the harness shows one copy, however many slots have one
            kept = test.state("p")["shared.limits"].to_pylist()
            assert sorted(kept, key=by_key) == sorted(model, key=by_key)


@pytest.fixture
def looked(tmp_path: Path) -> Any:
    job = job_of(Ruled())
    with Harness(job, folder=tmp_path, tasks=3) as test:
        test.send("rules", [("a", 1, 0), ("b", 2, 0), ("c", -1, 0)])
        test.send("rows", [("x", 0, 0), ("x", 0, 0), ("y", 0, 0)])
        yield lambda name: peek(job, tmp_path, name)


def test_it_can_be_asked_like_other_state(looked: Any) -> None:
    state = looked("p.limits")
    assert repr(state) == "<state of 'p.limits' after epoch 2>"
    assert state.key.names == ["key"]
    assert state.get("b").to_pylist() == [{"key": "b", "value": {"above": 2, "note": "of b"}}]
    assert state.get(key="a").num_rows == 1 and state.get("c").num_rows == 0
    assert state.sql("SELECT sum(value.above) AS n FROM state").to_pylist() == [{"n": 3}]
    assert state.top(1, by="key").to_pylist()[0]["key"] == "b"
    assert looked("p.last").get(0).to_pylist() == [{"key": 0, "value": -1.0}]
    assert looked("p").to_arrow().sort_by("k").to_pylist() == [
        {"k": "x", "n": 2}, {"k": "y", "n": 1},
    ]  # fmt: skip
    assert looked("p").get("x").to_pylist() == [{"k": "x", "n": 2}]


REFUSED = [
    (lambda s: s("p.nothing"), "HR-STATE-030", "The steps with state are: p, p.limits, p.last."),
    (lambda s: s("p.limits").get(1), "HR-STATE-031", "that of 'p.limits' is key string"),
    (lambda s: s("p.limits").get(k="a"), "HR-STATE-031", "the key of 'p.limits' is key"),
    (lambda s: s("p.limits").slice(0, 1), "HR-STATE-032", "'p.limits' stores nothing by time"),
    (lambda s: s("p.limits").top(2), "HR-STATE-033", "has no largest value"),
]


@pytest.mark.parametrize(("ask", "code", "text"), REFUSED)
def test_what_cannot_be_shown_is_refused(looked: Any, ask: Any, code: str, text: str) -> None:
    with pytest.raises(hr.StateError, match=code) as refused:
        ask(looked)
    assert text in str(refused.value)


def test_a_step_that_has_the_name_comes_first(tmp_path: Path) -> None:
    job = job_of(Ruled())
    rows = job.read("log:more", schema=SCHEMA, name="more").key_by("k")
    rows.agg(n=hr.count(), unbounded=True, name="p.limits").write("collect:", name="counts")
    with Harness(job, folder=tmp_path) as test:
        test.send("more", [("z", 1, 0)])
        assert peek(job, tmp_path, "p.limits").to_arrow().to_pylist() == [{"k": "z", "n": 1}]


def test_rules_of_patterns_are_shared_too(tmp_path: Path) -> None:
    pair = hr.pattern("a", "v = 1").then("b", "v = 2").within("1m").to_json()
    at = datetime.fromtimestamp(3, UTC)
    job = hr.Job("ruled")
    rows = job.read("log:rows", schema="k string, v bigint, at timestamp", time="at",
                    delay="1s", name="rows")  # fmt: skip
    control = job.read("log:rules", schema="name string, pattern string, at timestamp",
                       time="at", delay="1s", name="rules")  # fmt: skip
    found = rows.key_by("k").match(rules=control.broadcast(), name="m")
    found.write("collect:", name="out")
    with Harness(job, folder=tmp_path, tasks=2) as test:
        test.send("rules", [("one", pair, at), ("two", pair, at)])
        state = peek(job, tmp_path, "m.rules")
        assert state.to_arrow().to_pylist() == [
            {"name": name, "pattern": pair, "since": at} for name in ("one", "two")
        ]
        assert state.get("two").num_rows == 1 and state.key.names == ["name"]


@pytest.mark.spark
def test_a_shared_map_of_a_job_on_spark_is_seen_while_it_runs(spark: Any, tmp_path: Path) -> None:
    log = hr.EmbeddedLog(tmp_path / "log")
    for topic in ("rows", "rules"):
        log.create(topic, schema=SCHEMA, partitions=2)
    job = job_of(Ruled(), log=str(tmp_path / "log"))
    log.append("rules", [{"k": k, "v": v, "at": 0} for v, k in enumerate("abc")], key="k")
    log.append("rows", [{"k": f"k{i % 9}", "v": 0, "at": 0} for i in range(90)], key="k")
    run = hr.run(job, folder=str(tmp_path / "job"))
    try:
        run.catch_up()
        limits = {
            r["key"]: r["value"]["above"] for r in run.state("p.limits").to_arrow().to_pylist()
        }
        assert limits == {"a": 0, "b": 1, "c": 2}
        assert run.state("p.limits").to_spark(spark).count() == 3
        assert {r["n"] for r in run.state("p").to_arrow().to_pylist()} == {10}
        log.append("rules", [{"k": "b", "v": -1, "at": 0}])
        run.catch_up()
        assert run.state("p.limits").to_arrow()["key"].to_pylist() == ["a", "c"]
    finally:
        run.stop()


@pytest.mark.parametrize("keyed", [True, False])
def test_the_tables_of_a_loop_are_seen_by_name(tmp_path: Path, keyed: bool) -> None:
    def body(rows: Any, loop: Any) -> Any:
        seen = pa.concat_tables([loop.kept["seen"], loop.rows])
        sums = seen.group_by("k").aggregate([("v", "sum")]).rename_columns(["k", "total"])
        loop.kept["seen"], loop.kept["sums"] = seen, sums
        return rows

    job = hr.Job("looping")
    rows = job.read("log:rows", schema="k string, v bigint", name="rows")
    keep = {"seen": "k string, v bigint", "sums": "k string, total bigint"}
    step = rows.key_by("k") if keyed else rows
    more = {"unbounded": True} if keyed else {}
    step.iterate(body, times=1, keep=keep, name="loop", **more).write("collect:", name="out")
    with Harness(job, folder=tmp_path) as test:
        test.send("rows", [("a", 1), ("b", 2)])
        test.send("rows", [("a", 3)])
        seen, sums = (peek(job, tmp_path, f"loop.{name}") for name in ("seen", "sums"))
        everything = [("a", 1), ("a", 3), ("b", 2)]
        assert sorted(tuple(r.values()) for r in seen.to_arrow().to_pylist()) == everything
        assert {r["k"]: r["total"] for r in sums.to_arrow().to_pylist()} == {"a": 4, "b": 2}
        if keyed:
            assert sums.get("a").to_pylist() == [{"k": "a", "total": 4}]
        else:
            with pytest.raises(hr.StateError, match="HR-STATE-031"):
                sums.get("a")
