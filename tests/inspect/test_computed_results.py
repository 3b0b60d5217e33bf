"""Results that are computed of aggregates, in a look at the state of a step."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver

SCHEMA = "k string, v bigint, at bigint"
MEAN = ("sum(v) / count(*) as mean", "max(v) - min(v) + 1 as spread")
WINDOWS = {
    "tumbling": (hr.tumbling("10s"), {}), "patient": (hr.tumbling("10s"), {"lateness": "1s"}),
    "session": (hr.session("1h"), {}), "everything": (hr.everything(), {}),
    "rows": (hr.tumbling(rows=1_000), {}),
}  # fmt: skip


def made(folder: Any, step: str) -> hr.Job:
    job = hr.Job("computed")
    read = job.read("log:in", log=str(folder / "log"), schema=SCHEMA, time="at", delay="1h")
    keyed = read.key_by("k")
    if step == "running":
        found = keyed.agg(*MEAN, n=hr.count(), unbounded=True, name="s")
    else:
        window, options = WINDOWS[step]
        found = keyed.window(window, **options).agg(*MEAN, n=hr.count(), name="s")
    found.write("collect:", name="out")
    return job


def expected(rows: list[Any], step: str) -> list[tuple[Any, ...]]:
    groups = defaultdict(list)
    for k, v, at in rows:
        groups[k, at // 10_000 if step in ("tumbling", "patient") else 0].append(v)
    return sorted((k, sum(vs) / len(vs), max(vs) - min(vs) + 1, len(vs))
                  for (k, _), vs in groups.items())  # fmt: skip


ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(-9, 9), st.integers(0, 30_000)),
    min_size=1, max_size=20,
)  # fmt: skip


@pytest.mark.parametrize("step", ["running", *WINDOWS])
@settings(max_examples=3, deadline=None)
@given(rows=ROWS, cut=st.integers(0, 20))
def test_state_shows_what_is_computed(step, rows, cut, tmp_path_factory):
    folder = tmp_path_factory.mktemp("computed")
    log = hr.EmbeddedLog(str(folder / "log"))
    log.create("in", schema=SCHEMA)
    for part in (rows[:cut], rows[cut:]):  # with a restart in between
        log.append("in", [dict(zip(("k", "v", "at"), r, strict=True)) for r in part])
        driver = Driver(made(folder, step), folder / "job", until=None)
        driver.drain()
        driver.close()
    state = hr.peek(made(folder, step), "s", folder=str(folder / "job"))
    assert not [n for n in state.to_arrow().column_names if "(" in n or "$" in n]
    found = state.to_arrow().select(["k", "mean", "spread", "n"]).to_pylist()
    assert sorted(tuple(r.values()) for r in found) == expected(rows, step)
    key = rows[0][0]
    assert state.get(key).num_rows == sum(k == key for k, *_ in expected(rows, step))


def shown(tmp_path: Any, *texts: str) -> list[dict[str, Any]]:
    job = hr.Job("shown")
    rows = [{"k": k, "v": v} for k, v in [("a", 3), ("a", 5), ("b", 0)]]
    stream = job.read(hr.rows(rows, "k string, v bigint"), name="in")
    stream.key_by("k").agg(*texts, unbounded=True, name="s").write("collect:", name="out")
    driver = Driver(job, tmp_path)
    driver.drain()
    driver.close()
    found: list[dict[str, Any]] = hr.peek(job, "s", folder=str(tmp_path)).to_arrow().to_pylist()
    return sorted(found, key=lambda r: r["k"])


def test_what_reads_the_row_is_no_state_so_its_aggregates_are_shown(tmp_path):
    assert shown(tmp_path, "v - min(v) as above", "count(*) * 2 as twice") == [
        {"k": "a", "twice": 4, "min(v)": 3},
        {"k": "b", "twice": 2, "min(v)": 0},
    ]


def test_what_cannot_be_computed_is_null(tmp_path):
    assert shown(tmp_path, "10 / sum(v) as share") == [
        {"k": "a", "share": 1.25}, {"k": "b", "share": None},
    ]  # fmt: skip


@pytest.mark.spark
def test_a_run_on_spark_shows_what_is_computed(spark, tmp_path):
    job = hr.Job("computed")
    read = job.read(hr.rows([{"k": "a", "v": n} for n in range(4)]), name="in")
    read.key_by("k").agg(*MEAN, unbounded=True, name="s").write("collect:", name="out")
    run = hr.run(job, until="end", folder=str(tmp_path / "job"), quiet=True)
    run.wait()
    assert run.state("s").to_arrow().to_pylist() == [{"k": "a", "mean": 1.5, "spread": 4}]
