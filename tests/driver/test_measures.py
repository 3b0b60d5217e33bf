"""What a job measures of itself, against plain Python over the same rows, with crashes between."""

from __future__ import annotations

import random
from collections import Counter
from math import ceil
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.buckets import QUANTILES, WIDTH, percentiles
from headrace.driver.measuring import PUBLISHING, Measuring
from headrace.inspect.figures import figures
from headrace.inspect.samples import sample_of
from headrace.plan.program import build as build_program
from headrace.state import faults
from headrace.state.manifest import Manifest
from headrace.testing import Driver

SCHEMA = "k string, v bigint, at bigint"
BEGIN = 1_700_000_000_000


class Ticking:
    """A clock that goes on by some time whenever somebody looks at it, never by the same."""

    def __init__(self, now: int = BEGIN) -> None:
        self._now, self._drawn = now, random.Random(7)

    def now(self) -> int:
        self._now += self._drawn.randrange(1, 900)
        return self._now

    def steady(self) -> int:
        return self._now


class Crash(Exception):
    pass


class Measured(hr.KeyedProcess):
    output = "k string, v bigint"

    def on_row(self, row: Any, ctx: Any) -> Any:
        ctx.counter("rows").add()
        ctx.counter("sum").add(row.v)
        ctx.gauge("last").set(row.v / 2)
        ctx.histogram("v").record(row.v)
        if row.v % 11 == 3:
            raise ValueError("such a row counts nothing")
        return row.k, row.v


def rows_of(count: int = 200) -> list[dict[str, Any]]:
    drawn = random.Random(3)
    return [
        {
            "k": drawn.choice("abcd"),
            "v": drawn.randrange(1_000),
            "at": BEGIN - drawn.randrange(60_000),
        }
        for _ in range(count)
    ]


def build(rows: list[dict[str, Any]], place: Path | None = None) -> hr.Job:
    job = hr.Job("measured")
    source = "log:rows" if place else hr.rows(rows, SCHEMA)
    options = {"schema": SCHEMA, "log": str(place)} if place else {}
    read = job.read(source, time="at", delay="10h", name="rows", **options)
    read.key_by("k").process(Measured(), name="p").write("collect:", name="out")
    read.where("v > 500", name="large").write("collect:", name="large out")
    return job


def drive(
    job: hr.Job, folder: Path, clock: Ticking, crash: tuple[str, int] | None = None
) -> Driver:
    """To the end, or to a crash at the n-th passing of a point."""
    passed: Counter[str] = Counter()

    def hook(name: str) -> None:
        passed.update([name])
        if crash is not None and (name, passed[name]) == crash:
            raise Crash(name)

    driver = Driver(job, folder, max_batch=20, clock=clock, until="now")
    with faults.hooked(hook):
        if crash is None:
            driver.drain()
        else:
            with pytest.raises(Crash):
                driver.drain()
    return driver


def committed(driver: Driver) -> list[Manifest]:
    log = driver.start.log
    return [log.read(epoch) for epoch in log.epochs()]


def exact(values: list[int]) -> dict[str, float]:
    return {n: sorted(values)[max(1, ceil(q * len(values))) - 1] for n, q in QUANTILES.items()}


def near(found: Any, values: list[int], slack: float = 0.0) -> None:
    wanted = exact(values)
    for name, value in wanted.items():
        assert abs(found[name] - value) <= WIDTH * abs(value) + slack + 1, name


