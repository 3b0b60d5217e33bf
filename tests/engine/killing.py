"""Killing the job of tests/driver/crashing.py, and looking at what it left from outside."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import headrace as hr
from headrace.state.epochs import EpochLog
from headrace.testing import Driver
from tests.driver.crashing import ROWS, build, contents

ROOT = Path(__file__).parent.parent.parent

# The durable steps of a batch, in order. A task passes the first kind, and Spark does a task
# again; the driver's own processes pass the others, and without them the query is over.
IN_TASKS = ("source.read", "sink.stage", "run.synced", "state.written")
ON_DRIVER = ("offset.written", "commit.checked", "commit.manifest", "sink.publish", "commit.done")
STEPS = IN_TASKS + ON_DRIVER
OFTEN = ("sink.stage", "sink.publish")  # once per output, and there are seven

Contents = Mapping[str, Counter[Any]]


class Started(NamedTuple):
    """What came of a start."""

    code: int
    printed: str
    told: str
    session: int


def environment() -> dict[str, str]:
    """Of a program of its own, as a user starts it: modules are compiled once, not each time."""
    found = {k: v for k, v in os.environ.items() if k != "HEADRACE_ZYGOTE"}
    if found.pop("PYTHONDONTWRITEBYTECODE", ""):
        found["PYTHONPYCACHEPREFIX"] = str(ROOT / "build" / "compiled")
    return found


def start(*words: str, crash: str | None = None, victims: str = "1") -> Started:
    """Run tests/engine/kill_job.py in a session of its own, until the driver is gone."""
    orders = {"HEADRACE_CRASH": crash, "HEADRACE_CRASH_SESSION": victims} if crash else {}
    command = [sys.executable, "-m", "tests.engine.kill_job", *words]
    # Files, not pipes: those would be open as long as anybody who can write to them.
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as told:
        driver = subprocess.Popen(
            command, cwd=ROOT, env=environment() | orders, start_new_session=True, stdout=printed,
            stderr=told,
        )  # fmt: skip
        code = driver.wait(timeout=400)
        return Started(code, _whole(printed), _whole(told), driver.pid)


def _whole(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def left_behind(session: int, within: float) -> list[str]:
    """The commands that still run in a session after so many seconds."""
    deadline = time.monotonic() + within
    while (left := _running(session)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def _running(session: int) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(entry.name)) == session:
                found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


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
    assert latest is not None and latest.ended
    for counts in latest.counts.values():
        assert counts["read"] == len(ROWS)
        assert len(ROWS) == sum(counts[f] for f in ("used", "filtered", "late", "dead"))
    assert hr.read_output(place / "job" / "dead").num_rows == 8
