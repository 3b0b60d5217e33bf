"""Deduplication: against a model that never forgets, and its refusals and accounts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.hashing import hash_keys
from headrace.ops import keys
from headrace.ops.stream.key_groups import rows_apart
from headrace.testing import Harness, drive
from tests.streams.playing import OPTIONS, Row, play, turns


@dataclass
class Model:
    """Keeps the time of every row that went on, for ever."""

    within: int | None
    key: Any = lambda row: (row.k, row.v)
    kept: dict[Any, list[int]] = field(default_factory=lambda: defaultdict(list))

    def step(self, rows: list[Row], before: int, after: int, clock: int) -> list[int]:
        out = []
        for row in sorted(rows, key=lambda r: r.order):
            if self.within is not None and row.t < before:
                continue  # late
            known = self.kept[self.key(row)]
            if any(self.within is None or abs(row.t - t) < self.within for t in known):
                continue
            known.append(row.t)
            out.append(row.n)
        return out


def number(row: dict[str, Any]) -> int:
    return int(row["n"])


@settings(**OPTIONS)
@given(script=turns(), within=st.sampled_from([1, 4, 10, 33, 1_000]), tasks=st.integers(1, 3))
def test_the_first_of_those_within_the_time_goes_on(script, within, tasks):
    play(
        lambda rows: rows.deduplicate("k", "v", within=f"{within}ms", name="d"),
        Model(within), script, number, "d", tasks,
    )  # fmt: skip


@settings(**OPTIONS)
@given(script=turns(), timed=st.booleans())
def test_without_a_time_it_is_the_first_ever(script, timed):
    if not timed:  # then rows of a batch are in the order of split and offset
        script = [t.__class__(tuple(r._replace(t=0) for r in t.rows), t.wait, t.before)
                  for t in script]  # fmt: skip
    play(
        lambda rows: rows.key_by("k").deduplicate(unbounded=True, name="d"),
        Model(None, lambda row: row.k), script, number, "d", timed=timed,
    )  # fmt: skip


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), min_size=1, max_size=60),
    gap=st.integers(1, 25),
)
def test_rows_that_stay_are_apart_and_those_that_go_are_near_one(rows, gap):
    rows = sorted(rows)
    numbers, times = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    first = np.r_[True, numbers[1:] != numbers[:-1]]
    stays = rows_apart(numbers, times, first, gap)
    last: dict[int, int] = {}
    for (key, time), kept in zip(rows, stays.tolist(), strict=True):
        fresh = key not in last or time - last[key] >= gap
        assert kept == fresh
        if kept:
            last[key] = time


def test_a_chain_of_many_rows_takes_few_rounds():
    times = np.arange(300_000, dtype=np.int64) * 10
    first = np.zeros(len(times), np.bool_)
    first[0] = True
    stays = rows_apart(np.zeros(len(times), np.int64), times, first, 20)
    assert (np.flatnonzero(stays) == np.arange(0, len(times), 2)).all()


def read(job, **more):
    options = {"schema": "id string, v bigint, at bigint", "time": "at", "delay": "10ms", **more}
    return job.read("log:x", name="x", **options)


def harness(step, **more):
    job = hr.Job("dedup")
    step(read(job, **more)).write("collect:", name="out")
    return Harness(job)


def test_a_duplicate_is_counted_as_filtered():
    with harness(lambda s: s.deduplicate("id", within="1s")) as test:
        test.send("x", [("a", 1, 5), ("a", 2, 5), ("a", 3, 6), ("b", 4, 6)])
        test.send("x", [("a", 5, 7)])
        assert sorted(row["v"] for row in test.output()) == [1, 4]
        counts = test.progress.counts["x"]
        assert {f: counts[f] for f in ("read", "used", "filtered")} == {
            "read": 5, "used": 2, "filtered": 3,
        }  # fmt: skip


def test_a_duplicate_that_goes_elsewhere_too_is_used():
    job = hr.Job("two")
    stream = read(job)
    stream.deduplicate("id", within="1s").write("collect:", name="out")
    stream.where("v < 100").write("collect:", name="all")
    with Harness(job) as test:
        test.send("x", [("a", 1, 5), ("a", 2, 5)])
        test.send("x", [("a", 3, 6)])
        assert len(test.output("out")) == 1
        counts = test.progress.counts["x"]
        assert (counts["read"], counts["used"], counts["filtered"]) == (3, 3, 0)


def test_another_time_does_not_fit_the_state():
    job = hr.Job("evolving")
    read(job).deduplicate("id", within="2s", name="once").write("collect:", name="out")
    first = hr.Job("evolving")
    read(first).deduplicate("id", within="1s", name="once").write("collect:", name="out")
    with Harness(first) as test:
        test.send("x", [("a", 1, 5)])
        with pytest.raises(hr.StateError) as caught:
            test.restart(job)
        assert caught.value.code == "HR-EVOLVE-001"
        test.restart()
        test.send("x", [("a", 2, 6)])
        assert len(test.output()) == 1


def test_a_row_before_the_watermark_is_late():
    job = hr.Job("late")
    once = read(job).deduplicate("id", within="20ms", name="once")
    once.write("collect:", name="out")
    once.late.write("collect:", name="late")
    with Harness(job) as test:
        test.send("x", [("a", 1, 100)])
        test.send("x", [("b", 2, 89)])
        test.send("x", [("b", 3, 90)])
        assert [r["v"] for r in test.output("out")] == [1, 3]
        assert [r["v"] for r in test.output("late")] == [2]


def test_state_is_dropped_as_the_watermark_passes():
    with harness(lambda s: s.deduplicate("id", within="20ms", name="once")) as test:
        for at in range(0, 600, 10):
            test.send("x", [(f"id{at}", at, at)])
        held = test.state("once")["seen"]
        assert held.num_rows <= 6
        assert test.progress.held["once"] <= 6


def test_without_columns_whole_rows_are_compared():
    with harness(lambda s: s.deduplicate(within="1s")) as test:
        test.send("x", [("a", 1, 5), ("a", 1, 5), ("a", 2, 5), ("a", 1, 6)])
        assert len(test.output()) == 3


def test_floats_are_the_same_where_keys_are(tmp_path):
    job = hr.Job("floats")
    rows = [{"x": x, "at": 1} for x in (0.0, -0.0, float("nan"), float("nan"), 1.0, None, None)]
    stream = job.read(hr.rows(rows, schema="x double, at bigint"), time="at", delay="1s")
    stream.deduplicate("x", within="1s").write("collect:", name="out")
    assert drive(job, tmp_path).output("out").num_rows == 4


def test_keys_that_share_a_hash_are_told_apart(monkeypatch):
    def few(columns, rows=0):
        return hash_keys(columns, rows) & np.uint64(1 << 63)

    monkeypatch.setattr(keys, "hash_keys", few)
    with harness(lambda s: s.deduplicate("id", within="1s")) as test:
        test.send("x", [(f"id{i % 7}", i, i) for i in range(20)])
        test.send("x", [(f"id{i % 9}", 100 + i, 20) for i in range(20)])
        out = [row["id"] for row in test.output()]
        assert sorted(out) == sorted(f"id{i}" for i in range(9))


@pytest.mark.constants
def test_the_state_goes_on_under_another_number_of_tasks(tmp_path):
    rows = pa.table({"id": [f"{i % 500}" for i in range(5_000)], "at": list(range(5_000))})
    for tasks, batch in ((1, 100), (3, 700), (2, 10_000)):
        job = hr.Job("tasks")
        stream = job.read(hr.rows(rows), time="at", delay="1s")
        stream.deduplicate("id", within="1h").write("collect:", name="out")
        made = drive(job, tmp_path / f"{tasks}", tasks=tasks, max_batch=batch)
        assert made.output("out")["at"].to_pylist() != []
        assert sorted(made.output("out")["at"].to_pylist()) == list(range(500))


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (lambda s: s.deduplicate("id", within="0s"), "HR-STREAM-001"),
        (lambda s: s.deduplicate("id", within="soon"), "HR-TIME-001"),
        (lambda s: s.deduplicate("ident", within="1s"), "HR-EXPR-001"),
        (lambda s: s.deduplicate("id"), "HR-PLAN-003"),
    ],
)
def test_what_cannot_be_is_refused(step, code):
    job = hr.Job("refused")
    step(read(job)).write("console:")
    with pytest.raises(hr.PlanError) as caught:
        job.check()
    assert [p.code for p in caught.value.problems] == [code]
    assert all(p.hint and p.site for p in caught.value.problems)


def test_a_time_needs_event_time():
    job = hr.Job("refused")
    read(job, time=None, delay=None).deduplicate("id", within="1s").write("console:")
    with pytest.raises(hr.PlanError) as caught:
        job.check()
    assert caught.value.problems[0].code == "HR-PLAN-002"
    assert "the deduplicate" in caught.value.problems[0].message
