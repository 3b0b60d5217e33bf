"""A job that is stalled: nothing of it has moved for a while, although it should.

What moves is one value: the last epoch, the batch in hand, the planner's last turn, the tasks that
are done. While any part of it changes the job goes on, however slowly. No clock and no thread
here: `engine/stall_watch.py` takes samples.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

from headrace.inspect.progress import moment, span
from headrace.inspect.why_case import Reason

_NOTE = "standstill.json"  # in the job's folder: what `headrace why` reads
HINT = (
    "Is an executor or a Python worker stopped or gone, does a function wait for something, or is "
    "one task merely long? The setting stall_after says after what time this is reported."
)


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Spark's figures of the current batch."""

    done: int
    running: int
    waiting: int
    executors: int

    def __str__(self) -> str:
        if not self.executors:
            return "no executor is left"
        at = f"on {self.executors} executor{'s' * (self.executors != 1)}"
        return f"{self.done} tasks done, {self.running} running, {self.waiting} waiting {at}"


@dataclass(frozen=True, slots=True)
class RunSample:
    """The job as it was at `now`, in milliseconds."""

    now: int
    epoch: int  # the last that was committed
    batch_since: int | None  # when the batch in hand began; None between batches
    planned: int  # when the planner last answered
    tasks: TaskCounts | None = None  # None: Spark was not asked, or does not answer


class StallDetector:
    """Compares samples; `text` is what to report while the job is stalled."""

    def __init__(self, after: int) -> None:
        self._after = after
        self._mark: Hashable = None
        self._since: int | None = None
        self._tasks: TaskCounts | None = None
        self._next = after  # it is reported again at twice the time
        self.text: str | None = None

    def quiet(self, now: int) -> int:
        """For how long nothing has moved."""
        return 0 if self._since is None else now - self._since

    def see(self, sample: RunSample) -> str | None:
        """What is news: that it is stalled, again after twice the time, or that it goes on."""
        mark = (sample.epoch, sample.batch_since, sample.planned)
        moved = self._tasks is not None and sample.tasks not in (None, self._tasks)
        self._tasks = sample.tasks or self._tasks
        if self._since is None or mark != self._mark or moved:
            stalled, self.text = self.text, None
            self._mark, self._since, self._next = mark, sample.now, self._after
            self._tasks = sample.tasks
            return None if stalled is None else "goes on"
        if self.quiet(sample.now) < self._after:
            return None
        self.text = _text(sample, self.quiet(sample.now))
        if self.quiet(sample.now) < self._next:
            return None
        self._next *= 2
        return self.text


def _text(sample: RunSample, quiet: int) -> str:
    if sample.batch_since is None:
        return f"stalled: its inputs have not answered for {span(quiet)}"
    begun = (
        f"batch {sample.epoch + 1} has been under way for {span(sample.now - sample.batch_since)}"
    )
    tasks = "Spark does not answer" if sample.tasks is None else str(sample.tasks)
    return f"stalled: {begun}, without any progress for {span(quiet)}; {tasks}"


def note(folder: str | Path, text: str | None, now: int) -> None:
    """Leave word in the job's folder, or take it back."""
    path = Path(folder) / _NOTE
    if text is None:
        path.unlink(missing_ok=True)
    else:
        path.write_text(json.dumps({"at": now, "text": text}))


def reason(job: str, folder: str | Path) -> Reason | None:
    """The reason for an empty output that is left in the folder, if one is."""
    try:
        left = json.loads((Path(folder) / _NOTE).read_text())
        text = f"the job is {left['text']} (at {moment(int(left['at']))} UTC)"
    except (OSError, ValueError, KeyError, TypeError):  # none, or half written
        return None
    return Reason("standstill", job, text, HINT)
