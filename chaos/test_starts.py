"""Signals at every named moment of a start, of every kind, to the leader and to the group, for the
command and for a script; and at moments that nobody has named."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.killing import left_behind
from tests.engine.stop_job import JOB, MOMENTS
from tests.engine.stopping import check, environment, short_temp, stopped
from tools.evidence import record

pytestmark = pytest.mark.spark
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
CASES = [*itertools.product(("cli", "script"), MOMENTS[:-1], SIGNALS, ("group", "leader"))]
DELAYS = [n / 4 for n in range(1, 29)]  # seconds, up to the first batches
_done: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def evidence() -> Iterator[None]:
    yield
    if len(_done) == len(CASES) + len(DELAYS):
        record(
            "starts", "signals while a run starts", "make chaos", faults=len(_done), records=0,
            violations=0,
        )  # fmt: skip


@pytest.mark.parametrize(("how", "moment", "sent", "to"), CASES)
def test_a_signal_ends_the_start_in_words_and_leaves_nothing(
    tmp_path: Path, how: str, moment: str, sent: str, to: str
) -> None:
    check(stopped(tmp_path, how, moment, sent, to), how, sent)
    _done.append(moment)


@pytest.mark.parametrize(("number", "delay"), [*enumerate(DELAYS)])
def test_a_signal_at_any_time_ends_the_command_with_0_and_leaves_nothing(
    tmp_path: Path, number: int, delay: float
) -> None:
    (tmp_path / "job.py").write_text(JOB)
    command = [str(Path(sys.executable).with_name("headrace")), "run", "job.py"]
    with short_temp() as temp, (tmp_path / "told").open("w") as told:
        process = subprocess.Popen(
            [*command, "--master", "local[1]"], cwd=tmp_path, env=environment(temp), stdout=told,
            stderr=told, start_new_session=True,
        )  # fmt: skip
        time.sleep(delay)  # the moment is the point: whatever it is doing then
        os.killpg(process.pid, signal.Signals[SIGNALS[number % len(SIGNALS)]])
        code = process.wait(timeout=120)
        left = left_behind(process.pid, within=5), os.listdir(temp)
    said = (tmp_path / "told").read_text()
    if code < 0:  # Python itself had not begun to run anything of ours
        assert delay < 0.5 and left == ([], []), said
    else:
        assert (code, left) == (0, ([], [])) and "stopped" in said, said
        assert "Traceback" not in said and "org.apache.spark" not in said, said
    _done.append(str(delay))
