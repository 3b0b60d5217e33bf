"""Bolts in other languages: the tuples of a task go to a child process and come back.

The tuples of an epoch are a batch: `multilang_task.py` says what counts of it. One that the child
has not acked when the batch ends waits as one of a Python bolt does. What is stored is the tuple:
what the child has emitted for it counts once it is acked, and is emitted again by another child.
"""

from __future__ import annotations

import itertools
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pyarrow as pa

from headrace.clock import Duration, millis
from headrace.errors import PlanError
from headrace.ops.contract import EpochStep, Fault, Operator, Place
from headrace.ops.process.calls_by_key import KeyPass
from headrace.ops.process.rows_by_key import RowOrigins, RowsByKey
from headrace.ops.topology.bolt import DEFAULT, Bolt, BoltMeta, arm_ticks
from headrace.ops.topology.groupings import TO
from headrace.ops.topology.multilang_command import Command, command_of, unsent
from headrace.ops.topology.multilang_json import cannot_travel, rows_as_json
from headrace.ops.topology.multilang_process import close_children
from headrace.ops.topology.multilang_task import ShellTask, TaskAnswers, TaskRun, TaskTuples
from headrace.ops.topology.operator import BoltOperator, BoltSpec, TaskBlock
from headrace.ops.topology.waiting import FAILED, UNACKED, TupleFailedError, Waiting
from headrace.schema import SchemaLike, schema_of

Emitted = dict[str, tuple[pa.Table, list[int]]]  # by stream: rows, and their places


class ShellBolt(Bolt):
    """A bolt in another language: a program that speaks Storm's JSON multilang protocol.

    `command` is a list of arguments, such as ["node", "split.js"]. `output` declares the fields of
    its default stream, `streams` further ones by name, `direct` those that are direct. `env` is
    added to the few variables that it gets; `cwd` is where it runs, by default where the program
    was built. A process that is silent for `timeout` while it has tuples is taken to hang; it is
    restarted, as one that dies or writes what is not the protocol, `max_restarts` times in a batch.
    `acks`: it takes tuples in turn, and may ack one only after later ones, in a later batch, or
    when it gets a tick tuple, which is sent every `tick_every`.
    """

    command: Command
    owner: str

    def __new__(
        cls,
        command: Sequence[str] = (),
        output: SchemaLike = None,
        streams: Mapping[str, SchemaLike] | None = None,
        direct: tuple[str, ...] = (),
        *,
        acks: bool = False,
        tick_every: Duration | None = None,
        **options: Any,
    ) -> Self:
        """Of a class of its own, which declares its streams as other bolts do."""
        declared = {
            "output": output,
            "outputs": dict(streams or {}),
            "direct": direct if isinstance(direct, str) else tuple(direct),
            "acks": acks,
            "tick_every": tick_every,
            **({} if tick_every is None else {"tick": _sent_elsewhere}),
        }
        kind: Any = BoltMeta(cls.__name__, (cls,), {**declared, "__module__": __name__})
        one: Self = super().__new__(kind)
        return one

    def __init__(
        self,
        command: Sequence[str],
        output: SchemaLike = None,
        streams: Mapping[str, SchemaLike] | None = None,
        direct: tuple[str, ...] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: Duration = "30s",
        max_restarts: int = 3,
        acks: bool = False,
        tick_every: Duration | None = None,
    ) -> None:
        """See the class."""
        self.command = command_of(command, env, cwd, timeout, max_restarts)
        self.owner = uuid.uuid4().hex  # whose the processes are

    def __reduce__(self) -> tuple[Any, ...]:
        kind = type(self)
        declared = (kind.output, kind.outputs, kind.direct)
        more = {"acks": kind.acks, "tick_every": kind.tick_every}
        return _rebuilt, (declared, more, self.command, self.owner)

    def process(self, tup: Any, collector: Any) -> None:
        """Never called: the tuples of a batch go to the process together."""
        raise NotImplementedError


def _sent_elsewhere(self: ShellBolt, collector: Any) -> None:
    """Never called: a tick is sent to the process."""
    raise NotImplementedError


def _rebuilt(
    declared: tuple[Any, Any, Any], more: dict[str, Any], command: Command, owner: str
) -> ShellBolt:
    bolt = ShellBolt.__new__(ShellBolt, (), *declared, **more)
    bolt.command, bolt.owner = command, owner
    return bolt


def unsent_fields(
    bolt: ShellBolt, component: str, inputs: Sequence[pa.Schema]
) -> Iterator[PlanError]:
    """Fields that it reads or emits, and that have no form as JSON."""
    with suppress(PlanError):  # declarations that cannot be read are reported elsewhere
        declared = [] if bolt.output is None else [schema_of(bolt.output)]
        for schema in (*inputs, *declared, *type(bolt).sides().values()):
            found = cannot_travel(schema)
            if found is not None:
                yield unsent(f"the bolt {component!r}", found)


