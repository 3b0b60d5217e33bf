"""A topic as an output: exactly once, because the log drops an append it has seen before.

Rows are staged as Arrow files in the job's folder; publishing appends them at once, under the
producer that their references carry and the epoch as its sequence, so publishing again
changes nothing, in any process, even after the output was renamed. Topics are not read here.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

import pyarrow as pa

from headrace.errors import LogError, OutputError
from headrace.log import Log
from headrace.sinks.contract import EXACTLY_ONCE, Reference, Sink
from headrace.sinks.identity import Identity
from headrace.sinks.json_lines import json_values
from headrace.sinks.staging import Staging
from headrace.state.faults import point


class LogSink(Sink):
    guarantee = EXACTLY_ONCE

    def __init__(
        self, log: Log, topic: str, schema: pa.Schema, staged: Path, job: Identity, name: str,
        *, key: str | None = None, partitions: int = 1,
    ) -> None:  # fmt: skip
        self.schema, self._log, self._topic = schema, log, topic
        self._key, self._partitions = key, partitions
        self._identity, self._name = job, name
        self._staging = Staging(staged)

    def check(self) -> None:
        """Make the topic if it is missing; see that the rows fit if it is there."""
        if self._key is not None and self._key not in self.schema.names:
            raise OutputError(
                f"output to topic {self._topic!r} has no column {self._key!r} to be its key",
                code="HR-OUTPUT-008", hint=f"It has: {', '.join(self.schema.names)}.",
            )  # fmt: skip
        try:
            if self._topic not in self._log.topics():
                self._log.create(
                    self._topic, self._partitions, self.schema, self._key, exist_ok=True
                )
            known = self._log.describe(self._topic).schema
            if known is not None:
                _fit(self._topic, self.schema, known)
        except LogError as cause:
            raise _as_output(cause) from cause

    def stage(self, table: pa.Table, epoch: int, unique: str) -> list[Reference]:
        references = self._staging.add(table.select(self.schema.names), epoch, unique)
        producer = f"{self._identity.get()}/{self._name}"
        return [{**r, "producer": producer} for r in references]

    def publish(self, epoch: int, staged: list[Reference]) -> None:
        """One append for the epoch: a reader of the topic sees all of it or none."""
        if not staged:
            return
        rows = pa.concat_tables([self._staging.read(r) for r in staged])
        try:
            self._append(rows, staged[0]["producer"], epoch)
        except LogError as cause:
            raise _as_output(cause) from cause
        point("sink.publish.appended")

    def discard(self, live: Set[str], upto: int | None = None) -> None:
        self._staging.sweep(live, upto)

    def _append(self, rows: pa.Table, producer: str, sequence: int) -> None:
        """Typed rows to a typed topic; JSON, and the key as text, to a topic of bytes."""
        schema = self._log.describe(self._topic).schema
        if schema is not None:
            self._log.append(
                self._topic, rows.select(schema.names).cast(schema),
                key=self._key, producer=producer, sequence=sequence,
            )  # fmt: skip
            return
        keys = pa.nulls(rows.num_rows, pa.binary())
        if self._key is not None:
            keys = rows.column(self._key).cast(pa.string()).cast(pa.binary())
        records = pa.table({"key": keys, "value": json_values(rows)})
        self._log.append(self._topic, records, producer=producer, sequence=sequence)


def _fit(topic: str, rows: pa.Schema, known: pa.Schema) -> None:
    missing = sorted(set(known.names) - set(rows.names))
    extra = sorted(set(rows.names) - set(known.names))
    if missing or extra:
        fact = f"has no column {missing[0]!r}" if missing else f"has a column {extra[0]!r} more"
        raise OutputError(
            f"the output {fact}, topic {topic!r} holds: {', '.join(known.names)}",
            code="HR-OUTPUT-006", hint="Select the topic's columns, or write to another topic.",
        )  # fmt: skip
    try:
        rows.empty_table().select(known.names).cast(known)
    except (pa.ArrowException, ValueError) as cause:
        raise OutputError(
            f"the output's columns do not fit topic {topic!r}: {cause}",
            code="HR-OUTPUT-006", hint="Cast the columns, or write to another topic.",
        ) from cause  # fmt: skip


def _as_output(cause: LogError) -> OutputError:
    code = "HR-OUTPUT-006" if cause.code == "HR-LOG-006" else "HR-OUTPUT-010"
    return OutputError(cause.message, code=code, hint=cause.hint)
