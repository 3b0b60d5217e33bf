"""All figures of a job, against a plain model of the run that was drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, lists, sampled_from, tuples

import headrace as hr
from headrace.clock import ManualClock
from headrace.driver.rewind import plan_rewind
from headrace.inspect.figure_values import Figures
from headrace.inspect.figures import Sampler, figures, figures_of
from headrace.inspect.live import Live
from headrace.inspect.progress import progress_of
from headrace.inspect.samples import sample_of
from headrace.state.manifest import Manifest
from headrace.testing import Driver, Harness

SECOND = 1_000


def divided(row: Any) -> dict[str, Any]:
    if not row.v:
        raise ValueError("nothing to divide by")
    return {"k": row.k, "v": 12 // row.v}


def build() -> hr.Job:
    job = hr.Job("figured")
    rows = job.read(
        "log:x", schema="k string, v bigint, at bigint", time="at", delay="1s", name="x"
    )
    good = rows.map(divided, schema="k string, v bigint", name="m")
    good.where("v > 1", name="w").key_by("k").agg(n=hr.count(), unbounded=True, name="sums").write(
        "collect:", name="out"
    )
    good.write("collect:", name="all")
    return job


def manifest_of(test: Harness) -> Manifest:
    found = test._stage.start.log.latest()  # what a server reads from the folder
    assert found is not None
    return found


rows = tuples(sampled_from("abc"), integers(0, 12), integers(0, 10))


@settings(max_examples=8, deadline=None)
@given(
    batches=lists(
        tuples(integers(1, 30), lists(rows, min_size=1, max_size=12)), min_size=2, max_size=6
    )
)
def test_counts_and_rates_are_those_of_the_rows_that_were_sent(batches):
    sent, dead = 0, 0
    with Harness(build(), clock=1_000_000) as test:
        samples = []
        for seconds, batch in batches:
            test.advance(f"{seconds}s")
            test.send("x", batch)
            sent, dead = sent + len(batch), dead + sum(v == 0 for _, v, _ in batch)
            manifest = manifest_of(test)
            samples.append((sample_of(test.now, manifest), sent, dead))
            found = figures(test.now, manifest, samples[0][0])
            (x,) = found.inputs
            assert (x.read, x.dead, found.totals["read"]) == (sent, dead, sent)
            steps = {s.name: s for s in found.steps}
            assert steps["m"].rows_in == sent and steps["m"].rows_out == sent - dead
            passed = test.now - samples[0][0].time
            if passed:
                since = sent - samples[0][1]
                assert found.rate_in == x.rate == since * SECOND / passed
                written = (sent - dead) - (samples[0][1] - samples[0][2])
                outputs = {o.name: o for o in found.outputs}
                assert outputs["all"].rate == written * SECOND / passed
            else:
                assert found.rate_in is None
            assert found.series()["inputs.x.read"] == sent
            json.dumps(found.to_json(), allow_nan=False)


def test_the_json_is_what_the_contract_says():
    with Harness(build(), clock=1_000_000) as test:
        test.send("x", [("a", 3, 5), ("b", 0, 6)])
        found = figures(test.now, manifest_of(test)).to_json()
    assert {"time", "epoch", "committed", "took_ms", "phases", "rate_in", "rate_out", "lag_rows",
            "lag_seconds", "watermark", "watermark_delay", "capacity", "latency", "latencies",
            "memory", "gc_ms", "retries", "totals", "inputs", "steps", "outputs", "windows",
            "bottleneck", "backpressure", "warnings"} == set(found)  # fmt: skip
    assert {"name", "kind", "level", "in", "out", "rate_in", "rate_out", "late", "dead",
            "execute_ms", "process_ms", "busy", "state_rows", "state_bytes", "watermark",
            "user"} == set(found["steps"][0])  # fmt: skip
    assert found["inputs"][0]["watermark"] == found["watermark"]


def at(test: Harness, **changes: Any) -> Manifest:
    return replace(manifest_of(test), **changes)


def epoch_at(test: Harness, epoch: int, begun: int, took: int, read: int) -> Manifest:
    """Which was planned at `begun` and at work for as long as it took, in one of two tasks."""
    newest = manifest_of(test)
    counts = {"x": {**newest.counts["x"], "read": read}}
    work = {"m": 1.0 * took * epoch}
    measures = replace(newest.measures, took=took * epoch, work=work, tasks=2)
    changed = {"counts": counts, "measures": measures}
    return replace(newest, epoch=epoch, clock=begun, wall=begun + took, **changed)


def test_a_sampler_takes_rates_of_the_last_ten_seconds_and_forgets():
    with Harness(build(), clock=1_000_000) as test:
        test.send("x", [("a", 3, 5)])
        sampler = Sampler()
        for second in range(90):
            now = 1_000_000 + second * SECOND
            manifest = epoch_at(test, second, now - 500, 500, second * 7)
            found = sampler.see(now, manifest)
        assert found.rate_in == 7
        assert len(sampler._samples) <= 62
        assert sampler.see(now + 9 * SECOND, manifest).rate_in == 0.7
        assert sampler.see(now + 30 * SECOND, manifest).rate_in == 0
        for second in range(31, 4_000):
            sampler.see(now + second * SECOND, manifest)
        assert len(sampler._samples) <= 62


@pytest.mark.parametrize("seconds", [3, 25, 240, 1_100])
def test_slow_batches_have_the_rates_of_their_whole_time(seconds):
    """However long a batch takes, rates and shares of time are neither bursts nor gaps."""
    with Harness(build(), clock=1_000_000) as test:
        test.send("x", [("a", 3, 5)])
        sampler, seen = Sampler(), []
        for second in range(5 * seconds):
            now, epoch = 1_000_000 + second * SECOND, second // seconds
            begun, took = 1_000_000 + (epoch - 1) * seconds * SECOND, seconds * SECOND - 1
            found = sampler.see(now, epoch_at(test, epoch, begun, took, 100 * seconds * epoch))
            if epoch >= 2 and second % seconds in (0, seconds // 2):
                seen.append((found.rate_in, found.capacity, busy_of(found, "m")))
    assert seen
    for rate, capacity, busy in seen:
        assert 99 <= rate <= 101 and 0.99 <= capacity <= 1 and 0.49 <= busy <= 0.5


def busy_of(found: Figures, step: str) -> float | None:
    return next(s.busy for s in found.steps if s.name == step)


def test_who_looks_first_when_nothing_was_done_for_an_hour_sees_that():
    with Harness(build(), clock=1_000_000) as test:
        test.send("x", [("a", 3, 5)])
        manifest = epoch_at(test, 7, 1_000_000, 500, 700)
    found = Sampler().see(1_000_000 + 3_600_000, manifest)
    assert found.rate_in == 0 and found.capacity == 0 and found.latency["event"] is None
    soon = Sampler().see(1_001_000, manifest)
    assert soon.rate_in is None and soon.capacity is None and soon.latency["event"] is None


def test_a_clock_that_is_set_back_leaves_rates_unknown_and_no_time_below_zero():
    with Harness(build(), clock=1_000_000) as test:
        test.send("x", [("a", 3, 5)])
        sampler = Sampler()
        for epoch in range(1, 20):
            now = 1_000_000 + epoch * SECOND
            sampler.see(now, epoch_at(test, epoch, now - 500, 500, 7 * epoch))
        manifest = epoch_at(test, 20, now, 0, 140)
        waits = replace(manifest.measures, waits={"x": now}, lags={"x": 3})
        found = sampler.see(now - 3_600_000, replace(manifest, measures=waits, lag=3))
    assert found.rate_in is None and found.capacity is None
    assert found.lag_seconds == 0 and found.watermark_delay == 0


def test_a_renamed_step_has_no_rates_until_there_are_two_samples():
    with Harness(build(), clock=1_000_000) as test:
        test.send("x", [("a", 3, 5)] * 500)
        now, newest = test.now, manifest_of(test)
    names = {"m": "mapped", "out": "written"}
    measures = newest.measures.renamed(names)
    steps = {names.get(name, name): counts for name, counts in newest.steps.items()}
    rows = {names.get(name, name): n for name, n in newest.rows.items()}
    sampler = Sampler()
    sampler.see(now, newest)
    renamed = replace(
        newest, epoch=newest.epoch + 1, measures=measures, steps=steps, rows=rows, clock=now
    )
    found = sampler.see(now + SECOND, renamed)
    by_name = {step.name: step for step in found.steps}
    mapped, other = by_name["mapped"], by_name["w"]
    assert mapped.rows_in == 500 and mapped.rate_in is None and mapped.busy is None
    assert other.rate_in == 0 and other.busy == 0
    outputs = {output.name: output.rate for output in found.outputs}
    assert outputs["all"] == 0 and outputs["written"] is None
    more = replace(renamed, epoch=renamed.epoch + 1, clock=now + SECOND)
    for second in range(2, 30):
        found = sampler.see(now + second * SECOND, more)
    assert {step.rate_in for step in found.steps} == {0}


def test_a_folder_that_was_replaced_has_no_rates_of_the_job_before():
    with Harness(build(), clock=1_000_000) as test:
        test.send("x", [("a", 3, 5)])
        sampler = Sampler()
        for epoch in range(1, 9):
            now = 1_000_000 + epoch * SECOND
            sampler.see(now, epoch_at(test, epoch, now - 500, 500, 1_000 * epoch))
        other = epoch_at(test, 9, now, 100, 50)  # in a second it has gone further than the other
        assert sampler.see(now + SECOND, other).rate_in is None


def test_steps_that_run_fused_have_their_rows_by_the_last_ones_name(tmp_path):
    job = hr.Job("fused")
    read = job.read(hr.rows([{"k": "a", "v": v} for v in range(13)], "k string, v bigint"))
    first = read.map(divided, schema="k string, v bigint", name="m")
    first.map(lambda row: (row.k, row.v), schema="k string, v bigint", name="last").write(
        "collect:", name="out"
    )
    driver = Driver(job, tmp_path / "job", max_batch=5)
    driver.drain()
    found = figures_of(driver.start.log, driver.clock.now())
    assert found is not None
    steps = {step.name: step for step in found.steps}
    assert (steps["last"].rows_in, steps["last"].rows_out) == (13, 12)
    m = steps["m"]
    assert m.dead == 1 and (m.rows_in, m.rows_out, m.rate_in, m.busy) == (None,) * 4
    assert found.rate_out == next(o.rate for o in found.outputs if o.name == "out")


def test_a_job_that_went_back_has_no_rate_below_zero():
    with Harness(build(), clock=1_000_000) as test:
        test.send("x", [("a", 3, 5)] * 10)
        newest, sampler = manifest_of(test), Sampler()
        sampler.see(0, replace(newest, epoch=50))
        found = sampler.see(SECOND, replace(newest, counts={}, steps={}, epoch=3, timeline="3"))
    assert found.rate_in is None and found.totals["read"] == 0


def test_an_old_manifest_without_measures_has_what_it_has():
    with Harness(build(), clock=1_000_000) as test:
        test.send("x", [("a", 3, 5)] * 10)
        content = manifest_of(test).to_json()
    content["body"].pop("measures", None)
    old = Manifest.from_json(content)
    found = figures(2_000_000, old, sample_of(1_000_000, old))
    assert found.capacity is None and found.bottleneck is None
    assert {s.busy for s in found.steps} == {None}
    assert found.inputs[0].read == 10 and found.rate_in == 0


def test_an_epoch_that_is_no_batch_has_taken_no_time(tmp_path):
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("in", schema="v bigint", partitions=1)
    job = hr.Job("figured")
    job.read("log:in", log=str(tmp_path / "log")).write(f"files:{tmp_path}/out", name="out")
    folder, clock = str(tmp_path / "job"), ManualClock(1_000_000)
    for v in range(2):
        log.append("in", [{"v": v}])
        driver = Driver(job, folder, until=None, clock=clock)
        driver.drain()
        driver.close()
        clock.advance(3_600_000)
    batch = driver.start.log.latest()
    assert batch is not None and figures(batch.wall, batch).took_ms == batch.wall - batch.clock
    first = replace(batch, epoch=0, clock=0)  # as Spark begins a new job
    assert figures(batch.wall, first).took_ms is None and progress_of(first, {}).took == 0

    plan_rewind(job, folder=folder, to_epoch=1).apply()
    back = driver.start.log.latest()
    assert back is not None and back.epoch == 3 and back.wall - back.clock > 3_600_000
    assert figures(back.wall, back).took_ms is None and progress_of(back, {}).took == 0


def test_a_warning_is_given_once_whoever_has_counted_last():
    rows = [("a", 3, 100_000)] * 20 + [("a", 3, 5)] * 20
    job = hr.Job("late")
    read = job.read(
        "log:x", schema="k string, v bigint, at bigint", time="at", delay="1s", name="x"
    )
    read.key_by("k").window(hr.tumbling("10s")).agg(n=hr.count(), name="w").write("collect:")
    with Harness(job, clock=1_000_000) as test:
        test.send("x", rows[:20])
        test.send("x", rows[20:])
        manifest = manifest_of(test)
        (now,) = figures(test.now, manifest).warnings
        assert "20 of 40 rows" in now
        before = now.replace("20 of 40", "19 of 39")  # of a second ago, as the run has written it
        live = Live(test.now, 7, 99, manifest.epoch, warnings=(before,))
        assert figures(test.now, manifest, None, live).warnings == (before,)
        still = replace(live, stalled="stalled: why")
        assert figures(test.now, manifest, None, still).warnings == ("stalled: why", before)
