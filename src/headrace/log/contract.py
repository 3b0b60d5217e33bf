"""What every log offers: topics of partitions, appended to and read by offset.

A partition is an append-only sequence of records numbered from 0 without gaps; order holds
within a partition only. An append is durable when it returns. This module has the values and
the protocol; `embedded.py` stores a log in a folder. Nothing here touches a file.

Codes of LogError, the same for every log:

    HR-LOG-001  a topic name that cannot be used       HR-LOG-008  a record's bytes are damaged
    HR-LOG-002  no such topic                          HR-LOG-009  acknowledged bytes are missing
    HR-LOG-003  the topic exists already               HR-LOG-010  the log cannot be written
    HR-LOG-004  topic settings that cannot be used     HR-LOG-011  the log's own files are damaged
    HR-LOG-005  no such partition                      HR-LOG-012  a partitioner's answer is wrong
    HR-LOG-006  records that do not fit the topic      HR-LOG-013  producer without sequence
    HR-LOG-007  an offset outside the partition        HR-LOG-014  a format of a later version
    HR-LOG-015  the log cannot be read                 HR-LOG-016  another holds the lock
    HR-LOG-017  a sequence from too long ago           HR-LOG-018  it is not known if it was made
    HR-LOG-019  an argument that cannot be used        HR-LOG-020  a sequence of another append

of consumers and producers:

    HR-LOG-021  another member has taken over          HR-LOG-025  no such consumer group
    HR-LOG-022  no group, or a name that cannot be     HR-LOG-026  headers that cannot be stored
    HR-LOG-023  retention was faster than the group    HR-LOG-027  a client that cannot be used now
    HR-LOG-024  the group has active members           HR-LOG-028  a partition that is not assigned
    HR-LOG-029  a transaction that is not in all its topics yet
    HR-LOG-030  a change of columns that cannot be made
    HR-LOG-031  a record without a key for a topic that is compacted
    HR-LOG-032  offsets with gaps where there may be none
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from headrace.clock import Duration
from headrace.errors import LogError

BYTES = pa.schema([("key", pa.binary()), ("value", pa.binary())])  # columns of a byte topic
OFFSET = "__offset"  # int64: what `read(..., offsets=True)` adds
APPEND_TIME = "__append_time"  # int64 milliseconds: what `read(..., times=True)` adds

# Tables, anything that gives Arrow batches (readers, data frames), or rows: bytes, str, dict, ...
Records: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[Any]
Partitioner = Callable[[pa.Table, int], Sequence[int]]  # (records, partitions) -> one per record

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


class Ack(NamedTuple):
    """Records [first, end) of a partition are durable."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What a topic is and what it holds; one entry per partition in the tuples."""

    name: str
    partitions: int
    schema: pa.Schema | None  # None: a byte topic
    key: str | None
    retention_ms: int | None
    retention_bytes: int | None
    created: int
    earliest: tuple[int, ...]
    latest: tuple[int, ...]
    bytes: tuple[int, ...]
    id: str  # drawn when the topic was made: another topic of the same name has another
    added: tuple[str, ...] = ()  # columns that `alter` has added: records may leave them out
    retention_groups: bool = False  # records that a group has not committed are not removed
    compacted: bool = False  # only the newest record of a key stays: offsets have gaps

    @property
    def records(self) -> int:
        """The number of records that are still stored."""
        return sum(self.latest) - sum(self.earliest)

    @property
    def columns(self) -> pa.Schema:
        """The columns that `read` gives."""
        return BYTES if self.schema is None else self.schema


class Log(Protocol):
    """Stream storage; see `EmbeddedLog` for what each method promises."""

    def create(
        self,
        topic: str,
        partitions: int = 1,
        schema: object = None,
        key: str | None = None,
        retention: Duration | None = None,
        retention_bytes: int | None = None,
        *,
        exist_ok: bool = False,
    ) -> TopicInfo: ...

    def alter(self, topic: str, schema: object) -> TopicInfo: ...

    def delete(self, topic: str) -> None: ...

    def topics(self) -> list[str]: ...

    def describe(self, topic: str) -> TopicInfo: ...

    def append(
        self,
        topic: str,
        records: Records,
        *,
        key: str | Sequence[Any] | None = None,
        partition: int | None = None,
        partitioner: Partitioner | None = None,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Mapping[int, Ack]: ...

    def producers(self, topic: str) -> dict[str, int]: ...

    def earliest(self, topic: str) -> dict[int, int]: ...

    def latest(self, topic: str) -> dict[int, int]: ...

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        max_rows: int | None = None,
        *,
        times: bool = False,
        offsets: bool = False,
    ) -> Iterator[tuple[int, pa.Table]]: ...

    def offset_for_time(self, topic: str, partition: int, ms: int) -> int: ...

    def sweep(self, topic: str | None = None) -> dict[str, int]: ...


def unreadable(path: object, error: OSError) -> LogError:
    return LogError(
        "HR-LOG-015",
        f"cannot read '{path}': {error.strerror or error}",
        "Repair the permissions of the log's folder, or the disk.",
    )


def is_name(topic: object) -> bool:
    return isinstance(topic, str) and _NAME.fullmatch(topic) is not None


def check_name(topic: str) -> str:
    """The name itself, if it can be a topic's: it will also be a folder's."""
    if not is_name(topic):
        raise LogError(
            "HR-LOG-001",
            f"{topic!r} cannot be the name of a topic",
            "Use letters, digits, '.', '_' and '-', at most 200, beginning with a letter, "
            "a digit or '_'.",
        )
    return topic
