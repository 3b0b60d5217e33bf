"""The names of Heron's Streamlets, and rows dealt out to other tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Harness, drive

ROWS = [{"w": "abcab"[i % 5], "n": i, "at": 700 * i} for i in range(40)]


def read(job: hr.Job, **options: Any) -> hr.Stream:
    return job.read(hr.rows(ROWS, splits=2), time="at", in_order=True, **options)


@pytest.mark.parametrize("batch", [3, 1_000])
def test_repartition_changes_no_row_and_no_time(batch: int, tmp_path: Path) -> None:
    job = hr.Job("r")
    moved = read(job).repartition(3)
    moved.write("collect:", name="rows")
    moved.key_by("w").window(hr.tumbling("5s")).agg(n=hr.count()).write("collect:", name="windows")
    driver = drive(job, tmp_path, max_batch=batch, tasks=2)
    found = driver.output("rows").to_pylist()
    assert sorted(found, key=lambda r: r["n"]) == ROWS
    windows = Counter((r["w"], r["at"] // 5_000) for r in ROWS)
    rows = driver.output("windows").to_pylist()
    assert {(r["w"], int(r["window_start"].timestamp()) // 5): r["n"] for r in rows} == windows


def test_a_function_chooses_the_tasks_and_its_failures_are_dead(tmp_path: Path) -> None:
    def choose(row: Any, tasks: int) -> Any:
        if row.n == 7:
            raise ValueError("seven")
        return [] if row.n == 8 else list(range(row.n % tasks + 1))

    job = hr.Job("chosen")
    read(job).repartition(3, choose).write("collect:", name="out")
    driver = drive(job, tmp_path)
    expected = {n: n % 3 + 1 for n in range(40) if n not in (7, 8)}
    assert Counter(driver.output("out").column("n").to_pylist()) == expected
    assert driver.manifest is not None
    (counts,) = driver.manifest.counts.values()
    assert counts["dead"] == 1


def test_reduce_by_key_and_window(tmp_path: Path) -> None:
    job = hr.Job("reduced")
    rows = read(job).reduce_by_key_and_window("w", "n * 2", hr.tumbling("5s"), max)
    rows.to_sink("collect:", name="out")
    best: dict[Any, int] = defaultdict(int)
    for r in ROWS:
        place = r["w"], r["at"] // 5_000
        best[place] = max(best[place], 2 * r["n"])
    found = drive(job, tmp_path).output("out").to_pylist()
    assert {(r["w"], int(r["window_start"].timestamp()) // 5): r["value"] for r in found} == best


def test_clones_are_the_stream_itself() -> None:
    job = hr.Job("clones")
    one, other = read(job).clone(2)
    one.where("n < 2").write("collect:", name="one")
    other.where("n > 37").write("collect:", name="other")
    with Harness(job) as test:
        test.send("memory", ROWS)
        test.end()
        assert [len(test.output(name)) for name in ("one", "other")] == [2, 2]


def test_what_cannot_be_is_refused() -> None:
    job = hr.Job("wrong")
    read(job).repartition(0).write("collect:")
    read(job, name="second").repartition(2, lambda row: 0).write("collect:")
    with pytest.raises(hr.PlanError) as caught:
        job.check()
    assert [p.code for p in caught.value.problems] == ["HR-TOPOLOGY-002", "HR-PLAN-028"]


@pytest.mark.spark
def test_repartition_on_spark(tmp_path: Path) -> None:
    job = hr.Job("spread")
    read(job).repartition(2).write(f"files:{tmp_path / 'out'}", format="json")
    hr.run(job, folder=str(tmp_path / "job"), until="end", quiet=True).wait()
    found = hr.read_output(tmp_path / "out").to_pylist()
    assert sorted(r["n"] for r in found) == list(range(40))
