"""The same script in process and on Spark: the same batches, the same results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Harness
from tests.testing.jobs import SCHEMA, at, rows, seen, summed, two_inputs

pytestmark = pytest.mark.spark

LEFT = [("a", 2, 1.0), ("b", 4, 3.0), ("a", 8, 14.0)]
RIGHT = [("a", 1, 2.0), ("b", 1, 4.0), ("c", 1, 16.0)]


def script(job: Harness) -> list[Any]:
    """A little of everything; what was seen after each step."""
    seen_so_far: list[Any] = []

    def look() -> None:
        assert job.progress is not None
        figures = (job.progress.epoch, job.progress.clock, job.progress.watermark)
        found = [seen(job.output("out")), job.late("sums"), job.dead()]
        state = {n: sorted(map(str, t.to_pylist())) for n, t in job.state("sums").items()}
        seen_so_far.append([*figures, *found, state])

    job.send("left", rows(*LEFT[:2]), at="100s")
    look()
    job.send("right", rows(*RIGHT[:2], ("d", 1, 9)))
    look()
    job.advance("10s")  # nothing is due
    look()
    job.crash()
    job.send("left", rows(LEFT[2], ("x", None, 14.5)))
    look()
    job.watermark("right", "10s")
    look()
    job.send("right", rows(RIGHT[2], ("late", 1, 3)), split=1)
    look()
    changed = two_inputs()
    changed.dead.write("console:", name="letters")
    job.restart(changed)
    job.idle("right", split=1)
    look()
    job.advance(at(300))  # all are silent: windows close by the clock
    look()
    job.end()
    look()
    return seen_so_far


def test_a_script_gives_the_same_on_spark(
    spark: Any, harness: Callable[..., Harness], spark_harness: Callable[..., Harness]
) -> None:
    here, there = harness(two_inputs()), spark_harness(two_inputs())
    wanted, found = script(here), script(there)
    for step, (a, b) in enumerate(zip(wanted, found, strict=True), 1):
        assert a == b, f"step {step}"
    starts = [job._stage.start.token for job in (here, there)]
    assert starts == [3, 3]  # the first, after the crash, and the restart
    halved = [(k, v // 2, s) for k, v, s in LEFT]
    assert set(seen(there.table("out").to_pylist())) == summed([*halved, *RIGHT, ("d", 1, 9)])
    assert [r["key"] for step in found for r in step[4]] == ["late"]
    assert [d["error"] for step in found for d in step[5]] == ["ValueError: nothing to halve"]


def _wrong(row: Any) -> dict[str, int]:
    return {"v": 1 // row.value}


def _mended(row: Any) -> dict[str, int]:
    return {"v": row.value}


def test_a_job_that_fails_on_spark_says_so_and_a_mended_one_goes_on_here(
    spark: Any,
    harness: Callable[..., Harness],
    spark_harness: Callable[..., Harness],
    tmp_path: Path,
) -> None:
    def build(divide: Callable[[Any], Any]) -> hr.Job:
        job = hr.Job("failing", on_error="fail")
        read = job.read("log:nowhere", schema=SCHEMA, name="rows")
        read.map(divide, schema="v bigint", name="divide").write("console:", name="out")
        return job

    job = spark_harness(build(_wrong), folder=tmp_path)
    with pytest.raises(hr.StepError) as caught:
        job.send("rows", rows(("a", 0, 1)))
    assert "ZeroDivisionError" in str(caught.value) and "'divide'" in str(caught.value)
    with pytest.raises(hr.StepError):
        job.send("rows", rows(("a", 5, 1)))  # it has not gone away
    job.close()
    job = harness(build(_mended), folder=tmp_path)
    assert job.output() == [{"v": 0}, {"v": 5}]
