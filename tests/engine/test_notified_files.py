"""Files that come, grow and move while a job on Spark is told of them, and while it is down."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import headrace as hr

pytestmark = pytest.mark.spark


def _job(place: Path) -> hr.Job:
    job = hr.Job("told")
    rows = job.read(f"files:{place}/in/**/*.json", schema="n bigint", watch="notify", name="rows")
    rows.write("collect:", name="out")
    return job


def _put(path: Path, *numbers: int) -> None:
    """Under a hidden name first, as a writer should."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f"_{path.name}")
    hidden.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
    hidden.rename(path)


def _numbers(run: hr.Run) -> list[int]:
    return sorted(r["n"] for r in run.output("out").to_pylist())


def _until_read(run: hr.Run, total: int) -> None:
    deadline = time.monotonic() + 50  # sooner than it lists again whatever it was told
    while run.progress is None or run.progress.total["read"] < total:
        assert run.status.state == "running", run.status
        assert time.monotonic() < deadline, run.progress
        run.wait(timeout=0.05)


def test_a_job_reads_what_it_is_told_of_once(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    _put(tmp_path / "in" / "first.json", 0)
    run = hr.run(_job(tmp_path), folder=str(tmp_path / "job"))
    _until_read(run, 1)
    for n in range(1, 5):
        _put(tmp_path / "in" / f"{n % 2}" / f"{n}.json", n)
        _until_read(run, n + 1)
    with (tmp_path / "in" / "first.json").open("a") as file:
        file.write('{"n": 5}\n')
    _until_read(run, 6)
    run.stop()
    assert _numbers(run) == list(range(6))

    _put(tmp_path / "in" / "2" / "6.json", 6)  # nobody was told
    run = hr.run(_job(tmp_path), folder=str(tmp_path / "job"))
    _until_read(run, 7)
    _put(tmp_path / "in" / "7.json", 7)
    _until_read(run, 8)
    run.drain()
    assert run.wait(timeout=120).state == "ended"
    assert _numbers(run) == list(range(8))
