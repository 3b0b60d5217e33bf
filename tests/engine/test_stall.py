"""A Python worker that is stopped, for real: the run reports that it is stalled, then goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import headrace as hr

pytestmark = pytest.mark.spark


def test_a_run_whose_worker_is_stopped_says_so_and_goes_on_when_it_does(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_STALL_AFTER", "2s")
    mark = str(tmp_path / "worker")

    def stopping(row: Any) -> dict[str, Any]:
        if not os.path.exists(mark):
            with open(f"{mark}.new", "w") as file:
                file.write(str(os.getpid()))
            os.rename(f"{mark}.new", mark)
            os.kill(os.getpid(), signal.SIGSTOP)
        return {"v": row.v}

    job = hr.Job("stopping")
    rows = job.read(hr.rows([{"v": 1}], "v bigint"), name="rows")
    rows.map(stopping, schema="v bigint").write("collect:", name="out")
    run = hr.run(job, folder=str(tmp_path / "job"), until="end")
    try:
        warnings: tuple[str, ...] = ()
        while not (os.path.exists(mark) and warnings and "1 running" in warnings[0]):
            assert run.wait(timeout=0.1).state == "running"
            warnings = run.status.warnings
        (warning,) = warnings
        assert warning.startswith("stalled: batch 1 has been under way for ")
        assert "on 1 executor" in warning
        assert run.why().reasons[0].kind == "standstill"
    finally:
        os.kill(int(Path(mark).read_text()), signal.SIGCONT)
    assert run.wait(timeout=120).state == "ended"
    assert run.output("out").to_pylist() == [{"v": 1}] and run.status.warnings == ()
    told = capfd.readouterr().err
    assert "stopping: stalled: batch 1" in told
    assert not (tmp_path / "job" / "standstill.json").exists()
