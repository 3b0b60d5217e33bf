"""Watches whether a run goes on: a thread looks every second, and another asks Spark.

Spark may be what does not answer, so only the asking thread waits for it. Spark is asked
only when nothing has moved for some time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.clock import SystemClock
from headrace.inspect.stall import RunSample, StallDetector, TaskCounts

_EVERY = 1.0  # seconds
_FRESH = 5_000  # ms for which an answer of Spark's holds

OnStall = Callable[[str, str | None], None]  # the news; the text while it is stalled, else None


def heartbeat(scratch: str) -> Path:
    """The file that the planner touches when it answers."""
    return Path(f"{scratch}-planned")


class StallWatcher:
    def __init__(
        self, scratch: str, after: int, epoch: Callable[[], int], ask: Callable[[], TaskCounts]
    ) -> None:
        self._scratch, self._epoch, self._ask = Path(scratch), epoch, ask
        self._began, self._after = _now(), after
        self._detector = StallDetector(after)
        self._over = threading.Event()
        self._asking: threading.Thread | None = None
        self._answer: tuple[int, TaskCounts] | None = None

    @property
    def text(self) -> str | None:
        return self._detector.text

    def begin(self, report: OnStall) -> None:
        def watch() -> None:
            while not self._over.wait(_EVERY):
                news = self._detector.see(self._look())
                if news is not None and not self._over.is_set():
                    report(news, self._detector.text)

        threading.Thread(target=watch, name="headrace-stall", daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def _look(self) -> RunSample:
        now = _now()
        if self._detector.quiet(now) * 4 >= self._after:
            self._start_asking()
        answer = self._answer if self._answer and now - self._answer[0] < _FRESH else None
        return RunSample(now, self._epoch(), self._batch(), self._planned(), answer and answer[1])

    def _start_asking(self) -> None:
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(
                target=self._ask_spark, name="headrace-ask", daemon=True
            )
            self._asking.start()

    def _ask_spark(self) -> None:
        with suppress(Exception):  # Spark may be gone, and the run says so itself
            self._answer = _now(), self._ask()

    def _planned(self) -> int:
        try:
            return int(heartbeat(str(self._scratch)).stat().st_mtime * 1_000)
        except OSError:
            return self._began

    def _batch(self) -> int | None:
        """When the batch in hand began: Spark writes down its offsets first, its commit last."""
        begun, done = self._newest("offsets"), self._newest("commits")
        if begun is None or (done is not None and done >= begun):
            return None
        with suppress(OSError):
            return int((self._scratch / "offsets" / str(begun)).stat().st_mtime * 1_000)
        return None

    def _newest(self, folder: str) -> int | None:
        with suppress(OSError):  # a run that ends removes the folder
            names = os.listdir(self._scratch / folder)
            return max((int(name) for name in names if name.isdigit()), default=None)
        return None


def _now() -> int:
    return SystemClock().now()


def task_counts(spark: Any, query: Any) -> TaskCounts:
    """The tasks of the query's latest job, and who can do them."""
    context = spark.sparkContext
    tracker = context.statusTracker()
    jobs = [int(job) for job in tracker.getJobIdsForGroup(str(query.runId))]
    job = tracker.getJobInfo(max(jobs)) if jobs else None
    stages = [tracker.getStageInfo(int(s)) for s in job.stageIds] if job else []
    present = [stage for stage in stages if stage is not None]
    done = sum(s.numCompletedTasks for s in present)
    left = sum(s.numTasks for s in present) - done
    busy = _running(context._jsc.sc().taskScheduler())
    running = min(sum(busy), left)  # the tracker is behind, and other runs have tasks too
    return TaskCounts(done, running, left - running, len(busy))


def _running(scheduler: Any) -> list[int]:
    """How many tasks run on each executor that there is."""
    counts, running = scheduler.runningTasksByExecutors().valuesIterator(), []
    while counts.hasNext():
        running.append(int(counts.next()))
    return running
