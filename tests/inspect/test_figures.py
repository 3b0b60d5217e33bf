"""All figures of a job, against a plain model of the run that was drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis.strategies import integers, lists, sampled_from, tuples

import headrace as hr
from headrace.clock import ManualClock
from headrace.driver.rewind import plan_rewind
from headrace.inspect.figures import Sampler, figures
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


def test_a_sampler_takes_rates_of_the_last_ten_seconds_and_forgets():
    with Harness(build(), clock=1_000_000) as test:
        test.send("x", [("a", 3, 5)])
        sampler = Sampler()
        for second in range(90):
            counts = {"x": {**manifest_of(test).counts["x"], "read": second * 7}}
            found = sampler.see(1_000_000 + second * SECOND, at(test, counts=counts, epoch=second))
        assert found.rate_in == 7
        assert len(sampler._samples) <= 62
        later = 1_000_000 + 89 * SECOND
        assert sampler.see(later + 9 * SECOND, at(test, counts=counts, epoch=89)).rate_in < 7
        assert sampler.see(later + 30 * SECOND, at(test, counts=counts, epoch=89)).rate_in == 0


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
