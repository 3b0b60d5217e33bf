"""Changes only, throttle, sample: against models, and what is counted and kept."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness, drive
from tests.streams.playing import OPTIONS, Row, play, turns

SCHEMA = "k string, v bigint, x double, tags array<string>, at bigint"


def number(row: dict[str, Any]) -> int:
    return int(row["n"])


@dataclass
class Changes:
    last: dict[Any, Any] = field(default_factory=dict)

    def step(self, rows: list[Row], before: int, after: int, clock: int) -> list[int]:
        out = []
        for row in sorted(rows, key=lambda r: r.order):
            if row.k not in self.last or self.last[row.k] != row.v:
                out.append(row.n)
            self.last[row.k] = row.v
        return out


@dataclass
class Throttled:
    most: int
    per: int
    keyed: bool
    went: Counter[Any] = field(default_factory=Counter)

    def step(self, rows: list[Row], before: int, after: int, clock: int) -> list[int]:
        out = []
        for row in sorted(rows, key=lambda r: r.order):
            period = row.t // self.per
            key = (row.k if self.keyed else "", period)
            if (period + 1) * self.per > before and self.went[key] < self.most:
                self.went[key] += 1
                out.append(row.n)
        return out


@dataclass
class Sampled:
    """Says of each key and period how many rows are emitted; which ones is left to chance."""

    size: int
    per: int
    keyed: bool
    waiting: Counter[Any] = field(default_factory=Counter)

    def step(self, rows: list[Row], before: int, after: int, clock: int) -> list[Any]:
        for row in rows:
            period = row.t // self.per
            if (period + 1) * self.per > before:
                self.waiting[row.k if self.keyed else "", period] += 1
        over = [key for key in self.waiting if (key[1] + 1) * self.per <= after]
        return [key for key in over for _ in range(min(self.size, self.waiting.pop(key)))]


@dataclass
class Limited:
    most: int
    keyed: bool
    went: Counter[Any] = field(default_factory=Counter)

    def step(self, rows: list[Row], before: int, after: int, clock: int) -> list[int]:
        out = []
        for row in sorted(rows, key=lambda r: r.order):
            key = row.k if self.keyed else ""
            self.went[key] += 1
            out += [row.n] if self.went[key] <= self.most else []
        return out


@settings(**OPTIONS)
@given(script=turns(), tasks=st.integers(1, 3), most=st.integers(1, 6), keyed=st.booleans())
def test_the_first_rows_go_on_and_no_more(script, tasks, most, keyed):
    def build(rows):
        stream = rows.key_by("k") if keyed else rows
        return stream.limit(most, unbounded=keyed, name="l")

    play(build, Limited(most, keyed), script, number, "l", tasks)


@settings(**OPTIONS)
@given(script=turns(), tasks=st.integers(1, 3))
def test_only_changes_go_on(script, tasks):
    play(
        lambda rows: rows.key_by("k").changes_only("v", unbounded=True, name="c"),
        Changes(), script, number, "c", tasks,
    )  # fmt: skip


@settings(**OPTIONS)
@given(
    script=turns(), most=st.integers(1, 3), per=st.sampled_from([3, 10, 50]), keyed=st.booleans()
)
def test_so_many_in_each_period_go_on(script, most, per, keyed):
    def made(rows):
        stream = rows.key_by("k") if keyed else rows
        return stream.throttle(most, per=f"{per}ms", name="t")

    play(made, Throttled(most, per, keyed), script, number, "t")


@settings(**OPTIONS)
@given(
    script=turns(), size=st.integers(1, 3), per=st.sampled_from([3, 10, 50]), keyed=st.booleans()
)
def test_so_many_of_each_period_are_emitted_when_it_is_over(script, size, per, keyed):
    def made(rows):
        stream = rows.key_by("k") if keyed else rows
        return stream.sample(size, per=f"{per}ms", name="s")

    def shown(row):
        return (row["k"] if keyed else "", row["at"] // per)

    play(made, Sampled(size, per, keyed), script, shown, "s")


def reading(step, **more):
    job = hr.Job("thin")
    options = {"schema": SCHEMA, "time": "at", "delay": "10ms", **more}
    stream = job.read("log:x", name="x", **options)
    step(stream).write("collect:", name="out")
    return job


def row(k, v, at, x=None):
    return {"k": k, "v": v, "x": x, "at": at}


def test_changes_of_several_columns_and_of_odd_numbers():
    made = reading(lambda s: s.key_by("k").changes_only("v", "x", unbounded=True))
    nan = float("nan")
    with Harness(made) as test:
        test.send("x", [row("a", 1, 1, nan), row("a", 1, 2, nan), row("a", 1, 3, 0.0)])
        test.send("x", [row("a", 1, 4, -0.0), row("a", None, 5), row("a", None, 6)])
        assert [r["at"] for r in test.output()] == [1, 3, 5]
        assert test.progress.counts["x"]["filtered"] == 3


def test_without_columns_all_but_the_key_count():
    made = reading(lambda s: s.select("k", "v").key_by("k").changes_only(unbounded=True))
    with Harness(made) as test:
        test.send("x", [row("a", 1, 1), row("a", 1, 2), row("b", 1, 3), row("a", 2, 4)])
        assert len(test.output()) == 3


def test_what_a_throttle_holds_back_is_a_side_output():
    job = hr.Job("side")
    stream = job.read("log:x", schema=SCHEMA, name="x", time="at", delay="10ms")
    slow = stream.key_by("k").throttle(1, per="10ms", name="slow")
    slow.write("collect:", name="out")
    slow.side("dropped").write("collect:", name="rest")
    slow.late.write("collect:", name="late")
    with Harness(job) as test:
        test.send("x", [row("a", 1, 100), row("a", 2, 101), row("b", 3, 101)])
        test.send("x", [row("a", 4, 130), row("a", 5, 103), row("a", 6, 119)])
        test.send("x", [row("a", 7, 118)])
        assert sorted(r["v"] for r in test.output("out")) == [1, 3, 4, 6]
        assert sorted(r["v"] for r in test.output("rest")) == [2, 5]
        assert sorted(r["v"] for r in test.output("late")) == [7]
        assert test.progress.counts["x"]["filtered"] == 0  # they went somewhere
        assert test.state("slow")["counts"].num_rows <= 2


@pytest.mark.constants
def test_a_share_is_about_right_and_always_the_same(tmp_path):
    rows = [{"k": f"{i}", "at": i} for i in range(20_000)]
    taken = []
    for batch, tasks in ((1_000, 1), (20_000, 2)):
        job = hr.Job("share")
        stream = job.read(hr.rows(rows), time="at", delay="1s")
        stream.sample(0.1, seed=7).write("collect:", name="out")
        stream.sample(0.1, seed=8).write("collect:", name="other")
        made = drive(job, tmp_path / f"{batch}", max_batch=batch, tasks=tasks)
        taken.append(sorted(made.output("out")["at"].to_pylist()))
        assert 1_800 < len(taken[-1]) < 2_200
        assert taken[-1] != sorted(made.output("other")["at"].to_pylist())
    assert taken[0] == taken[1]


def test_a_sampled_record_is_used_or_filtered():
    with Harness(reading(lambda s: s.sample(0.5))) as test:
        test.send("x", [row("a", i, i) for i in range(100)])
        counts = test.progress.counts["x"]
        assert counts["used"] == len(test.output())
        assert counts["used"] + counts["filtered"] == 100


def test_all_and_nothing_are_shares_too():
    for share, count in ((0, 0), (1, 3), (1.0, 3)):
        with Harness(reading(lambda s, share=share: s.sample(share))) as test:
            test.send("x", [row("a", i, i) for i in range(3)])
            assert len(test.output()) == count


@pytest.mark.constants
def test_so_many_of_each_period_are_a_fair_sample(tmp_path):
    rows = [{"k": "ab"[i % 2], "at": i} for i in range(4_000)]
    found = []
    for batch in (130, 4_000):
        job = hr.Job("reservoir")
        stream = job.read(hr.rows(rows), time="at", delay="1s").key_by("k")
        stream.sample(20, per="1s", seed=3).write("collect:", name="out")
        out = drive(job, tmp_path / f"{batch}", max_batch=batch).output("out").to_pylist()
        found.append(sorted(r["at"] for r in out))
        groups = defaultdict(list)
        for r in out:
            groups[r["k"], r["at"] // 1_000].append(r["at"] % 1_000)
        assert {len(g) for g in groups.values()} == {20}
        assert len(groups) == 8
        assert 400 < sum(map(sum, groups.values())) / 160 < 600  # evenly spread
    assert found[0] == found[1]


def test_a_sample_that_is_over_is_forgotten_and_a_late_row_told():
    job = hr.Job("over")
    stream = job.read("log:x", schema=SCHEMA, name="x", time="at", delay="1ms")
    some = stream.sample(1, per="10ms", name="some")
    some.write("collect:", name="out")
    some.late.write("collect:", name="late")
    with Harness(job) as test:
        test.send("x", [row("a", 1, 3), row("a", 2, 4)])
        assert test.output("out") == []
        test.send("x", [row("a", 3, 30)])
        assert len(test.output("out")) == 1
        test.send("x", [row("a", 4, 8)])
        assert [r["v"] for r in test.output("late")] == [4]
        assert test.state("some")["waiting"].num_rows == 1


REFUSED = [
    (lambda s: s.key_by("k").changes_only("v"), "HR-PLAN-003"),
    (lambda s: s.key_by("k").changes_only("tags", unbounded=True), "HR-STREAM-003"),
    (lambda s: s.select("k").key_by("k").changes_only(unbounded=True), "HR-STREAM-004"),
    (lambda s: s.key_by("k").throttle(0, per="1s"), "HR-STREAM-002"),
    (lambda s: s.key_by("k").throttle(2, per="0s"), "HR-STREAM-001"),
    (lambda s: s.throttle(True, per="1s"), "HR-STREAM-002"),
    (lambda s: s.limit(0), "HR-STREAM-002"),
    (lambda s: s.limit(2.5), "HR-STREAM-002"),
    (lambda s: s.throttle(2), "HR-STREAM-009"),
    (lambda s: s.throttle("1s", 2), "HR-STREAM-002"),
    (lambda s: s.sample(1.5), "HR-STREAM-005"),
    (lambda s: s.sample(-0.1), "HR-STREAM-005"),
    (lambda s: s.sample(0.5, per="1s"), "HR-STREAM-002"),
]


@pytest.mark.parametrize(("step", "code"), REFUSED)
def test_what_cannot_be_is_refused(step, code):
    with pytest.raises(hr.PlanError) as caught:
        reading(step).check()
    assert [p.code for p in caught.value.problems] == [code]
    assert all(p.hint and p.site for p in caught.value.problems)


def test_explain_says_what_they_do():
    made = reading(lambda s: s.sample(0.25).key_by("k").throttle(3, per="1s"))
    assert "2 in each 1m" in reading(lambda s: s.throttle(2, "1m")).explain().text
    text = made.explain().text
    assert "sample" in text
    assert "0.25 of the rows" in text
    assert "by k: at most 3 in each 1s" in text
    assert "no step; all run vectorised" in text
