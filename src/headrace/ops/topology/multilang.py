"""Bolts in other languages: the tuples of a task's batch go to a child process and come back.

All tuples of a batch are sent as fast as the child takes them, and the batch is done when each is
acked or failed and the child has answered a heartbeat after that: then nothing that it emitted is
still under way. Until then nothing counts: if the child dies, hangs or does not keep to the
protocol it is killed and started again, and the tuples of the batch are sent again.
"""

from __future__ import annotations

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

from headrace.clock import Duration
from headrace.errors import PlanError, StepError
from headrace.ops.contract import EpochStep, Fault, Operator, Place
from headrace.ops.process.calls_by_key import KeyPass
from headrace.ops.process.rows_by_key import RowOrigins, RowsByKey
from headrace.ops.topology.bolt import DEFAULT, Bolt, BoltMeta
from headrace.ops.topology.groupings import TO
from headrace.ops.topology.multilang_batch import TupleBatch
from headrace.ops.topology.multilang_command import Command, command_of, unsent
from headrace.ops.topology.multilang_json import (
    Unfitting,
    cannot_travel,
    columns_of,
    rows_as_json,
)
from headrace.ops.topology.multilang_process import (
    LOG,
    SAID,
    Child,
    ChildError,
    close_children,
    forget,
    running,
    shown,
)
from headrace.ops.topology.operator import BoltOperator, BoltSpec
from headrace.ops.topology.waiting import TupleFailedError
from headrace.schema import SchemaLike, schema_of

Emitted = dict[str, tuple[pa.Table, list[int]]]  # by stream: rows, and for which tuple each


class ShellBolt(Bolt):
    """A bolt in another language: a program that speaks Storm's JSON multilang protocol.

    `command` is a list of arguments, such as ["node", "split.js"]. `output` declares the fields of
    its default stream, `streams` further ones by name, `direct` those that are direct. `env` is
    added to the few variables that it gets; `cwd` is where it runs, by default where the program
    was built. A process that is silent for `timeout` while it has tuples is taken to hang; it is
    restarted, as one that dies or writes what is not the protocol, `max_restarts` times in a batch.
    """

    command: Command
    owner: str

    def __new__(
        cls,
        command: Sequence[str] = (),
        output: SchemaLike = None,
        streams: Mapping[str, SchemaLike] | None = None,
        direct: tuple[str, ...] = (),
        **options: Any,
    ) -> Self:
        """Of a class of its own, which declares its streams as other bolts do."""
        declared = {"output": output, "outputs": dict(streams or {}), "direct": tuple(direct)}
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
    ) -> None:
        """See the class."""
        self.command = command_of(command, env, cwd, timeout, max_restarts)
        self.owner = uuid.uuid4().hex  # whose the processes are

    def __reduce__(self) -> tuple[Any, ...]:
        kind = type(self)
        declared = (kind.output, kind.outputs, kind.direct)
        return _rebuilt, (declared, self.command, self.owner)

    def process(self, tup: Any, collector: Any) -> None:
        """Never called: the tuples of a batch go to the process together."""
        raise NotImplementedError


def _rebuilt(declared: tuple[Any, Any, Any], command: Command, owner: str) -> ShellBolt:
    bolt = ShellBolt.__new__(ShellBolt, (), *declared)
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
    faults: list[Fault] = field(default_factory=list)
    error: Exception | None = None

    def add(
        self,
        first: int,
        batch: TupleBatch,
        tables: Emitted,
        block: RowsByKey,
        inputs: Sequence[pa.Table | None],
    ) -> None:
        """The answers of a task whose first tuple is the `first` of the block."""
        for place, reason in sorted(batch.failed.items()):
            at = first + place
            row, port = block.arrived(inputs, at), int(block.ports[at])
            self.faults.append(Fault(row, TupleFailedError(reason), port, at))
        for stream, (rows, places) in tables.items():
            before, known = self.emitted.get(stream, (rows.slice(0, 0), []))
            added = [first + place for place in places]
            self.emitted[stream] = pa.concat_tables([before, rows]), known + added


