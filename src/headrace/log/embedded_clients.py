"""Producers and consumers of the embedded log: what `clients.py` asks for, by files.

A producer collects records and appends them together, when there are enough or after a moment. A
consumer polls the heads of its topics; in a group it holds partitions as `consumer_groups.py` says,
and a thread of its own sends heartbeats and looks for members that have died.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import LogError
from headrace.log.clients import (
    ConsumerClient,
    Headers,
    PolledBatch,
    ProducerClient,
    Revoking,
    TopicPartition,
    TopicSubscription,
    unknown_option,
)
from headrace.log.consumer_groups import CommittedOffset, GroupFiles, GroupMember, Heartbeat, fenced
from headrace.log.contract import APPEND_TIME, OFFSET, Records, TopicInfo
from headrace.log.embedded import EmbeddedLog
from headrace.log.partitioning import by_key, keys_of
from headrace.log.sent_copies import copied, copied_records
from headrace.rows import LEAVES

_ROWS = 16_384  # records of a topic that are appended at once
_LINGER = 0.005  # seconds after which a few are
_SHORTEST, _LONGEST = 0.000_5, 0.02  # seconds between looks at the end of the topics
_OF_ONE = ("HR-LOG-006", "HR-LOG-012", "HR-LOG-031")  # what one record may be refused for
_IDLE = 0.5  # seconds between looks whether a producer is still in use
_BEAT, _BEATS = 0.25, 4  # seconds between heartbeats, and how many there are in a session


def open_producer(place: Any, **options: Any) -> ProducerClient:
    unknown_option("a producer of the embedded log", options)
    return EmbeddedProducer(log_of(place))


def open_consumer(place: Any, subscription: TopicSubscription, **options: Any) -> ConsumerClient:
    unknown_option("a consumer of the embedded log", options)
    return EmbeddedConsumer(log_of(place), subscription)


def log_of(place: Any) -> EmbeddedLog:
    return place if isinstance(place, EmbeddedLog) else EmbeddedLog(place)


# Producers


class _Buffer:
    """Records of one topic that are not appended yet."""

    __slots__ = ("keyed", "keys", "partitions", "placed", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.keys: list[Any] = []
        self.partitions: list[int] = []
        self.keyed = self.placed = False

    def add(self, value: Any, key: Any, partition: int | None) -> None:
        self.values.append(value if type(value) in LEAVES else copied(value))
        self.keys.append(key if type(key) in LEAVES else copied(key))
        self.keyed |= key is not None
        self.partitions.append(-1 if partition is None else partition)
        self.placed |= partition is not None

    def arguments(self) -> dict[str, Any]:
        """How `append` is to route them."""
        keys = self.keys if self.keyed else None
        if not self.placed:
            return {"key": keys}
        chosen = np.array(self.partitions, np.int64)

        def place(table: pa.Table, partitions: int) -> np.ndarray:
            free = np.flatnonzero(chosen < 0)
            if keys is not None and len(free):
                by = pa.array([keys[i] for i in free.tolist()])
                chosen[free] = by_key(by, partitions)
            else:
                chosen[free] = np.arange(len(free)) % partitions
            return chosen

        return {"key": keys, "partitioner": place}


class EmbeddedProducer:
    """A `ProducerClient`."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._waiting: dict[str, _Buffer] = {}
        self._transaction: list[tuple[str, Any, dict[str, Any]]] | None = None
        self._collected: dict[str, _Buffer] = {}  # of the transaction
        self._open = threading.Lock()  # held while `_waiting` changes
        self._appending = threading.Lock()  # held while records are appended: they stay in order
        self._error: LogError | None = None
        self._work = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def send(
        self, topic: str, value: Any, key: Any, headers: Headers | None, partition: int | None
    ) -> None:
        if headers:
            raise LogError(
                "HR-LOG-026",
                f"topic '{topic}' of the embedded log cannot hold headers",
                "Make them columns of a typed topic, or fields of the value.",
            )
        if self._transaction is not None:
            self._collected.setdefault(topic, _Buffer()).add(value, key, partition)
            return
        with self._open:
            buffer = self._waiting.get(topic)
            if buffer is None:
                buffer = self._waiting[topic] = _Buffer()
                self._wake()
            buffer.add(value, key, partition)
        if len(buffer.values) >= _ROWS:
            self._append_waiting()
        if self._error is not None:  # of records before this one, which is sent nevertheless
            self._raise()

    def send_all(
        self, topic: str, records: Records, key: str | Sequence[Any] | None, partition: int | None
    ) -> None:
        arguments: dict[str, Any] = {"key": key, "partition": partition}
        if self._transaction is not None:  # the caller may change them before it ends
            keys = keys_of(topic, key)
            arguments["key"] = copied(keys) if type(keys) is list else keys
            self._collect().append((topic, copied_records(topic, records), arguments))
            return
        self._append_waiting()
        self._log.append(topic, records, **arguments)
        self._raise()

    def flush(self) -> None:
        self._append_waiting()
        self._raise()

    def begin(self) -> None:
        self.flush()
        self._transaction = []

    def commit(self) -> None:
        parts = self._collect()
        self._transaction = None
        if parts:
            self._log.transact(parts)

    def abort(self) -> None:
        self._transaction, self._collected = None, {}

    def close(self) -> None:
        self._ended = True
        self._work.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _collect(self) -> list[tuple[str, Any, dict[str, Any]]]:
        """What the transaction has sent so far, in order."""
        assert self._transaction is not None
        sent, self._collected = self._collected, {}
        self._transaction += [(t, b.values, b.arguments()) for t, b in sent.items()]
        return self._transaction

    def _append_waiting(self) -> None:
        with self._appending:
            with self._open:
                waiting, self._waiting = self._waiting, {}
            for topic, buffer in waiting.items():
                try:
                    self._append(topic, buffer)
                except LogError as error:
                    self._error = self._error or error

    def _append(self, topic: str, buffer: _Buffer) -> None:
        try:
            self._log.append(topic, buffer.values, **buffer.arguments())
        except LogError as error:
            if error.code not in _OF_ONE or len(buffer.values) == 1:
                raise
            self._one_by_one(topic, buffer)

    def _one_by_one(self, topic: str, buffer: _Buffer) -> None:
        """Append each record that fits; raise about the first that does not."""
        failure: LogError | None = None
        rows = zip(buffer.values, buffer.keys, buffer.partitions, strict=True)
        for value, key, partition in rows:
            one = _Buffer()
            one.add(value, key, None if partition < 0 else partition)
            try:
                self._log.append(topic, [value], **one.arguments())
            except LogError as error:
                if error.code not in _OF_ONE:
                    raise
                failure = failure or error
        if failure is not None:
            raise failure

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    # What waits is appended after a moment, even if nothing more is sent.

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=_lingering, args=(weakref.ref(self),))
            self._thread.daemon = True
            self._thread.start()
        self._work.set()

    def _linger(self) -> bool:
        """One round of the thread; whether there are more."""
        self._work.wait(_IDLE)
        if self._ended:
            return False
        if self._work.is_set():
            self._work.clear()
            time.sleep(_LINGER)
            self._append_waiting()
        return True


