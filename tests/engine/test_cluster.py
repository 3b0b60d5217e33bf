"""A cluster gives what one process gives, and a job moves from it to a laptop and goes on."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from tests.engine.cluster import SECRET, cluster, environment
from tests.engine.cluster_job import moving

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parent.parent.parent
ROWS = [{"k": "abc"[i % 3], "v": i, "at": i * 500} for i in range(90)]
HALF = 55  # rows that are there while it runs on the cluster
DELAY = 1_000

Outputs = dict[str, Counter[tuple[Any, ...]]]


def test_a_job_gives_on_a_cluster_what_it_should_and_goes_on_under_another_master(
    spark: Any, tmp_path: Path
) -> None:
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("rows", schema="k string, v bigint, at bigint")
    log.append("rows", ROWS[:HALF])
    run_on_a_cluster(tmp_path)
    assert outputs(tmp_path) == model(ROWS[:HALF], ROWS[HALF - 1]["at"] - DELAY)

    log.append("rows", ROWS[HALF:])
    folder = str(tmp_path / "job")
    run = hr.run(moving(tmp_path), folder=folder, until="end", for_good=True, master="local[2]")
    assert {change.verdict for change in run.comparison.changes} == {"same"}
    assert run.wait(timeout=120).state == "ended"
    assert run.progress is not None and run.progress.total["used"] == len(ROWS)
    assert outputs(tmp_path) == model(ROWS)


def run_on_a_cluster(place: Path) -> None:
    with cluster(place / "work") as master:
        done = subprocess.run(
            [sys.executable, "-m", "tests.engine.cluster_job", master, str(place)],
            cwd=ROOT, env=environment(), check=False, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr
    assert [*(place / "work").glob("app-*/*")], "nothing ran on the worker"
    told = [*(place / "work").glob("app-*/*/std*")]
    assert told and not any(SECRET in file.read_text() for file in told)
    assert SECRET not in done.stderr


def outputs(place: Path) -> Outputs:
    counts = hr.read_output(place / "counts").to_pylist()
    labels = hr.EmbeddedLog(str(place / "log")).read("labels", 0, 0)
    return {
        "counts": Counter(
            (r["k"], r["window_start"].timestamp(), r["n"], r["total"]) for r in counts
        ),
        "running": Counter(
            tuple(r.values()) for r in hr.collected(str(place / "job"), "running").to_pylist()
        ),
        "labels": Counter(tuple(r.values()) for _, rows in labels for r in rows.to_pylist()),
    }


def model(sent: Sequence[dict[str, Any]], watermark: float = float("inf")) -> Outputs:
    """All three outputs over the rows, in plain Python; windows that the watermark has passed."""
    windows: dict[tuple[str, int], list[int]] = defaultdict(list)
    totals: Counter[str] = Counter()
    running, labels = Counter[tuple[Any, ...]](), Counter[tuple[Any, ...]]()
    for row in sent:
        key, value = row["k"], row["v"]
        windows[key, row["at"] // 5_000 * 5].append(value)
        totals[key] += value
        running[key, value, totals[key]] += 1
        labels[key, f"{key}{value}"] += 1
    closed = {w: vs for w, vs in windows.items() if (w[1] + 5) * 1_000 <= watermark}
    counts = Counter((k, start, len(vs), sum(vs)) for (k, start), vs in closed.items())
    return {"counts": counts, "running": running, "labels": labels}
