"""Files of a server's home that are damaged or gone while jobs run: each job goes on or is started
again, never twice, and the loop that watches over all of them never ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.server.lifecycle import State
from headrace.server.processes import Processes
from headrace.server.store import Store
from tests.server.worlds import PATIENCE, World, is_alive, program


@pytest.fixture
def run(world: World) -> Path:
    """The folder of the first run of a job that runs."""
    world.open()
    world.send('{"k": "a", "n": 1}')
    world.service.submit(world.write("shop.py", program()))
    world.until(lambda: world.epoch("shop") == 1)
    world.until_state("shop", State.RUNNING)
    assert world.daemon is not None
    return world.daemon.home.run("shop", 1)


def launcher_of(run: Path) -> int:
    return int(json.loads((run / "process.json").read_text())["pid"])


def goes_on(world: World, epoch: int) -> None:
    world.send('{"k": "a", "n": 1}')
    world.until(lambda: world.epoch("shop") >= epoch, "a further epoch")
    world.until_state("shop", State.RUNNING)


def _remove(run: Path) -> None:
    (run / "process.json").unlink()


def _written(text: str) -> Callable[[Path], None]:
    def write(run: Path) -> None:
        (run / "process.json").write_text(text)

    return write


ODD = ("", "[]", '{"pid": "x", "start": "y"}', '{"pid": -1, "start": 7}', '{"pi')
DAMAGES = [*map(_written, ODD), _remove, shutil.rmtree]


def test_a_run_whose_note_of_its_process_is_lost_is_found(world: World, run: Path) -> None:
    """By the server that has started it, and by the next one."""
    pid = launcher_of(run)
    for damage in DAMAGES:
        damage(run)
        for _ in range(2):
            turns(world, 2)
            assert world.service.job("shop").job.pid == pid
            assert world.state("shop") == State.RUNNING
            world.close()
            world.open()
    assert world.kinds("shop").count("started") == 1
    world.service.deactivate("shop")
    world.until_state("shop", State.INACTIVE)
    assert not is_alive(pid)


def turns(world: World, count: int) -> None:
    assert world.daemon is not None
    for _ in range(count):
        world.daemon.parts.supervisor.turn()


def test_a_job_whose_launcher_and_its_note_are_gone_is_ended_and_started_again(
    world: World, run: Path
) -> None:
    """The job itself lives, and nothing but its environment tells whose it is."""
    world.close()
    pid = launcher_of(run)
    environment = {**os.environ, "HEADRACE_RUN_FOLDER": str(run)}
    command = [sys.executable, "-c", "input()"]
    left = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE)
    os.kill(pid, signal.SIGKILL)
    (run / "process.json").unlink()
    world.open()
    assert left.wait(30) == -signal.SIGKILL
    assert left.stdin is not None
    left.stdin.close()
    goes_on(world, 2)


NOTES = (
    "{}", "[]", "", '{"code": "x", "asked": 1, "ended": 2}',
    '{"code": 1e999, "asked": 1, "ended": 2}', '{"code": 1, "asked": 1, "ended": null}',
    '{"code": -35, "asked": false, "error": "no", "ended": 1}',  # a signal without a name
)  # fmt: skip


def test_a_note_of_the_end_that_cannot_be_read_is_that_of_a_kill(world: World, run: Path) -> None:
    for number, note in enumerate(NOTES, 1):
        world.close()
        run = world.place / "home" / "jobs" / "shop" / "runs" / str(number)
        os.kill(launcher_of(run), signal.SIGKILL)
        (run / "exit.json").write_text(note)
        world.open()
        goes_on(world, number + 1)
    assert world.kinds("shop").count("restarting") == len(NOTES)


def test_what_cannot_be_read_or_stored_stops_neither_loop(
    world: World, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An odd note of a run; a store that cannot be written, as where the disk is full; and a fault
    of ours. A job that ends meanwhile is started when there is room."""
    assert world.daemon is not None
    folder = world.place / ".headrace" / "jobs" / "shop"
    for note in ("[]", '{"format": 1, "time": "x", "pid": 1, "started": 1}', "{"):
        (folder / "live.json").write_text(note)
        world.daemon.parts.sampling.sample()
    assert world.service.job("shop").figures is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "_transaction", _full)
        os.kill(launcher_of(run), signal.SIGKILL)
        world.until(lambda: not is_alive(launcher_of(run)))
        turns(world, 3)
        world.daemon.parts.sampling.sample()
    goes_on(world, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Processes, "look", _faulty)
        turns(world, 2)
    world.until(lambda: world.service.job("shop").job.reason == "TypeError: a fault")
    os.kill(launcher_of(run.with_name("2")), signal.SIGKILL)
    goes_on(world, 3)


def _full(self: Store) -> object:
    from headrace.errors import ServerError

    raise ServerError("HR-SERVER-013", "the database or disk is full", "Make room.")


def _faulty(self: Processes, run: Path) -> object:
    raise TypeError("a fault")


def test_what_has_left_its_session_is_killed_with_its_run(tmp_path: Path) -> None:
    """And what has left its environment, while the launcher lives."""
    code = (
        "import os, subprocess, sys, time\n"
        "wait = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "subprocess.Popen(wait, start_new_session=True)\n"
        "subprocess.Popen(wait, env={})\n"
        "time.sleep(600)\n"
    )
    processes = Processes(tmp_path, lambda arguments: [sys.executable, "-c", *arguments])
    run = tmp_path / "runs" / "1"
    processes.start(run, [code])
    deadline = time.monotonic() + PATIENCE
    while len(processes.members(run)) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    members = processes.members(run)
    assert processes.kill(run)
    assert not [pid for pid in members if is_alive(pid)]
