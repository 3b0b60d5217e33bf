"""What a server that was killed, files that were removed, and other versions leave behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import headrace as hr
from headrace.server.daemon import Daemon
from headrace.server.lifecycle import State
from headrace.server.processes import Processes
from headrace.server.questions import Questions
from headrace.server.records import JobRecord
from headrace.testing import Driver
from tests.server.worlds import World, program

FAILS = """
def price(row):
    return {{"x": 1 / (row["n"] - {wrong})}}
rows.map(price, schema="x double", name="price").write("files:prices", name="prices")
"""


def test_a_question_of_a_server_that_was_killed_is_ended_by_the_next_one(tmp_path: Path) -> None:
    """It may be a rewind: what the next server does for the job would meet it."""
    home = tmp_path / "home"
    with Daemon(home) as daemon:
        path = daemon.home.path
    environment = {**os.environ, "HEADRACE_ASKED_FROM": str(path)}
    words = [sys.executable, "-c", "input()"]
    with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE) as left:
        other = Questions(tmp_path, list, home=tmp_path / "other")
        assert other.ask(["printenv", "HEADRACE_ASKED_FROM"]).strip() == str(tmp_path / "other")
        assert left.poll() is None
        with Daemon(home):
            assert left.wait(30) == -9


def test_a_job_that_is_killed_before_it_has_a_process_never_gets_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its launcher is on its way, of a server that has died since."""
    daemon = world.open()
    world.service.submit(world.write("shop.py", program()), activate=False)
    daemon.parts.supervisor.close()
    run = daemon.home.run("shop", 1)
    monkeypatch.setattr("headrace.server.processes.sys.executable", "/bin/true")
    Processes(world.place, lambda words: ["touch", str(world.place / "ran")]).start(run, [])
    monkeypatch.undo()
    record = replace(daemon.parts.desk.record("shop"), state=State.KILLED, run=1, launched=True)
    daemon.parts.supervisor._kill_all(daemon.parts.desk.put(record))
    assert not daemon.parts.desk.record("shop").launched
    (run / "order.json").write_text('{"command": ["/bin/true"], "cwd": "/", "log_bytes": 9}')
    launcher = Path(sys.modules["headrace.server.launcher"].__file__ or "")
    subprocess.run([sys.executable, "-I", "-S", str(launcher), str(run)], check=True)
    assert not (run / "exit.json").exists()  # it has given up


def test_a_folder_that_was_removed_and_begun_anew_is_not_taken_for_the_old_one(
    tmp_path: Path,
) -> None:
    """Though its newest epoch has the same number."""

    def run(rows: int) -> None:
        job = hr.Job("shop")
        job.read(hr.rows([{"n": 1}] * rows, "n bigint"), name="in").write("collect:", name="out")
        driver = Driver(job, tmp_path / "job", max_batch=10)
        driver.epoch()
        driver.close()

    with Daemon(tmp_path / "home") as daemon:
        desk, record = daemon.parts.desk, JobRecord("shop", "shop.py", str(tmp_path / "job"), 0)
        for rows in (3, 2):
            run(rows)
            manifest = desk.manifest(record)
            assert manifest is not None and manifest is desk.manifest(record)
            assert (manifest.epoch, manifest.counts["in"]["read"]) == (1, rows)
            shutil.rmtree(tmp_path / "job")
        assert desk.manifest(record) is None


def test_tracebacks_and_logs_name_the_users_file_and_the_version_if_it_is_another(
    world: World,
) -> None:
    with world.running() as service:
        path = world.write("shop.py", program() + FAILS.format(wrong=1))
        world.send('{"k": "a", "n": 1}')
        service.submit(path)
        world.until(lambda: service.dead("shop")["total"] == 1)
        number = service.dead("shop")["letters"][0]["number"]
        trace = service.dead_letter("shop", number)["traceback"]
        assert f'File "{path}", line' in trace and str(world.place / "home") not in trace
        world.write("shop.py", program() + FAILS.format(wrong=3))
        service.upgrade("shop")
        world.until(lambda: service.job("shop").job.version == 2)
        trace = service.dead_letter("shop", number)["traceback"]
        assert f'File "{path} of version 1", line' in trace
        record = world.daemon.parts.desk.record("shop")
        said = world.daemon.parts.desk.in_users_words(
            record, f"{world.daemon.home.version('shop', 2)}/program/sizes.py:1 and more"
        )
        assert said == f"{world.programs}/sizes.py:1 and more"