@dataclass(frozen=True, eq=False, kw_only=True)
class ShellBoltSpec(BoltSpec):
    """A bolt whose tuples are processed by a child process."""

    @property
    def functions(self) -> tuple[Any, ...]:
        return ()

    @property
    def user_code(self) -> list[Any]:
        return []

    @property
    def python(self) -> str:
        return f"{self.function.command}: a process, whose messages are Python objects"

    @property
    def title(self) -> str:
        return str(self.function.command)

    @property
    def loses(self) -> str:
        return (
            f"bolt {self.component!r}: what the process {self.function.command} stores in its "
            "memory is lost when it is restarted, and when its task moves to another worker"
        )

    def operator(self, place: Place) -> Operator:
        return ShellBoltOperator(self, place)

    def close(self) -> None:
        close_children(self.function.owner)


@dataclass
class _Answers:
    """What came of the tuples of a block."""

    emitted: Emitted = field(default_factory=dict)
    unacked: dict[int, str] = field(default_factory=dict)  # by place, the mark of its process
    faults: list[Fault] = field(default_factory=list)
    error: Exception | None = None

    def add(
        self,
        first: int,
        found: TaskAnswers,
        firing: int,
        block: RowsByKey,
        inputs: Sequence[pa.Table | None],
    ) -> None:
        """The answers of a task whose first tuple is the `first` of the block."""
        for place, reason in sorted(found.failed.items()):
            at = first + place
            row, port = block.arrived(inputs, at), int(block.ports[at])
            self.faults.append(Fault(row, TupleFailedError(reason), port, at))
        self.unacked |= {first + place: found.mark for place in sorted(found.unacked)}
        for stream, parts in found.emitted.items():
            for rows, places in parts:
                before, known = self.emitted.get(stream, (rows.slice(0, 0), []))
                known += [first + place if place >= 0 else firing for place in places]
                self.emitted[stream] = pa.concat_tables([before, rows]), known


