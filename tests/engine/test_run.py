"""A run on Spark as its user meets it: end, stop, failure, fences, evolution."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr

pytestmark = pytest.mark.spark


def _until(run: hr.Run, condition: Any, timeout: float = 120) -> None:
    """Wait until the run has shown what we wait for; fails if it is over before."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert run.status.state == "running", run.status
        assert time.monotonic() < deadline, "it never came"
        run.wait(timeout=0.05)


def _log_job(tmp_path: Path, **window: Any) -> hr.Job:
    job = hr.Job("live")
    rows = job.read("log:rows", log=str(tmp_path / "log"), time="at", delay="1s", name="rows")
    counts = rows.key_by("k").window(hr.tumbling("5s")).agg(n=hr.count(), **window)
    counts.write("collect:", name="counts")
    return job


def _topic(tmp_path: Path) -> hr.EmbeddedLog:
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("rows", schema=pa.schema([("k", pa.string()), ("at", pa.int64())]))
    return log


def _seen(run: hr.Run) -> int:
    progress = run.progress
    return progress.total["read"] if progress else 0


def test_a_live_job_stops_gracefully_resumes_and_drains(spark: Any, tmp_path: Path) -> None:
    log = _topic(tmp_path)
    log.append("rows", [{"k": "a", "at": t} for t in range(0, 20_000, 1_000)])
    run = hr.run(_log_job(tmp_path), folder=str(tmp_path / "job"))
    _until(run, lambda: _seen(run) == 20)
    assert run.stop().state == "stopped"
    before = run.output("counts").num_rows
    assert before == 3  # 0, 5 and 10 s: the watermark stands at 18 s

    log.append("rows", [{"k": "a", "at": 40_000}])
    run = hr.run(_log_job(tmp_path), folder=str(tmp_path / "job"), parallelism=1)
    assert {c.verdict for c in run.comparison.changes} == {"same"}
    _until(run, lambda: _seen(run) == 21)
    run.drain()
    assert run.wait(timeout=120).state == "ended"
    counts = {r["window_start"].timestamp(): r["n"] for r in run.output("counts").to_pylist()}
    assert counts == {0: 5, 5: 5, 10: 5, 15: 5, 40: 1}


