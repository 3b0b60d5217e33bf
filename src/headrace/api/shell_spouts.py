"""Spouts in other languages: programs that speak Storm's JSON multilang protocol.

A spout is asked for its next tuples, and answers with what it emits, then `sync`. Tuples count
when the `sync` has come; those of an answer to anything but "next" (Storm's programs emit when they
start, or when a tuple is acked) are stored with the next ones. A process that fails is started
again only if it replays: then it gets the id of the last tuple that counted. One that does not
would lose or repeat tuples without anybody knowing, so its failure stops the job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from headrace.clock import Duration
from headrace.errors import StepError, call_site
from headrace.ops.topology.bolt import DEFAULT
from headrace.ops.topology.multilang_command import Command, command_of, unsent
from headrace.ops.topology.multilang_json import Unfitting, cannot_travel, columns_of
from headrace.ops.topology.multilang_process import (
    LOG,
    SAID,
    Child,
    ChildError,
    Exchange,
    encode,
    shown,
)
from headrace.ops.topology.multilang_task import gave_up
from headrace.rows import pylist
from headrace.schema import SchemaLike, schema_of
from headrace.sources.spouts import Spout, SpoutCollector, SpoutContext

_NO_TASK_IDS = encode([])


@dataclass
class _Running:
    """What a task has while the job runs."""

    context: SpoutContext
    child: Child | None = None
    last: Any = None  # the id of the last tuple that counted
    emitted: list[tuple[Any, Any]] = field(default_factory=list)  # and is not stored yet: its id
    failures: int = 0  # in a row
    ended: bool = False


class ShellSpout(Spout):
    """A spout in another language: a program that speaks Storm's JSON multilang protocol.

    The arguments are those of `hr.ShellBolt`, and `replays` and `bounded` as in `hr.Spout`. One
    that replays gets the id of the last tuple that was stored as "last" of the handshake's
    context, and is restarted when it fails. One that is bounded ends when its process does, with
    exit code 0.
    """

    command: Command

    def __new__(
        cls,
        command: Sequence[str] = (),
        output: SchemaLike = None,
        *,
        replays: bool = False,
        bounded: bool = False,
        **options: Any,
    ) -> Self:
        """Of a class of its own, which declares its fields as other spouts do."""
        declared = {"output": output, "replays": replays, "bounded": bounded}
        return object.__new__(type(cls.__name__, (cls,), {**declared, "__module__": __name__}))

    def __init__(
        self,
        command: Sequence[str],
        output: SchemaLike,
        *,
        replays: bool = False,
        bounded: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: Duration = "30s",
        max_restarts: int = 3,
    ) -> None:
        """See the class."""
        self.command = command_of(command, env, cwd, timeout, max_restarts)
        self._schema = schema_of(output)
        found = cannot_travel(self._schema)
        if found is not None:
            error = unsent("the spout", found)
            error.site = call_site()
            raise error

    def __reduce__(self) -> tuple[Any, ...]:
        kind = type(self)
        return _rebuilt, (kind.output, kind.replays, kind.bounded, self.command, self._schema)

    def open(self, context: SpoutContext) -> None:
        """Start the process."""
        self._at = _Running(context, last=context.last)
        self._ask({"command": "activate"})

    def next_tuple(self, collector: SpoutCollector) -> None:
        """Ask the process for its next tuples."""
        at = self._at
        if not at.ended:
            self._ask({"command": "next"})
        for values, id in at.emitted:
            collector.emit(values, id)
            at.last = id
        at.emitted.clear()
        if at.ended:
            collector.end()

    def ack(self, id: Any) -> None:
        """Say that a tuple has been processed."""
        self._ask({"command": "ack", "id": id})

    def fail(self, id: Any) -> None:
        """Say that a tuple could not be processed."""
        self._ask({"command": "fail", "id": id})

    def close(self) -> None:
        """End the process."""
        child, self._at.child = self._at.child, None
        if child is None:
            return
        with suppress(ChildError):
            _Answer(child, {"command": "deactivate"}).wait()  # that it ends is as good
        child.close()
        if self._at.emitted and not type(self).replays:
            LOG.error(
                "%s: emitted %s when no more of its tuples were stored: they are lost",
                child.who, shown([values for values, _ in self._at.emitted]),
            )  # fmt: skip

    # one question

    def _ask(self, question: dict[str, Any]) -> None:
        """Send a question until a process answers it; what it emits then counts."""
        at = self._at
        while not at.ended:
            answer = None
            try:
                child = at.child = at.child or self._started()
                answer = _Answer(child, question)
                answer.wait()
                rows = self._rows(answer.tuples, child)
            except ChildError as error:
                if type(self).bounded and answer is not None and answer.is_end:
                    at.ended = True
                self._failed(error)
                continue
            at.failures = 0
            at.emitted += zip(rows, answer.ids, strict=True)
            return

    def _started(self) -> Child:
        at = self._at
        context, who = at.context, f"spout {at.context.component}[{at.context.task}]"
        tasks = dict.fromkeys(map(str, range(context.tasks)), context.component)
        about = {
            "componentid": context.component,
            "taskid": context.task,
            "task->component": tasks,
            "streams": [DEFAULT],
            "stream->outputfields": {DEFAULT: self._schema.names},
            "last": at.last,
        }
        conf = {"topology.message.timeout.secs": self.command.timeout / 1_000}
        return Child(who, self.command, {"conf": conf, "context": about})

    def _rows(self, tuples: list[Any], child: Child) -> list[Any]:
        try:
            columns = columns_of(tuples, self._schema)
        except Unfitting as error:
            raise child.error(f"emitted what does not fit: {error}") from None
        return list(zip(*map(pylist, columns), strict=True)) if tuples else []

    def _failed(self, error: ChildError) -> None:
        """The process has ended or must end: start another one, if no tuple can be lost by that."""
        at = self._at
        child, at.child = error.child or at.child, None
        if child is not None:
            child.kill()
        if at.ended:
            return
        at.emitted.clear()  # it emits them again: it goes on after the last one that is stored
        at.failures += 1
        who = f"spout {at.context.component}[{at.context.task}]"
        if not type(self).replays:
            raise StepError(
                "HR-TOPOLOGY-046",
                f"{who} ({self.command}) {error}, and does not say that it replays",
                "Another process would not know which tuples are stored: pass replays=True to one "
                f'that goes on after the id "last" of the handshake. {said(error)}',
            )
        if at.failures > self.command.max_restarts:
            raise gave_up(who, self.command, at.failures, error)
        LOG.warning("%s: %s; restart %d of %d", who, error, at.failures, self.command.max_restarts)


class _Answer:
    """What a process answers to one question, up to its `sync`."""

    def __init__(self, child: Child, question: dict[str, Any]) -> None:
        self._child, self._what = child, question["command"]
        self._talk = Exchange(child, [encode(question)])
        self.tuples: list[Any] = []
        self.ids: list[Any] = []

    @property
    def is_end(self) -> bool:
        """Whether the process has ended instead, in good order."""
        return self._child.finished and not self.tuples

    def wait(self) -> None:
        """Until the `sync`."""
        for message in self._talk.messages(lambda: f"a sync after {self._what!r}"):
            command = message.get("command")
            if command == "sync":
                return
            if command in SAID:
                self._child.log(message)
            elif command == "emit":
                self._emit(message)
            else:
                raise self._child.error(f"sent an unknown command: {shown(message)}")
            self._talk.alive()

    def _emit(self, message: dict[str, Any]) -> None:
        stream, id = message.get("stream"), message.get("id")
        if stream not in (None, DEFAULT):
            raise self._child.error(f"emitted to {shown(stream)}, and a spout has one stream")
        if message.get("task"):
            raise self._child.error("emitted to a task, and the stream of a spout is not direct")
        if id is not None and type(id) not in (str, int, float):
            raise self._child.error(f"emitted with the id {shown(id)}, which is no text or number")
        if message.get("need_task_ids", True):
            self._talk.answer(_NO_TASK_IDS)
        self.tuples.append(message.get("tuple"))
        self.ids.append(id)


def said(error: ChildError) -> str:
    """The end of its standard error, in a hint."""
    lines = error.said()
    return f"Its standard error ends with:\n{lines}" if lines else "It wrote no error."


def _rebuilt(output: Any, replays: bool, bounded: bool, command: Command, schema: Any) -> Any:
    spout = ShellSpout.__new__(ShellSpout, (), output, replays=replays, bounded=bounded)
    spout.command, spout._schema = command, schema
    return spout
