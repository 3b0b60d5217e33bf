"""`headrace run --restart`: what is started again, when, and what is not."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from headrace.cli.supervise import Supervisor
from headrace.restarts import FAILURES, PASSING

ROOT = Path(__file__).parents[2]
# Ends as the next line of the file `ends` says, a code or a signal; notes its arguments.
CHILD = """
import os, sys, time
from pathlib import Path
place = Path(sys.argv[1])
starts = place / "starts"
with starts.open("a") as file:
    print(*sys.argv[2:], file=file)
ends = (place / "ends").read_text().split()
number = len(starts.read_text().splitlines()) - 1
how = ends[min(number, len(ends) - 1)]
if how.startswith("+"):
    epoch = place / "epoch"
    epoch.write_text(str(int(epoch.read_text()) + 1))
if how == "wait":
    import signal
    signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.2), sys.exit(0)))
    (place / "waits").touch()
    time.sleep(60)
code = int(how.strip("+"))
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def supervisor(place: Path, ends: str, *arguments: str, pace: float = 0.0) -> Supervisor:
    (place / "ends").write_text(ends)
    (place / "epoch").write_text("0")
    command = [sys.executable, "-c", CHILD, str(place), *arguments]
    return Supervisor("job", command, lambda: int((place / "epoch").read_text()), pace)


def starts(place: Path) -> list[str]:
    file = place / "starts"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize(
    ("ends", "code", "times"),
    [
        ("0", 0, 1), ("1", 1, 1), ("2", 2, 1), ("75 -9 75 0", 0, 4), ("-9 -11 1", 1, 3),
        ("75", 75, FAILURES), ("-9", 137, FAILURES), ("75 75 +75 75", 75, 2 + FAILURES),
        ("75 +-9 75 75 +75 0", 0, 6), ("3 0", 0, 2),
    ],
)  # fmt: skip
def test_what_came_of_a_process_decides(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], ends: str, code: int, times: int
) -> None:
    assert supervisor(tmp_path, ends).run() == code
    assert len(starts(tmp_path)) == times
    said = capfd.readouterr().err
    assert said.count("starting again") == times - 1
    assert ("gave up after" in said) is (code in (75, 137))


def test_pauses_grow_and_begin_anew_after_a_batch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    supervisor(tmp_path, "75 75 75 75 75 -9 +75 75 0").run()
    pauses = re.findall(r"again in (\d+) s", capfd.readouterr().err)
    assert pauses == ["5", "10", "20", "40", "60", "32", "5", "10"]


def test_what_was_meant_for_the_state_that_was_met_is_not_repeated(tmp_path: Path) -> None:
    supervisor(tmp_path, "75 +75 75 0", "--take-over", "--until", "end", "--go-back").run()
    both, plain = "--take-over --until end --go-back", "--until end"
    assert starts(tmp_path) == [both, both, plain, plain]


def test_a_signal_ends_it_as_it_ends_the_job(tmp_path: Path) -> None:
    def stop() -> None:
        while not (tmp_path / "waits").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    other = threading.Thread(target=stop)
    other.start()
    assert supervisor(tmp_path, "75 wait").run() == 0
    other.join()
    assert len(starts(tmp_path)) == 2


def test_a_signal_ends_a_pause(tmp_path: Path) -> None:
    stop = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    stop.start()
    code = supervisor(tmp_path, "75", pace=100.0).run()
    stop.join()
    assert code in (75, 0)  # 0: on a slow machine the signal ends the process before the pause
    assert len(starts(tmp_path)) <= 1


def test_codes_that_may_pass_are_codes() -> None:
    known = set(re.findall(r"^\| `(HR-\w+-\d+)` \|", (ROOT / "docs/codes.md").read_text(), re.M))
    assert known >= PASSING


JOB = """
import headrace as hr
job = hr.Job("shop")
rows = job.read(hr.generate(100, lambda i: {"n": i}, total=300), name="numbers")
rows.where("n != 5").write("files:out", name="out")
"""


def headrace_run(place: Path, *words: str, job: str = JOB) -> subprocess.Popen[str]:
    (place / "job.py").write_text(job)
    environment = {k: v for k, v in os.environ.items() if k != "HEADRACE_ZYGOTE"}
    command = [sys.executable, "-m", "headrace_command", "run", "job.py", "--restart", *words]
    return subprocess.Popen(command, cwd=place, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.spark
def test_a_job_that_is_killed_is_started_again_and_has_every_row_once(tmp_path: Path) -> None:
    import headrace as hr

    said, killed = [], 0
    with headrace_run(tmp_path, "--until", "end", "--master", "local[1]") as running:
        for line in running.stderr or ():
            said.append(line)
            if line.startswith("shop: running in") and killed < 2:
                (child,) = psutil.Process(running.pid).children()
                child.kill()
                killed += 1
    assert running.returncode == 0, said
    assert "".join(said).count("shop: killed by SIGKILL; starting again in ") == killed == 2
    found = hr.read_output(tmp_path / "out").column("n").to_pylist()
    assert sorted(found) == [n for n in range(300) if n != 5]


@pytest.mark.spark
def test_an_error_of_the_program_is_not_repeated(tmp_path: Path) -> None:
    text = JOB.replace('"shop"', '"shop", on_error="fail"')
    text = text.replace('where("n != 5")', "filter(lambda r: 1 // (r.n - 5) or bool('x'))")
    with headrace_run(tmp_path, "--until", "end", job=text) as running:
        said = running.communicate(timeout=200)[1]
    assert running.returncode == 1 and "starting again" not in said, said
    assert "HR-STEP-001" in said
