"""A topic as an input: its partitions are the splits, its offsets the offsets.

A typed topic gives typed columns; a byte topic gives raw records for `decode`. Records that
retention has removed before they were read are an error, never a silent gap; and so is a topic
that was deleted and made again, whose offsets are other records. Reads only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.connect.schema_registry import SchemaRegistry
from headrace.errors import InputError, LogError
from headrace.log import APPEND_TIME, EmbeddedLog, Log, TopicInfo
from headrace.settings import Settings
from headrace.sources import formats
from headrace.sources.columns import conform, fit
from headrace.sources.contract import (
    BEGINNING,
    RAW,
    Chunk,
    Decoded,
    InputRequest,
    Range,
    Source,
    refuse_shorter,
    refuse_unknown,
)
from headrace.sources.partitions import TopicSource

_RAW = pa.schema([(RAW, pa.binary())])
_CODES = {"HR-LOG-002": "HR-INPUT-010", "HR-LOG-007": "HR-INPUT-011"}  # else: the log's own


class LogSource(TopicSource):
    because = "records are read again from an offset"
    dated = True  # they are appended with their time

    def __init__(
        self,
        log: Log,
        topic: str,
        id: str,
        schema: pa.Schema,
        *,
        format: str | None,
        bounded: bool,
        from_latest: bool = False,
        registry: SchemaRegistry | None = None,
    ) -> None:
        self.schema, self.bounded, self.raw = schema, bounded, format is not None
        self._log, self._topic, self._id, self.format = log, topic, id, format
        self._from_latest, self._registry = from_latest, registry
        self._ends: dict[str, int] = {}  # of a bounded input, once they are known
        self._newest: dict[str, int] | None = None  # where "latest" is, once it was asked for

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_ends": {}}

    def identity(self) -> dict[str, str]:
        root = getattr(self._log, "root", "")
        return {"kind": "log", "place": os.path.join(root, self._topic), "thing": self._id}

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        info = self._topic_now()
        if info.schema is not None:
            fit(f"topic {self._topic!r}", info.schema, self.schema)
        elif self.format is not None:
            formats.check_schema(self.format, self.schema)
        for split, offset in offsets.items():
            self.still_there(split, offset, info.latest[int(split)])
        if offsets and self._from_latest:
            self._newest = {}  # the job has begun: partitions that it does not know are new

    def splits(self) -> list[str]:
        return [str(p) for p in range(self._topic_now().partitions)]

    def start(self, split: str) -> int:
        info = self._topic_now()
        earliest = info.earliest[int(split)]
        if not self._from_latest:
            return earliest
        if self._newest is None:  # for good: what is appended from now on is read
            self._newest = {str(p): end for p, end in enumerate(info.latest)}
        return self._newest.get(split, earliest)

    def end_now(self, split: str) -> int:
        return self._topic_now().latest[int(split)]

    def read(self, range: Range) -> Iterator[Chunk]:
        return (chunk for chunk, _ in self.read_dated(range))

    def read_dated(self, range: Range) -> Iterator[tuple[Chunk, np.ndarray | None]]:
        split = int(range.split)
        try:
            tables = self._log.read(self._topic, split, range.start, range.end, times=True)
            self._topic_now()  # raises if it was made again since `read`
            for first, table in tables:
                offsets = np.arange(first, first + table.num_rows, dtype=np.int64)
                times = table.column(APPEND_TIME).to_numpy()
                rows = self._shaped(table.drop_columns([APPEND_TIME]))
                yield (rows, offsets), times
        except LogError as cause:
            raise self._as_input(cause) from cause

    def decode(self, chunk: pa.Table) -> Decoded:
        values, registry = chunk.column(RAW), self._registry
        return formats.decode(str(self.format), values, self.schema, registry=registry)

    def _shaped(self, table: pa.Table) -> pa.Table:
        if self.raw:
            return pa.Table.from_arrays([table.column("value")], schema=_RAW)
        return conform(table, self.schema)

    def still_there(self, split: str, start: int, end: int) -> None:
        refuse_shorter(self.in_words(split), start, end)
        earliest = self._topic_now().earliest[int(split)]
        if start < earliest and start < end:
            hint = "To go on without them, start with a new job folder."
            raise self.overtaken(split, start, earliest, hint)

    def _topic_now(self) -> TopicInfo:
        """What the topic holds now; an error if it was deleted and made again."""
        try:
            info = self._log.describe(self._topic)
        except LogError as cause:
            raise self._as_input(cause) from cause
        if info.id != self._id:
            raise InputError(
                "HR-INPUT-016",
                f"topic {self._topic!r} was deleted and made again while it was read",
                "Its records are others than those that the job has "
                "read: start with a new job folder, or read it as an input of another name.",
            )
        return info

    def _as_input(self, cause: LogError) -> InputError:
        code = _CODES.get(cause.code, cause.code)
        return InputError(code, cause.message, cause.hint)


def check_log(o: InputRequest) -> None:
    refuse_unknown(
        o, ("log", "start", "registry", "registry_auth", "validate", "subject", "message")
    )
    start = _start(o)
    if start not in ("earliest", "latest"):
        raise InputError(
            "HR-INPUT-013", f"{o.uri!r} has start={start!r}", 'Pass start="earliest" or "latest".'
        )


def _start(o: InputRequest) -> Any:
    return o.options.get("start", "earliest")


def open_log(o: InputRequest) -> Source:
    check_log(o)
    log = EmbeddedLog(Settings.load(log=o.options.get("log")).log, o.clock)
    try:
        topic = log.describe(o.rest)
    except LogError as cause:
        raise InputError("HR-INPUT-010", cause.message, cause.hint) from cause
    if topic.compacted:
        raise InputError(
            "HR-LOG-032",
            f"topic {o.rest!r} is compacted: records may be gone when they are read again",
            "A job must read the same rows after a crash. Read the topic with hr.Consumer, or let "
            "the job read one that is not compacted.",
        )
    schema, format = _decoding(o, topic.schema)
    return LogSource(
        log,
        o.rest,
        topic.id,
        schema,
        format=format,
        bounded=o.bounded,
        from_latest=_start(o) == "latest",
        registry=None if format is None else formats.registry_of(o, format),
    )


def _decoding(o: InputRequest, topic_schema: pa.Schema | None) -> tuple[pa.Schema, str | None]:
    """The schema of what is read from a topic, and the format if its records are bytes."""
    if topic_schema is not None:
        return (topic_schema if o.schema is None else o.schema), None
    format = o.format or ("bytes" if o.schema is None else "json")
    return formats.needed_schema(o, format), format
