"""A cluster gives what one process gives, and a job moves from it to a laptop and goes on."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver
from tests.engine.cluster import cluster, environment
from tests.engine.cluster_job import moving
from tests.runtime.crashing import build, contents

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parent.parent.parent
ROWS = [{"k": "abc"[i % 3], "v": i, "at": i * 500} for i in range(90)]
HALF = 55  # rows that are there while it runs on the cluster


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two jobs have been on a cluster: one has ended, one was stopped half way."""
    place = tmp_path_factory.mktemp("cluster")
    log = hr.EmbeddedLog(str(place / "log"))
    log.create("rows", schema="k string, v bigint, at bigint")
    log.append("rows", ROWS[:HALF])
    with cluster(place / "work") as master:
        done = subprocess.run(
            [sys.executable, "-m", "tests.engine.cluster_job", master, str(place)],
            cwd=ROOT, env=environment(), check=False, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ended 3", "stopped"], done.stderr
    executors = [*(place / "work").glob("app-*/*")]
    assert executors, "nothing ran on the worker"
    return place


def test_every_output_of_a_job_on_a_cluster_is_that_of_one_process(
    place: Path, tmp_path: Path
) -> None:
    Driver(build(tmp_path), tmp_path / "job", max_batch=40).drain()
    assert contents(place) == contents(tmp_path)


def test_a_job_goes_on_under_another_master_where_it_was(spark: Any, place: Path) -> None:
    hr.EmbeddedLog(str(place / "log")).append("rows", ROWS[HALF:])
    run = hr.run(moving(place), folder=str(place / "moving"), until="end", master="local[2]")
    assert {change.verdict for change in run.comparison.changes} == {"same"}
    assert run.wait(timeout=120).state == "ended"
    assert run.progress is not None and run.progress.total["used"] == len(ROWS)
    assert found(run) == model()


def found(run: hr.Run) -> dict[str, Counter[tuple[Any, ...]]]:
    counts = run.output("counts").to_pylist()
    return {
        "counts": Counter(
            (r["k"], r["window_start"].timestamp(), r["n"], r["total"]) for r in counts
        ),
        "running": Counter(tuple(r.values()) for r in run.output("running").to_pylist()),
        "labels": Counter(tuple(r.values()) for r in run.output("labels").to_pylist()),
    }


def model() -> dict[str, Counter[tuple[Any, ...]]]:
    """All three outputs over all rows, in plain Python."""
    windows: dict[tuple[str, int], list[int]] = defaultdict(list)
    totals: Counter[str] = Counter()
    running, labels = Counter[tuple[Any, ...]](), Counter[tuple[Any, ...]]()
    for row in ROWS:
        key, value = row["k"], row["v"]
        windows[key, row["at"] // 5_000 * 5].append(value)
        totals[key] += value
        running[key, value, totals[key]] += 1
        labels[key, f"{key}{value}"] += 1
    counts = Counter((k, start, len(vs), sum(vs)) for (k, start), vs in windows.items())
    return {"counts": counts, "running": running, "labels": labels}
