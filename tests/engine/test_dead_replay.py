"""Dead letters sent again on Spark: by a job that runs, and by the next start."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.driver.dead_replay import letters_of
from headrace.state.epochs import EpochLog

pytestmark = pytest.mark.spark


def _job(place: Path, *, fixed: bool) -> hr.Job:
    def inverse(row: Any) -> dict[str, Any]:
        if not fixed and not row.v:
            raise ZeroDivisionError
        return {"k": row.k, "x": row.v}

    job = hr.Job("replayed")
    rows = job.read("log:rows", schema="k string, v bigint", log=str(place / "log"), name="rows")
    inverses = rows.map(inverse, schema="k string, x bigint", name="inverse")
    sums = inverses.key_by("k").agg(n=hr.count(), unbounded=True)
    sums.select("k", "n").write("collect:", name="out")
    return job


def _until(run: hr.Run, done: Any) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert time.monotonic() < deadline and run.status.state not in ("failed", "stopped")
        time.sleep(0.05)


def test_a_running_job_and_the_next_start_replay_what_is_asked_for(
    spark: Any, tmp_path: Path
) -> None:
    log, folder = hr.EmbeddedLog(str(tmp_path / "log")), tmp_path / "job"
    log.create("rows")
    log.append("rows", [{"k": "a", "v": 1}, {"k": "b", "v": 0}, {"k": "c", "v": 0}])
    hr.run(_job(tmp_path, fixed=False), folder=str(folder), until="now").wait(timeout=120)
    assert hr.replay_dead(folder, numbers=[1]).asked == 1

    run = hr.run(_job(tmp_path, fixed=True), folder=str(folder))
    _until(run, lambda: run.output("out").num_rows == 2)
    assert hr.replay_dead(folder).asked == 1
    _until(run, lambda: run.output("out").num_rows == 3)
    run.drain()
    run.wait(timeout=120)

    rows = sorted((row["k"], row["n"]) for row in run.output("out").to_pylist())
    assert rows == [("a", 1), ("b", 1), ("c", 1)]
    manifest = EpochLog(folder).latest()
    assert manifest is not None
    assert dict(manifest.counts["rows"]) == {
        "read": 5, "used": 3, "filtered": 0, "late": 0, "dead": 2
    }  # fmt: skip
    assert [number for number, _ in manifest.resent or ()] == [1, 2]
    assert letters_of(EpochLog(folder)).open().num_rows == 0
