"""`headrace savepoint` and `headrace rewind`, typed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.cli.loading import load_job
from headrace.testing import Driver
from tests.terminal import forget

JOBS = Path(".headrace") / "jobs"
PROGRAM = """
import headrace as hr
job = hr.Job("{name}")
numbers = job.read(hr.rows([{{"v": i}} for i in range(6)], "v bigint"), name="in")
numbers.write("collect:", name="out")
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("first", "second"):
        Path(f"{name}.py").write_text(PROGRAM.format(name=name))
    _go("first")

    def type_in(*words: str) -> Any:
        try:
            return CliRunner().invoke(app, list(words))
        finally:
            forget(tmp_path)

    return type_in


def _go(name: str) -> Driver:
    driver = Driver(load_job(Path(f"{name}.py")), JOBS / name, until=None, max_batch=2)
    driver.drain()
    driver.close()
    return driver


def _rows(driver: Driver) -> list[int]:
    return sorted(driver.output("out")["v"].to_pylist())


def test_a_life_of_savepoints(call):
    made = call("savepoint", "create", "first", "early", "--epoch", "1")
    assert made.exit_code == 0 and "input in: 2 rows read; 0 at 2" in made.stdout
    assert "early" in call("savepoint", "list", "first.py").stdout
    (listed,) = json.loads(call("savepoint", "list", str(JOBS / "first"), "--json").stdout)
    shown = json.loads(call("savepoint", "show", "first", "early", "--json").stdout)
    assert listed["epoch"] == shown["epoch"] == 1 and shown["inputs"] == {"in": {"0": 2}}

    restored = call("savepoint", "restore", "first", "early", "--as", "second")
    assert restored.exit_code == 0, restored.stderr
    assert "input     in: same" in call("plan", "second.py").stdout
    assert _rows(_go("second")) == [2, 3, 4, 5]
    assert "HR-SAVEPOINT-005" in call("savepoint", "restore", "first", "early").stderr

    assert call("savepoint", "delete", "first", "early").exit_code == 0
    assert "has no savepoint" in call("savepoint", "list", "first").stdout
    (JOBS / "first" / "savepoints" / "bad.json").write_text("{}")
    assert "corrupt" in call("savepoint", "list", "first").stdout


def test_a_rewind_is_shown_then_done(call):
    shown = call("rewind", "first.py", "--to-epoch", "1")
    assert shown.exit_code == 0 and "nothing was changed" in shown.stderr
    assert "4 rows are read again" in shown.stdout and "4 rows are taken back" in shown.stdout
    as_json = json.loads(call("rewind", "first.py", "--to-epoch", "1", "--json").stdout)
    assert as_json["epoch"] == 1 and as_json["inputs"][0]["rows"] == 4
    assert [b["epoch"] for b in _history(call)] == [1, 2, 3]

    done = call("rewind", "first.py", "--to-epoch", "1", "--yes")
    assert done.exit_code == 0 and "goes on from epoch 1" in done.stdout
    found = _history(call)
    assert [b["epoch"] for b in found] == [1, 2, 3, 4] and found[-1]["wrote"] is None
    assert _rows(_go("first")) == [0, 1, 2, 3, 4, 5]
    refused = call("rewind", "first.py", "--to-epoch", "3", "--yes")
    assert refused.exit_code == 1 and "HR-REWIND-005" in refused.stderr


def test_a_rewind_that_is_refused_says_so_and_fails(call):
    running = Driver(load_job(Path("first.py")), JOBS / "first", until=None, max_batch=2)
    try:
        for more in ((), ("--yes",)):
            refused = call("rewind", "first.py", "--to-epoch", "1", *more)
            assert refused.exit_code == 1 and "HR-STATE-021" in refused.stdout + refused.stderr
    finally:
        running.close()


def _history(call: Callable[..., Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(call("history", "first", "--json").stdout)
    return found
