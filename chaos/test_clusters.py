"""A cluster that is not there, that has nobody to work, and whose executor is killed at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.engine.cluster import cluster, environment, executors, master, secret_file
from tests.engine.killing import ROOT, check_in_the_end, undisturbed

pytestmark = pytest.mark.spark
BATCH = 8


def start(address: str, place: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.engine.kill_job", str(place), str(BATCH), address],
        cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_master_that_does_not_answer_is_said_so(tmp_path: Path) -> None:
    with secret_file(), start("spark://127.0.0.1:1", tmp_path) as driver:
        _, told = driver.communicate(timeout=300)
    assert driver.returncode == 1
    assert "HR-RUN-003 cannot start Spark on 'spark://127.0.0.1:1': nothing answers there" in told


def test_a_cluster_without_workers_is_said_so(tmp_path: Path) -> None:
    with master() as address, start(address, tmp_path) as driver:
        _, told = driver.communicate(timeout=300)
    assert driver.returncode == 1
    assert f"HR-RUN-007 no executor has come from '{address}' within 60 s" in told


def test_an_executor_that_is_killed_is_replaced_and_nothing_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    wanted = undisturbed(tmp_path / "wanted", BATCH)
    place, work = tmp_path / "killed", tmp_path / "work"
    with cluster(work) as address, start(address, place) as driver:
        for epoch in (2, 6):
            _await_epoch(place, epoch)
            for process in executors(work):
                os.kill(process, signal.SIGKILL)
        _, told = driver.communicate(timeout=300)
    assert driver.returncode == 0, told
    check_in_the_end(place, wanted)
    assert len([*work.glob("app-*/*")]) >= 3  # one for each that was killed


def _await_epoch(place: Path, epoch: int, within: float = 120) -> None:
    deadline = time.monotonic() + within
    while len([*(place / "job" / "epochs").glob("*.json")]) < epoch:
        assert time.monotonic() < deadline
        time.sleep(0.02)