def _lingering(producer: weakref.ref[EmbeddedProducer]) -> None:
    while (client := producer()) is not None and client._linger():
        del client


# Consumers


class EmbeddedConsumer:
    """A `ConsumerClient`."""

    def __init__(self, log: EmbeddedLog, subscription: TopicSubscription) -> None:
        self._log, self._ask = log, subscription
        self._topics = {name: log.describe(name) for name in subscription.topics}
        self._at: dict[TopicPartition, int] = {}
        self._order: list[TopicPartition] = []
        self._next = 0
        self._member: _Member | None = None
        group = subscription.group
        self._files = None if group is None else GroupFiles(log.root, group, log.patience)
        if self._files is None:
            self._own({p: self._beginning(p) for p in self._places()})

    def poll(self, timeout: float, max_rows: int, revoking: Revoking) -> PolledBatch | None:
        until, pause = time.monotonic() + timeout, _SHORTEST
        while True:
            if self._files is not None:
                self._follow_group(self._files, revoking)
            batch = self._read(max_rows)
            left = until - time.monotonic()
            if batch is not None or left <= 0:
                return batch
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST)

    def assignment(self) -> list[TopicPartition]:
        return sorted(self._at)

    def position(self, place: TopicPartition) -> int:
        return self._at[place]

    def seek(self, place: TopicPartition, offset: int) -> None:
        if place in self._at:
            self._at[place] = offset

    def bounds(self, place: TopicPartition) -> tuple[int, int]:
        info = self._log.describe(place.topic)
        return info.earliest[place.partition], info.latest[place.partition]

    def offset_for_time(self, place: TopicPartition, ms: int) -> int:
        return self._log.offset_for_time(place.topic, place.partition, ms)

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        assert self._files is not None
        member = self._member
        if member is None or member.lost:
            raise fenced(self._files.name)
        for place in positions:
            if place not in member.held:
                raise fenced(self._files.name, place)
        offsets = {at: CommittedOffset(self._topics[at.topic].id, o) for at, o in positions.items()}
        try:
            self._files.commit(offsets, member.name, member.held)
        except LogError as error:
            if error.code == "HR-LOG-021":
                member.lost = True
            raise

    def committed(self) -> dict[TopicPartition, int]:
        if self._files is None:
            return {}
        return {
            place: stored.offset
            for place, stored in self._files.offsets().items()
            if place.topic in self._topics and stored.id == self._topics[place.topic].id
        }

    def close(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            member.close()

    # Reading

    def _places(self) -> list[TopicPartition]:
        return [
            TopicPartition(t, p) for t, info in self._topics.items() for p in range(info.partitions)
        ]

    def _beginning(self, place: TopicPartition) -> int:
        earliest, latest = self.bounds(place)
        return earliest if self._ask.start == "earliest" else latest

    def _own(self, at: dict[TopicPartition, int]) -> None:
        self._at, self._order = at, sorted(at)

    def _read(self, max_rows: int) -> PolledBatch | None:
        """The next records of the partition whose turn it is."""
        latest: dict[str, TopicInfo] = {}
        for _ in range(len(self._order)):
            self._next = (self._next + 1) % len(self._order)
            place = self._order[self._next]
            if place.topic not in latest:
                latest[place.topic] = self._described(place.topic)
            batch = self._read_of(place, latest[place.topic], max_rows)
            if batch is not None:
                return batch
        return None

    def _described(self, topic: str) -> TopicInfo:
        info = self._log.describe(topic)
        if info.id != self._topics[topic].id:
            raise LogError(
                "HR-LOG-002",
                f"topic '{topic}' was deleted and made again while it was read",
                "Its records are others than those that were read: make a new consumer.",
            )
        return info

    def _read_of(self, place: TopicPartition, info: TopicInfo, max_rows: int) -> PolledBatch | None:
        start, end = self._at[place], info.latest[place.partition]
        if start < info.earliest[place.partition]:
            raise self._overtaken(place, start, info.earliest[place.partition])
        if start >= end:
            return None
        chunks = self._log.read(*place, start, end, times=True, offsets=True)
        chunk = next(chunks, None)
        if chunk is None:  # nothing is left there: compaction has removed it
            self._at[place] = end
            return None
        table = chunk[1].slice(0, max_rows)
        offsets = table[OFFSET].to_numpy()
        self._at[place] = int(offsets[-1]) + 1
        return PolledBatch(
            *place,
            table.drop_columns([APPEND_TIME, OFFSET]),
            offsets,
            table[APPEND_TIME].to_numpy(),
            self._at[place],
            "key" if info.schema is None else info.key,
            info.schema is not None,
        )

    def _overtaken(self, place: TopicPartition, start: int, earliest: int) -> LogError:
        return LogError(
            "HR-LOG-023",
            f"records {start} to {earliest - 1} of partition {place.partition} of topic "
            f"'{place.topic}' were removed by retention before they were read",
            "To go on without them: seek(topic, partition, 'earliest'), or headrace topic "
            "reset-offsets. A topic made with retention_groups=True waits for its groups.",
        )

    # The group

    def _follow_group(self, files: GroupFiles, revoking: Revoking) -> None:
        """Join, release and take partitions, if anything has changed."""
        member = self._member
        if member is not None and member.lost:
            revoking(list(member.held), True)
            member.close()
            self._own({})
            member = None
        topics = {t: (i.id, i.partitions) for t, i in self._topics.items()}
        if member is None:
            self._member = member = _Member(files, self._ask, topics)
        member.polled = time.monotonic()
        stamp = files.stamp()
        if stamp == member.stamp:
            return
        targets = files.membership().targets
        released = [place for place in member.held if targets.get(place) != member.name]
        try:
            if released:
                revoking(released, False)
            member.held = files.sync(member.name, topics, released)
        except LogError as error:
            if error.code != "HR-LOG-021":
                raise
            member.lost = True
            self._own({})  # the next round joins again
            return
        member.stamp = stamp
        self._take(files, member.held)

    def _take(self, files: GroupFiles, held: Mapping[TopicPartition, int]) -> None:
        """Begin new partitions where the group has committed; else where it is to start."""
        new = [place for place in held if place not in self._at]
        begin = {p: CommittedOffset(self._topics[p.topic].id, self._beginning(p)) for p in new}
        stored = files.begin(begin) if begin else {}
        known = {place: at for place, at in self._at.items() if place in held}
        self._own(known | {place: o.offset for place, o in stored.items()})


class _Member:
    """A consumer in its group, and the thread that says that it lives."""

    def __init__(
        self, files: GroupFiles, ask: TopicSubscription, topics: Mapping[str, tuple[str, int]]
    ) -> None:
        self.held: dict[TopicPartition, int] = {}
        self.stamp: tuple[int, int] | None = None
        self.lost = False
        self.polled = time.monotonic()
        self._files, self._ask = files, ask
        me = GroupMember(ask.topics, ask.session_ms, os.getpid(), socket.gethostname())
        self._beat: Heartbeat = files.join(me, topics)
        self.name = self._beat.member
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=_beating, args=(weakref.ref(self), self._stop, self._beat), daemon=True
        )
        self._thread.start()

    def beat(self) -> bool:
        """Say that this member lives, and remove those that do not; False if it is to stop."""
        if (time.monotonic() - self.polled) * 1_000 > self._ask.max_poll_ms:
            self.lost = True
            with suppress(LogError):  # else it is removed after its session
                self._files.leave(self.name)
            return False
        self._beat.beat()
        with suppress(LogError):  # the next round looks again; a poll says what is wrong
            self._files.expire()
        return True

    @property
    def pause(self) -> float:
        return min(_BEAT, self._ask.session_ms / 1_000 / _BEATS)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        with suppress(LogError):  # else it is removed after its session
            self._files.leave(self.name)
        self._beat.close()


def _beating(member: weakref.ref[_Member], stop: threading.Event, beat: Heartbeat) -> None:
    while (alive := member()) is not None:
        pause = alive.pause
        if not alive.beat():
            return
        del alive
        if stop.wait(pause):
            return
    beat.close()  # the consumer was thrown away without being closed
