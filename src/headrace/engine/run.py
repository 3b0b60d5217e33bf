"""A run: one job on Spark, from start to stop.

It watches the manifests, which are the truth, and the query, which may fail. A graceful stop
lets the batch in hand finish: the planner sees the stop flag and offers nothing more.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace import notebook
from headrace.clock import SystemClock
from headrace.driver.offers import offered
from headrace.driver.planner import (
    Pace,
    clear_requests,
    request_drain,
    request_stop,
    stop_requested,
)
from headrace.driver.start import Start
from headrace.engine import jvm
from headrace.engine.card import CardReporter, card_html, plan_of
from headrace.engine.failure import recover
from headrace.engine.interrupts import acting, uninterrupted
from headrace.engine.live_notes import LiveNotes, Said
from headrace.engine.output_frames import to_spark
from headrace.engine.reporter import Reporter
from headrace.engine.session import check_standard_output, session, starts_slowly
from headrace.engine.spark_work import SparkWork
from headrace.engine.stall_watch import StallWatcher, task_counts
from headrace.engine.waiting_inputs import WaitingInputs
from headrace.errors import HeadraceError, OutputError
from headrace.guarantees import JobGuarantee
from headrace.inspect import stall
from headrace.inspect.figure_values import Figures
from headrace.inspect.figures import figures_of
from headrace.inspect.progress import Progress, StateGrowth, account, progress_of
from headrace.inspect.recent import Recent
from headrace.inspect.step_state import StepState, state_of
from headrace.inspect.why import STARTED
from headrace.inspect.why_answer import Why, answer_why
from headrace.plan.explain import Explanation, explain
from headrace.settings import Settings
from headrace.sinks import collected
from headrace.sinks.console import ConsoleSink
from headrace.sinks.files import FilesSink
from headrace.state.epochs import PublishedMark
from headrace.state.manifest import Manifest

_POLL = 0.05
_ANSWER = 0.1  # seconds until a signal is answered, at most
_FENCE_EVERY = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Status:
    """How a run is doing, in a few words."""

    state: str  # "running", "ended", "stopped", "failed"
    epoch: int
    error: HeadraceError | None = None
    warnings: tuple[str, ...] = ()  # what is wrong, and does not stop it


class Run:
    """A job that runs. Wait for it, watch it, stop it."""

    def __init__(
        self,
        start: Start,
        settings: Settings,
        pace: Pace,
        debug: bool,
        reporter: Reporter | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._start, self._program = start, start.bundle.program
        self._debug, self._reporter, self._on_progress = debug, reporter, on_progress
        self._state, self._fence_checked = "running", 0.0
        self._error: HeadraceError | None = None
        self._latest: Manifest | None = start.log.latest()
        self._published = PublishedMark(start.log.folder)
        self._waits = WaitingInputs(start.bundle.sources, self._say)
        self._growth = StateGrowth(lambda: shutil.disk_usage(self.folder).free)
        self._changed = threading.Condition()
        self._stop_signalled = False
        if any(isinstance(sink, ConsoleSink) for sink in start.bundle.sinks.values()):
            check_standard_output()
        clear_requests(start.log.folder)
        stall.note(start.log.folder, None, 0)
        if reporter is not None:
            reporter.starting(slowly=starts_slowly())
        spark = session(settings.master, debug=debug)
        self._work = SparkWork(start, spark, pace, settings.keep_epochs, self._say)
        self._stall = StallWatcher(
            self._work.scratch,
            settings.stall_after,
            self._reported_epoch,
            lambda: task_counts(spark, self._query),
        )
        self._notes = LiveNotes(self.folder, spark, self._said, lambda: self._query)
        self._watcher = threading.Thread(target=self._watch, name="headrace-run", daemon=True)
        try:
            self._query = uninterrupted(self._work.launch, lambda: None)
            self._work.tables.start_refreshing()
            if reporter is not None:
                reporter.started(self)
                for warning in self._may_lose():
                    reporter.say(f"{self.name}: WARNING: {warning}")
            self._stall.begin(self._on_stall)
            self._watcher.start()
            self._notes.begin()
        except BaseException:
            self._work.stop_begun()
            self._stall.close()
            self._work.close()
            raise

    def __repr__(self) -> str:
        return f"<Run {self.name!r}: {self._state}, epoch {self._reported_epoch()}>"

    def _repr_html_(self) -> str:
        progress = self.progress
        lines = [] if progress is None else [f"epoch {progress.epoch}", *account(progress)]
        error = "" if self._error is None else str(self._error)
        recent = Recent(self.folder)
        warnings = self.status.warnings
        html = card_html(self.name, self._state, lines, error, recent, warnings)
        return html + plan_of(self)

    def _ipython_display_(self) -> None:
        """In a notebook: the card that follows the run, once for each cell."""
        if isinstance(self._reporter, CardReporter):
            self._reporter.show_again()
        else:
            notebook.show(self._repr_html_(), repr(self))

    # what it is doing

    @property
    def name(self) -> str:
        """The job's name."""
        return self._program.name

    @property
    def folder(self) -> str:
        """The job's folder."""
        return str(self._start.log.folder)

    @property
    def comparison(self) -> Any:
        """What is the same, new, renamed or dropped against the last run; None for a new job."""
        return self._start.comparison

    @property
    def guarantees(self) -> Mapping[str, str]:
        """What each output really offers."""
        return {name: sink.guarantee for name, sink in self._start.bundle.sinks.items()}

    @property
    def addresses(self) -> Mapping[str, str]:
        """By input: where it listens for clients ("listen:"), as soon as it does."""
        return self._waits.addresses

    @property
    def guarantee(self) -> JobGuarantee:
        """What the job guarantees if it is killed: the whole, each input and output, and why."""
        bundle = self._start.bundle
        return offered(bundle.program, bundle.sources, bundle.sinks)

    def explain(self) -> Explanation:
        """How it is executed: print it; `.svg` is a picture."""
        return explain(self._program, self.guarantee)

    @property
    def status(self) -> Status:
        """Whether it runs, how far it has come, and what is wrong."""
        stalled = (self._stall.text,) if self._stall.text and self._state == "running" else ()
        waiting = self._waits.warnings if self._state == "running" else ()
        warnings = (*stalled, *waiting, *self._may_lose(), *self._work.tables.warnings)
        warnings += self._growth.warnings
        if self._latest is not None:
            warnings += progress_of(self._latest, {}).warnings
        return Status(self._state, self._reported_epoch(), self._error, warnings)

    def _said(self) -> Said:
        status = self.status
        return Said(status.state, status.epoch, status.warnings, self._stall.text)

    def _may_lose(self) -> tuple[str, ...]:
        """What a crash may lose of an input, or of what a step has in memory."""
        sources = self._start.bundle.sources.items()
        steps = [node.what.loses for node in self._program.stateful()]
        inputs = [f"input {name!r}: {source.loses}" for name, source in sources if source.loses]
        return (*inputs, *filter(None, steps))

    @property
    def progress(self) -> Progress | None:
        """The last epoch in figures; None before the first."""
        if self._latest is None:
            return None
        spark = self._query.lastProgress if self._state == "running" else None
        return progress_of(self._latest, dict(spark["durationMs"]) if spark else {})

    @property
    def figures(self) -> Figures | None:
        """All figures as of the last epoch: rates, latency, lag, what limits it; None before the
        first."""
        return figures_of(self._start.log, SystemClock().now())

    def why(self) -> Why:
        """Why there is no output, or none yet: print it. The most likely reason comes first."""
        stalled = stall.reason(self.name, self.folder)
        return answer_why(
            self.name, self._program, self._latest, SystemClock().now(), STARTED, stalled
        )

    def state(self, step: str) -> StepState:
        """The state of a step, as of the last epoch: look at it while the job goes on."""
        return state_of(self._program, self._start.log, step)

    def output(self, name: str) -> pa.Table:
        """All rows that a "collect:" output has received so far."""
        return collected(self.folder, name)

    def to_spark(self, output: str, *, streaming: bool = False) -> DataFrame:
        """The rows of a "files:" or "collect:" output as a Spark DataFrame: see `hr.to_spark`."""
        sink = self._start.bundle.sinks.get(output)
        if not isinstance(sink, FilesSink):
            raise OutputError(
                "HR-SPARK-008",
                f"there is no output {output!r} of files",
                'Name an output that is written to "files:" or "collect:".',
            )
        return to_spark(sink.target, streaming=streaming)

    # what can be done with it

    def wait(self, timeout: float | None = None) -> Status:
        """Block until the run is over; raises what it failed with.

        Ctrl-C (SIGTERM, SIGHUP) stops it after the batch in hand; pressed again, at once.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        signals: list[int] = []
        with acting(signals.append):
            while self._state == "running":
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                with self._changed:
                    self._changed.wait(_ANSWER if left is None else min(_ANSWER, left))
                self._obey(signals)
        self._obey(signals)
        if self._state == "running":
            return self.status
        with self._changed:  # the end has been reported, too
            pass
        if self._error is not None:
            raise self._error
        return self.status

    def _obey(self, signals: list[int]) -> None:
        """Ask for a graceful stop, in words; at the second signal cancel."""
        while signals:
            number = signals.pop(0)
            if self._state != "running":
                continue
            request_stop(self.folder)
            if self._reporter is not None:
                self._reporter.stopping(number, now=self._stop_signalled)
            if self._stop_signalled:
                self.cancel()
            self._stop_signalled = True

    def stop(self) -> Status:
        """Finish the batch in hand, then stop; nothing is left half done."""
        request_stop(self._start.log.folder)
        if threading.current_thread() is not self._watcher:
            self._watcher.join()
        return self.status

    def catch_up(self) -> None:
        """Block until everything that is there has been processed; raises what it failed with."""
        self._work.tables.refresh()
        self._work.frames.catch_up()
        try:
            self._query.processAllAvailable()
        except Exception as error:
            self._fail(error)
        on_watcher = threading.current_thread() is self._watcher
        while not on_watcher and self._state == "running" and self._behind():
            time.sleep(_POLL)  # until `progress` shows it too
        if self._error is not None:
            raise self._error

    def drain(self) -> None:
        """Read what is there now, close every window, then end: as if begun with until="end"."""
        request_drain(self._start.log.folder)

    def cancel(self) -> Status:
        """Stop at once; the batch in hand is done again at the next start."""
        self._finish("stopped")
        self._query.stop()
        return self.status

    # the query

    def _watch(self) -> None:
        """Follow the manifests until the job ends, is asked to stop, or fails."""
        try:
            while self._state == "running":
                self._check_fence()
                self._work.frames.check()
                self._follow()
                active = self._query.isActive  # asked once: it may fail at any moment
                error = None if active else self._query.exception()
                if error is not None:
                    self._fail(error)
                elif self._latest and self._latest.ended:
                    self._settle("ended")
                elif stop_requested(self._start.log.folder):
                    self._settle("stopped")
                elif not active:
                    self._finish("stopped")
                else:
                    self._waits.report()
                    self._tick()
                    time.sleep(_POLL)
        except Exception as error:
            if self._state == "running":
                self._fail(error)
            with suppress(Exception):  # it may be over, and Spark too
                self._query.stop()
        finally:
            self._work.close()

    def _check_fence(self) -> None:
        """Another driver may have taken the folder: a commit would find out, but none may come."""
        if time.monotonic() - self._fence_checked > _FENCE_EVERY:
            self._fence_checked = time.monotonic()
            self._start.log.check_fence(self._start.token)

    def _follow(self) -> None:
        reported = self._reported_epoch()
        visible = self._published.epoch()  # what we report can be seen at the outputs
        for epoch in self._start.log.epochs():
            if reported < epoch <= visible:
                self._latest = self._start.log.read(epoch)
                self._report(progress_of(self._latest, {}))

    def _behind(self) -> bool:
        return self._reported_epoch() < self._published.epoch()

    def _reported_epoch(self) -> int:
        """The last epoch that was reported."""
        return self._latest.epoch if self._latest else 0

    def _say(self, line: str) -> None:
        if self._reporter is not None:
            self._reporter.say(f"{self.name}: {line}")

    def _tick(self) -> None:
        if self._reporter is not None:
            self._reporter.tick()

    def _on_stall(self, news: str, text: str | None) -> None:
        with suppress(OSError):  # it is reported all the same
            stall.note(self.folder, text, SystemClock().now())
        if self._reporter is not None:
            self._reporter.stalled(text is not None)
        self._say(news)

    def _report(self, progress: Progress) -> None:
        for line in self._growth.see(progress):
            self._say(line)
        if self._reporter is not None:
            self._reporter.progress(progress)
        if self._on_progress is not None:
            self._on_progress(progress)

    def _settle(self, state: str) -> None:
        """Let the batch in hand finish, then stop the query."""
        request_stop(self._start.log.folder)
        try:
            self._query.processAllAvailable()
        except Exception as error:
            self._fail(error)
            return
        self._query.stop()
        self._follow()
        clear_requests(self._start.log.folder)
        self._finish(state)

    def _fail(self, cause: Exception) -> None:
        if jvm.ending():  # the program ends, and its run with it
            self._state = "stopped"
            return
        error = cause if isinstance(cause, HeadraceError) else recover(cause)
        if self._debug:
            error.add_note(str(cause))
        self._error = error
        self._finish("failed")

    def _finish(self, state: str) -> None:
        self._work.batches.give_core()  # before it is known that another run may begin
        self._stall.close()
        self._notes.close(state)
        with suppress(OSError):
            stall.note(self.folder, None, 0)
        self._start.log.release()
        with self._changed:
            if self._state == "running":
                self._state = state
                if self._reporter is not None:
                    self._reporter.finished(self)
            self._changed.notify_all()
