"""A topic as an output: exactly once, because the log drops an append it has seen before.

An epoch is one append, under its producer and with the epoch as its sequence; who has written to a
topic, and how far, the log knows by its producers. Topics are not read here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import LogError, OutputError
from headrace.log.contract import TopicInfo, check_name
from headrace.log.packed_log import PackedLog
from headrace.log.routed_appends import PackedRecords
from headrace.schema import ddl_type
from headrace.settings import Settings
from headrace.sinks import packed_records
from headrace.sinks.columns import holds, packed
from headrace.sinks.contract import (
    Description,
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
from headrace.sinks.delivered import DeliveredSink
from headrace.sinks.durable import check_writable
from headrace.sinks.formats import json_values, without_dictionaries


class LogSink(DeliveredSink):
    because = "an epoch is one append with its number, which the topic takes once"

    def __init__(self, o: OutputRequest, log: PackedLog) -> None:
        super().__init__(o)
        self._log, self._topic = log, o.rest
        self._key: str | None = o.options.get("key")
        self._partitions: int = o.options.get("partitions", 1)
        self._topic_id: str | None = None  # the id of the topic that was looked at last
        self._ends: dict[int, int] | None = None  # of its partitions, as of the last look

    @property
    def what(self) -> str:
        return f"topic {self._topic!r}"

    def describe(self) -> Description:
        mode = {"mode": "append"} if self._appends else {}
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
        check_writable(Path(self._log.root))
        with _as_output():
            exists = self._topic in self._log.topics()
            topic = self._log.describe(self._topic) if exists else None
        if topic is not None and topic.schema is not None:
            _fit(self._topic, self.schema, topic.schema, topic.added)
        if topic is not None and topic.compacted:
            self._check_key(topic)
        self.check_owner()

    def _check_key(self, topic: TopicInfo) -> None:
        """A compacted topic needs a key in every record, and those of one key in one partition."""
        if topic.schema is None and self._key is None:
            raise OutputError(
                "HR-OUTPUT-006",
                f"the output has no key, and topic {self._topic!r} is compacted by key",
                "Name the column: key=..., or write to another topic.",
            )
        if topic.schema is not None and self._key not in (None, topic.key) and topic.partitions > 1:
            raise OutputError(
                "HR-OUTPUT-006",
                f"the output's key is {self._key!r}, and topic {self._topic!r} is compacted by "
                f"{topic.key!r}",
                "Leave key= out, or write to another topic.",
            )

    def open(self) -> None:
        with _as_output():
            if self._topic not in self._log.topics():
                self._log.create(
                    self._topic, self._partitions, self.schema, self._key, exist_ok=True
                )
            self._ends = self._log.latest(self._topic)

    def producers(self) -> Mapping[str, int]:
        with _as_output():
            exists = self._topic in self._log.topics()
            return self._log.producers(self._topic) if exists else {}

    def reached(self, epoch: int) -> bool:
        """Producers are looked up only if the topic was made again since the last call."""
        with _as_output():
            topic = self._log.describe(self._topic).id
        if topic != self._topic_id:
            held = self.held()
            if held is None or held.number < epoch:
                return False
            self._topic_id = topic
        return True

    def beyond(self, timelines: Timelines) -> Reached:
        """Producers are looked up only if others have appended since the last call."""
        with _as_output():
            ends = self._log.latest(self._topic)
        if ends == self._ends:
            return {}
        held = self.held()
        beyond = timelines.beyond(held.all) if held is not None else {}
        if not beyond:
            self._ends = ends
        return beyond

    def write(self, records: pa.Table, epoch: int, unique: str) -> list[Reference]:
        """Packed by the task that has them: all that the driver has to do is to copy bytes."""
        with _as_output():
            typed = self._log.describe(self._topic).schema is not None
            key = self._key if typed else None
            packed = self._log.pack(self._topic, records, key, epoch)
        return [packed_records.stage(self._staging, packed, epoch, unique)]

    def read(self, staged: Sequence[Reference]) -> list[PackedRecords]:
        return packed_records.read(self._staging, staged)

    def deliver(self, rows: list[PackedRecords], producer: str, epoch: int) -> None:
        """One append for the epoch: a reader of the topic sees all of it or none."""
        try:
            acks = self._log.append_packed(self._topic, rows, producer, epoch)
        except LogError as cause:
            if cause.code == "HR-LOG-020":
                raise self.conflict(epoch) from cause
            raise _translated(cause) from cause
        self._ends = {**(self._ends or {}), **{p: ack.end for p, ack in acks.items()}}

    def records(self, rows: pa.Table) -> pa.Table:
        """Typed rows for a typed topic; JSON, and the key as text, for a topic of bytes."""
        with _as_output():
            topic = self._log.describe(self._topic)
        records = self._records(rows, topic)
        nulls = records[topic.key or "key"].null_count if topic.compacted else 0
        if nulls:
            raise OutputError(
                "HR-OUTPUT-006",
                f"{nulls} rows of the output have no key, and topic {self._topic!r} is compacted "
                "by key",
                "Leave such rows out (where), or give them a key (coalesce); nothing of this batch "
                "is committed.",
            )
        return records

    def _records(self, rows: pa.Table, topic: TopicInfo) -> pa.Table:
        if topic.schema is not None:
            here = [
                f for f in topic.schema if f.name in rows.column_names or f.name not in topic.added
            ]
            return _cast(self._topic, rows, pa.schema(here))  # the log fills what was added later
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
    return LogSink(o, PackedLog(Settings.load(log=o.options.get("log")).log))


def _reopen(about: Description) -> tuple[str, dict[str, Any]]:
    root, topic = os.path.split(about["place"])
    return topic, {**about["options"], "log": root, "key": about["key"]}


LOG = OutputKind(_check, _open, _reopen)


def _fit(topic: str, rows: pa.Schema, topic_schema: pa.Schema, added: Sequence[str]) -> None:
    missing = sorted(set(topic_schema.names) - set(rows.names) - set(added))
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


@contextmanager
def _as_output() -> Iterator[None]:
    try:
        yield
    except LogError as cause:
        raise _translated(cause) from cause


def _translated(cause: LogError) -> OutputError:
    code = "HR-OUTPUT-006" if cause.code == "HR-LOG-006" else "HR-OUTPUT-010"
    return OutputError(code, cause.message, cause.hint)
