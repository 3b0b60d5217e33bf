"""A topic as an output: exactly once, because the log drops an append it has seen before.

Rows are staged as Arrow files in the job's folder, as the topic will hold them: what a topic
cannot hold fails its batch, and never one that is committed. Publishing appends them at once,
under the producer that their references carry and the epoch as its sequence, so publishing again
changes nothing, in any process, even after the output was renamed. Topics are not read here.
Who has written to a topic, and how far, the log knows by its producers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import LogError, OutputError
from headrace.log import EmbeddedLog
from headrace.log.contract import check_name
from headrace.schema import ddl_type
from headrace.settings import Settings
from headrace.sinks.columns import holds, packed
from headrace.sinks.contract import (
    EXACTLY_ONCE,
    Description,
    EpochWriter,
    HeldEpochs,
    OutputKind,
    OutputRequest,
    Reached,
    Reference,
    Sink,
    Timelines,
    appends,
    bad_option,
    refuse_unknown,
)
from headrace.sinks.durable import Staging, check_writable, noted
from headrace.sinks.formats import json_values, without_dictionaries
from headrace.sinks.ownership import Identity
from headrace.state.faults import point
from headrace.state.manifest import FIRST

# a producer that is a job's output: its folder's identity, its timeline, its id
_OUTPUT = re.compile(r"([0-9a-f]{32})(?:@([0-9a-f]+))?/(.*)", re.DOTALL)


class LogSink(Sink):
    guarantee = EXACTLY_ONCE

    def __init__(
        self,
        log: EmbeddedLog,
        topic: str,
        schema: pa.Schema,
        staged: Path,
        job: Identity,
        name: str,
        *,
        id: str | None = None,
        key: str | None = None,
        partitions: int = 1,
        append: bool = False,
    ) -> None:
        self.schema, self._log, self._topic = schema, log, topic
        self._key, self._partitions, self._append_mode = key, partitions, append
        self._identity, self._name = job, name
        self._id = name if id is None else id
        self._staging = Staging(staged)
        self._topic_id: str | None = None  # the id of the topic that was looked at last
        self._ends: dict[int, int] | None = None  # of its partitions, as of the last look

    def describe(self) -> Description:
        mode = {"mode": "append"} if self._append_mode else {}
        return {
            "kind": "log",
            "place": os.path.join(os.path.abspath(self._log.root), self._topic),
            "format": None,
            "key": self._key,
            "options": {"partitions": self._partitions, **mode},
            "schema": packed(self.schema),
        }

    def check(self) -> None:
        """Check that the topic can be created, or that it is ours and the rows fit."""
        if self._key is not None and self._key not in self.schema.names:
            raise OutputError(
                "HR-OUTPUT-008",
                f"output to topic {self._topic!r} has no column {self._key!r} to be its key",
                f"It has: {', '.join(self.schema.names)}.",
            )
        if self._partitions < 1:
            raise OutputError(
                "HR-OUTPUT-008",
                f"output to topic {self._topic!r} has partitions={self._partitions}",
                "A topic has at least one partition.",
            )
        check_writable(Path(self._log.root))
        try:
            if self._topic not in self._log.topics():
                return
            topic_schema = self._log.describe(self._topic).schema
            producers = self._log.producers(self._topic)
        except LogError as cause:
            raise _as_output(cause) from cause
        if topic_schema is not None:
            _fit(self._topic, self.schema, topic_schema)
        if not self._append_mode:
            self._check_owner(producers)

    def _check_owner(self, producers: Mapping[str, int]) -> None:
        """Rows of another job's folder, or of an earlier life of this one, would be doubled."""
        outputs = [m for p in sorted(producers) if (m := _OUTPUT.fullmatch(p))]
        for match in outputs:
            if match[1] != self._identity.known():
                raise OutputError(
                    "HR-OUTPUT-004",
                    f"topic {self._topic!r} holds records that another job folder's output "
                    f"{match[3]!r} wrote",
                    "If it is this job that wrote them, start it with the job folder it had "
                    "then (folder=, --folder on the command line). If not, write to another "
                    'topic, or pass mode="append" to add to what is there.',
                )

    def open(self) -> None:
        try:
            if self._topic not in self._log.topics():
                self._log.create(
                    self._topic, self._partitions, self.schema, self._key, exist_ok=True
                )
            self._ends = self._log.latest(self._topic)
        except LogError as cause:
            raise _as_output(cause) from cause

    def held(self) -> HeldEpochs | None:
        job = self._identity.known()
        try:
            exists = job is not None and self._topic in self._log.topics()
            producers = self._log.producers(self._topic) if exists else {}
        except LogError as cause:
            raise _as_output(cause) from cause
        own, all = Reached(), Reached()
        for producer, epoch in producers.items():
            match = _OUTPUT.fullmatch(producer)
            if match is None or match[1] != job:
                continue
            timeline = match[2] or FIRST
            all[timeline] = max(epoch, all.get(timeline, epoch))
            if match[3] == self._id:
                own[timeline] = epoch
        return HeldEpochs(max(all.values(), default=0), own, all, final=True)

    def reached(self, epoch: int) -> bool:
        """Producers are looked up only if the topic was made again since the last call."""
        try:
            topic = self._log.describe(self._topic).id
        except LogError as cause:
            raise _as_output(cause) from cause
        if topic != self._topic_id:
            held = self.held()
            if held is None or held.number < epoch:
                return False
            self._topic_id = topic
        return True

    def beyond(self, timelines: Timelines) -> Reached:
        """Producers are looked up only if others have appended since the last call."""
        try:
            ends = self._log.latest(self._topic)
        except LogError as cause:
            raise _as_output(cause) from cause
        if ends == self._ends:
            return {}
        held = self.held()
        beyond = timelines.beyond(held.all) if held is not None else {}
        if not beyond:
            self._ends = ends
        return beyond

    def stage(self, table: pa.Table, epoch: int, unique: str) -> list[Reference]:
        try:
            rows = self._records(table.select(self.schema.names)) if table.num_rows else table
        except LogError as cause:
            raise _as_output(cause) from cause
        references = self._staging.add(rows, epoch, unique)
        producer = f"{self._identity.get()}/{self._id}"
        return [{**r, "producer": producer} for r in references]

    def publish(self, epoch: int, staged: list[Reference], writer: EpochWriter) -> None:
        """One append for the epoch: a reader of the topic sees all of it or none."""
        if not staged:
            return
        producer = _within(noted(staged[0], "producer"), writer.timeline)
        rows = pa.concat_tables([self._staging.read(r) for r in staged])
        point("sink.publish.read")
        try:
            writer.check()
            self._append(rows, producer, epoch)
        except LogError as cause:
            if cause.code == "HR-LOG-020":
                raise _conflict(self._topic, self._name, epoch) from cause
            raise _as_output(cause) from cause
        point("sink.publish.appended")

    def go_back(self, timelines: Timelines, writer: EpochWriter) -> str:
        held = self.held()
        beyond = timelines.beyond(held.all) if held is not None else {}
        if not beyond:
            return f"output {self._name!r}: topic {self._topic!r} holds nothing that was given up"
        first = min(timelines.upto(timeline) for timeline in beyond) + 1
        return (
            f"output {self._name!r}: a topic cannot take records back, so the rows of epochs "
            f"{max(first, 1)} to {max(beyond.values())} will be in {self._topic!r} twice"
        )

    def discard(self, live: Set[str], upto: int | None = None) -> None:
        self._staging.sweep(live, upto)

    def _append(self, rows: pa.Table, producer: str, sequence: int) -> None:
        typed = self._log.describe(self._topic).schema is not None
        key = self._key if typed else None
        acks = self._log.append(self._topic, rows, key=key, producer=producer, sequence=sequence)
        self._ends = {**(self._ends or {}), **{p: ack.end for p, ack in acks.items()}}

    def _records(self, rows: pa.Table) -> pa.Table:
        """Typed rows for a typed topic; JSON, and the key as text, for a topic of bytes."""
        schema = self._log.describe(self._topic).schema
        if schema is not None:
            return _cast(self._topic, rows, schema)
        keys = pa.nulls(rows.num_rows, pa.binary())
        if self._key is not None:
            keys = rows.column(self._key).cast(pa.string()).cast(pa.binary())
        return pa.table({"key": keys, "value": json_values(rows)})


