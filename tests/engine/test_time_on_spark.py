"""Time on Spark: strategies of all kinds in worker processes, aligned inputs, and `run.why()`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import headrace as hr

pytestmark = pytest.mark.spark


class SecondNewest:
    """Needs what the batches before it knew, and this module in the worker process."""

    state: Any = ()

    def on_chunk(self, times: Any, rows: Any) -> int | None:
        self.state = sorted([*self.state, *times.tolist()])[-2:]
        return self.state[0] if len(self.state) == 2 else None


def _job(tmp_path: Path) -> hr.Job:
    job = hr.Job("time")
    readings = {
        "marked": {"time": "at", "watermark": hr.watermarks.punctuated("mark"), "align": "1h"},
        "second": {"time": "at", "watermark": hr.watermarks.custom(SecondNewest), "align": "1h"},
        "clock": {"time": hr.ingestion()},
    }
    for name, said in readings.items():
        rows = job.read("log:rows", log=str(tmp_path / "log"), name=name, **said)
        counts = rows.window(hr.tumbling("10s")).agg(n=hr.count(), name=f"{name} counts")
        counts.write("collect:", name=f"{name} out")
    return job


def _until_read(run: hr.Run, rows: int) -> None:
    deadline = time.monotonic() + 120
    while (p := run.progress) is None or p.total["read"] < rows:
        assert run.status.state == "running" and time.monotonic() < deadline, run.status
        run.wait(timeout=0.05)


def test_every_strategy_works_in_workers_and_the_run_says_what_it_waits_for(
    spark: Any, tmp_path: Path
) -> None:
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("rows", schema="at bigint, mark boolean")
    run = hr.run(_job(tmp_path), folder=str(tmp_path / "job"), quiet=True)
    assert [r.kind for r in run.why().reasons] == ["empty"] * 3
    log.append("rows", [{"at": 1_000, "mark": True}, {"at": 13_000, "mark": False}])
    _until_read(run, 6)
    waits = {r.where: r.facts for r in run.why().reasons if r.kind == "window"}
    assert waits["marked counts"] == {"next": 10_000, "watermark": 1_000}
    assert waits["second counts"] == {"next": 10_000, "watermark": 1_000}
    log.append("rows", [{"at": 12_000, "mark": True}])
    _until_read(run, 9)
    run.drain()
    assert run.wait(timeout=120).state == "ended"
    for name in ("marked out", "second out"):
        rows = run.output(name).to_pylist()
        assert sorted((r["window_start"].timestamp(), r["n"]) for r in rows) == [(0, 1), (10, 2)]
    assert sum(r["n"] for r in run.output("clock out").to_pylist()) == 3
    assert "ended" in [r.kind for r in run.why().reasons]
    assert run.progress is not None and run.progress.total["late"] == 0
