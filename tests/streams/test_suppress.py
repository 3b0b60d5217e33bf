"""`suppress`: of the changes of a key in a period, or of so many, only the last."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.testing import Driver, Harness, drive
from tests.streams.playing import OPTIONS, Row, play, turns


@dataclass
class ByTime:
    """Remembers the changes of each key and period; `every`: how many are one."""

    period: int
    every: int | None = None
    open: dict[Any, list[Row]] = field(default_factory=lambda: defaultdict(list))
    count: dict[Any, int] = field(default_factory=lambda: defaultdict(int))

    def step(self, rows: list[Row], before: int, after: int, clock: int) -> list[Any]:
        out = []
        for row in sorted(rows, key=lambda r: r.order):
            start = row.t // self.period * self.period
            if before > MIN_TIME and start + self.period <= before:
                continue  # late
            group = start, row.k
            if self.open[group] and self.open[group][-1].t > row.t:
                continue  # what it says has been replaced
            self.open[group].append(row)
            self.count[group] += 1
            if self.count[group] == self.every:
                self.count[group] = 0
                out.append(row.n)
        for start, key in [*self.open]:
            if start + self.period <= after:
                seen = self.open.pop((start, key))
                if self.count.pop((start, key)):
                    out.append(seen[-1].n)
        return out


@dataclass
class ByClock:
    """Remembers what waits: since when, how many changes, and the last of them."""

    period: int | None
    every: int | None
    waits: dict[Any, tuple[int, int, Row]] = field(default_factory=dict)

    def step(self, rows: list[Row], before: int, after: int, clock: int) -> list[Any]:
        out = []
        for row in sorted(rows, key=lambda r: r.order):
            since, count, _ = self.waits.get(row.k, (clock, 0, row))
            self.waits[row.k] = since, count + 1, row
            if count + 1 == self.every:
                out.append(self.waits.pop(row.k)[2].n)
        for key, (since, _, row) in [*self.waits.items()]:
            due = self.period is not None and since + self.period <= clock
            if due or after >= MAX_TIME:
                out.append(row.n)
                del self.waits[key]
        return out


def number(row: dict[str, Any]) -> int:
    return int(row["n"])


EVERY = st.none() | st.integers(1, 4)


@settings(**OPTIONS)
@given(script=turns(), period=st.sampled_from([1, 7, 20]), every=EVERY, tasks=st.integers(1, 3))
def test_the_last_change_of_each_period_of_event_time(script, period, every, tasks):
    play(
        lambda s: s.key_by("k").suppress(f"{period}ms", rows=every, name="t"),
        ByTime(period, every), script, number, "t", tasks,
    )  # fmt: skip


@settings(**OPTIONS)
@given(script=turns(), period=st.sampled_from([1, 5, 20]), every=EVERY, timed=st.booleans())
def test_the_last_change_of_each_period_of_the_clock(script, period, every, timed):
    if not timed:  # rows then have no order but that of their places
        script = [type(t)(tuple(r._replace(t=0) for r in t.rows), t.wait, t.before) for t in script]
    play(
        lambda s: s.key_by("k").suppress(
            f"{period}ms", rows=every, time="processing", name="t"
        ),
        ByClock(period, every), script, number, "t", timed=timed,
    )  # fmt: skip


@settings(**OPTIONS)
@given(script=turns(), every=st.integers(1, 4), keyed=st.booleans())
def test_the_last_of_so_many_changes(script, every, keyed):
    if not keyed:
        script = [type(t)(tuple(r._replace(k=None) for r in t.rows), t.wait, t.before)
                  for t in script]  # fmt: skip
    play(
        lambda s: (s.key_by("k") if keyed else s).suppress(rows=every, unbounded=True, name="t"),
        ByClock(None, every), script, number, "t",
    )  # fmt: skip


VERSIONS = "k string, v bigint, gone boolean, at bigint"
DRAWN = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.booleans(), st.integers(0, 60)),
    min_size=1, max_size=40,
)  # fmt: skip


def rows_of(versions):
    return [dict(zip(("k", "v", "gone", "at"), v, strict=True)) for v in versions]


def calm(job, read, **limits):
    table = read.table("k", delete="gone", unbounded=True).suppress(**limits, name="calm")
    table.changes(name="changes").drop("gone").write("collect:", name="out")
    return job


def changed(versions, period):
    """All changes, from the table as it is at the end of each period."""
    last, before, out = {}, {}, []
    for start in sorted({v[3] // period * period for v in versions}):
        now = sorted((v for v in versions if v[3] // period * period == start), key=lambda v: v[3])
        for k, v, gone, at in now:
            last[k] = None if gone else (k, v, at)
        for k in sorted(last):
            if k in {v[0] for v in now}:
                out += [("-", *before[k])] if before.get(k) else []
                out += [("+", *last[k])] if last[k] else []
        before = dict(last)
    return out


def told(table):
    return [(r["change"], r["k"], r["v"], r["at"]) for r in table.to_pylist()]


@settings(max_examples=8, deadline=None)
@given(versions=DRAWN, batch=st.sampled_from([1, 3, 100]), period=st.sampled_from([5, 20]))
def test_a_table_has_fewer_changes_and_ends_the_same(versions, batch, period, tmp_path_factory):
    job = hr.Job("calm")
    read = job.read(hr.rows(rows_of(versions), VERSIONS), time="at", delay="100ms", name="in")
    folder = tmp_path_factory.mktemp("calm")
    calm(job, read, period=f"{period}ms")
    came = told(drive(job, folder, max_batch=batch, tasks=2).output("out"))
    assert sorted(came) == sorted(changed(versions, period))
    board: set[Any] = set()
    for sign, *row in came:  # each retracts what was emitted last
        (board.add if sign == "+" else board.remove)(tuple(row))
    last = {k: (k, v, at) if not gone else None
            for k, v, gone, at in sorted(versions, key=lambda v: v[3])}  # fmt: skip
    assert board == {row for row in last.values() if row}


def test_a_key_that_begins_and_ends_in_one_period_never_was():
    def made():
        job = hr.Job("calm")
        read = job.read("log:x", schema=VERSIONS, name="x", time="at", delay="1ms")
        return calm(job, read, period="10ms")

    with Harness(made()) as test:
        test.send("x", [("a", 1, False, 1), ("b", 1, False, 2), ("a", 1, True, 3)])
        test.crash()
        test.send("x", [("b", 2, False, 12), ("b", 3, False, 13), ("c", 1, False, 14)])
        assert [(r["change"], r["k"], r["v"]) for r in test.output()] == [("+", "b", 1)]
        test.restart(made())
        test.send("x", [("c", 1, True, 21), ("c", 2, False, 22)])
        assert [(r["change"], r["k"], r["v"]) for r in test.output()] == [
            ("-", "b", 1), ("+", "b", 3), ("+", "c", 1),
        ]  # fmt: skip
        test.end()
        assert [(r["change"], r["k"], r["v"]) for r in test.output()] == [
            ("-", "c", 1), ("+", "c", 2),
        ]  # fmt: skip


def test_rows_of_a_table_without_a_key_are_dead_letters_all_of_them(tmp_path):
    job = hr.Job("calm")
    rows = rows_of([(None, 1, False, 1), ("a", 2, False, 2), (None, 3, False, 3)])
    calm(job, job.read(hr.rows(rows, VERSIONS), time="at", delay="1s", name="in"), period="1s")
    made = drive(job, tmp_path)
    assert made.output("out").num_rows == 1
    assert hr.read_output(str(tmp_path / "dead")).num_rows == 2


def test_a_running_aggregate_emits_the_last_value_of_each_period(tmp_path):
    job = hr.Job("counts")
    rows = [{"k": "ab"[i % 2], "at": 1_000 * i} for i in range(10)]
    read = job.read(hr.rows(rows), time="at", in_order=True)
    counts = read.key_by("k").agg(n=hr.count(), unbounded=True)
    counts.key_by("k").suppress("4s").write("collect:", name="out")
    out = drive(job, tmp_path, max_batch=3).output("out").to_pylist()
    assert sorted((r["k"], r["n"]) for r in out) == [
        ("a", 2), ("a", 4), ("a", 5), ("b", 2), ("b", 4), ("b", 5),
    ]  # fmt: skip


def test_rows_are_the_last_by_event_time_whatever_their_place_and_watermark():
    def made():
        job = hr.Job("places")
        read = job.read("log:x", schema="k string, v bigint, at bigint", name="x",
                        time="at", delay="1ms")  # fmt: skip
        table = read.table("k", unbounded=True).suppress("1h", rows=1)
        table.changes().write("collect:", name="out")
        return job

    with Harness(made()) as test:
        test.send("x", [("tick", 0, 50)], split="0")
        test.send("x", [("tick", 0, 50)], split="1")
        test.send("x", [("a", 1, 5)], split="1")
        test.send("x", [("a", 2, 6), ("a", 3, 7)], split="0")
        test.end()
        board = [(r["change"], r["v"]) for r in test.output() if r["k"] == "a"]
        assert board[-1] == ("+", 3)


def selling(step):
    job = hr.Job("selling")
    read = job.read("log:x", schema="item string, n bigint, at bigint", name="x", time="at",
                    delay="5ms")  # fmt: skip
    made = step(read)
    (made.changes() if isinstance(made, hr.Table) else made).write("collect:", name="out")
    return job


REFUSED = [
    (lambda s: s.key_by("item").suppress(), "HR-STREAM-014"),
    (lambda s: s.key_by("item").suppress(rows=3), "HR-PLAN-003"),
    (lambda s: s.key_by("item").suppress("0s"), "HR-STREAM-001"),
    (lambda s: s.key_by("item").suppress("1s", rows=0), "HR-STREAM-002"),
    (lambda s: s.key_by("item").suppress("1s", time="clock"), "HR-STREAM-006"),
    (lambda s: s.table("item", unbounded=True).changes().key_by("item").suppress("1s"),
     "HR-STREAM-014"),
    (lambda s: s.table("none", unbounded=True).suppress("1s"), "HR-EXPR-001"),
]  # fmt: skip


DROPPING = {
    "first_seen": lambda s: s.first_seen("item", per="10s", expected=10),
    "throttle": lambda s: s.throttle(1, per="10s"),
    "limit": lambda s: s.limit(1, unbounded=True),
    "sample": lambda s: s.sample(0.5),
    "sample of a period": lambda s: s.sample(1, per="10s"),
    "deduplicate": lambda s: s.deduplicate("item", within="10s"),
    "deduplicate rows": lambda s: s.deduplicate(within="10s"),
    "changes_only": lambda s: s.changes_only("item", unbounded=True),
    "suppress": lambda s: s.suppress("10s"),
}
CHANGING = {
    "table": lambda s: s.table("item", unbounded=True).changes(),
    "top": lambda s: s.top(3, by="n"),
    "windows": lambda s: s.key_by("item").window(hr.tumbling("9s"), mode="retract").agg(
        n=hr.count()),
    "input": lambda s: s.with_columns(change="'-'"),
}  # fmt: skip


@pytest.mark.parametrize("changing", CHANGING)
@pytest.mark.parametrize("what", DROPPING)
def test_what_drops_rows_is_refused_where_some_retract_others(what, changing):
    if (what, changing) == ("deduplicate", "input"):
        return  # see below

    def step(s):
        return DROPPING[what](CHANGING[changing](s).key_by("item"))

    with pytest.raises(hr.PlanError) as caught:
        selling(step).check()
    assert [p.code for p in caught.value.problems] == ["HR-STREAM-014"]
    assert what.split()[0] in str(caught.value)


def test_a_change_that_an_input_has_twice_can_be_dropped():
    job = hr.Job("delivered")
    schema = "lsn bigint, change string, at bigint"
    read = job.read("log:x", schema=schema, name="x", time="at", delay="1s")
    read.deduplicate("lsn", within="10s").write("collect:", name="out")
    with Harness(job) as test:
        test.send(
            "x", [{"lsn": n, "change": c, "at": 1} for n, c in [(1, "+"), (1, "+"), (2, "-")]]
        )
        assert [row["change"] for row in test.output("out")] == ["+", "-"]


@pytest.mark.parametrize(("step", "code"), REFUSED)
def test_what_cannot_be_is_refused(step, code):
    with pytest.raises(hr.PlanError) as caught:
        selling(step).check()
    assert [p.code for p in caught.value.problems] == [code]
    assert all(p.hint and p.site for p in caught.value.problems)


@pytest.mark.parametrize("options", [{"rows": 2}, {"period": "10s", "time": "processing"},
                                     {"period": "10s"}, {"period": "10s", "rows": 1}])  # fmt: skip
@pytest.mark.parametrize("batch", [1, 2, 3, 100])
def test_of_a_table_the_version_with_the_later_time_is_the_last(options, batch, tmp_path):
    rows = [("fig", 0, 5), ("plum", 2, 5), ("fig", 7, 1), ("plum", 1, 1)]  # n = 0 ends a key
    job = hr.Job("versions")
    made = [{"k": k, "n": n, "at": 1_000 * at} for k, n, at in rows]
    table = job.read(hr.rows(made), time="at", delay="10s").table(
        "k", delete="n = 0", unbounded=True
    )
    table.suppress(**options).changes().write("collect:", name="out")
    driver = Driver(job, tmp_path, max_batch=batch)
    driver.drain()
    held = {}
    for row in driver.output("out").to_pylist():
        if row["change"] == "-":
            del held[row["k"]]
        else:
            held[row["k"]] = row["n"]
    assert held == {"plum": 2}


def test_late_rows_of_a_suppressed_table_can_be_had(tmp_path):
    rows = [{"k": "a", "n": n, "at": 1_000 * at} for n, at in ((1, 100), (2, 101), (3, 1), (4, 2))]
    job = hr.Job("late")
    table = job.read(hr.rows(rows), time="at", delay="1s").table("k", unbounded=True)
    steps = {
        "top": table.top(1, by="n"), "thin": table.suppress("10s").changes(),
        "counted": table.suppress(rows=2).changes(),
    }  # fmt: skip
    for name, step in steps.items():
        step.write("collect:", name=f"{name} rows")
        step.late.select("n").write("collect:", name=name)
    driver = Driver(job, tmp_path, max_batch=1)
    driver.drain()
    found = {name: driver.output(name)["n"].to_pylist() for name in ("top", "thin", "counted")}
    assert found == {"top": [3, 4], "thin": [3, 4], "counted": [3, 4]}


@pytest.mark.parametrize("what", [
    lambda s: s.suppress("10s", name="t"), lambda s: s.top(1, by="v", each="item", name="t"),
])  # fmt: skip
def test_what_waits_is_not_cut_by_time(what, tmp_path):
    job = hr.Job("slice")
    rows = [{"item": "a", "v": 1, "at": 1_000}, {"item": "b", "v": 2, "at": 50_000}]
    what(job.read(hr.rows(rows), time="at", delay="5s")).write("collect:", name="out")
    Driver(job, tmp_path, until="now").drain()
    with pytest.raises(hr.HeadraceError, match="HR-STATE-032"):
        hr.peek(job, "t", folder=str(tmp_path)).slice(0, 10_000)


def test_running_results_of_rows_out_of_order_are_no_versions_by_event_time(tmp_path):
    def counts(job, **order):
        rows = [{"k": "a", "at": 1_000 * at} for at in (5, 1, 2)]
        read = job.read(hr.rows(rows), time="at", **order)
        return read.key_by("k").agg(n=hr.count(), unbounded=True).where("n > 0")

    job = hr.Job("running")
    found = counts(job, delay="10s")
    found.key_by("k").suppress("10s").write("collect:", name="suppressed")
    found.table("k", unbounded=True).changes().write("collect:", name="table")
    with pytest.raises(hr.PlanError) as refused:
        job.check()
    assert {p.code for p in refused.value.problems} == {"HR-STREAM-017", "HR-JOIN-029"}
    job = hr.Job("running")
    found = counts(job, delay="10s").key_by("k").suppress("10s", time="processing")
    found.write("collect:", name="out")
    driver = Driver(job, tmp_path, max_batch=1)
    driver.drain()
    assert driver.output("out")["n"].to_pylist()[-1] == 3
    job = hr.Job("running")
    counts(job, in_order=True).table("k", unbounded=True).changes().write("collect:")
    job.check()
