"""Processes of runs: who they are, how they end, what they leave; with small programs as jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from headrace.server import launcher
from headrace.server.logs import log_of
from headrace.server.processes import Processes, RunProcess
from tests.server.worlds import is_alive

WITHIN = 60.0


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    processes = Processes(tmp_path, python)
    for run in tmp_path.glob("run*"):
        processes.kill(run)


def python(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", *arguments]


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def launched(place: Path, code: str, **options: int) -> tuple[Processes, Path]:
    processes, run = Processes(place, python, **options), place / f"run{len(list(place.iterdir()))}"
    processes.start(run, [code])
    until(lambda: processes.look(run).launched)
    return processes, run


def ended(processes: Processes, run: Path) -> RunProcess:
    until(lambda: processes.look(run).pid is None)
    return processes.look(run)


@pytest.mark.parametrize(
    ("code", "wanted"),
    [("0", 0), ("raise SystemExit(75)", 75), ("import os; os.kill(os.getpid(), 9)", -9)],
)
def test_how_it_has_ended_is_noted(place: Path, code: str, wanted: int) -> None:
    note = ended(*launched(place, code)).exit
    assert note is not None and (note.code, note.asked) == (wanted, False)
    assert note.clean is (wanted == 0)


def test_the_error_of_the_command_is_noted_with_it(place: Path) -> None:
    code = (
        "import json, os; file = open(os.environ['HEADRACE_NOTE_ERROR'], 'w');"
        "json.dump({'code': 'HR-X-001', 'text': 'HR-X-001 it is so'}, file); file.close();"
        "raise SystemExit(1)"
    )
    note = ended(*launched(place, code)).exit
    assert note is not None and (note.code, note.error_code) == (1, "HR-X-001")
    assert note.error == "HR-X-001 it is so"


def test_what_cannot_be_started_has_ended(place: Path) -> None:
    processes, run = Processes(place, lambda arguments: ["/no/such/program"]), place / "run"
    processes.start(run, [])
    until(lambda: processes.look(run).launched)
    note = ended(processes, run).exit
    assert note is not None and note.code == 1 and "cannot be started" in str(note.error)


SLEEPS = (
    "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0));"
    "print('up', flush=True); time.sleep(600)"
)


def up(run: Path) -> None:
    until(lambda: "up" in log_of(run, 0, 10).lines)


def test_it_is_asked_to_stop(place: Path) -> None:
    processes, run = launched(place, SLEEPS)
    up(run)
    processes.stop(run)
    note = ended(processes, run).exit
    assert note is not None and note.asked and note.clean and note.code == 0


def test_one_that_has_no_handler_yet_stops_cleanly_too(place: Path) -> None:
    processes, run = launched(place, "import time; print('up', flush=True); time.sleep(600)")
    up(run)
    processes.stop(run)
    note = ended(processes, run).exit
    assert note is not None and note.clean and note.code == -signal.SIGTERM


def test_a_killed_run_has_no_note_and_leaves_nobody(place: Path) -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]).wait()"
    processes, run = launched(place, code)
    up(run)
    members = processes.members(run)
    assert len(members) == 3  # the launcher, the command, and what that has started
    os.kill(processes.look(run).pid or 0, signal.SIGKILL)
    until(lambda: processes.look(run).pid is None)
    assert processes.look(run).exit is None
    assert processes.kill(run)
    assert not any(map(is_alive, members)) and processes.members(run) == []


def test_a_process_of_another_time_with_the_same_number_is_left_alone(place: Path) -> None:
    """Numbers are used again: this one is somebody's who has nothing to do with us."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        run = place / "run"
        run.mkdir()
        start = launcher.start_of(other.pid)
        assert start is not None
        boot, ticks = start.split()
        who = {"pid": other.pid, "start": f"{boot} {int(ticks) - 100}"}
        (run / launcher.PROCESS).write_text(json.dumps(who))
        processes = Processes(place, python)
        assert processes.look(run) == RunProcess(True)  # it is gone, without a note
        processes.stop(run)
        assert processes.members(run) == [] and processes.kill(run)
        assert other.poll() is None and is_alive(other.pid)
        (run / launcher.PROCESS).write_text(json.dumps({"pid": other.pid, "start": start}))
        assert processes.look(run).pid == other.pid  # the very same is found
        other.communicate(b"\n")
    assert launcher.start_of(other.pid) is None


def test_another_server_finds_a_run_and_its_end(place: Path) -> None:
    _, run = launched(place, SLEEPS)
    up(run)
    other = Processes(place, python)
    assert other.look(run).pid is not None
    other.stop(run)
    note = ended(other, run).exit
    assert note is not None and note.clean


def test_a_launch_that_is_called_off_does_not_happen(place: Path) -> None:
    processes, run = Processes(place, python), place / "run"
    run.mkdir()
    assert processes.call_off(run) and not processes.call_off(run)
    processes.start(run, ["open('happened', 'w')"])
    until(lambda: processes.look(run).launched and not processes.is_ours(run))
    assert processes.look(run) == RunProcess(True) and not (place / "happened").exists()


def test_a_launch_that_has_happened_cannot_be_called_off(place: Path) -> None:
    processes, run = launched(place, SLEEPS)
    assert not processes.call_off(run)
    assert processes.look(run).pid is not None


def test_it_gets_a_secret_that_is_never_written(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for the moment either that the launcher takes to begin: here it never does."""
    monkeypatch.setenv("PASSWORD", "swordfish")
    processes, run = launched(place, "import os; print(os.environ['PASSWORD'])")
    ended(processes, run)
    assert log_of(run, 0, 10).lines == ("swordfish",)
    left = [path for path in run.iterdir() if b"swordfish" in path.read_bytes()]
    assert [path.name for path in left] == ["log.txt"]
    monkeypatch.setattr(sys, "executable", "/bin/true")
    processes.start(place / "other", [])
    assert [path.name for path in (place / "other").iterdir()] == ["order.json"]
    assert b"swordfish" not in (place / "other" / "order.json").read_bytes()


def test_a_log_is_bounded_and_read_in_parts(place: Path) -> None:
    code = "for n in range(20000): print(f'line {n:05}')"
    processes, run = launched(place, code, log_bytes=100_000)
    ended(processes, run)
    size = sum(path.stat().st_size for path in run.glob("log*.txt"))
    assert 50_000 <= size <= 100_000 + 2 * (1 << 16)
    last = log_of(run, None, 3)
    assert last.lines == ("line 19997", "line 19998", "line 19999")
    assert last.next == 20_000 * 11 and log_of(run, last.next, 3).lines == ()
    seen, at = list[str](), 0
    while (part := log_of(run, at, 700)).lines:
        seen += part.lines
        at = part.next
    assert seen[-1] == "line 19999" and len(seen) >= 4_000
    whole = [line for line in seen if line.startswith("line ") and len(line) == 10]
    numbers = [int(line[5:]) for line in whole]
    assert numbers == list(range(numbers[0], 20_000)) and len(seen) - len(whole) <= 1


def test_a_line_that_is_not_complete_waits(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(b"one\ntw")
    part = log_of(tmp_path, 0, 10)
    assert (part.lines, part.next) == (("one",), 4)
    (tmp_path / "log.txt").write_bytes(b"one\ntwo\r\n\xff\n")
    assert log_of(tmp_path, part.next, 10).lines == ("two", "\N{REPLACEMENT CHARACTER}")
    assert log_of(tmp_path / "nothing", None, 10).lines == ()
