"""Rewrites change how a program runs, not what it computes.

Each program is driven in this process twice: with all rewrites, and with only those that
`ops` cannot do without. Outputs must be equal, late and dead rows included.
"""

from __future__ import annotations

import datetime as dt

import pytest

from headrace.api.job import Job
from headrace.expr import col
from headrace.ops.agg.named import count, max, mean, min_by
from headrace.ops.window.aligned import sliding, tumbling
from headrace.plan import rewrite
from headrace.sinks import collected
from headrace.sources import rows
from headrace.testing import drive

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
SCHEMA = "area string, celsius double, at timestamp, sensor bigint, note string"


def readings() -> list[dict[str, object]]:
    """Two minutes of readings; the last one is much too late."""
    made = [
        {
            "area": "abc"[i % 3], "celsius": float(i * 7 % 50 - 5), "sensor": i % 4,
            "at": START + dt.timedelta(seconds=i), "note": None if i % 5 else str(i),
        }
        for i in range(120)
    ]  # fmt: skip
    return [*made, {**made[0], "celsius": 99.0}]


def chained(s):
    s.where("celsius > 0").with_columns(f="celsius * 2").where("f > 10").select(
        "area", "f", g=lambda e: e.f + e.sensor
    ).write("collect:out")


def windows(s):
    result = s.where("celsius > 0").key_by("area").window(sliding("20s", every="5s")).agg(
        c=mean(col("celsius") * 2), n=count(), m=min_by("sensor", "-celsius")
    )  # fmt: skip
    result.write("collect:out")
    result.late.write("collect:late")


def pruned(s):
    s.where("sensor > 0").key_by("area").window(tumbling("10s")).agg(n=count()).window(
        tumbling("1m")
    ).agg(most=max("n + 1")).write("collect:out")


def fails_sometimes(row) -> float:
    return 1 / (row.celsius - 2)


def pythons(s):
    chain = s.filter(lambda r: r.celsius > 0 and r.sensor > 0).map(fails_sometimes)
    chain.flat_map(lambda r: [r.value] * 2, schema=float).tap(len).write("collect:out")


def branches(s):
    parts = s.split(hot="celsius > 20", noted="note is not null")
    parts.hot.union(parts.noted, parts.other).select("sensor", "celsius").write("collect:out")


def running(s):
    keyed = s.select("area", "celsius").key_by("area")
    keyed.agg(top=max("celsius + 1"), unbounded=True).where("top > 3").write("collect:out")
    keyed.fold(0.0, lambda total, r: total + r.celsius, unbounded=True).write("collect:sum")


def outputs(build, folder):
    job = Job("meaning")
    stream = job.read(rows(readings(), schema=SCHEMA), time="at", delay="2s")
    build(stream)
    job.dead.select("offset", "step", "error").write("collect:dead")
    drive(job, folder, max_batch=50)
    names = [w.uri.removeprefix("collect:") for w in job.program().outputs()]
    return {n: sorted(map(str, collected(str(folder), n).to_pylist())) for n in names}


PROGRAMS = [chained, windows, pruned, pythons, branches, running]


@pytest.mark.parametrize("build", PROGRAMS, ids=lambda b: b.__name__)
def test_a_program_computes_the_same_with_and_without_rewrites(build, tmp_path, monkeypatch):
    fused = outputs(build, tmp_path / "fused")
    monkeypatch.setattr(rewrite, "REWRITES", (rewrite.project_arguments,))
    plain = outputs(build, tmp_path / "plain")
    assert fused == plain
    assert fused["out"]


def test_each_row_is_in_exactly_one_branch(tmp_path):
    assert len(outputs(branches, tmp_path)["out"]) == len(readings())


def test_a_row_on_which_a_function_fails_is_a_dead_letter_of_that_step(tmp_path):
    dead = outputs(pythons, tmp_path)["dead"]
    assert dead
    assert all("memory.map" in row and "ZeroDivisionError" in row for row in dead)
