"""A signal at any moment of a start ends all of it, in words; `make chaos` has all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.engine import interrupts
from headrace.engine.interrupts import acting
from tests.engine.killing import ROOT
from tests.engine.stopping import check, environment, short_temp, stopped


@pytest.mark.spark
@pytest.mark.parametrize(
    ("how", "moment", "sent", "to"),
    [
        ("cli", "start.zygote", "SIGHUP", "leader"),
        ("cli", "start.jvm", "SIGINT", "group"),
        ("script", "start.gateway", "SIGTERM", "group"),
        ("script", "start.session", "SIGINT", "group"),
        ("cli", "start.launch", "SIGTERM", "leader"),
        ("script", "start.launch", "SIGHUP", "group"),
    ],
)
def test_a_signal_ends_the_start_in_words_and_leaves_nothing(
    tmp_path: Path, how: str, moment: str, sent: str, to: str
) -> None:
    check(stopped(tmp_path, how, moment, sent, to), how, sent)


@pytest.mark.parametrize("sent", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_while_the_command_imports_ends_it_in_words(sent: str) -> None:
    program = f"""
import os, signal, sys
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "headrace.cli.app":
            os.kill(os.getpid(), signal.{sent})
sys.meta_path.insert(0, Slow())
sys.argv = ["headrace", "run", "job.py"]
import headrace_command
headrace_command.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"headrace: stopped by {sent} before it began\n"


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """`nohup` ignores SIGHUP; a program's own handler is left alone where only some are ours."""
    acted: list[int] = []
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with acting(acted.append):
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert acted == [signal.SIGTERM]


def test_a_handler_of_the_programs_own_is_left_alone() -> None:
    own: list[int] = []
    acted: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: own.append(number))
    try:
        with acting(acted.append, only=[signal.SIG_DFL]):
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (own, acted) == ([signal.SIGTERM], [signal.SIGHUP])


@pytest.mark.parametrize("late", [0.0, 0.5], ids=["at once", "while it is waited for"])
def test_what_interrupts_a_start_is_passed_on_when_the_start_has_been_undone(late: float) -> None:
    undone, ended = threading.Event(), threading.Event()

    def work() -> None:
        undone.wait(late)  # then the main thread waits, too
        os.kill(os.getpid(), signal.SIGINT)
        undone.wait(30)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        interrupts.uninterrupted(work, undone.set)
    assert ended.is_set()


def test_a_start_that_ends_while_the_wait_for_it_runs_out_has_succeeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class RunsOut(threading.Event):
        """Time is up in its first wait, and meanwhile the thread ends."""

        waits = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.waits += 1
            for thread in threading.enumerate():
                if thread.name == "headrace-start":
                    thread.join()
            return self.is_set() and self.waits > 1

    patched = SimpleNamespace(**{**vars(threading), "Event": RunsOut})
    monkeypatch.setattr(interrupts, "threading", patched)
    undone: list[int] = []
    started = interrupts.uninterrupted(lambda: "started", lambda: undone.append(1))
    assert (started, undone) == ("started", [])


def test_nothing_begins_after_a_start_was_abandoned() -> None:
    interrupts.abandon()
    try:
        with pytest.raises(interrupts.StartAbandoned), interrupts.registering():
            pass
    finally:
        interrupts.resume()
    with interrupts.registering():
        pass


@pytest.mark.spark
def test_after_a_kill_of_all_the_next_start_clears_what_was_left(tmp_path: Path) -> None:
    """And a run that ends by itself leaves nothing."""
    with short_temp() as temp:
        endless, bounded = "hr.generate(10, lambda i: {'n': i})", "hr.rows([{'n': 1}], 'n bigint')"
        run = _program(tmp_path, endless, "", temp)
        assert run.stderr is not None
        while "running in" not in run.stderr.readline():
            assert run.poll() is None
        (left,) = temp.iterdir()
        assert left.stat().st_mode & 0o777 == 0o700 and len([*left.iterdir()]) > 2
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate(timeout=60)
        assert left.exists()

        again = _program(tmp_path, bounded, "until='end'", temp)
        said = again.communicate(timeout=120)[1]
        assert again.returncode == 0, said
        assert [*temp.iterdir()] == []


def _program(place: Path, source: str, how: str, temp: Path) -> subprocess.Popen[str]:
    program = f"""
import headrace as hr
job = hr.Job("left", folder={str(place / how)!r})
job.read({source}, name="numbers").write("collect:", name="out")
hr.run(job, master="local[1]", {how}).wait()
"""
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, env=environment(temp), text=True,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
