"""Stopping programs at a moment of their start, and looking at what they left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.engine.killing import ROOT, left_behind


class Stopped(NamedTuple):
    code: int
    told: str
    processes: list[str]  # that are left
    files: list[str]  # that are left in the temporary folder


@contextmanager
def short_temp() -> Iterator[Path]:
    """A temporary folder with a path that sockets can have."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="hr") as folder:
        yield Path(folder)


def environment(temp: Path) -> dict[str, str]:
    ours = ("HEADRACE_", "PYSPARK_", "SPARK_")
    known = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return {**known, "TMPDIR": str(temp)}


def stopped(place: Path, how: str, moment: str, sent: str, to: str) -> Stopped:
    """Run tests/engine/stop_job.py in a session of its own, until it has ended."""
    with short_temp() as temp, (place / "told").open("w") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.stop_job", str(place), how, moment, sent, to],
            cwd=ROOT, env=environment(temp), stdout=told, stderr=told, start_new_session=True,
        )  # fmt: skip
        code = process.wait(timeout=120)
        # What was killed with nobody to wait for it takes the system a moment to bury.
        processes = left_behind(process.pid, within=5)
        return Stopped(code, (place / "told").read_text(), processes, os.listdir(temp))


def check(found: Stopped, how: str, sent: str) -> None:
    assert (found.processes, found.files) == ([], []), found
    assert f"stopped: stopped by {sent} while it was starting" in found.told, found
    assert found.code == (0 if how == "cli" else -signal.Signals[sent]), found
    if how == "cli" or sent != "SIGINT":  # of a script, Ctrl-C is Python's own exception
        assert "Traceback" not in found.told, found
    assert "org.apache.spark" not in found.told and "py4j" not in found.told, found
