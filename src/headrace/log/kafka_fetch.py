"""What a consumer of one partition returns: records as Arrow arrays, and reports of the client.

Two consumers do the same. The usual one is `kafka_native.NativeFetcher`: it calls the library's C
functions and makes no Python object for a record. `MessageFetcher` goes through the messages of
confluent-kafka, where the first cannot: headers are read, a property is a Python function, or the
library is built in another way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.log.forks import left_to_parent
from headrace.log.kafka import library, made

_HEADERS = pa.map_(pa.string(), pa.binary())


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read of each record besides its value."""

    key: bool = False
    headers: bool = False
    timestamp: bool = False


@dataclass(frozen=True, slots=True)
class KafkaRecords:
    """Some records of one partition, in order of their offsets."""

    offsets: npt.NDArray[np.int64]
    values: pa.Array  # binary; null for a tombstone
    keys: pa.Array | None = None  # binary
    headers: pa.Array | None = None  # map of text to bytes; null if a name is not text
    timestamps: pa.Array | None = None  # milliseconds; null if a record has none

    def __len__(self) -> int:
        return len(self.offsets)

    def between(self, first: int, end: int) -> KafkaRecords:
        """Those with offsets from `first` up to `end`."""
        a, b = np.searchsorted(self.offsets, [first, end]).tolist()
        if (a, b) == (0, len(self)):
            return self
        parts = (self.values, self.keys, self.headers, self.timestamps)
        cut = [None if p is None else p.slice(a, b - a) for p in parts]
        return KafkaRecords(self.offsets[a:b], *cut)


def joined(pieces: list[KafkaRecords]) -> KafkaRecords:
    if len(pieces) == 1:
        return pieces[0]
    columns = [
        None if one is None else pa.concat_arrays([getattr(p, name) for p in pieces])
        for name, one in (
            ("values", pieces[0].values),
            ("keys", pieces[0].keys),
            ("headers", pieces[0].headers),
            ("timestamps", pieces[0].timestamps),
        )
    ]
    return KafkaRecords(np.concatenate([p.offsets for p in pieces]), *columns)


@dataclass(frozen=True, slots=True)
class ClientReport:
    """What the client says among the records: the name of its error, and an offset."""

    name: str
    offset: int


Fetched = list[KafkaRecords | ClientReport]


class Fetcher(Protocol):
    """A consumer of one partition."""

    def assign(self, topic: str, partition: int, offset: int) -> None: ...

    def fetch(self, count: int, seconds: float, wanted: Wanted) -> Fetched:
        """Up to `count` records and reports, in their order, after `seconds` at the latest."""

    def close(self) -> None: ...


class MessageFetcher:
    """By the messages of confluent-kafka: a few Python objects for each record."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._kafka = library()
        self._consumer = made(self._kafka.Consumer, config)
        left_to_parent(self)

    def assign(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.assign([self._kafka.TopicPartition(topic, partition, offset)])

    def close(self) -> None:
        self._consumer.close()

    def fetch(self, count: int, seconds: float, wanted: Wanted) -> Fetched:
        messages = self._consumer.consume(count, seconds)
        if not messages:
            return []
        if not any(map(self._kafka.Message.error, messages)):
            return [self._records(messages, wanted)]
        found: Fetched = []
        good = list[Any]()
        for message in messages:
            error = message.error()
            if error is None:
                good.append(message)
                continue
            found += [self._records(good, wanted)] if good else []
            found.append(ClientReport(error.name(), message.offset()))
            good = []
        return [*found, *([self._records(good, wanted)] if good else [])]

    def _records(self, messages: list[Any], wanted: Wanted) -> KafkaRecords:
        kind = self._kafka.Message
        offsets = np.fromiter(map(kind.offset, messages), np.int64, len(messages))
        values = pa.array(list(map(kind.value, messages)), pa.binary())
        keys = pa.array(list(map(kind.key, messages)), pa.binary()) if wanted.key else None
        headers = pa.array([_headers(m) for m in messages], _HEADERS) if wanted.headers else None
        times = pa.array([_time(m) for m in messages], pa.int64()) if wanted.timestamp else None
        return KafkaRecords(offsets, values, keys, headers, times)


def _headers(message: Any) -> list[tuple[str, bytes | None]] | None:
    try:
        return message.headers() or []
    except UnicodeDecodeError:  # the library takes names for text
        return None


def _time(message: Any) -> int | None:
    kind, time = message.timestamp()
    return time if kind else None