CRASHES = [("source.read", 3), ("state.written", 5), ("commit.manifest", 4), ("sink.publish", 2)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("crashes", [[], CRASHES[:1], CRASHES])
def test_latency_from_event_time_is_that_of_every_row_once(tmp_path, crashes):
    rows, clock = rows_of(), Ticking()
    for crash in crashes:
        drive(build(rows), tmp_path / "job", clock, crash)
    manifests = committed(drive(build(rows), tmp_path / "job", clock))

    latencies: list[int] = []
    first = manifests[0].epoch
    assert first == 1 and len(manifests) >= 10
    by_epoch: dict[int, list[int]] = {}
    reached = 0
    for manifest in manifests:
        (split,) = manifest.splits
        own = [manifest.wall - row["at"] for row in rows[reached : split.at]]
        reached, by_epoch[manifest.epoch] = split.at, own
        latencies += own
        found = manifest.measures.event["rows"]
        assert sum(found.values()) == len(latencies)
        near(percentiles(found), latencies)
    assert reached == len(rows)
    newest, middle = manifests[-1], manifests[len(manifests) // 2]
    last = [ms for epoch, own in by_epoch.items() if epoch > middle.epoch for ms in own]
    shown = figures(newest.wall, newest, None, None, sample_of(middle.wall, middle))
    near(shown.latency["event"], last)
    assert newest.measures.took == sum(m.wall - m.clock for m in manifests)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("crash", [None, *CRASHES, ("commit.checked", 2), ("commit.published", 3)])
def test_metrics_of_the_users_own_count_each_row_once(tmp_path, crash, cuts):
    rows, clock = rows_of(60 if cuts else 200), Ticking()
    if crash is not None:
        drive(build(rows), tmp_path / "job", clock, crash)
    driver = drive(build(rows), tmp_path / "job", clock)
    manifest = driver.manifest
    assert manifest is not None
    good = [row["v"] for row in rows if row["v"] % 11 != 3]
    assert manifest.metrics["p"] == {"rows": len(good), "sum": sum(good)}
    found = manifest.measures.histograms["p"]["v"]
    assert sum(found.values()) == len(good)
    near(percentiles(found), good)
    (p,) = [s for s in figures(clock.now(), manifest).steps if s.name == "p"]
    assert p.user["counters"] == manifest.metrics["p"]
    assert p.user["histograms"]["v"]["count"] == len(good)
    lasts = {v / 2 for v in good}
    assert p.user["gauges"]["last"] in lasts


def test_a_gauge_is_the_largest_of_what_tasks_set_last_in_the_last_batch_that_set_it(tmp_path):
    class Gauged(hr.KeyedProcess):
        output = "k string"

        def on_row(self, row: Any, ctx: Any) -> Any:
            if row.v:
                ctx.gauge("v").set(row.v)

    job = hr.Job("gauged")
    rows = [{"k": "a", "v": v, "at": i} for i, v in enumerate((9, 5, 3, 7, 0, 0))]
    read = job.read(hr.rows(rows, SCHEMA), time="at", delay="1s", name="rows")
    read.key_by("k").process(Gauged(), name="p").write("collect:", name="out")
    driver = Driver(job, tmp_path / "job", max_batch=2, first_batch=2)
    seen = []
    while driver.epoch() is not None:
        assert driver.manifest is not None
        seen.append(driver.manifest.measures.gauges["p"]["v"])
    assert seen[:3] == [5, 7, 7]


@pytest.mark.parametrize("wrong", ["add(-1)", "set(float('nan'))", "record(float('inf'))"])
def test_what_no_metric_can_be_is_a_dead_letter(tmp_path, wrong):
    class Wrong(hr.KeyedProcess):
        output = "k string"

        def on_row(self, row: Any, ctx: Any) -> Any:
            verb = {"a": ctx.counter, "s": ctx.gauge, "r": ctx.histogram}[wrong[0]]
            metric = verb("m")
            eval(f"metric.{wrong}", {"metric": metric, "float": float})

    job = hr.Job("wrong")
    read = job.read(hr.rows(rows_of(3), SCHEMA), time="at", delay="10h", name="rows")
    read.key_by("k").process(Wrong(), name="p").write("collect:", name="out")
    driver = Driver(job, tmp_path / "job")
    driver.drain()
    assert driver.manifest is not None
    assert driver.manifest.counts["rows"]["dead"] == 3 and not driver.manifest.metrics


def test_arrival_at_the_embedded_log_is_the_time_of_the_append(tmp_path):
    clock, place = Ticking(), tmp_path / "log"
    log = hr.EmbeddedLog(str(place), clock)
    log.create("rows", schema=SCHEMA)
    rows, times = rows_of(), []
    for at in range(0, len(rows), 40):
        log.append("rows", rows[at : at + 40])
        times += [
            t
            for _, c in log.read("rows", 0, at, times=True)
            for t in c["__append_time"].to_pylist()
        ]
    manifests = committed(drive(build(rows, place), tmp_path / "job", clock))
    latencies, reached = [], 0
    for manifest in manifests:
        (split,) = manifest.splits
        latencies += [manifest.wall - time for time in times[reached : split.at]]
        reached = split.at
        found = manifest.measures.ingest["rows"]
        assert sum(found.values()) == len(latencies)
        near(percentiles(found), latencies)
    assert reached == len(rows) > 0


def test_arrival_elsewhere_is_when_the_planner_first_saw_the_record(tmp_path):
    clock = Ticking()
    manifests = committed(drive(build(rows_of()), tmp_path / "job", clock))
    first, reached, latencies = manifests[0].clock, 0, []
    for manifest in manifests:
        (split,) = manifest.splits
        latencies += [manifest.wall - first] * (split.at - reached)
        reached = split.at
        near(percentiles(manifest.measures.ingest["rows"]), latencies)
        left = len(rows_of()) - reached
        assert manifest.measures.lags.get("rows", 0) == manifest.lag == left
        assert manifest.measures.waits.get("rows") == (first if left else None)


def test_the_work_of_steps_is_within_the_time_of_their_tasks(tmp_path):
    manifest = drive(build(rows_of()), tmp_path / "job", Ticking()).manifest
    assert manifest is not None
    work, plan = manifest.measures.work, manifest.measures.plan
    assert {"rows", "p", "large", "out", "large out"} <= set(plan)
    assert all(work[name] > 0 for name in ("rows", "p", "large", "out", "large out"))
    assert plan["p"] == ("process", 1) and plan["rows"] == ("read", 0)
    assert sum(manifest.measures.longest.values()) <= sum(manifest.timing.values()) * 1.01 + 1
    assert manifest.measures.tasks == 2


def test_a_renamed_step_keeps_what_it_measured(tmp_path):
    rows, clock = rows_of(), Ticking()
    drive(build(rows), tmp_path / "job", clock, ("commit.manifest", 5))
    job = hr.Job("measured")
    read = job.read(hr.rows(rows, SCHEMA), time="at", delay="10h", name="rows")
    made = read.key_by("k").process(Measured(), name="q", was="p")
    made.write("collect:", name="out")
    read.where("v > 500", name="large").write("collect:", name="large out")
    manifest = drive(job, tmp_path / "job", clock).manifest
    assert manifest is not None
    good = [row["v"] for row in rows if row["v"] % 11 != 3]
    assert sum(manifest.measures.histograms["q"]["v"].values()) == len(good)
    assert "p" not in manifest.measures.work


def test_publishing_is_counted_by_output_and_epoch_that_has_rows(tmp_path):
    job, clock = hr.Job("measured"), Ticking()
    read = job.read(hr.rows(rows_of(100), SCHEMA), time="at", delay="10h", name="rows")
    read.write("collect:", name="every")
    read.where("v >= 1000", name="none").write("collect:", name="never")
    driver = Driver(job, tmp_path / "job", max_batch=10, first_batch=10, clock=clock)
    samples = []
    while driver.epoch() is not None:
        assert driver.manifest is not None
        samples.append(sample_of(driver.manifest.wall, driver.manifest))
    driver.close()
    newest = driver.manifest
    assert newest is not None and newest.epoch >= 10
    published = newest.measures.publishes
    assert published == {"every": newest.epoch - 1}, "what the last one takes, the next one says"
    found = {o.name: o for o in figures(newest.wall, newest, samples[0]).outputs}
    spent = newest.measures.published["every"]
    assert found["every"].publish_ms == pytest.approx(spent / published["every"], rel=0.01)
    assert found["never"].publish_ms is None and found["never"].rows == 0


def test_a_note_of_publishing_that_is_shorter_than_the_one_before_is_read(tmp_path):
    program = build_program(build(rows_of(1)))
    measuring = Measuring(program, tmp_path)
    assert measuring._published(1) == {}
    measuring.published(1, {("a long name of an output", "b"): 12.5, ("c",): 3.25})
    measuring.published(2, {("c",): 0.5})
    assert measuring._published(2) == {"c": 0.5} and measuring._published(1) == {}
    (tmp_path / PUBLISHING).write_text('{"epoch": 2, "outp')
    assert Measuring(program, tmp_path)._published(2) == {}