def _check(o: OutputRequest) -> None:
    refuse_unknown(o, ("log", "key", "partitions", "mode"))
    appends(o)
    partitions = o.options.get("partitions", 1)
    if type(partitions) is not int or partitions < 1:
        raise bad_option(o, "partitions", partitions, "Give a number of partitions, 1 or more.")
    try:
        check_name(o.rest)
    except LogError as cause:
        raise OutputError("HR-OUTPUT-001", cause.message, cause.hint) from cause


def _open(o: OutputRequest) -> Sink:
    log = EmbeddedLog(Settings.load(log=o.options.get("log")).log)
    options = {n: v for n, v in o.options.items() if n in ("key", "partitions")}
    job, append = Identity(o.folder), appends(o)
    return LogSink(log, o.rest, o.schema, o.staged, job, o.name, id=o.key, append=append, **options)


def _reopen(about: Description) -> tuple[str, dict[str, Any]]:
    root, topic = os.path.split(about["place"])
    return topic, {**about["options"], "log": root, "key": about["key"]}


LOG = OutputKind(_check, _open, _reopen)


def _within(producer: str, timeline: str) -> str:
    """The name of the producer in a timeline: each timeline has its own sequence."""
    job, _, id = producer.partition("/")
    return producer if timeline == FIRST else f"{job}@{timeline}/{id}"


