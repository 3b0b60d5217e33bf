"""A task of a bolt in another language: its tuples in an epoch, sent to its child.

What counts of a batch counts as a whole. If the child fails, it is started again and the batch is
sent again; if it always fails, in halves, until the tuples are found that it cannot survive. All
others are processed once. One that fails whatever it is sent stops the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.errors import StepError
from headrace.ops.topology.multilang_batch import TupleBatch, Unsettled
from headrace.ops.topology.multilang_command import Command
from headrace.ops.topology.multilang_json import Unfitting, columns_of
from headrace.ops.topology.multilang_process import (
    LOG,
    SAID,
    Child,
    ChildError,
    forget,
    present,
    running,
    shown,
)

_MOST_FATAL = 16  # tuples in a row without one that is survived: then the program is broken


@dataclass(frozen=True)
class ShellTask:
    """What does not change between epochs; `key` is that of its child."""

    who: str
    key: tuple[str, str, int]
    command: Command
    setup: Mapping[str, Any]  # of the handshake
    streams: Mapping[str, pa.Schema]
    direct: frozenset[str]
    acks: bool  # a tuple may be acked in a later batch
    every: int = 0  # ms between ticks: what it stores it processes at the next at the latest


@dataclass
class TaskTuples:
    """The tuples of a task by place: their messages, and what identifies each in any process."""

    texts: Sequence[str]
    identity_of: Callable[[int], Hashable]
    waited: Sequence[int] = ()  # not acked in an earlier epoch: the child may have them
    marks: Collection[str] = ()  # of the child that had them when that epoch was committed
    failed: Sequence[int] = ()  # failed before
    tick: int = 0  # ms between ticks, if one is due after the tuples

    def identity(self, place: int) -> Hashable:
        return self.identity_of(place), self.texts[place]


@dataclass
class TaskAnswers:
    """What came of the tuples, by place; the others are acked."""

    failed: dict[int, str] = field(default_factory=dict)
    unacked: set[int] = field(default_factory=set)
    mark: str = ""  # of the child that has these
    emitted: dict[str, list[tuple[pa.Table, list[int]]]] = field(
        default_factory=lambda: defaultdict(list)
    )  # by stream: rows, and for which tuple each; -1: for the tick


class TaskRun:
    """One epoch of a task."""

    def __init__(self, task: ShellTask, tuples: TaskTuples) -> None:
        self._task, self._tuples = task, tuples
        self._answers = TaskAnswers()
        self._known = False  # whether the child that fails has survived tuples of earlier batches
        self._survived = False  # some tuple of a batch that was halved
        self._fatal = 0  # tuples in a row that were not
        self._mixed = False  # the child that failed had tuples of another batch, too
        # A program that stores tuples may not survive one when it processes them: sent by itself, a
        # tuple is followed by a tick.
        self._probe = task.every if task.acks else 0

    def answers(self) -> TaskAnswers:
        """Send what the child does not have, until all of it is processed."""
        tuples, waited = self._tuples, set(self._tuples.waited)
        again = waited | set(tuples.failed)
        new = list(range(len(tuples.texts)))
        if again:
            new = [place for place in new if place not in again]
        if self._child_has(tuples.waited):
            self._process(new, lost=waited)
        else:
            self._process(sorted(waited.union(new)))
        if tuples.failed:  # apart from the others, which it may take with it
            self._process(list(tuples.failed), tick=self._probe)
        if tuples.tick:
            self._process([], tick=tuples.tick)
        child = present(self._task.key)
        self._answers.mark = "" if child is None else child.mark
        return self._answers

    def _child_has(self, waited: Sequence[int]) -> bool:
        """Whether the child has just those tuples that wait, as it had when that was committed: it
        may have been sent an epoch that was given up. Ends one that has others."""
        child = present(self._task.key)
        if child is None:
            return False
        left = child.unsettled
        sent = () if left is None else left.identities
        same = set(sent) == {self._tuples.identity(place) for place in waited}
        if same and (not sent or set(self._tuples.marks) == {child.mark}):
            return bool(sent)
        self._end(child)
        return False

    def _process(self, places: list[int], lost: Collection[int] = (), tick: int = 0) -> None:
        """Send these until a child has processed all. With it `lost` would be lost: those that it
        has already."""
        if not (places or lost or tick):
            return
        task, failures = self._task, 0
        while True:
            try:
                return self._send(places, tick)
            except ChildError as error:
                failures += 1
                stored = self._answers.unacked if tick else ()  # it may be one of these
                places, lost = sorted({*places, *lost, *stored}), ()
                once_more = failures <= task.command.max_restarts
                if once_more and not self._failed_before(places):
                    self._warn(error, f"restart {failures} of {task.command.max_restarts}, and "
                               f"{f'its {len(places)} tuples are' if places else 'the tick is'} "
                               "sent again")  # fmt: skip
                elif places:
                    return self._divide(places, error, failures)
                else:
                    raise gave_up(task.who, task.command, failures, error) from None

    def _failed_before(self, places: Sequence[int]) -> bool:
        """To send tuples that failed again is what is being done."""
        return bool(places) and places[0] in self._tuples.failed

    def _divide(self, places: list[int], error: ChildError, failures: int) -> None:
        """Find the tuples of a batch with which a child always fails: each half by itself."""
        found = self._find(places, error, failures)
        if not (self._survived or self._known or self._failed_before(places)):
            raise gave_up(self._task.who, self._task.command, failures, error) from None
        self._answers.failed.update(found)
        self._answers.unacked.difference_update(found)

    def _find(self, places: list[int], error: ChildError, failures: int) -> dict[int, str]:
        task = self._task
        if len(places) == 1:
            if self._mixed:
                try:
                    self._send_apart(places)
                except ChildError as fault:
                    error = fault
                else:
                    self._survived, self._fatal = True, 0
                    return {}
            self._fatal += 1
            if self._fatal >= _MOST_FATAL and not self._failed_before(places):
                raise gave_up(task.who, task.command, failures, error, self._fatal) from None
            return {places[0]: error.with_last_lines(f"its process {error}")}
        self._warn(error, f"its {len(places)} tuples are sent in halves")
        found, middle = {}, len(places) // 2
        for half in (places[:middle], places[middle:]):
            try:
                self._send_apart(half)
            except ChildError as fault:
                found.update(self._find(half, fault, failures))
            else:
                self._survived, self._fatal = True, 0
        return found

    def _send_apart(self, places: list[int]) -> None:
        """To a child that has no others: what it does not survive is among these."""
        child = present(self._task.key)
        if child is not None and child.unsettled is not None:
            self._end(child)
        self._send(places, self._probe)

    def _send(self, places: list[int], tick: int = 0) -> None:
        """Once, to the child that there is; what it answers counts if it does not fail."""
        task, texts = self._task, self._tuples.texts
        child = self._started()
        try:
            left, child.unsettled = child.unsettled, None
            self._mixed = left is not None
            if child.ids and left is None:  # what a new one emits belongs to its first batch
                take_idle(child)
            sent = texts if len(places) == len(texts) else [texts[place] for place in places]
            batch = TupleBatch(child, sent, task.streams, task.direct, left, tick)
            batch.run(ends_unacked=task.acks)
            if not (batch.unsettled or batch.expired):
                take_idle(child)
            tables = self._tables(batch)
        except BaseException as error:
            self._known = self._known or child.proven
            self._end(child)
            if isinstance(error, Unfitting):
                raise ChildError(f"emitted what does not fit: {error}", child) from None
            raise
        had = len(places) + (0 if left is None else len(left.ids))
        child.proven = child.proven or len(batch.unsettled) < had
        self._count(batch, tables, places, left, child)
        if batch.expired:
            why = next(iter(batch.failed.values()))
            LOG.warning("%s: %d tuples failed: %s; it is ended", task.who, len(batch.failed), why)
            self._end(child)

    def _count(
        self,
        batch: TupleBatch,
        tables: Mapping[str, tuple[pa.Table, list[int]]],
        places: list[int],
        left: Unsettled | None,
        child: Child,
    ) -> None:
        """What a batch came to, by the places of the epoch."""
        answers = self._answers
        if left is not None:
            places = [*self._places_of(left), *places]
        for stream, (rows, of) in tables.items():
            if left is not None or len(places) < len(self._tuples.texts):  # not just all of them
                of = [places[at] if at >= 0 else at for at in of]  # noqa: PLW2901
            answers.emitted[stream].append((rows, of))
        for at, reason in batch.failed.items():
            answers.failed[places[at]] = reason
        if answers.unacked or batch.unsettled:
            answers.unacked.difference_update(places)
            answers.unacked.update(places[at] for at in batch.unsettled)
            child.unsettled = batch.left(lambda at: self._tuples.identity(places[at]))

    def _places_of(self, left: Unsettled) -> list[int]:
        tuples = self._tuples
        known = {
            tuples.identity(place): place for place in (*tuples.waited, *self._answers.unacked)
        }
        return [known[identity] for identity in left.identities]

    def _started(self) -> Child:
        """The child, started if there is none: one that cannot start has not failed by a tuple."""
        task, failures = self._task, 0
        while True:
            try:
                return running(task.key, lambda: Child(task.who, task.command, task.setup))
            except ChildError as error:
                failures += 1
                if failures > task.command.max_restarts:
                    raise gave_up(task.who, task.command, failures, error) from None
                self._warn(error, f"restart {failures} of {task.command.max_restarts}")

    def _end(self, child: Child) -> None:
        forget(self._task.key)
        child.kill()

    def _warn(self, error: ChildError, then: str) -> None:
        LOG.warning("%s: %s; %s", self._task.who, error, then)

    def _tables(self, batch: TupleBatch) -> dict[str, tuple[pa.Table, list[int]]]:
        """What was emitted to each stream, and for which tuple; refuses what does not fit."""
        tables = {}
        for stream, schema in self._task.streams.items():
            tuples, anchors, counted = batch.emitted(stream)
            rows = pa.Table.from_arrays(columns_of(tuples, schema), schema=schema)
            rows = rows if all(counted) else rows.filter(pa.array(counted, pa.bool_()))
            places = [at for at, counts in zip(anchors, counted, strict=True) if counts]
            if places:
                tables[stream] = rows, places
        return tables


def take_idle(child: Child) -> None:
    """What came between two batches belongs to none: a tuple would be lost in a crash."""
    for message in child.idle_messages():
        command = message.get("command")
        if command in SAID:
            child.log(message)
        elif command == "emit":
            raise StepError(
                "HR-TOPOLOGY-044",
                f"{child.who} emitted {shown(message.get('tuple'))} after it had acked all of "
                "its tuples, which belongs to no batch",
                "Emit first, then ack: a batch is done when all of its tuples are acked.",
            )
        elif command != "sync":
            raise child.error(f"sent {shown(message)} when it had no tuples")


def gave_up(
    who: str, command: Command, failures: int, error: ChildError, fatal: int = 0
) -> StepError:
    """It has failed more often than it may, or with `fatal` tuples in a row."""
    times = "" if failures == 1 else f" {failures} times in a row; the last time it"
    if fatal:
        times = f" with each of {fatal} tuples by itself; the last time it"
    said = error.said()
    lines = "\n".join(["Its standard error ends with:", said]) if said else "It wrote no error."
    return StepError(
        "HR-TOPOLOGY-041",
        f"{who} ({command}){' failed' + times if times else ''} {error}",
        f"Nothing of the batch is committed. {lines}",
    )
