"""Reading a partition of Kafka by ranges of offsets, as Arrow arrays.

A range is read exactly to its end, also where offsets are missing (markers of transactions,
compacted records, aborted ones): it ends at the first record at or after it, or where the
partition ends. Consumers are held per process and go on where they stopped, so that what was
fetched ahead is used. A broker that is gone is waited for.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from headrace.log.kafka import Cluster
from headrace.log.kafka_fetch import (
    ClientReport,
    Fetcher,
    KafkaRecords,
    MessageFetcher,
    Wanted,
    joined,
)
from headrace.log.kafka_native import native_fetcher

BATCH = 10_000  # records asked for at once
CHUNK = 131_072  # records
CHUNK_BYTES = 64 << 20
CONSUMERS = 4  # held by a process
_TURN = 0.01  # seconds to wait for a full batch
_SILENCE = 2.0  # seconds without a record, after which it is asked why
_REFUSED = 5.0  # seconds without a record, after which what the client reports does not pass
_AHEAD = {  # what a consumer fetches before it is asked
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 32_768,
    "fetch.queue.backoff.ms": 5,  # a second by default, in which a reader runs dry
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
    "check.crcs": True,
}


_LASTING = frozenset({  # what a client reports that another attempt does not mend
    "_BAD_MSG", "_BAD_COMPRESSION", "_NOT_IMPLEMENTED", "_UNSUPPORTED_FEATURE", "_FATAL",
    "INVALID_MSG", "INVALID_MSG_SIZE", "MSG_SIZE_TOO_LARGE", "UNSUPPORTED_COMPRESSION_TYPE",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT", "UNSUPPORTED_VERSION", "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
})  # fmt: skip


class OutOfRange(Exception):
    """The partition does not have the offset that is to be read next."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class Unreadable(Exception):
    """The brokers do not give the record at an offset, or the client cannot take it."""

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset, name)
        self.offset, self.name = offset, name


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
    OutOfRange is raised where the partition does not have the next offset, Unreadable where it
    cannot be read.
    """
    consumer = _take(cluster, topic, partition, committed, wanted)
    try:
        yield from consumer.read(start, end, wanted, on_silence)
    except BaseException:
        consumer.close()
        raise
    _give_back(consumer)


class _PartitionConsumer:
    """A consumer of one partition, and how far it has read."""

    def __init__(self, key: Any, fetcher: Fetcher, topic: str, partition: int) -> None:
        self.key = key
        self._fetcher, self._topic, self._partition = fetcher, topic, partition
        self._at: int | None = None  # the next offset that it will return
        self._said: str | None = None  # why there are no more: what does not pass by itself

    def close(self) -> None:
        if self.key[0] == os.getpid():  # a forked child has none of its threads
            self._fetcher.close()

    def read(
        self, start: int, end: int, wanted: Wanted, on_silence: Callable[[float], None]
    ) -> Iterator[KafkaRecords]:
        if self._at != start:
            self._seek(start)
        pieces, rows, size = list[KafkaRecords](), 0, 0
        at, last, self._said = start, time.monotonic(), None
        while at < end:
            found = self._fetcher.fetch(min(BATCH, end - at), _TURN, wanted)
            after = at
            try:
                for one in found:
                    before, (piece, after) = after, self._sorted_out(one, after, end)
                    self._said = None if after > before else self._said
                    if piece is not None:
                        pieces.append(piece)
                        rows, size = rows + len(piece), size + piece.values.nbytes
            except OutOfRange:
                if pieces:
                    yield joined(pieces)
                raise
            if rows >= CHUNK or size >= CHUNK_BYTES:
                yield joined(pieces)
                pieces, rows, size = [], 0, 0
            if after > at:
                at, last = after, time.monotonic()
                continue
            silent = time.monotonic() - last
            if self._said is not None and silent > _REFUSED:
                raise Unreadable(at, self._said)
            if silent > _SILENCE:
                on_silence(silent)
        if pieces:
            yield joined(pieces)

    def _seek(self, offset: int) -> None:
        self._at = offset
        self._fetcher.assign(self._topic, self._partition, offset)

    def _sorted_out(
        self, found: KafkaRecords | ClientReport, at: int, end: int
    ) -> tuple[KafkaRecords | None, int]:
        """The records from `at` up to `end`, and how far the range is read."""
        if at >= end:  # records that came behind a report of the end: the next range has them
            self._at = None
            return None, at
        if isinstance(found, ClientReport):
            return None, self._reported(found, at, end)
        last = int(found.offsets[-1])
        if last < at:  # fetched before the partition was read from another offset
            return None, at
        if last >= end:  # the rest of the range has no records
            self._at = None
            found, after = found.between(at, end), end
        else:
            self._at = after = last + 1
            found = found.between(at, after)
        return (found if len(found) else None), after

    def _reported(self, report: ClientReport, at: int, end: int) -> int:
        """What a report says about how far the range is read."""
        match report.name:
            case "_PARTITION_EOF":
                if report.offset >= at:
                    self._at = report.offset
                    return min(end, report.offset)
            case "_AUTO_OFFSET_RESET" | "OFFSET_OUT_OF_RANGE":
                raise OutOfRange(at)
            case "UNKNOWN_TOPIC_OR_PART" | "_UNKNOWN_PARTITION" | "_UNKNOWN_TOPIC":
                self._seek(at)  # it stopped reading; whoever waits finds out why
            case name if name in _LASTING:
                self._said = name  # and says it once, or again and again
        return at  # what passes: no connection, another leader


# The consumers of this process that nobody reads with now, the last used at the end.
_idle: OrderedDict[Any, _PartitionConsumer] = OrderedDict()


def _take(
    cluster: Cluster, topic: str, partition: int, committed: bool, wanted: Wanted
) -> _PartitionConsumer:
    key = (os.getpid(), cluster.key, topic, partition, committed, wanted.headers)
    found = _idle.pop(key, None)
    if found is not None:
        return found
    config = cluster.config(
        **_AHEAD,
        **{
            "group.id": "headrace",  # never joined, and nothing is committed for it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        },
    )
    # what silences confluent-kafka is left out: the library itself says nothing at that level
    named = {n: v for n, v in config.items() if n in cluster.properties or not _silences(v)}
    fetcher = None if wanted.headers else native_fetcher(named)
    return _PartitionConsumer(key, fetcher or MessageFetcher(config), topic, partition)


def _silences(value: Any) -> bool:
    return callable(value) or isinstance(value, logging.Logger)


def _give_back(consumer: _PartitionConsumer) -> None:
    old = _idle.pop(consumer.key, None)
    _idle[consumer.key] = consumer
    surplus = [_idle.popitem(last=False)[1] for _ in range(len(_idle) - CONSUMERS)]
    for one in [*([old] if old else []), *surplus]:
        one.close()


@atexit.register
def release() -> None:
    """Close the consumers that nobody reads with."""
    for key in [key for key in _idle if key[0] == os.getpid()]:
        _idle.pop(key).close()
