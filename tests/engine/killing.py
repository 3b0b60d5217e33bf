"""Killing the job of tests/runtime/crashing.py, and looking at what it left from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.state.manifest import EpochLog
from headrace.testing import Driver
from tests.runtime.crashing import ROWS, build, contents

ROOT = Path(__file__).parent.parent.parent

# The durable steps of a batch, in order. A task passes the first kind, and Spark does a task
# again; the driver's own processes pass the others, and without them the query is over.
IN_TASKS = ("source.read", "sink.stage", "run.synced", "state.written")
ON_DRIVER = ("offset.written", "commit.checked", "commit.manifest", "sink.publish", "commit.done")
STEPS = IN_TASKS + ON_DRIVER
OFTEN = ("sink.stage", "sink.publish")  # once per output, and there are seven

Contents = Mapping[str, Counter[Any]]


def start(*words: str, crash: str | None = None, victims: str = "1") -> tuple[int, str, str]:
    """Run tests/engine/kill_job.py in a session of its own: exit code, output, errors."""
    environment = {k: v for k, v in os.environ.items() if k != "HEADRACE_ZYGOTE"}
    if crash:
        environment |= {"HEADRACE_CRASH": crash, "HEADRACE_CRASH_SESSION": victims}
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.kill_job", *words],
        cwd=ROOT, env=environment, start_new_session=True, capture_output=True, timeout=600,
        check=False, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def undisturbed(place: Path, batch: int) -> Contents:
    """What the outputs must hold in the end: a run in one process, without Spark."""
    Driver(build(place), place / "job", max_batch=batch).drain()
    return contents(place)


def check_so_far(place: Path, wanted: Contents) -> None:
    """After a kill: nothing is visible twice, and nothing that will not be there in the end."""
    for name, rows in contents(place).items():
        assert rows <= wanted[name], f"{name} has what it should not: {rows - wanted[name]}"


def check_in_the_end(place: Path, wanted: Contents) -> None:
    """Nothing lost, nothing doubled, every row accounted for."""
    assert contents(place) == wanted, place.name
    latest = EpochLog(place / "job").latest()
    assert latest is not None and latest.body["ended"]
    for counts in latest.body["counts"].values():
        assert counts["read"] == len(ROWS)
        assert len(ROWS) == sum(counts[f] for f in ("used", "filtered", "late", "dead"))
    assert hr.read_output(place / "job" / "dead").num_rows == 8
