"""Spouts in Python as inputs: their tuples are stored in a topic of the job's folder, then read.

Before an epoch is planned the driver calls `next_tuple` for what there is, and appends it to the
topic with the ids of the tuples; only what is durable there is offered. From the topic on nothing
is lost and nothing comes twice. Before it, that is for the spout: opened again, it gets the id of
the last tuple that was stored, and one that can replay goes on after it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from headrace.errors import HeadraceError, InputError, PlanError, StepError
from headrace.files import close_lock
from headrace.log import EmbeddedLog
from headrace.rows import row_copier, table_of
from headrace.schema import SchemaLike, ddl_of, schema_of
from headrace.sources.contract import BEGINNING, Chunk, Range, Source, damaged, refuse_shorter
from headrace.sources.stored_rows import storing_lock
from headrace.state.sealed import read_sealed, replace_sealed

TOPIC = "tuples"  # at rest, as the name of the column of ids
SEGMENT = 64 << 20
MOST_AT_ONCE = 10_000  # tuples of a task that are stored before an epoch
LONGEST = 1.0  # seconds in which a task is asked for tuples before an epoch: one may take its time
MOST_AHEAD = 200_000  # tuples of a task that are stored and not yet committed
MOST_TASKS = 256
ENDS = "ended.json"  # which tasks have ended, for good; at rest
_KIND = "ended spout tasks"
_ID = "$id"
_storing: dict[Path, SpoutSource] = {}  # by folder: who stores tuples there, in this process


@dataclass(frozen=True, slots=True)
class SpoutContext:
    """Where a spout runs, and where it goes on: what `open` is called with."""

    component: str
    task: int
    tasks: int
    last: Any  # the id of the last tuple that was stored; None if there is none


class SpoutCollector:
    """What a spout emits by."""

    def __init__(self, needs_ids: bool) -> None:
        self._needs_ids = needs_ids
        self.tuples: list[Any] = []
        self.ids: list[Any] = []
        self.ended = False

    def emit(self, values: Any, id: Any = None) -> None:
        """Emit a tuple; `id` is text or a number, by which the spout finds its place again."""
        if id is None and self._needs_ids:
            raise ValueError("a spout that replays emits every tuple with an id: emit(values, id=)")
        self.tuples.append(tuple(values) if type(values) is list else values)
        self.ids.append(id)

    def end(self) -> None:
        """Nothing will come any more; of a spout that is `bounded`."""
        self.ended = True


class Spout:
    """Subclass me: declare `output`, then `next_tuple(self, collector)`, which does not wait.

    `replays = True` promises that a spout which is opened with `context.last`, the id of the last
    tuple that was stored, goes on right after it. `bounded = True`: some day it says
    `collector.end()`.
    """

    output: ClassVar[SchemaLike] = None
    replays: ClassVar[bool] = False
    bounded: ClassVar[bool] = False

    def open(self, context: SpoutContext) -> None:
        """Called in each task before its first tuple, and again after each start of the job."""

    def next_tuple(self, collector: SpoutCollector) -> None:
        """Emit the next tuples, or none if there are none now."""
        raise NotImplementedError

    def ack(self, id: Any) -> None:
        """Called with the id of each tuple some time after the epoch that read it is committed:
        the job answers for it from then on. Where a run ends, it may not be called for some."""

    def close(self) -> None:
        """Called when the job stops, unless it is killed."""


class SpoutSource(Source):
    label: ClassVar[str] = "spout"  # at rest
    raw = False
    forgets = True

    def __init__(
        self, spout: Spout, tasks: int = 1, home: Path | None = None, name: str = "spout"
    ) -> None:
        _check(spout, tasks)
        self._spout, self._tasks, self._home, self._name = spout, tasks, home, name
        self.schema = schema_of(type(spout).output)
        self.bounded = type(spout).bounded
        self._running: list[_Task] | None = None
        self._log: EmbeddedLog | None = None
        self._committed: dict[str, int] = {}
        self._ends: set[int] | None = None  # the tasks that have ended, for good
        self._lock: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_running": None, "_log": None, "_lock": None}

    def for_job(self, home: Path | None, name: str) -> SpoutSource:
        """The same source as input `name` of a job."""
        return SpoutSource(self._spout, self._tasks, home, name)

    @property
    def loses(self) -> str:
        """What a crash means for a spout that cannot find its place again."""
        if type(self._spout).replays:
            return ""
        return (
            f"the spout {type(self._spout).__name__} does not say that it replays: tuples that it "
            "has emitted and that are not stored when the driver dies are lost, and what it "
            "emits when it is opened again is taken as new"
        )

    @property
    def because(self) -> str:
        if type(self._spout).replays:
            return "the spout goes on after the last tuple that is stored in the job's folder"
        return "the spout does not say that it replays"

    @property
    def title(self) -> str:
        """What it is, for `explain`."""
        return f"{type(self._spout).__name__}, {self._tasks} task{'s' if self._tasks > 1 else ''}"

    def identity(self) -> dict[str, str]:
        tasks = f"{self._tasks} task{'s' if self._tasks > 1 else ''}"
        return {"kind": "spout", "place": "", "thing": f"{tasks}, {ddl_of(self.schema)}"}

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        starts, ends = self._bounds()
        for split, offset in offsets.items():
            task = int(split)
            refuse_shorter(self.in_words(split), offset, ends[task])
            if offset < starts[task]:
                raise InputError(
                    "HR-INPUT-011",
                    f"the first {starts[task]} tuples of {self._name!r} were read and forgotten",
                    "Go on from a later epoch, or start with a new job folder.",
                )

    def has_more(self, split: str, offset: int) -> bool:
        return self._bounds()[1][int(split)] != offset

    def splits(self) -> list[str]:
        return [str(task) for task in range(self._tasks)]

    def start(self, split: str) -> int:
        return self._bounds()[0][int(split)]

    def latest(self, split: str) -> int:
        return self._bounds()[1][int(split)]

    def ended(self, split: str, offset: int) -> bool:
        task = int(split)
        if self._ends is None:
            self._ends = self._read_ends()
        return self.bounded and task in self._ends and offset >= self.latest(split)

    def read(self, range: Range) -> Iterator[Chunk]:
        log = EmbeddedLog(self._place())
        for first, table in log.read(TOPIC, int(range.split), range.start, range.end):
            yield table.drop_columns([_ID]), np.arange(first, first + table.num_rows)

    def where(self, split: str, offset: int) -> str:
        return f"{self._name} task {split} tuple {offset + 1}"

    def discover(self) -> None:
        """Call the spout for what there is, and store it."""
        if not self._locked():
            return  # another process, which is about to stop, still stores its tuples
        running = self._opened()
        _, ends = self._bounds()
        for task in running:
            ahead = ends[task.number] - max(self._committed.get(str(task.number), 0), task.begin)
            if not task.collector.ended and ahead < MOST_AHEAD:
                self._store(task)

    def commit(self, offsets: Mapping[str, int]) -> None:
        self._ack(offsets)
        self._committed.update(offsets)
        starts, _ = self._bounds()
        safe = {int(split): self.forgettable(split, at) for split, at in offsets.items()}
        before = {split: at for split, at in safe.items() if at > starts[split]}
        if before:
            self._topics().forget(TOPIC, before)

    def _ack(self, offsets: Mapping[str, int]) -> None:
        """Tell the spout which of its tuples are committed, if it wants to know."""
        if self._running is None or type(self._spout).ack is Spout.ack:
            return
        for split, at in offsets.items():
            task = self._running[int(split)]
            begin = max(self._committed.get(split, 0), task.begin)
            if not task.opened or at <= begin:
                continue
            with _named(self._name, task.number, "ack"):
                for _, rows in self._topics().read(TOPIC, task.number, begin, at):
                    for stored in rows.column(_ID).to_pylist():
                        if stored is not None:
                            task.spout.ack(json.loads(stored))

    def close(self) -> None:
        for task in self._running or ():
            if task.opened:
                task.spout.close()
        self._running = None
        if self._lock is not None:
            close_lock(self._lock)
            self._lock = None
            _storing.pop(self._place(), None)

    # the topic

    def _place(self) -> Path:
        if self._home is None:
            raise InputError(
                "HR-INPUT-013",
                f"the spout {self._name!r} needs a job's folder, to store what it emits",
                "Read it in a job.",
            )
        return self._home

    def _topics(self) -> EmbeddedLog:
        if self._log is None:
            self._log = EmbeddedLog(self._place())
        return self._log

    def _bounds(self) -> tuple[list[int], list[int]]:
        """The first tuple of each task that is stored, and where they end."""
        if self._home is None or not (self._home / TOPIC).exists():
            return [0] * self._tasks, [0] * self._tasks
        info = self._topics().describe(TOPIC)
        if len(info.latest) != self._tasks:
            how = f"is of {len(info.latest)} tasks, not {self._tasks}"
            raise damaged("the topic of tuples", self._home / TOPIC, how)
        tasks = range(self._tasks)
        return [info.earliest[t] for t in tasks], [info.latest[t] for t in tasks]

    def _locked(self) -> bool:
        """Whether this process is the one that stores tuples."""
        if self._lock is not None:
            return True
        place = self._place()
        before = _storing.get(place)
        if before is not None:  # of a run in this process that has ended without a word
            before.close()
        self._lock = storing_lock(place)
        if self._lock is None:
            return False
        _storing[place] = self
        return True

    def _opened(self) -> list[_Task]:
        if self._running is None:
            schema = self.schema.append(pa.field(_ID, pa.string()))
            self._topics().create(TOPIC, self._tasks, schema, exist_ok=True, segment_bytes=SEGMENT)
            self._running = [self._open(number) for number in range(self._tasks)]
        return self._running

    def _open(self, number: int) -> _Task:
        spout, end = copy.deepcopy(self._spout), self._bounds()[1][number]
        task = _Task(number, spout, SpoutCollector(type(spout).replays), end)
        if self._ends is None:
            self._ends = self._read_ends()
        if number in self._ends:  # in an earlier run
            task.collector.ended, task.opened = True, False
            return task
        last = None
        if end:
            ((_, table),) = self._topics().read(TOPIC, number, end - 1, end)
            stored = table.column(_ID)[0].as_py()
            last = None if stored is None else json.loads(stored)
        context = SpoutContext(self._name, number, self._tasks, last)
        with _named(self._name, number, "open"):
            task.spout.open(context)
        return task

    def _store(self, task: _Task) -> None:
        """Call it until it has nothing more to emit, or enough; then store all, at once."""
        collector = task.collector
        collector.tuples, collector.ids = [], []
        with _named(self._name, task.number, "next_tuple"):
            begun = monotonic()
            while not collector.ended and len(collector.tuples) < MOST_AT_ONCE:
                before = len(collector.tuples)
                returned = task.spout.next_tuple(collector)  # type: ignore[func-returns-value]
                if returned is not None:
                    raise TypeError(f"it returned {returned!r}: emit it with collector.emit")
                if len(collector.tuples) == before or monotonic() - begun >= LONGEST:
                    break
            if collector.ended and not self.bounded:
                raise ValueError("it ended, and does not say bounded = True")
            rows = table_of(row_copier(self.schema).all(collector.tuples), self.schema)
            ids = [None if id is None else json.dumps(id) for id in collector.ids]
        if rows.num_rows:
            stored = rows.append_column(pa.field(_ID, pa.string()), pa.array(ids, pa.string()))
            self._topics().append(TOPIC, stored, partition=task.number)
        if collector.ended:
            self._ends = {*(self._ends or ()), task.number}
            replace_sealed(self._place() / ENDS, _KIND, {"tasks": sorted(self._ends)})

    def _read_ends(self) -> set[int]:
        path = self._place() / ENDS
        return set(read_sealed(path, _KIND)["tasks"]) if path.exists() else set()


def stored_tuples(folder: Path) -> dict[str, Path]:
    """By key: the spouts that have stored tuples in a job's folder, whoever reads them now."""
    places = sorted(folder.glob(f"inputs/*/{TOPIC}"))
    return {
        unquote(place.parent.name): place
        for place in places
        if any(EmbeddedLog(place.parent).latest(TOPIC).values())
    }


