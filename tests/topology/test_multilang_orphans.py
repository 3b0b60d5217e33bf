"""No process of a bolt outlives the one that started it, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 20.0  # seconds until a test gives up

JOB = """
import os, signal, sys, time
from headrace.testing import Harness
from tests.topology.shells import numbers, python
test = Harness(numbers(python(sys.argv[2])))
test.send("numbers", [(1,)])
(row,) = test.output("out")
print(row["v"], flush=True)
exec(sys.argv[1])
"""
# The second one does not end when its input does.
OBEDIENT = "emit(os.getpid()); ack()"
STUBBORN = """
emit(os.getpid()); ack()
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def receive():
    if n: sys.stdout.flush()
    lines = []
    for line in sys.stdin:
        if line == "end\\n": return json.loads("".join(lines))
        lines.append(line)
    time.sleep(1000)
sys.modules["__main__"].receive = receive
"""
ENDS = {
    "ends": "pass",
    "closes": "test.close()",
    "raises": "raise OSError",
    "exits at once": "os._exit(1)",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "is terminated": "os.kill(os.getpid(), signal.SIGTERM)",
    "is hung up": "os.kill(os.getpid(), signal.SIGHUP); time.sleep(100)",
}


@pytest.mark.parametrize("how", list(ENDS))
def test_a_process_ends_with_its_worker(how: str) -> None:
    code = STUBBORN if how in ("closes", "is killed") else OBEDIENT
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    worker = subprocess.Popen(
        [sys.executable, "-c", JOB, ENDS[how], code],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, cwd=ROOT,
    )  # fmt: skip
    assert worker.stdout is not None
    with worker.stdout:
        pid = int(worker.stdout.readline())
    worker.wait(LONGEST)
    until = time.monotonic() + LONGEST
    while running(pid) and time.monotonic() < until:
        time.sleep(0.02)
    try:
        assert not running(pid)
    finally:
        if running(pid):
            os.kill(pid, signal.SIGKILL)


def running(pid: int) -> bool:
    """Whether there is such a process, one that has ended and was not waited for left out."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
