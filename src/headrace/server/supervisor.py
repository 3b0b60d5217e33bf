"""One loop that sees to it that each job is what it is to be: started, stopped, started again.

A job's record says what is wanted; its process, the note of how that ended, and the manifests in
the job's folder say what is. Each turn compares the two and does one thing. Nothing that matters
is in memory alone, so a server that is started again goes on where the last one was.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from headrace.driver.planner import drain_requested, request_drain
from headrace.errors import HeadraceError
from headrace.restarts import FAILURES, LONGEST_PAUSE, ending_of, is_final, pause_after
from headrace.server import upgrades
from headrace.server.desk import Desk, epoch_of
from headrace.server.hanging import HangingJobs
from headrace.server.lifecycle import WITH_PROCESS, State
from headrace.server.processes import ExitNote, Processes, last_words
from headrace.server.questions import Questions
from headrace.server.records import BACK, READY, START, STOP, TRIAL, JobRecord
from headrace.state.epochs import EpochLog

_LOG = logging.getLogger("headrace.server")
_LOOK = 0.02  # seconds
_AT_ONCE = 4  # jobs of which something that takes long is under way


@dataclass(frozen=True, slots=True)
class Policy:
    """How patient a server is."""

    every: float = 0.5  # seconds between two turns
    pace: float = 1.0  # a factor of all pauses before a restart
    stall_after: int = 60_000  # ms without progress, although there should be some
    restart_hanging: int | None = 600_000  # ms after which a job that hangs is started again
    silent: int = 60_000  # ms without a word of a process that is to give one each second
    starting: int = 300_000  # ms that a start may take
    launching: int = 30_000  # ms that a process may take to say that it is there


class JobSupervisor:
    def __init__(
        self, desk: Desk, processes: Processes, questions: Questions, policy: Policy
    ) -> None:
        self._desk, self._processes, self._questions = desk, processes, questions
        self._policy = policy
        self.hanging = HangingJobs(policy.stall_after, policy.starting, policy.silent)
        self._why: dict[str, str] = {}  # why a process was killed by us
        self._busy = set[str]()
        self._troubles: dict[str, str] = {}  # by job: the last that was written to the log
        self._work = ThreadPoolExecutor(_AT_ONCE, "headrace-work")
        self._wake, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        # What was under way when the last server ended: nobody has seen how it went on.
        self._unseen = {r.name for r in desk.records() if r.launched}

    # the loop

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="headrace-jobs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the loop; jobs go on."""
        self._over.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self._work.shutdown(wait=True)

    def wake(self) -> None:
        """Have the next turn now."""
        self._wake.set()

    def _run(self) -> None:
        while not self._over.is_set():
            self.turn()
            self._wake.wait(self._policy.every)
            self._wake.clear()

    def turn(self) -> None:
        """Look at every job, and do the next thing for each."""
        for record in self._desk.records():
            with self._desk.lock:
                if record.name in self._busy or not self._desk.knows(record.name):
                    continue
                try:
                    self._next(self._desk.record(record.name))
                except Exception as error:  # of its folder: it is looked at again
                    self._note(record.name, error)

    def _note(self, name: str, error: Exception) -> None:
        """What cannot be done for a job: said once, and seen in its line. Whatever it is, the loop
        goes on, for the other jobs too."""
        known = isinstance(error, HeadraceError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        if self._troubles.get(name) != text:
            self._troubles[name] = text
            _LOG.error("job %r: %s", name, text, exc_info=None if known else error)
        with suppress(HeadraceError):  # of the store: the disk is full, perhaps
            record = self._desk.record(name)
            if record.reason != text:
                self._desk.say(name, "error", text)
                self._desk.put(replace(record, reason=text))

    def _next(self, record: JobRecord) -> None:
        if record.state == State.KILLED and record.launched:
            self._in_background(record, self._kill_all)
        elif record.state == State.WAITING and self._is_due(record):
            self._begin(record, restarts=record.restarts + 1, reason=None)
        elif record.state in WITH_PROCESS:
            if record.upgrade is not None and record.upgrade.phase == BACK and not record.launched:
                self._in_background(record, self._go_back)
            elif record.launched:
                self._look(record)
            elif record.state == State.STOPPING:
                self._stopped(record, None)
            else:
                self._launch(record)

    def _is_due(self, record: JobRecord) -> bool:
        """Also where the clock was set back since."""
        left = record.retry_at - self._desk.now()
        return left <= 0 or left > LONGEST_PAUSE * self._policy.pace * 1_000

    def _in_background(self, record: JobRecord, work: Callable[[JobRecord], Any]) -> None:
        def run() -> None:
            try:
                work(record)
            except Exception as error:
                self._note(record.name, error)
            finally:
                self._busy.discard(record.name)
                self.wake()

        self._busy.add(record.name)
        self._work.submit(run)

    def is_busy(self, name: str) -> bool:
        """Whether something that takes long is under way for a job."""
        return name in self._busy

    def end_now(self, name: str, within: float = 10.0) -> None:
        """Wait until the processes of a job that was killed are gone."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            record = self._desk.record(name)
            if record.state != State.KILLED or not record.launched:
                return
            self.wake()
            time.sleep(_LOOK)

    # a process begins

    def _begin(self, record: JobRecord, **changes: Any) -> None:
        """It is to run: a record that says so, then the process."""
        launch = {"launched": False, "asked": False, "then": STOP}
        self._launch(self._desk.to(record, State.STARTING, **{**launch, **changes}))

    def _launch(self, record: JobRecord) -> None:
        if record.upgrade is not None and record.upgrade.phase == READY:
            record = upgrades.put_in_place(self._desk, record)
        there = self._desk.home.runs(record.name)
        number = 1 + max(record.run, *there, 0)
        record = self._desk.put(
            replace(
                record, run=number, launched=True, asked=False, begun=self._desk.now(),
                epoch=epoch_of(record),
            )
        )  # fmt: skip
        self._desk.home.tidy_runs(record.name)
        self.hanging.forget(record.name)
        text = f"run {number} of version {record.version}"
        self._desk.say(record.name, "started", text)
        self._processes.start(self._desk.run_folder(record), self._arguments(record))

    def _arguments(self, record: JobRecord) -> list[str]:
        words = ["run", str(self._desk.program(record).file), "--folder", record.folder]
        if record.chosen is not None:
            words += ["--job", record.chosen]
        for name, value in record.options.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        if record.upgrade is not None and record.upgrade.phase == TRIAL:
            for name in record.upgrade.drop:
                words += ["--drop", name]
        return words

    # a process is looked at

    def _look(self, record: JobRecord) -> None:
        run = self._desk.run_folder(record)
        process = self._processes.look(run)
        if process.pid is not None:
            if record.name in self._unseen:
                self._unseen.discard(record.name)
                self._desk.say(record.name, "found", f"run {record.run} has gone on")
            self._alive(record)
        elif process.launched:
            self._processes.kill(run)  # what it has started and not ended
            self._has_ended(replace(record, launched=False, asked=False), process.exit)
        elif self._processes.is_ours(run) and not self._is_late(record):
            return  # it is on its way
        elif self._processes.call_off(run):  # else it came at this very moment
            self._processes.kill(run)  # of one whose notes are lost
            record = self._desk.put(replace(record, launched=False, asked=False))
            if record.state == State.STOPPING:
                self._stopped(record, None)
            else:
                self._try_again(record, -signal.SIGKILL, "its process did not come up")

    def _is_late(self, record: JobRecord) -> bool:
        return abs(self._desk.now() - record.begun) > self._policy.launching

    def _alive(self, record: JobRecord) -> None:
        word = self._desk.last_word(record)
        if record.state == State.STARTING and word is not None:
            state = State.DRAINING if record.draining else State.RUNNING
            record = self._desk.to(record, state)
            self._desk.say(record.name, "running", f"run {record.run}")
        if record.state == State.STOPPING and not record.asked:
            self._processes.stop(self._desk.run_folder(record))
            record = self._desk.put(replace(record, asked=True))
        if record.state == State.DRAINING:
            self._see_that_it_drains(record)
        if upgrades.has_proved_itself(self._desk, record):
            record = upgrades.settle(self._desk, record)
        self._look_whether_it_hangs(record, word)

    def _see_that_it_drains(self, record: JobRecord) -> None:
        """The request may have come before the run that clears away what was asked of another."""
        if EpochLog(record.folder).is_held() and not drain_requested(record.folder):
            request_drain(record.folder)

    def _look_whether_it_hangs(self, record: JobRecord, word: int | None) -> None:
        now = self._desk.clock.steady()
        if record.state == State.STOPPING:
            self.hanging.forget(record.name)
            return
        news = self.hanging.see(record, self._desk.manifest(record), now, word)
        if news is not None:
            kind = "goes on" if news == "goes on" else "stalled"
            self._desk.say(record.name, kind, news)
        text, limit = self.hanging.text(record.name), self._policy.restart_hanging
        if text and limit is not None and self.hanging.since(record.name, now) >= limit:
            self._why[record.name] = f"it was killed because it hung: {text}"
            self.hanging.forget(record.name)
            self._in_background(record, self._kill_all)

    def _kill_all(self, record: JobRecord) -> None:
        """End a run with all that it has started."""
        run = self._desk.run_folder(record)
        with suppress(OSError):  # one that is on its way, of a server that has died since
            self._processes.call_off(run)
        gone = self._processes.kill(run)
        with self._desk.lock:
            now = self._desk.record(record.name)
            if gone and now.state == State.KILLED and now.run == record.run:
                self._desk.put(replace(now, launched=False, asked=False))

    # a process has ended

    def _has_ended(self, record: JobRecord, note: ExitNote | None) -> None:
        name = record.name
        unseen, why = name in self._unseen, self._why.pop(name, None)
        self._unseen.discard(name)
        self.hanging.forget(name)
        if upgrades.has_proved_itself(self._desk, record):
            record = upgrades.settle(self._desk, record)
        if record.state == State.STOPPING:
            self._stopped(record, note)
        elif note is not None and note.clean:
            self._came_to_its_end(record, unseen)
        elif note is not None and is_final(note.code):
            self._failed(record, self._words(record, note))
        else:
            code = -signal.SIGKILL if note is None else note.code
            self._try_again(record, code, why or self._words(record, note))

    def _words(self, record: JobRecord, note: ExitNote | None) -> str:
        """Why a process has ended, as a user should read it."""
        if note is None:
            return "it was killed, with the process that watches it; or its note of that is lost"
        if note.error is not None:
            return self._desk.in_users_words(record, note.error)
        if note.code < 0:
            return ending_of(note.code)
        said = last_words(self._desk.run_folder(record), 3)
        text = f"{ending_of(note.code)}: {' '.join(said)}" if said else ending_of(note.code)
        return self._desk.in_users_words(record, text)

    def _stopped(self, record: JobRecord, note: ExitNote | None) -> None:
        """It was asked to stop, and has: go on with what is to follow."""
        if note is not None and not note.clean:
            words = self._words(record, note)
            self._desk.say(record.name, "failed", f"while it was stopping: {words}")
        if record.then == START:
            self._begin(record)
            return
        state = State.ENDED if self._is_at_its_end(record) else State.INACTIVE
        self._desk.to(record, state, reason=None, draining=False)
        self._desk.say(record.name, str(state), f"after epoch {epoch_of(record)}")

    def _came_to_its_end(self, record: JobRecord, unseen: bool) -> None:
        if self._is_at_its_end(record):
            text = "it was drained" if record.draining else "all of its inputs have ended"
            self._desk.to(record, State.ENDED, reason=text, draining=False)
            self._desk.say(record.name, "ended", f"{text}; epoch {epoch_of(record)} is the last")
        elif unseen:  # the machine was shut down, perhaps: it is still to run
            self._desk.say(record.name, "restarting", "it had stopped while no server ran")
            self._begin(record)
        else:
            text = "it was stopped, but not by the server"
            self._desk.to(record, State.INACTIVE, reason=text, draining=False)
            self._desk.say(record.name, "inactive", text)

    def _is_at_its_end(self, record: JobRecord) -> bool:
        with suppress(HeadraceError):  # a damaged folder: the next start says so
            manifest = self._desk.manifest(record)
            return manifest is not None and manifest.ended
        return False

    def _try_again(self, record: JobRecord, code: int, why: str) -> None:
        """It may do better later, but not for ever."""
        progress = epoch_of(record) > record.epoch and not self._on_trial(record)
        failures = 1 if progress else record.failures + 1
        most = upgrades.TRIES if self._on_trial(record) else FAILURES
        if failures >= most:
            gave_up = f"gave up after {failures} failures in a row without a new batch; the last: "
            self._failed(replace(record, failures=failures), gave_up + why)
            return
        pause = pause_after(code, failures) * self._policy.pace
        text = f"{why}; starting again in {pause:g} s (failure {failures} of {most} in a row)"
        at = self._desk.now() + int(pause * 1_000)
        self._desk.to(record, State.WAITING, reason=text, failures=failures, retry_at=at)
        self._desk.say(record.name, "restarting", text)

    def _on_trial(self, record: JobRecord) -> bool:
        return record.upgrade is not None and record.upgrade.phase == TRIAL

    def _failed(self, record: JobRecord, why: str) -> None:
        if self._on_trial(record):
            upgrades.give_up(self._desk, record, why)
            return
        self._desk.to(record, State.FAILED, reason=why, draining=False)
        self._desk.say(record.name, "failed", why)

    def _go_back(self, record: JobRecord) -> None:
        upgrades.go_back(self._desk, self._questions, record)