class ShellBoltOperator(BoltOperator):
    def __init__(self, spec: ShellBoltSpec, place: Place) -> None:
        super().__init__(spec, place)
        self._inputs = [_visible_names(schema) for schema in place.inputs]
        self._answered = _Answers()

    def _block(
        self,
        new_pass: Any,
        by_task: Any,
        block: RowsByKey,
        inputs: Sequence[pa.Table | None],
        *more: Any,
    ) -> Any:
        """The tuples of some tasks, sent once: an error is not looked for call by call."""
        processed = cache(lambda: self._answers(block, inputs))

        def sent(values: Any, call: Any) -> Any:
            return SimpleNamespace(run=partial(self._sent, new_pass(values, call), processed))

        return super()._block(sent, by_task, block, inputs, *more)

    def _sent(self, one: KeyPass, processed: Callable[[], _Answers], *_: Any) -> KeyPass:
        """A pass over the tuples, which are processed elsewhere."""
        answers = processed()
        if answers.error is not None:
            raise answers.error
        one.faults += answers.faults
        self._answered = answers
        return one

    def _result(self, done: KeyPass, block: RowsByKey, step: EpochStep) -> Any:
        result = super()._result(done, block, step)
        tables = {
            stream: block.placed(rows, RowOrigins(places, []), step, self._timed)
            for stream, (rows, places) in self._answered.emitted.items()
        }
        return replace(result, out=tables.pop(DEFAULT, None), sides=tables)

    def _answers(self, block: RowsByKey, inputs: Sequence[pa.Table | None]) -> _Answers:
        """What came of the tuples of all tasks of a block, or the error that stops the job."""
        texts, answers = self._texts(block, inputs), _Answers()
        keys, count = block.keys.column(1).to_pylist(), self._spec.tasks
        tasks = [self._numbers.get(key, key % count) for key in keys]  # of fewer tasks, or more
        try:
            for first, end, task in zip(block.starts, block.starts[1:], tasks, strict=False):
                if end > first:
                    batch, tables = self._run(task, texts[first:end])
                    answers.add(first, batch, tables, block, inputs)
        except Exception as error:
            answers.error = error
        return answers

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

    def _run(self, task: int, texts: list[str]) -> tuple[TupleBatch, Emitted]:
        """The tuples of a task, sent until a child has processed all of them."""
        bolt, spec = self._spec.function, self._spec
        command, who = bolt.command, f"bolt {spec.component}[{task}]"
        key, failures = (bolt.owner, spec.component, task), 0
        while True:
            try:
                child = running(key, lambda: Child(who, command, self._setup(task)))
                try:
                    if child.ids:  # what a new one emits belongs to its first batch
                        self._take_idle(child)
                    batch = TupleBatch(child, texts, self._streams(), type(bolt).direct)
                    batch.run()
                    self._take_idle(child)
                    return batch, self._tables(batch)
                except BaseException as error:
                    forget(key)
                    child.kill()
                    if isinstance(error, Unfitting):
                        raise ChildError(f"emitted what does not fit: {error}", child) from None
                    raise
            except ChildError as error:
                failures += 1
                if failures > command.max_restarts:
                    raise gave_up(who, command, failures, error) from None
                LOG.warning("%s: %s; restart %d of %d, and its %d tuples are sent again",
                            who, error, failures, command.max_restarts, len(texts))  # fmt: skip

    def _take_idle(self, child: Child) -> None:
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

    def _streams(self) -> dict[str, pa.Schema]:
        default = {} if self._kind.output is None else {DEFAULT: self._schema}
        return {**default, **self._sides}

    def _tables(self, batch: TupleBatch) -> Emitted:
        """What was emitted to each stream, and for which tuple; refuses what does not fit."""
        tables = {}
        for stream, schema in self._streams().items():
            tuples, anchors, counted = batch.emitted(stream)
            rows = pa.Table.from_arrays(columns_of(tuples, schema), schema=schema)
            rows = rows if all(counted) else rows.filter(pa.array(counted, pa.bool_()))
            places = [at for at, counts in zip(anchors, counted, strict=True) if counts]
            if places:
                tables[stream] = rows, places
        return tables

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
        return {"conf": {"topology.message.timeout.secs": command.timeout / 1_000},
                "context": context}  # fmt: skip


def _visible_names(schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if not name.startswith("__") and name != TO]


def gave_up(who: str, command: Command, failures: int, error: ChildError) -> StepError:
    """It has failed more often than it may."""
    times = "" if failures == 1 else f" {failures} times in a row; the last time it"
    said = error.said()
    lines = "\n".join(["Its standard error ends with:", said]) if said else "It wrote no error."
    return StepError(
        "HR-TOPOLOGY-041",
        f"{who} ({command}){' failed' + times if times else ''} {error}",
        f"Nothing of the batch is committed. {lines}",
    )
