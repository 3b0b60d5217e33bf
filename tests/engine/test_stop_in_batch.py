"""Ctrl-C in the middle of a batch is answered at once; the second one does not wait for it."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import headrace as hr

pytestmark = pytest.mark.spark


class Screen:
    """Standard error that does something once a text was written to it."""

    def __init__(self, actions: dict[str, Any]) -> None:
        self.text, self._actions = "", actions

    def write(self, text: str) -> int:
        self.text += text
        for awaited in [a for a in self._actions if a in self.text]:
            self._actions.pop(awaited)()
        return len(text)

    def flush(self) -> None:
        return None

    def isatty(self) -> bool:
        return False


def blocked_job(begun: Path, gate: Path) -> hr.Job:
    """Its one batch says that it has begun, and lasts until somebody writes to the gate."""

    def block(row: Any) -> Any:
        open(begun, "w").close()
        open(gate).close()
        return row

    job = hr.Job("blocked")
    rows = job.read(hr.rows([{"n": 1}], schema="n bigint"))
    rows.map(block, schema="n bigint").write("collect:", name="out")
    return job


@pytest.fixture
def pipes(tmp_path: Path) -> tuple[Path, Path]:
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    for path in (begun, gate):
        os.mkfifo(path)
    return begun, gate


def press_when_begun(begun: Path) -> threading.Thread:
    def press() -> None:
        open(begun).close()  # waits until the batch has come to the function
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press, daemon=True)
    thread.start()
    return thread


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_is_answered_while_the_batch_goes_on(spark, tmp_path, pipes, monkeypatch):
    begun, gate = pipes
    screen = Screen({"press Ctrl-C again": lambda: open(gate, "w").close()})
    monkeypatch.setattr("sys.stderr", screen)
    run = hr.run(blocked_job(begun, gate), folder=str(tmp_path / "job"))
    press_when_begun(begun)
    assert run.wait(timeout=60).state == "stopped"
    assert "blocked: stopping after this batch; press Ctrl-C again to stop now\n" in screen.text
    assert run.output("out").to_pylist() == [{"n": 1}]


def test_the_second_does_not_wait_for_the_batch(spark, tmp_path, pipes, monkeypatch):
    begun, gate = pipes
    screen = Screen({"press Ctrl-C again": press})
    monkeypatch.setattr("sys.stderr", screen)
    run = hr.run(blocked_job(begun, gate), folder=str(tmp_path / "job"))
    press_when_begun(begun)
    assert run.wait(timeout=60).state == "stopped"
    assert "blocked: stopping now; the batch in hand is done again at the next" in screen.text
    assert run.progress is None  # nothing was committed