def _boom(row: Any) -> dict[str, Any]:
    return {"v": 1 // (row.v - 3)}


def test_progress_tells_of_all_that_catch_up_waited_for(spark: Any, tmp_path: Path) -> None:
    log = _topic(tmp_path)
    run = hr.run(_log_job(tmp_path), folder=str(tmp_path / "job"), quiet=True)
    for turn in range(1, 9):
        log.append("rows", [{"k": "a", "at": turn * 1_000}])
        run.catch_up()
        assert _seen(run) == turn
    assert run.stop().state == "stopped"


def test_until_now_stops_after_what_is_there_and_the_next_run_goes_on(
    spark: Any, tmp_path: Path
) -> None:
    log = _topic(tmp_path)
    for turn in (1, 2):
        log.append("rows", [{"k": "a", "at": turn * 1_000}])
        run = hr.run(_log_job(tmp_path), folder=str(tmp_path / "job"), until="now", quiet=True)
        assert run.wait(timeout=120).state == "stopped"
        assert _seen(run) == turn
    again = hr.run(_log_job(tmp_path), folder=str(tmp_path / "job"), until="now", quiet=True)
    assert again.wait(timeout=120) == run.status  # there was nothing to do
    assert again.output("counts").num_rows == 0  # the window is open


def test_a_failing_function_is_one_python_error_with_step_place_and_record(
    spark: Any, tmp_path: Path
) -> None:
    job = hr.Job("failing", on_error="fail")
    rows = job.read(hr.rows([{"v": i} for i in range(6)], "v bigint"), name="rows")
    rows.map(_boom, schema="v bigint", name="divide").write("collect:", name="out")
    run = hr.run(job, folder=str(tmp_path), until="end")
    with pytest.raises(hr.StepError) as caught:
        run.wait(timeout=120)
    text = str(caught.value)
    assert caught.value.code == "HR-STEP-001"
    assert "'divide'" in text and "ZeroDivisionError" in text and "offset 3" in text
    assert '{"v": 3}' in text and "test_run.py:" in text
    assert "java" not in text.lower() and "spark" not in text.lower()
    assert run.status.state == "failed"


def test_the_same_record_is_a_dead_letter_by_default(spark: Any, tmp_path: Path) -> None:
    job = hr.Job("letters")
    rows = job.read(hr.rows([{"v": i} for i in range(6)], "v bigint"), name="rows")
    rows.map(_boom, schema="v bigint", name="divide").write("collect:", name="out")
    run = hr.run(job, folder=str(tmp_path), until="end")
    run.wait(timeout=120)
    assert run.output("out").num_rows == 5
    (letter,) = hr.read_output(tmp_path / "dead").to_pylist()
    assert (letter["input"], letter["offset"], letter["step"]) == ("rows", 3, "divide")
    assert letter["record"] == b'{"v": 3}' and "ZeroDivisionError" in letter["traceback"]
    assert "test_run.py" in letter["traceback"] and "python_steps.py" not in letter["traceback"]


def test_too_many_dead_letters_stop_the_job(spark: Any, tmp_path: Path) -> None:
    job = hr.Job("limited", dead_limit=2)
    rows = job.read(hr.rows([{"v": 3}] * 5, "v bigint"), name="rows")
    rows.map(_boom, schema="v bigint").write("collect:", name="out")
    run = hr.run(job, folder=str(tmp_path), until="end")
    with pytest.raises(hr.RunError) as caught:
        run.wait(timeout=120)
    assert caught.value.code == "HR-RUN-010" and "5 of 5" in str(caught.value)


def test_a_second_driver_fences_the_first(spark: Any, tmp_path: Path) -> None:
    log = _topic(tmp_path)
    log.append("rows", [{"k": "a", "at": 0}])
    older = hr.run(_log_job(tmp_path), folder=str(tmp_path / "job"))
    _until(older, lambda: _seen(older) == 1)
    with pytest.raises(hr.HeadraceError, match="HR-STATE-021"):
        hr.run(_log_job(tmp_path), folder=str(tmp_path / "job"))
    newer = hr.run(_log_job(tmp_path), folder=str(tmp_path / "job"), take_over=True)
    log.append("rows", [{"k": "a", "at": t} for t in range(1_000, 30_000, 1_000)])
    with pytest.raises(hr.FencedError) as caught:
        older.wait(timeout=120)
    assert caught.value.code == "HR-STATE-007"
    newer.drain()
    newer.wait(timeout=120)
    assert sum(newer.output("counts")["n"].to_pylist()) == 30


def test_a_driver_that_has_nothing_to_do_learns_that_it_is_fenced(
    spark: Any, tmp_path: Path
) -> None:
    log = _topic(tmp_path)
    log.append("rows", [{"k": "a", "at": 0}])
    older = hr.run(_log_job(tmp_path), folder=str(tmp_path / "job"))
    _until(older, lambda: _seen(older) == 1)
    with pytest.raises(hr.HeadraceError, match="HR-STATE-021"):
        hr.run(_log_job(tmp_path), folder=str(tmp_path / "job"))
    newer = hr.run(_log_job(tmp_path), folder=str(tmp_path / "job"), take_over=True)
    with pytest.raises(hr.FencedError):
        older.wait(timeout=30)
    newer.stop()


def test_a_job_that_has_ended_says_so_when_there_is_more(spark: Any, tmp_path: Path) -> None:
    log = _topic(tmp_path)
    log.append("rows", [{"k": "a", "at": 0}])
    hr.run(_log_job(tmp_path), folder=str(tmp_path / "job"), until="end").wait(timeout=120)
    log.append("rows", [{"k": "a", "at": 1}])
    with pytest.raises(hr.StateError) as caught:
        hr.run(_log_job(tmp_path), folder=str(tmp_path / "job"), until="end")
    assert caught.value.code == "HR-STATE-020"


def test_workers_take_arrows_memory_from_the_system(spark: Any, tmp_path: Path) -> None:
    """Arrow's own pool would keep back several times what it holds, in every worker."""

    def pool(table: pa.Table) -> pa.Table:
        return pa.table({"pool": [pa.default_memory_pool().backend_name] * table.num_rows})

    job = hr.Job("pools")
    rows = job.read(hr.rows([{"v": 1}, {"v": 2}], "v bigint"))
    rows.map_batches(pool, schema="pool string").write("collect:", name="pools")
    run = hr.run(job, folder=str(tmp_path / "job"), until="end")
    assert run.wait(timeout=120).state == "ended"
    assert run.output("pools").column("pool").to_pylist() == ["system", "system"]
