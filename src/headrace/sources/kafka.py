"""A topic of Kafka as an input: its partitions are the splits, its offsets the offsets.

Offsets may have gaps: markers of transactions, compacted records. Only committed records are read
unless the program says otherwise. Where a new job starts is stored in the job's folder before
anything is read. Records that retention has removed before they were read are an error, or are
recorded as a dead letter, or skipped, as the program says. Reads only, but for the offsets of a
consumer group, which are for others to see.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.connect.schema_registry import SchemaRegistry
from headrace.errors import InputError, LogError
from headrace.log.kafka import Cluster, no_admission
from headrace.log.kafka_errors import DAMAGED, is_denied
from headrace.log.kafka_group import GroupCommitter
from headrace.log.kafka_reader import OutOfRange, Unreadable, read_range, release
from headrace.sources import formats
from headrace.sources.contract import (
    BEGINNING,
    Chunk,
    Decoded,
    Range,
    damaged,
    refuse_shorter,
    write_durably,
)
from headrace.sources.kafka_rows import RecordColumns
from headrace.sources.kafka_view import TopicBounds, TopicView, as_input
from headrace.sources.kafka_waiting import WaitNote
from headrace.sources.partitions import TopicSource

_LOST = (
    'To go on without them, pass on_data_loss="record" (a dead letter says which are missing) or '
    '"skip".'
)
_STARTS = "start.json"
QUIET = 30.0  # seconds without a record that should be there, after which the job says so
FAIL, RECORD, SKIP = "fail", "record", "skip"


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """How a topic is read."""

    start: str | int | Mapping[int, int] = "earliest"  # or a time in ms, or offsets
    committed: bool = True
    on_data_loss: str = FAIL
    group: str | None = None
    style: formats.CsvStyle = field(default_factory=formats.CsvStyle)
    registry: SchemaRegistry | None = None


class KafkaSource(TopicSource):
    raw = True

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        columns: RecordColumns,
        options: KafkaOptions,
        *,
        format: str,
        bounded: bool,
        home: Path | None,
    ) -> None:
        self.schema, self.format, self.bounded = columns.schema, format, bounded
        self._cluster, self._topic, self._columns, self._options = cluster, topic, columns, options
        self._home = home  # in the job's folder: where the start is stored
        self._id: str | None = None  # of the topic, once it is known
        self._view = self._new_view()
        self._ends: dict[str, int] = {}  # of a bounded input, once they are known
        self._starts: dict[str, int] = {}
        self._stored = False  # whether the starts are in the job's folder
        self._committer: GroupCommitter | None = None
        self._quiet = False  # whether it has said that nothing comes

    def __getstate__(self) -> dict[str, Any]:
        volatile: dict[str, Any] = {"_view": None, "_ends": {}, "_starts": {}, "_stored": False}
        return self.__dict__ | volatile | {"_committer": None, "_id": self._id or self._view.id}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._view = self._new_view()
        self._view.id = self._id

    def _new_view(self) -> TopicView:
        waiting = WaitNote(self._home)
        return TopicView(
            self._cluster, self._topic, committed=self._options.committed, say=waiting.say
        )

    @property
    def waiting(self) -> str | None:
        return WaitNote(self._home).text()

    @property
    def loses(self) -> str:
        on_loss = self._options.on_data_loss
        if on_loss == FAIL:
            return ""
        said = "; a dead letter says which" if on_loss == RECORD else ""
        return (
            "records that the topic's retention removes before the job has read them are lost "
            f"(on_data_loss={on_loss!r}){said}"
        )

    @property
    def because(self) -> str:
        on_loss = self._options.on_data_loss
        if on_loss != FAIL:
            return f"records that expire are passed over: on_data_loss={on_loss!r}"
        return "records are read again from an offset"

    def identity(self) -> dict[str, str]:
        try:
            return {"kind": "kafka", "place": self._topic, "thing": self._view.identify()}
        except LogError as cause:
            raise as_input(cause) from cause

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        formats.check_schema(str(self.format), self._columns.value)
        bounds = self._bounds()
        for split, offset in offsets.items():
            self.still_there(split, offset, bounds.latest.get(int(split), 0))
        if not offsets:
            for split in self.splits():
                self.start(split)

    def has_more(self, split: str, offset: int) -> bool:
        return self._bounds().latest[int(split)] != offset

    def discover(self) -> None:
        bounds = self._view.refresh()
        if not self._stored or set(self._starts) != {str(p) for p in bounds.latest}:
            self._store_starts()

    def gather(self) -> None:
        self._view.at_once()

    def gathering(self, split: str) -> bool:
        return self._view.overdue

    def splits(self) -> list[str]:
        return [str(p) for p in sorted(self._bounds().latest)]

    def start(self, split: str) -> int:
        if split not in self._starts:
            self._starts |= self._known_starts() or self._resolved()
        if split not in self._starts:  # it is new, and so are all its records
            self._starts[split] = self._bounds().earliest[int(split)]
        return self._starts[split]

    def end_now(self, split: str) -> int:
        return self._bounds().latest[int(split)]

    def read(self, range: Range) -> Iterator[Chunk]:
        start = range.start
        while start < range.end:
            try:
                for table, offsets in self._read(replace(range, start=start)):
                    start = int(offsets[-1]) + 1
                    yield table, offsets
                break
            except Unreadable as cause:
                raise self._unreadable(range.split, cause) from cause
            except OutOfRange as cause:
                start, gap = self._after_loss(range, cause.offset)
                if gap is not None:
                    yield gap
        if self._quiet:
            self._quiet = False
            self._view.say(None)
        self._view.verify()  # the records were those of this topic, and of no other since

    def _read(self, range: Range) -> Iterator[Chunk]:
        partition = int(range.split)
        for records in read_range(
            self._cluster,
            self._topic,
            partition,
            range.start,
            range.end,
            wanted=self._columns.wanted,
            committed=self._options.committed,
            on_silence=lambda seconds: self._silent(range.split, seconds),
        ):
            yield self._columns.chunk(records, partition), records.offsets

    def _silent(self, split: str, seconds: float) -> None:
        """Nothing comes: the brokers are gone, or do not send what is there."""
        if self._view.watch() and seconds > QUIET:
            self._quiet = True
            self._view.say(
                f"the brokers answer, but have sent nothing of {self.in_words(split)} for "
                f"{seconds:.0f} s: is a record larger than receive.message.max.bytes, or do the "
                "brokers that have its copies not answer?"
            )

    def _unreadable(self, split: str, cause: Unreadable) -> InputError:
        if is_denied(cause.name):
            return as_input(no_admission(self._cluster, f"{self._topic!r}: {cause.name}"))
        return InputError(
            "HR-KAFKA-011",
            f"{self.in_words(split)} cannot be read at offset {cause.offset}: {cause.name}",
            DAMAGED,
        )

    def _after_loss(self, range: Range, at: int) -> tuple[int, Chunk | None]:
        """Where to read on when the records from `at` are gone, and what to say of it."""
        try:
            earliest = self._view.resolve("earliest")[int(range.split)]
            latest = self._view.resolve("latest")[int(range.split)]
        except LogError as cause:
            raise as_input(cause) from cause
        refuse_shorter(self.in_words(range.split), range.end, latest)
        if earliest <= at:
            return at, None  # it is there after all: brokers were taking over
        error = self.overtaken(range.split, at, min(earliest, range.end), _LOST)
        if self._options.on_data_loss == FAIL:
            raise error
        gap = None
        if self._options.on_data_loss == RECORD:
            gap = self._columns.lost(error.message), np.array([at], np.int64)
        return min(earliest, range.end), gap

    def decode(self, chunk: pa.Table) -> Decoded:
        return self._columns.decode(chunk, self._values)

    def _values(self, values: pa.Array) -> Decoded:
        schema, o = self._columns.value, self._options
        return formats.decode(str(self.format), values, schema, style=o.style, registry=o.registry)

    def commit(self, offsets: Mapping[str, int]) -> None:
        if self._options.group is None or not offsets:
            return
        if self._committer is None:
            self._committer = GroupCommitter(self._cluster, self._topic, self._options.group)
        self._committer.commit({int(split): offset for split, offset in offsets.items()})

    def close(self) -> None:
        release()
        if self._committer is not None:
            self._committer.close()
            self._committer = None

    def _bounds(self) -> TopicBounds:
        try:
            return self._view.bounds()
        except LogError as cause:
            raise as_input(cause) from cause

    def still_there(self, split: str, start: int, end: int) -> None:
        refuse_shorter(self.in_words(split), start, end)
        earliest = self._bounds().earliest.get(int(split), 0)
        if start < min(earliest, end) and self._options.on_data_loss == FAIL:
            raise self.overtaken(split, start, earliest, _LOST)

    # where a new job starts

    def _store_starts(self) -> None:
        """Store where each partition is read from, before anything of it is."""
        starts = {split: self.start(split) for split in self.splits()}
        if self._home is not None and starts != self._known_starts():
            write_durably(self._home / _STARTS, json.dumps({"offsets": starts}).encode())
        self._stored = True

    def _known_starts(self) -> dict[str, int]:
        """What was stored; empty if nothing was."""
        if self._home is None:
            return {}
        path = self._home / _STARTS
        try:
            found = json.loads(path.read_bytes())["offsets"]
            return {str(split): int(offset) for split, offset in found.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
            raise damaged("the start of the input", path, "cannot be read") from cause

    def _resolved(self) -> dict[str, int]:
        """Where the program says that a new job starts."""
        start, bounds = self._options.start, self._bounds()
        if start == "earliest":
            return {str(p): offset for p, offset in bounds.earliest.items()}
        if start == "latest":
            return {str(p): offset for p, offset in bounds.latest.items()}
        if isinstance(start, Mapping):
            self._refuse_outside(start, bounds)
            return {str(p): start.get(p, first) for p, first in bounds.earliest.items()}
        try:
            found = self._view.resolve(start)
        except LogError as cause:
            raise as_input(cause) from cause
        ends = bounds.latest  # where no record is as late as the time
        return {str(p): o if 0 <= o < ends[p] else ends[p] for p, o in found.items()}

    def _refuse_outside(self, start: Mapping[int, int], bounds: TopicBounds) -> None:
        for partition, offset in start.items():
            first, end = bounds.earliest.get(partition), bounds.latest.get(partition)
            if first is None or end is None:
                raise InputError(
                    "HR-KAFKA-008",
                    f"start names partition {partition}, which topic {self._topic!r} does not have",
                    f"It has {len(bounds.latest)}, counted from 0.",
                )
            if not first <= offset <= end:
                raise InputError(
                    "HR-KAFKA-008",
                    f"start is offset {offset} in {self.in_words(str(partition))}, which has "
                    f"records from {first} up to {end}",
                    "Name an offset in between, or leave the partition out.",
                )
