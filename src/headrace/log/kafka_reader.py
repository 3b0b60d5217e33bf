"""Reading a partition of Kafka by ranges of offsets, as Arrow arrays.

A range is read exactly to its end, also where offsets are missing (markers of transactions,
compacted records, aborted ones): it ends at the first record at or after it, or where the
partition ends. Consumers are held per process and go on where they stopped, so that what was
fetched ahead is used. A broker that is gone is waited for.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.log.kafka import Cluster, library

BATCH = 10_000  # records asked for at once
CHUNK = 131_072  # records
CHUNK_BYTES = 64 << 20
CONSUMERS = 4  # held by a process
_TURN = 0.01  # seconds to wait for a full batch
_SILENCE = 2.0  # seconds without a record, after which it is asked why
_AHEAD = {  # what a consumer fetches before it is asked
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 32_768,
    "fetch.queue.backoff.ms": 5,  # a second by default, in which a reader runs dry
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
    "check.crcs": True,
}
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


class OutOfRange(Exception):
    """The partition does not have the offset that is to be read next."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


def read_range(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    wanted: Wanted,
    committed: bool,
    on_silence: Callable[[float], None],
) -> Iterator[KafkaRecords]:
    """The records with offsets from `start` up to `end`.

    `on_silence(seconds)` is called while nothing comes, and raises what cannot be waited for.
    OutOfRange is raised where the partition does not have the next offset.
    """
    consumer = _take(cluster, topic, partition, committed)
    try:
        yield from consumer.read(start, end, wanted, on_silence)
    except BaseException:
        consumer.close()
        raise
    _give_back(consumer)


class _PartitionConsumer:
    """A consumer of one partition, and how far it has read."""

    def __init__(self, key: Any, cluster: Cluster, topic: str, partition: int, level: str) -> None:
        self.key = key
        self._kafka = library()
        self._topic, self._partition = topic, partition
        self._consumer = self._kafka.Consumer(
            cluster.config(
                **_AHEAD,
                **{
                    "group.id": "headrace",  # never joined, and nothing is committed for it
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                    "isolation.level": level,
                },
            )
        )
        self._at: int | None = None  # the next offset that it will return

    def close(self) -> None:
        self._consumer.close()

    def read(
        self, start: int, end: int, wanted: Wanted, on_silence: Callable[[float], None]
    ) -> Iterator[KafkaRecords]:
        if self._at != start:
            self._seek(start)
        pieces, rows, size = list[KafkaRecords](), 0, 0
        at, last = start, time.monotonic()
        while at < end:
            messages = self._consumer.consume(min(BATCH, end - at), _TURN)
            try:
                piece, after = self._sorted_out(messages, at, end, wanted)
            except OutOfRange:
                if pieces:
                    yield _joined(pieces)
                raise
            if piece is not None:
                pieces.append(piece)
                rows, size = rows + len(piece), size + piece.values.nbytes
                if rows >= CHUNK or size >= CHUNK_BYTES:
                    yield _joined(pieces)
                    pieces, rows, size = [], 0, 0
            if after > at:
                at, last = after, time.monotonic()
            elif (silent := time.monotonic() - last) > _SILENCE:
                on_silence(silent)
        if pieces:
            yield _joined(pieces)

    def _seek(self, offset: int) -> None:
        self._at = offset
        self._consumer.assign([self._kafka.TopicPartition(self._topic, self._partition, offset)])

    def _sorted_out(
        self, messages: list[Any], at: int, end: int, wanted: Wanted
    ) -> tuple[KafkaRecords | None, int]:
        """The records before `end`, and how far the range is read."""
        if not messages:
            return None, at
        if any(map(self._kafka.Message.error, messages)):
            return self._with_errors(messages, at, end, wanted)
        offsets = np.fromiter(map(self._kafka.Message.offset, messages), np.int64, len(messages))
        if offsets[0] < at:  # fetched before the partition was read from another offset
            messages = messages[int(np.searchsorted(offsets, at)) :]
            if not messages:
                return None, at
            offsets = offsets[-len(messages) :]
        if offsets[-1] >= end:  # the rest of the range has no records
            self._at = None
            count = int(np.searchsorted(offsets, end))
            return (_records(messages[:count], offsets[:count], wanted) if count else None), end
        self._at = int(offsets[-1]) + 1
        return _records(messages, offsets, wanted), self._at

    def _with_errors(
        self, messages: list[Any], at: int, end: int, wanted: Wanted
    ) -> tuple[KafkaRecords | None, int]:
        """Records among which there are reports of the client."""
        parts, good = list[KafkaRecords](), list[Any]()
        for message in [*messages, None]:
            error = None if message is None else message.error()
            if message is not None and error is None:
                good.append(message)
                continue
            if good and at < end:
                part, at = self._sorted_out(good, at, end, wanted)
                parts += [part] if part is not None else []
                good = []
            if error is not None and at < end:
                at = self._reported(error, message.offset(), at, end)
        return (_joined(parts) if parts else None), at

    def _reported(self, error: Any, offset: int, at: int, end: int) -> int:
        """What a report says about how far the range is read."""
        match error.name():
            case "_PARTITION_EOF":
                if offset >= at:
                    self._at = offset
                    return min(end, offset)
            case "_AUTO_OFFSET_RESET" | "OFFSET_OUT_OF_RANGE":
                raise OutOfRange(at)
            case "UNKNOWN_TOPIC_OR_PART" | "_UNKNOWN_PARTITION" | "_UNKNOWN_TOPIC":
                self._seek(at)  # it stopped reading; whoever waits finds out why
        return at  # what passes: no connection, another leader


def _records(messages: list[Any], offsets: Any, wanted: Wanted) -> KafkaRecords:
    kind = library().Message
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


def _joined(pieces: list[KafkaRecords]) -> KafkaRecords:
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


# The consumers of this process that nobody reads with now, the last used at the end.
_idle: OrderedDict[Any, _PartitionConsumer] = OrderedDict()


def _take(cluster: Cluster, topic: str, partition: int, committed: bool) -> _PartitionConsumer:
    key = (os.getpid(), cluster.key, topic, partition, committed)
    found = _idle.pop(key, None)
    level = "read_committed" if committed else "read_uncommitted"
    return found or _PartitionConsumer(key, cluster, topic, partition, level)


def _give_back(consumer: _PartitionConsumer) -> None:
    old = _idle.pop(consumer.key, None)
    _idle[consumer.key] = consumer
    surplus = [_idle.popitem(last=False)[1] for _ in range(len(_idle) - CONSUMERS)]
    for one in [*([old] if old else []), *surplus]:
        one.close()


def release() -> None:
    """Close the consumers that nobody reads with."""
    while _idle:
        _idle.popitem()[1].close()
