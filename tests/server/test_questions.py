"""Questions to a program, whatever it does while it is imported: an answer or a named error, within
bounds of time and size, and nobody is left."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.errors import ServerError
from headrace.server import questions
from headrace.server.questions import Questions
from tests.server.worlds import is_alive

START = """
import subprocess, sys, os
wait = [sys.executable, "-c", "import time; time.sleep(600)"]
for more in ({}, {"start_new_session": True}, {"process_group": 0}):
    print(subprocess.Popen(wait, **more).pid, file=open("pids", "a"))
"""


def asked(place: Path, code: str, patience: float = 120.0) -> str:
    made = Questions(place, lambda words: [sys.executable, "-c", code, *words], patience)
    return made.ask(["explain"])


def assert_nobody_is_left(place: Path) -> None:
    pids = [int(line) for line in (place / "pids").read_text().split()]
    assert len(pids) == 3
    assert not [pid for pid in pids if is_alive(pid)]


def test_what_a_program_starts_while_it_is_imported_ends_with_the_answer(tmp_path: Path) -> None:
    assert asked(tmp_path, START + "print('answer')") == "answer\n"
    assert_nobody_is_left(tmp_path)


def test_and_with_its_failure_and_with_its_time(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="HR-SERVER-020"):
        asked(tmp_path, START + "sys.exit(3)")
    assert_nobody_is_left(tmp_path)
    (tmp_path / "pids").unlink()
    waits = "import time\nwhile True: time.sleep(1)"
    with pytest.raises(ServerError, match="HR-SERVER-018"):
        asked(tmp_path, START + waits, patience=5.0)
    assert_nobody_is_left(tmp_path)


@pytest.mark.parametrize("to", ["stdout", "stderr"])
def test_one_that_prints_without_end_is_stopped_long_before_its_time(
    tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "MOST", 1 << 16)
    code = f"import sys\nwhile True: sys.{to}.write('x' * 1000)"
    with pytest.raises(ServerError, match="HR-SERVER-019"):
        asked(tmp_path, code, patience=600.0)