def _fit(topic: str, rows: pa.Schema, topic_schema: pa.Schema) -> None:
    missing = sorted(set(topic_schema.names) - set(rows.names))
    extra = sorted(set(rows.names) - set(topic_schema.names))
    if missing or extra:
        fact = f"has no column {missing[0]!r}" if missing else f"has a column {extra[0]!r} more"
        raise OutputError(
            "HR-OUTPUT-006",
            f"the output {fact}, topic {topic!r} holds: {', '.join(topic_schema.names)}",
            "Select the topic's columns, or write to another topic.",
        )
    for field in without_dictionaries(rows):
        kind = topic_schema.field(field.name).type
        integers = pa.types.is_integer(kind) and pa.types.is_integer(field.type)
        if not integers and not holds(kind, field.type):
            raise OutputError(
                "HR-OUTPUT-006",
                f"the output's column {field.name!r} is {ddl_type(field.type)}, in topic "
                f"{topic!r} it is {ddl_type(kind)}, which does not hold every value of that",
                "Cast the column, or write to another topic.",
            )


def _cast(topic: str, rows: pa.Table, topic_schema: pa.Schema) -> pa.Table:
    """The rows in the columns of the topic. Types fit; a null, or a large number, may not."""
    try:
        return rows.select(topic_schema.names).cast(topic_schema)
    except (pa.ArrowException, ValueError, KeyError) as cause:
        raise OutputError(
            "HR-OUTPUT-006",
            f"rows of the output do not fit topic {topic!r}: {cause}",
            "Correct the values (coalesce, where), or write to another topic; nothing of this "
            "batch is committed.",
        ) from cause


def _conflict(topic: str, output: str, epoch: int) -> OutputError:
    return OutputError(
        "HR-OUTPUT-013",
        f"epoch {epoch} was published to topic {topic!r} with other records than the job's "
        f"manifest names (output {output!r})",
        "Another driver runs on a copy of the job's folder. Go on with one of the two: the "
        "one whose rows the topic has.",
    )


def _as_output(cause: LogError) -> OutputError:
    code = "HR-OUTPUT-006" if cause.code == "HR-LOG-006" else "HR-OUTPUT-010"
    return OutputError(code, cause.message, cause.hint)