class ShellBoltOperator(BoltOperator):
    def __init__(self, spec: ShellBoltSpec, place: Place) -> None:
        super().__init__(spec, place)
        self._inputs = [_visible_names(schema) for schema in place.inputs]
        self._answered = _Answers()
        every = self._kind.tick_every
        self._every = 0 if every is None else millis(every)

    def _due(self, step: EpochStep) -> list[Waiting]:
        """What was not acked in an earlier epoch is sent again, unless its child still has it."""
        unacked = self._waiting.take_unacked(step) if self._kind.acks else []
        return unacked + super()._due(step)

    def _block(
        self,
        new_pass: Any,
        by_task: Any,
        block: RowsByKey,
        inputs: Sequence[pa.Table | None],
        guard: Any,
        step: EpochStep,
    ) -> Any:
        """The tuples of some tasks, sent once: an error is not looked for call by call."""
        processed = cache(lambda ticks: self._answers(block, inputs, ticks, step))

        def sent(values: Any, call: Any) -> Any:
            return SimpleNamespace(run=partial(self._sent, new_pass(values, call), processed))

        return super()._block(sent, by_task, block, inputs, guard, step)

    def _sent(
        self,
        one: KeyPass,
        processed: Callable[[tuple[int, ...]], _Answers],
        keys: Sequence[int],
        *_: Any,
    ) -> KeyPass:
        """A pass over the tuples, which are processed elsewhere; the ticks that are due, by key."""
        ticks = tuple(n for n, key in enumerate(keys) if self._every and self._ticks(one, n, key))
        one.firings += [(key_id, None) for key_id in ticks]
        answers = processed(ticks)
        if answers.error is not None:
            raise answers.error
        one.faults += answers.faults
        self._answered = answers
        return one

    def _ticks(self, one: KeyPass, key_id: int, key: int) -> bool:
        """Whether a task ticks after its tuples; not one of an earlier number of tasks."""
        bolt = self._spec.function
        due = one.begun(key_id, key, lambda call, timers: arm_ticks(bolt, call, timers))
        return key in self._numbers and due

    def _result(self, done: KeyPass, block: RowsByKey, step: EpochStep) -> Any:
        result = super()._result(done, block, step)
        tables = {
            stream: block.placed(rows, RowOrigins(places, done.firings), step, self._timed)
            for stream, (rows, places) in self._answered.emitted.items()
        }
        self._blocks[-1].unacked = self._answered.unacked
        return replace(result, out=tables.pop(DEFAULT, None), sides=tables)

    def _acks(self, block: TaskBlock, step: EpochStep) -> Iterator[Waiting | None]:
        """Tuples that the child has not acked: when their time is over they have failed."""
        for place, mark in block.unacked.items():
            one = self._waits(block, place, step)
            if one.why == UNACKED and one.due <= step.clock:
                yield self._waiting.timed_out(one, step)
            else:
                one = one if one.why == UNACKED else self._waiting.unacked(one, step)
                one.reason = mark
                yield one

    def _answers(
        self,
        block: RowsByKey,
        inputs: Sequence[pa.Table | None],
        ticks: tuple[int, ...],
        step: EpochStep,
    ) -> _Answers:
        """What came of the tuples of all tasks of a block, or the error that stops the job."""
        texts, answers = self._texts(block, inputs), _Answers()
        keys = block.keys.column(1).to_pylist()
        try:
            for at, (first, end) in enumerate(itertools.pairwise(block.starts)):
                if end > first or at in ticks:
                    tuples = self._tuples(texts, first, end, step, tick=at in ticks)
                    found = TaskRun(self._task(keys[at]), tuples).answers()
                    firing = -1 - ticks.index(at) if at in ticks else first
                    answers.add(first, found, firing, block, inputs)
        except Exception as error:
            answers.error = error
        return answers

    def _tuples(
        self, texts: list[str], first: int, end: int, step: EpochStep, *, tick: bool
    ) -> TaskTuples:
        """The tuples of a task, and which of them its child may have."""
        block = self._blocks[-1]

        def identity(place: int) -> tuple[str, int]:
            one = self._waits(block, first + place, step)
            return one.id, one.attempt

        again = {p - first: one for p, one in sorted(block.again.items()) if first <= p < end}
        waited = {place: one.reason for place, one in again.items() if one.why == UNACKED}
        return TaskTuples(
            texts[first:end],
            identity,
            waited=list(waited),
            marks=set(waited.values()),
            failed=[place for place, one in again.items() if one.why == FAILED],
            tick=self._every if tick else 0,
        )

    def _task(self, key: int) -> ShellTask:
        bolt, spec = self._spec.function, self._spec
        number = self._numbers.get(key, key % spec.tasks)  # of fewer tasks, or more
        return ShellTask(
            f"bolt {spec.component}[{number}]",
            (bolt.owner, spec.component, number),
            bolt.command,
            self._setup(number),
            self._streams(),
            frozenset(self._kind.direct),
            self._kind.acks,
            self._every,
        )

    def _texts(self, block: RowsByKey, inputs: Sequence[pa.Table | None]) -> list[str]:
        """All of a tuple's message but its id, in the order of the calls."""
        texts = [""] * len(block.ports)
        for port, rows in enumerate(inputs):
            places = np.flatnonzero(block.ports == port)
            if rows is None or not len(places):
                continue
            source, stream = self._spec.labels[port]
            about = {"comp": source, "stream": stream, "task": self._spec.tasks + port}
            head = json.dumps(about, separators=(",", ":"))[1:-1]
            listed = rows_as_json(rows.take(pa.array(block.indexes[places])))
            for place, row in zip(places.tolist(), listed, strict=True):
                texts[place] = f'{head},"tuple":{row}}}'
        return texts

    def _streams(self) -> dict[str, pa.Schema]:
        default = {} if self._kind.output is None else {DEFAULT: self._schema}
        return {**default, **self._sides}

    def _setup(self, task: int) -> dict[str, Any]:
        """What the handshake says, by the names that Storm uses."""
        spec, command = self._spec, self._spec.function.command
        own = dict.fromkeys(map(str, range(spec.tasks)), spec.component)
        sources = {str(spec.tasks + port): label[0] for port, label in enumerate(spec.labels)}
        fields: dict[str, dict[str, list[str]]] = {}
        groupings: dict[str, dict[str, Any]] = {}
        inputs = zip(spec.labels, spec.groupings, self._inputs, strict=True)
        for (component, stream), grouping, names in inputs:
            fields.setdefault(component, {})[stream] = names
            about = {"type": grouping.kind.upper(), "fields": list(grouping.fields)}
            groupings.setdefault(component, {})[stream] = about
        streams = {name: _visible_names(schema) for name, schema in self._streams().items()}
        context = {
            "componentid": spec.component,
            "taskid": task,
            "task->component": own | sources,
            "streams": list(streams),
            "stream->outputfields": streams,
            "source->stream->fields": fields,
            "source->stream->grouping": groupings,
        }
        conf = {"topology.message.timeout.secs": command.timeout / 1_000}
        if self._every:
            conf["topology.tick.tuple.freq.secs"] = self._every / 1_000
        return {"conf": conf, "context": context}


def _visible_names(schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if not name.startswith("__") and name != TO]
