"""The commands about jobs, without a server: of jobs that run, have stopped, are damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.app import app
from headrace.driver.planner import stop_requested
from headrace.testing import Driver
from tests.terminal import forget

JOBS = Path(".headrace") / "jobs"
OF_A_JOB = ("describe", "history", "deactivate", "drain", "kill", "events", "logs")


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def type_in(*words: str) -> Any:
        try:
            return CliRunner().invoke(app, list(words))
        finally:
            forget(tmp_path)

    return type_in


def _driver(name: str, rows: int = 6, *, until: str | None = "end", max_batch: int = 2) -> Driver:
    job = hr.Job(name)
    values = [{"v": i if i != 3 else None} for i in range(rows)]
    numbers = job.read(hr.rows(values, "v bigint"), name="in")
    numbers.map(lambda r: (1 // (r.v - 1),), schema="v bigint", name="inverse").write(
        "collect:", name="out"
    )
    return Driver(job, JOBS / name, until=until, max_batch=max_batch)


def test_jobs_lists_what_runs_has_ended_and_cannot_be_read(call):
    ended = _driver("ended")
    ended.drain()
    ended.close()
    running = _driver("running")
    running.epoch()
    damaged = _driver("damaged")
    damaged.drain()
    damaged.close()
    manifest = max((JOBS / "damaged" / "epochs").iterdir())
    manifest.write_text(manifest.read_text()[:-20])

    result = call("list")
    head, *lines = result.stdout.splitlines()
    assert head.split() == [
        "job", "state", "epoch", "committed", "read", "late", "dead", "folder",
    ]  # fmt: skip
    by_name = {line.split()[0]: line for line in lines}
    assert " ended " in by_name["ended"] and by_name["ended"].split()[-3:-1] == ["0", "2"]
    assert f"running (process {os.getpid()} on " in by_name["running"]
    assert "HR-STATE-" in by_name["damaged"]
    shown = {row["job"]: row for row in json.loads(call("list", "--json").stdout)}
    assert shown["ended"]["read"] == 6 and shown["ended"]["dead"] == 2
    assert shown["running"]["read"] == 2
    running.close()


def test_without_jobs_it_says_so(call):
    assert call("list").stdout == "there are no jobs in '.headrace/jobs'\n"


@pytest.mark.parametrize("place", ["one", ".headrace/jobs/one"])
def test_status_shows_the_last_batch_and_where_every_record_went(call, place):
    driver = _driver("one")
    driver.epoch()
    assert call("describe", place).stdout.startswith("one: running (process ")
    driver.drain()
    driver.close()

    shown = call("describe", place).stdout
    assert shown.startswith("one: ended, in .headrace/jobs/one\n  last batch, ")
    assert "input  in: read 6 = used 4 + filtered 0 + late 0 + dead 2" in shown
    assert "output out: wrote 4" in shown
    assert "  latency to the commit: from arrival p50 " in shown
    found = json.loads(call("describe", place, "--json").stdout)
    assert found["epoch"] == found["figures"]["epoch"] == driver.manifest.epoch
    assert found["figures"]["totals"]["read"] == 6


def test_history_shows_what_each_batch_did(call):
    driver = _driver("one")
    driver.drain()
    driver.close()

    batches = json.loads(call("history", "one", "--json").stdout)
    assert [b["read"] for b in batches] == [2, 2, 2]
    assert [b["wrote"] for b in batches] == [1, 1, 2]
    assert [b["dead"] for b in batches] == [1, 1, 0]
    (newest,) = json.loads(call("history", "one", "--last", "1", "--json").stdout)
    assert newest == batches[-1]
    assert call("history", "one").stdout.splitlines()[0].split()[:4] == [
        "epoch", "committed", "took_ms", "read",
    ]  # fmt: skip


def test_what_a_batch_before_those_stored_did_is_not_guessed(call):
    driver = _driver("one", rows=60)
    driver.drain()
    driver.close()
    first = json.loads(call("history", "one", "--last", "100", "--json").stdout)[0]

    assert first["epoch"] > 1 and first["read"] == 2
    assert (first["wrote"], first["dead"], first["late"]) == (None, None, None)


def test_deactivate_asks_a_job_that_runs_and_waits(call):
    assert call("deactivate", "one").exit_code == 1  # there is no such job
    driver = _driver("one")
    result = call("deactivate", "one", "--timeout", "0.2")
    assert result.exit_code == 1 and "HR-CLI-008" in result.stderr
    assert stop_requested(JOBS / "one") and driver.epoch() is None
    driver.close()

    assert call("deactivate", "one").stdout == "one is not running\n"


@pytest.mark.parametrize("command", [*OF_A_JOB, "why"])
def test_what_is_no_job_is_refused(call, tmp_path, command):
    (tmp_path / "empty").mkdir()
    (tmp_path / "new.py").write_text('import headrace as hr\njob = hr.Job("new")\n')

    for place in ("nothing", "empty"):
        result = call(command, place)
        assert result.exit_code == 1 and "HR-CLI-005" in result.stderr, result.output
    assert call(command, "missing.py").exit_code == 1


@pytest.mark.parametrize("command", OF_A_JOB)
def test_a_program_that_has_not_run_is_refused(call, tmp_path, command):
    (tmp_path / "new.py").write_text(
        dedent(
            """
            import headrace as hr

            job = hr.Job("new")
            job.read(hr.rows([(1,)], "v int")).write("collect:", name="out")
            """
        )
    )
    result = call(command, "new.py")
    assert result.exit_code == 1 and "HR-CLI-007" in result.stderr
    assert not (tmp_path / ".headrace").exists()


@pytest.mark.parametrize("command", ["list", *OF_A_JOB])
def test_help_has_an_example(call, command):
    assert "Example:" in call(command, "--help").stdout


# dead letters


def test_dead_letters_are_counted_listed_and_shown(call):
    driver = _driver("one")
    driver.drain()
    driver.close()

    assert json.loads(call("dead", "count", "one", "--json").stdout) == [
        {"step": "inverse", "error": "ZeroDivisionError", "letters": 1},
        {"step": "inverse", "error": "TypeError", "letters": 1},
    ]
    head, first, second = call("dead", "ls", "one").stdout.splitlines()
    assert head.split() == ["number", "epoch", "step", "place", "error"]
    assert first.split()[:3] == ["1", "1", "inverse"] and "ZeroDivisionError" in first
    assert second.split()[0] == "2" and "TypeError" in second
    assert call("dead", "ls", "one", "--limit", "1").stdout.splitlines()[1:] == [second]
    shown = call("dead", "show", "one", "1").stdout
    assert "step      inverse" in shown and 'record    {"v": 1}' in shown
    assert "ZeroDivisionError" in shown and "test_folders.py" in shown
    assert json.loads(call("dead", "show", "one", "--json").stdout)["number"] == 2
    assert "HR-CLI-010" in call("dead", "show", "one", "3").stderr
    assert call("dead", "ls", "one", "--step", "other").stdout == "there are no dead letters\n"


def test_dead_letters_are_replayed_and_gone_from_the_list(call):
    driver = _driver("one")
    driver.drain()
    driver.close()

    assert call(
        "dead", "replay", "one", "--step", "inverse", "--error", "Zero", "--dry-run"
    ).stdout == ("job one: 1 dead letter would be replayed\n")
    assert call("dead", "replay", "one", "--number", "2").stdout == (
        "job one: 1 dead letter will be replayed\n"
    )
    found = json.loads(call("dead", "replay", "one", "--epoch", "1-9", "--json").stdout)
    assert (found["asked"], found["waiting"], found["refused"]) == (1, 1, [])
    head, first, second = call("dead", "ls", "one").stdout.splitlines()
    assert "replay" in head.split() and "to be replayed" in first and "to be replayed" in second
    assert "HR-CLI-023" in call("dead", "replay", "one", "--epoch", "x").stderr

    job = hr.Job("one")
    numbers = job.read(hr.rows([{"v": 0}] * 6, "v bigint"), name="in")
    numbers.map(lambda r: (0,), schema="v bigint", name="inverse").write("collect:", name="out")
    driver = Driver(job, JOBS / "one", until="end")
    driver.drain()
    assert driver.output("out").num_rows == 6
    driver.close()
    assert call("dead", "ls", "one").stdout == "there are no dead letters\n"
    assert call("dead", "count", "one").stdout == "there are no dead letters\n"
    assert "replay    replayed in epoch " in call("dead", "show", "one", "1").stdout


def test_a_job_without_dead_letters_says_so(call):
    driver = _driver("one", rows=1)
    driver.drain()
    driver.close()

    for command in ("count", "ls"):
        assert call("dead", command, "one").stdout == "there are no dead letters\n"
    assert "HR-CLI-010" in call("dead", "show", "one").stderr


def test_dead_letters_that_the_program_writes_elsewhere_are_not_taken_for_none(call):
    job = hr.Job("own")
    rows = job.read(hr.rows([(0,)], "v bigint"), name="in")
    rows.map(lambda r: (1 // r.v,), schema="v bigint").write("collect:", name="out")
    job.dead.write("collect:", name="letters")
    driver = Driver(job, JOBS / "own")
    driver.drain()
    driver.close()

    assert "HR-CLI-009" in call("dead", "count", "own").stderr


@pytest.mark.spark
def test_stop_stops_a_job_on_spark_after_its_batch(call, tmp_path):
    (tmp_path / "ticks.py").write_text(
        dedent(
            """
            import headrace as hr

            job = hr.Job("ticks")
            ticks = job.read(hr.generate(20, lambda i: {"i": i}), name="ticks")
            ticks.write("collect:", name="out")
            """
        )
    )
    environment = {k: v for k, v in os.environ.items() if k != "HEADRACE_ZYGOTE"}
    command = [sys.executable, "-m", "headrace.cli.app", "run", "ticks.py", "--master", "local[1]"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        deadline = time.monotonic() + 120
        while not list((tmp_path / JOBS / "ticks").glob("epochs/*")):
            assert running.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        assert "running" in call("describe", "ticks.py").stdout
        result = call("deactivate", "ticks")
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()

    assert result.stdout.startswith("ticks has stopped after epoch ")
    assert running.returncode == 0 and "stopped after epoch" in said
    assert " stopped, in " in call("describe", "ticks").stdout
