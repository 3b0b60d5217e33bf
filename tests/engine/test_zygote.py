"""The processes that Spark starts as its Python: forks of the zygote, real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.engine import session

PROGRAM = """
import signal, sys, time
if sys.argv[1] == "patient":
    signal.signal(signal.SIGTERM, lambda *_: (print("asked to end"), sys.exit()))
print("begun", sys.argv[1], flush=True)
if sys.argv[1] != "short":
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("zygote") / "socket"
    server = subprocess.Popen(
        [sys.executable, "-m", "headrace.engine.zygote", str(path)], stdin=subprocess.PIPE
    )
    while not path.exists():
        assert server.poll() is None
        time.sleep(0.02)
    yield str(path)
    assert server.stdin is not None
    server.stdin.close()
    server.wait(timeout=10)


def started(socket: str, tmp_path: Path, how: str) -> subprocess.Popen[str]:
    """What stands for a process that Spark asks for, started as Spark's JVM starts it: with
    SIGTERM ignored."""
    (tmp_path / "program_of_test.py").write_text(PROGRAM)
    environment = {
        **os.environ, "HEADRACE_ZYGOTE": socket, "HEADRACE_PYTHON": sys.executable,
        "PYTHONPATH": str(tmp_path),
    }  # fmt: skip
    return subprocess.Popen(
        [session._LAUNCHER, "-m", "program_of_test", how], env=environment, text=True,
        stdout=subprocess.PIPE, stdin=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),  # noqa: PLW1509
    )  # fmt: skip


def test_it_lives_as_long_as_the_process_it_stands_for(socket: str, tmp_path: Path) -> None:
    said, _ = started(socket, tmp_path, "short").communicate(timeout=30)
    assert said == "begun short\n"


def test_a_request_to_end_is_passed_on(socket: str, tmp_path: Path) -> None:
    process = started(socket, tmp_path, "patient")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun patient\n"
    process.terminate()
    said, _ = process.communicate(timeout=30)  # of the fork: it has the other end of the pipe
    assert said == "asked to end\n"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_what_stands_for_it_at_whatever_moment(socket, tmp_path, how) -> None:
    """The shell in its place may only have begun when it is told to end."""
    for _ in range(10):
        process = started(socket, tmp_path, "long")
        assert process.stdout is not None
        assert process.stdout.readline() == "begun long\n"
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"sh\0"):
            continue
        process.send_signal(how)
        process.communicate(timeout=30)


def test_who_waits_is_no_python(socket: str, tmp_path: Path) -> None:
    process = started(socket, tmp_path, "long")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun long\n"
    deadline = time.monotonic() + 30
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"sh\0"):
        assert time.monotonic() < deadline, "a Python waits"
    process.terminate()
    process.communicate(timeout=30)
