"""Process functions in the order of event time: what is late, held, refused, and changed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.testing import Driver, drive
from tests.process.playing import SCHEMA, said

ORDER = "event_time"


class Trail(hr.KeyedProcess):
    """What a key has seen, after each row; a timer a second after each says when it fired."""

    output = "k string, said string"
    seen = hr.list_of(int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.seen.append(row.v)
        ctx.timer(ctx.time + 1_000)
        if row.v < 0:
            raise ValueError("below zero")
        return (ctx.key, f"{row.v}: {self.seen}")

    def on_timer(self, time: int, ctx: Any) -> Any:
        return (ctx.key, f"at {time}: {self.seen}")


def job_of(fn: hr.KeyedProcess, order: str | None = ORDER, **columns: str) -> hr.Job:
    job = hr.Job("ordered")
    schema = ", ".join([SCHEMA, *(f"{n} {kind}" for n, kind in columns.items())])
    rows = job.read("log:rows", schema=schema, name="rows", time="at", delay="2s")
    made = rows.key_by("k").process(fn, order=order, unbounded=True, name="p")
    made.write("collect:", name="out")
    if order:
        made.late.write("collect:", name="late")
    return job


def test_rows_wait_for_the_watermark_and_those_it_has_passed_are_late(harness: Any) -> None:
    test = harness(job_of(Trail()))
    test.send("rows", [("a", 3, 3_000), ("a", 1, 1_000)])
    assert said(test) == []
    test.send("rows", [("a", 9, 5_001), ("a", 0, 999)])  # the watermark was 1 s: 999 is late
    assert said(test) == [("a", "1: [1]"), ("a", "at 2000: [1]"), ("a", "3: [1, 3]")]
    assert said(test, "late") == [("a", 0, 999)]
    test.send("rows", [("a", 4, 3_001), ("a", 5, 3_000)])
    test.crash()
    assert said(test, "late") == [("a", 5, 3_000)]
    test.end()
    assert said(test) == [
        ("a", "4: [1, 3, 4]"), ("a", "at 4000: [1, 3, 4]"), ("a", "at 4001: [1, 3, 4]"),
        ("a", "9: [1, 3, 4, 9]"), ("a", "at 6001: [1, 3, 4, 9]"),
    ]  # fmt: skip
    counts = test.progress.counts["rows"]
    assert (counts["read"], counts["used"], counts["late"], counts["dead"]) == (6, 4, 2, 0)


def test_a_row_runs_before_the_timers_of_its_time(harness: Any) -> None:
    test = harness(job_of(Trail()))
    test.send("rows", [("a", 1, 1_000), ("a", 2, 2_000), ("a", 3, 2_000)])
    test.watermark("rows", 2_000)
    assert said(test) == [("a", "1: [1]")]  # at its own time the watermark has not passed a row
    test.watermark("rows", 2_001)
    assert said(test) == [("a", "2: [1, 2]"), ("a", "3: [1, 2, 3]"), ("a", "at 2000: [1, 2, 3]")]


def test_a_row_that_fails_when_its_time_comes_is_a_dead_letter_as_it_came(harness: Any) -> None:
    test = harness(job_of(Trail()))
    test.send("rows", [("a", -1, 1_000), ("a", 2, 1_500)])
    assert test.dead() == []
    test.watermark("rows", 5_000)
    (letter,) = test.dead()
    assert "below zero" in letter["error"] and '"v":-1' in str(letter).replace(" ", "")
    assert said(test) == [("a", "2: [2]"), ("a", "at 2500: [2]")]
    counts = test.progress.counts["rows"]
    assert (counts["read"], counts["used"], counts["dead"]) == (2, 1, 1)


def test_what_is_held_can_be_looked_at(tmp_path: Any) -> None:
    log = hr.EmbeddedLog(tmp_path / "log")
    log.create("rows", schema=SCHEMA)
    log.append("rows", [{"k": "a", "v": v, "at": 1_000 * v} for v in (3, 2, 4)])
    job = hr.Job("held")
    rows = job.read("log:rows", log=str(tmp_path / "log"), time="at", delay="1500ms")
    made = rows.key_by("k").process(Trail(), order=ORDER, unbounded=True, name="p")
    made.write("collect:", name="out")
    Driver(job, tmp_path / "job", until=None).epoch()
    held = hr.peek(job, "p.held", folder=str(tmp_path / "job")).to_arrow().to_pylist()
    assert sorted((r["k"], r["v"]) for r in held) == [("a", 3), ("a", 4)]


class Chunked(hr.KeyedProcess):
    """Sums by key after each row, as `BySum` has them; a timer parts rows."""

    output = "k string, at bigint, total bigint"
    total = hr.value(int, default=0)

    def on_chunk(self, chunk: pa.Table, ctx: Any) -> Any:
        v = chunk["v"].to_numpy()
        sums = np.cumsum(v)
        before = np.append(0, sums)[ctx.starts]
        totals = self.total.to_numpy()[ctx.index] + sums - before[ctx.index]
        self.total = totals[np.append(ctx.starts[1:], len(v)) - 1]
        opens = pa.array(ctx.times // 1_000 * 1_000 + 1_000)
        ctx.timer(opens.take(pa.array(ctx.starts)))
        return pa.table({"k": chunk["k"], "at": ctx.times, "total": totals})

    def on_timer(self, times: pa.Array, ctx: Any) -> Any:
        self.total = np.zeros(len(times), np.int64)


@pytest.mark.parametrize("most", [1, 2, 7])
def test_chunks_bring_the_rows_of_a_key_in_order(tmp_path: Any, most: int) -> None:
    rows = [{"k": "ab"[i % 2], "v": i, "t": 300 * i - i % 3 * 400} for i in range(30)]
    job = hr.Job("chunks")
    read = job.read(hr.rows(rows), time="t", delay="1s").key_by("k")
    read.process(Chunked(), order=ORDER, unbounded=True).write("collect:", name="o")
    told = drive(job, tmp_path, max_batch=most).output("o").to_pylist()
    for key in "ab":
        times = [r["at"] for r in told if r["k"] == key]
        assert times == sorted(r["t"] for r in rows if r["k"] == key)


def test_within_an_epoch_a_stored_timer_parts_a_chunk(harness: Any) -> None:
    for order in (None, ORDER):
        test = harness(job_of_chunks(order))
        test.send("rows", [("a", 1, 100)])
        test.watermark("rows", 500)  # a timer at 1,000 is stored
        assert [r["total"] for r in test.output()] == [1]
        test.send("rows", [("a", 2, 600), ("a", 3, 1_000), ("a", 4, 1_400)])
        test.watermark("rows", 5_000)
        found = [(r["at"], r["total"]) for r in test.output()]
        assert found == [(600, 3), (1_000, 6), (1_400, 4)], order


def job_of_chunks(order: str | None) -> hr.Job:
    job = hr.Job("chunks")
    rows = job.read("log:rows", schema=SCHEMA, name="rows", time="at", in_order=True)
    made = rows.key_by("k").process(Chunked(), order=order, unbounded=True, name="p")
    made.write("collect:", name="out")
    return job


class ByTask(hr.KeyedProcess):
    output = "nth int, at bigint"
    n = hr.operator_value(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        return (self.n, ctx.time)


@pytest.mark.parametrize("most", [1, 3, 100])
def test_without_a_key_a_task_sees_its_rows_in_order(tmp_path: Any, most: int) -> None:
    times = [3, 1, 2, 5, 4, 7, 6, 9, 8]
    job = hr.Job("tasks")
    rows = job.read(hr.rows([{"at": 1_000 * t} for t in times]), time="at", delay="3s")
    rows.process(ByTask(), order=ORDER, name="p").write("collect:", name="o")
    told = drive(job, tmp_path, tasks=1, max_batch=most).output("o").to_pylist()
    assert [(r["nth"], r["at"]) for r in told] == [(t, 1_000 * t) for t in range(1, 10)]


class Ruled(hr.KeyedProcess):
    output = "k string"
    limits = hr.shared_map(str, int)

    def on_rules(self, row: Any, ctx: Any) -> None: ...

    def on_rows(self, row: Any, ctx: Any) -> None: ...


class Both(ByTask):
    m = hr.value(int)


def refused(build: Any) -> str:
    job = hr.Job("refused")
    with pytest.raises(hr.PlanError) as error:
        build(job)
        job.check()
    return str(error.value)


def timed(job: hr.Job, **more: Any) -> Any:
    return job.read(
        "log:rows", schema=SCHEMA, name="rows", **{"time": "at", "in_order": True, **more}
    )


def test_what_would_depend_on_batches_is_refused() -> None:
    def unknown(job: hr.Job) -> None:
        timed(job).key_by("k").process(Trail(), order="arrival", unbounded=True).write("console:")

    def untimed(job: hr.Job) -> None:
        rows = job.read("log:rows", schema=SCHEMA, name="rows")
        rows.key_by("k").process(Silent(), order=ORDER, unbounded=True).write("console:")

    def broadcast(job: hr.Job) -> None:
        rules = job.read("log:rules", schema=SCHEMA, name="rules")
        both = hr.connect(by="k", rows=timed(job), rules=rules.broadcast())
        both.process(Ruled(), order=ORDER).write("console:")

    def by_task(job: hr.Job) -> None:
        timed(job).key_by("k").process(Both(), order=ORDER, unbounded=True).write("console:")

    def late(job: hr.Job) -> None:
        timed(job).key_by("k").process(Trail(), unbounded=True).late.write("console:")

    def windowed(job: hr.Job) -> None:
        windows = timed(job).key_by("k").window(hr.tumbling("1s"))
        windows.process(lambda key, window, rows: None, order=ORDER)

    assert "HR-PROCESS-025 order of process is 'arrival'" in refused(unknown)
    assert "HR-PLAN-002 the process 'rows.process' needs event time" in refused(untimed)
    assert "HR-PROCESS-026" in refused(broadcast) and "the control stream 'rules'" in refused(
        broadcast
    )
    assert "HR-PROCESS-026" in refused(by_task) and "Both.n by task" in refused(by_task)
    assert "HR-PROCESS-024 no row is late for 'rows.process'" in refused(late)
    assert "order" in refused(windowed)


class Silent(hr.KeyedProcess):
    output = "k string"
    n = hr.value(int)

    def on_row(self, row: Any, ctx: Any) -> None: ...


def test_explain_says_the_order() -> None:
    assert "Trail over rows, in the order of event time" in str(job_of(Trail()).explain())


# a changed program


class Longer(Trail):
    n = hr.value(int, default=0)


def test_a_function_goes_on_in_order_from_the_state_it_has(harness: Any) -> None:
    test = harness(job_of(Trail(), None))
    test.send("rows", [("a", 1, 1_000), ("a", 4, 4_000)])  # timers at 2 s, which is due, and 5 s
    test.output()
    test.restart(job_of(Trail()))
    assert [str(c) for c in test.comparison.changes if c.role == "operator"] == [
        "operator  p: same"
    ]
    test.send("rows", [("a", 3, 3_000), ("a", 2, 2_500), ("a", 8, 8_000)])
    assert said(test) == [
        ("a", "2: [1, 4, 2]"), ("a", "3: [1, 4, 2, 3]"), ("a", "at 3500: [1, 4, 2, 3]"),
        ("a", "at 4000: [1, 4, 2, 3]"), ("a", "at 5000: [1, 4, 2, 3]"),
    ]  # fmt: skip


def test_a_timer_at_the_watermark_of_the_version_before_is_not_lost(harness: Any) -> None:
    class AtOnce(Trail):
        def on_row(self, row: Any, ctx: Any) -> Any:
            ctx.timer(ctx.time)

    test = harness(job_of(AtOnce(), None))
    test.send("rows", [("a", 1, 3_000)])
    test.output()  # the watermark is 1 s, and the timer table knows nothing before 1,001
    test.restart(job_of(AtOnce()))
    test.send("rows", [("a", 2, 1_000)])
    test.end()
    assert sorted(said(test)) == [("a", "at 1000: []"), ("a", "at 3000: []")]


class Named(hr.KeyedProcess):
    output = "k string, v bigint, input string"

    def on_row(self, row: Any, ctx: Any) -> Any:
        return (ctx.key, row.v, ctx.input)


def connected(*names: str) -> hr.Job:
    job = hr.Job("ordered")
    read = {
        n: job.read(f"log:{n}", schema=SCHEMA, name=n, time="at", delay="2s")
        for n in ("one", "two")
    }
    both = hr.connect(by="k", **{n: read[n] for n in names})
    made = both.process(Named(), order=ORDER, unbounded=True, name="p")
    made.late_of("two").write("collect:", name="late")
    made.write("collect:", name="out")
    return job


def test_held_rows_stay_those_of_their_input(harness: Any) -> None:
    """Inputs in another order are the same step, but for what it holds of each."""
    test = harness(connected("one", "two"))
    test.send("one", [("a", 1, 5_000)])
    test.send("two", [("a", 2, 4_000)])
    with pytest.raises(hr.StateError, match="it holds rows of one two, and its inputs are two one"):
        test.restart(connected("two", "one"))
    test.restart(connected("one", "two"))
    test.send("two", [("a", 0, 1_999)])
    test.end()
    assert said(test) == [("a", 2, "two"), ("a", 1, "one")]
    assert said(test, "late") == [("a", 0, 1_999)]


def test_rows_that_are_held_are_not_lost_by_a_change(harness: Any) -> None:
    test = harness(job_of(Trail()))
    test.send("rows", [("a", 1, 1_000), ("b", 2, 1_500)])
    test.restart(job_of(Longer()))  # a new value: what is held goes on
    for changed, why in [
        (job_of(Trail(), None), "rows that it holds until the watermark passes them would be lost"),
        (job_of(Trail(), more="bigint"), "the column 'more' of the rows that it holds is new"),
    ]:
        with pytest.raises(hr.StateError, match="HR-EVOLVE-001") as error:
            test.restart(changed)
        assert why in str(error.value)
    test.restart(job_of(Longer()))
    test.end()
    assert Counter(said(test)) == Counter([
        ("a", "1: [1]"), ("a", "at 2000: [1]"), ("b", "2: [2]"), ("b", "at 2500: [2]"),
    ])  # fmt: skip