@dataclass
class _Task:
    """One task of a spout while the job runs."""

    number: int
    spout: Spout
    collector: SpoutCollector
    begin: int  # where what was stored ended when it was opened
    opened: bool = True  # not one that ended in an earlier run


@contextmanager
def _named(name: str, task: int, method: str) -> Iterator[None]:
    """What the user's code raises, as an error of the spout."""
    try:
        yield
    except HeadraceError:
        raise
    except Exception as cause:
        raise StepError(
            "HR-TOPOLOGY-027",
            f"{method} of the spout {name!r} failed in task {task}: "
            f"{type(cause).__name__}: {cause}",
            "What it emitted since the last batch is not stored. Correct it and start the job "
            "again: it is opened with the id of the last tuple that was.",
        ) from cause


def _check(spout: Spout, tasks: object) -> None:
    kind = type(spout)
    if type(tasks) is not int or not 1 <= tasks <= MOST_TASKS:
        raise PlanError(
            "HR-TOPOLOGY-002",
            f"the spout {kind.__name__} has {tasks!r} tasks",
            f"Give a whole number from 1 to {MOST_TASKS}.",
        )
    wrong = (
        "has no next_tuple"
        if kind.next_tuple is Spout.next_tuple
        else "declares no output"
        if kind.output is None
        else ""
    )
    if wrong:
        raise PlanError(
            "HR-TOPOLOGY-028",
            f"the spout {kind.__name__} {wrong}",
            'Write output = "field type, ..." and next_tuple(self, collector) in the class.',
        )
    for name in ("outputs", "direct"):
        if getattr(kind, name, None):
            raise PlanError(
                "HR-TOPOLOGY-051",
                f"the spout {kind.__name__} declares {name}, and a spout has one stream",
                "Emit a field that says which it is, and let the first bolt deal the tuples out to "
                "streams.",
            )
