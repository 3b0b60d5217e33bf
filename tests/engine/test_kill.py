"""kill -9 of everything at each durable step of a batch on real Spark, then a fresh start.

The verifier is this process; driver, JVM and workers are another session, which a crash
point kills whole. The outputs after the restart equal those of an undisturbed run, for every
sink at once. Each step costs two starts of Spark; the in-process suite has all passings.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.state.manifest import EpochLog
from headrace.testing import Driver
from tests.runtime.crashing import ROWS, build, contents

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parent.parent.parent
POINTS = [
    "offset.written:2", "source.read:2", "sink.stage:3", "run.synced:2", "state.written:2",
    "commit.checked:2", "commit.manifest:2", "sink.publish:3", "commit.done:2",
]  # fmt: skip


def start(place: Path, crash: str | None) -> int:
    environment = {k: v for k, v in os.environ.items() if k != "HEADRACE_ZYGOTE"}
    if crash:
        environment |= {"HEADRACE_CRASH": crash, "HEADRACE_CRASH_SESSION": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.kill_job", str(place)],
        cwd=ROOT, env=environment, start_new_session=True, capture_output=True, timeout=300,
        check=False,
    )  # fmt: skip
    return done.returncode


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[Any]]:
    place = tmp_path_factory.mktemp("wanted")
    Driver(build(place), place / "job", max_batch=40).drain()
    return contents(place)


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_this_step_loses_and_doubles_nothing(
    point: str, tmp_path: Path, wanted: dict[str, Counter[Any]]
) -> None:
    assert start(tmp_path, point) == -9
    assert start(tmp_path, None) == 0
    assert contents(tmp_path) == wanted
    latest = EpochLog(tmp_path / "job").latest()
    assert latest is not None and latest.body["ended"]
    for counts in latest.body["counts"].values():
        assert counts["read"] == len(ROWS)
        assert len(ROWS) == sum(counts[f] for f in ("used", "filtered", "late", "dead"))
    assert hr.read_output(tmp_path / "job" / "dead").num_rows == 8
