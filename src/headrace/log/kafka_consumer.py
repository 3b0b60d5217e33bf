"""`hr.Consumer` over Kafka: the partitions that its group assigns to it, or all.

Only committed records are read, and a gap is never passed over. Partitions that are added while a
consumer without a group reads are read from their beginning; in a group its coordinator sees to it.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import LogError
from headrace.log.clients import (
    Headers,
    PolledBatch,
    Revoking,
    TopicPartition,
    TopicSubscription,
    outside,
)
from headrace.log.contract import BYTES
from headrace.log.forks import left_to_parent
from headrace.log.kafka import (
    PATIENCE,
    Cluster,
    TopicFacts,
    describe,
    is_missing,
    is_passing,
    library,
    made,
    offsets,
)
from headrace.log.kafka_errors import between_leaders, in_words, is_gone, topic_facts

_SLICE = 0.1  # seconds of one wait for records
_GATHER = 0.01  # seconds in which records are gathered into one batch
_MOST = 1_000_000  # records that the client returns at once
_LOOK = 1.0  # seconds after which it is asked whether the topics are still the same
_ANSWER = 2.0  # seconds for an answer to that
_LAST = (1 << 63) - 1  # the latest time that a record can have, in milliseconds
_LEFT = "_MAX_POLL_EXCEEDED"  # it joins its group again
_OUT_OF_RANGE = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")


class UnreadableHeaders(Sequence[Any]):
    """The headers of a record of which a name is not UTF-8: the client cannot return them."""

    def __init__(self, place: TopicPartition, offset: int) -> None:
        self._place, self._offset = place, offset

    def __repr__(self) -> str:
        return "<headers that cannot be read>"

    def __len__(self) -> int:
        raise self._refusal()

    def __getitem__(self, at: Any) -> Any:
        raise self._refusal()

    def _refusal(self) -> LogError:
        return LogError(
            "HR-KAFKA-052",
            f"the name of a header is not UTF-8: offset {self._offset} in partition "
            f"{self._place.partition} of topic '{self._place.topic}'",
            "The client of Kafka cannot return such headers. Key and value of the record can be "
            "read: leave its headers alone.",
        )


class KafkaConsumer:
    """Reads partitions of a cluster, those that its group assigns to it, or all."""

    def __init__(self, cluster: Cluster, subscription: TopicSubscription) -> None:
        self._cluster, self._wanted = cluster, subscription
        self._at: dict[TopicPartition, int] = {}  # the next offset that is returned
        self._waiting: dict[TopicPartition, deque[Any]] = {}
        self._empty: dict[TopicPartition, int] = {}  # after what waits: no records before that
        self._outside: set[TopicPartition] = set()  # those that do not have the next offset
        self._ids: dict[str, str] = {}  # of the topics that are read
        self._refused = False  # whether a commit was, since what it is about was read
        self._look = 0.0  # when the topics are looked at again
        self._starts: dict[TopicPartition, int] = {}  # the ends of the partitions at the beginning
        self._revoking: Revoking = lambda places, lost: None
        own = {
            "group.id": subscription.group or f"headrace-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",  # a gap is never passed over
            "enable.partition.eof": True,  # says how far there are markers and no records
            "session.timeout.ms": subscription.session_ms,
            "heartbeat.interval.ms": max(1, subscription.session_ms // 3),
            "max.poll.interval.ms": max(subscription.max_poll_ms, subscription.session_ms),
            "fetch.wait.max.ms": 50,
            "check.crcs": True,  # a damaged record is never returned
        }
        self._consumer = made(library().Consumer, cluster.config(**own))
        left_to_parent(self)
        with in_words(cluster):
            self._start()

    def _start(self) -> None:
        self._ids = {t: topic_facts(self._cluster, t).id for t in self._wanted.topics}
        kafka, known = library(), self._places()
        if self._wanted.start == "latest":
            self._starts = {place: self.bounds(place)[1] for place in known}
        if self._wanted.group is not None:
            self._consumer.subscribe(
                list(self._wanted.topics),
                on_assign=self._assigned,
                on_revoke=lambda _, places: self._taken(places, False),
                on_lost=lambda _, places: self._taken(places, True),
            )
            return
        self._at = {place: self._first(place) for place in known}
        self._consumer.assign([kafka.TopicPartition(*p, at) for p, at in self._at.items()])

    def _first(self, place: TopicPartition) -> int:
        """Where a partition begins; one that was added since then is read from its beginning."""
        return self._starts[place] if place in self._starts else self.bounds(place)[0]

    def _places(self) -> list[TopicPartition]:
        """All partitions of the topics; LogError if one does not exist."""
        kafka, found = library(), list[TopicPartition]()
        for topic in self._wanted.topics:
            about = self._consumer.list_topics(topic, timeout=PATIENCE).topics[topic]
            if about.error is not None:
                raise kafka.KafkaException(about.error)
            found += [TopicPartition(topic, p) for p in sorted(about.partitions)]
        return found

    def _assigned(self, consumer: Any, places: Sequence[Any]) -> None:
        kafka = library()
        for one in consumer.committed(list(places), timeout=PATIENCE):
            place = TopicPartition(one.topic, one.partition)
            self._at[place] = one.offset if one.offset >= 0 else self._first(place)
        own = {(p.topic, p.partition) for p in places}
        consumer.assign([kafka.TopicPartition(*p, at) for p, at in self._at.items() if p in own])

    def _taken(self, places: Sequence[Any], lost: bool) -> None:
        own = [TopicPartition(p.topic, p.partition) for p in places]
        try:
            self._revoking(own, lost)
        finally:
            for place in own:
                self._at.pop(place, None)
                self._waiting.pop(place, None)
                self._empty.pop(place, None)
                self._outside.discard(place)

    def poll(self, timeout: float, max_rows: int, revoking: Revoking) -> PolledBatch | None:
        self._revoking, end = revoking, time.monotonic() + timeout
        with in_words(self._cluster):
            if self._refused:
                self._go_back()
            while not self._waiting:
                left = end - time.monotonic()
                self._fetch(max(0.0, min(left, _SLICE)), max_rows)
                if self._outside and not self._waiting:
                    self._check_outside(min(self._outside))
                if left <= 0:
                    break
        for place in list(self._waiting):
            return self._batch(place, max_rows)
        return None

    def _fetch(self, timeout: float, max_rows: int) -> None:
        """Wait for a record, and take those that come with it."""
        first = self._consumer.poll(timeout)
        most = min(max_rows, _MOST)
        found = [] if first is None else [first, *self._consumer.consume(most, _GATHER)]
        failed, again = None, time.monotonic() >= self._look
        for message in found:
            error, place = message.error(), TopicPartition(message.topic(), message.partition())
            if error is not None:
                if error.name() == "_PARTITION_EOF":
                    self._at_end(place, message.offset())
                elif error.name() in _OUT_OF_RANGE:
                    self._outside |= {place} & self._at.keys()
                elif not is_gone(error) and error.name() != _LEFT:
                    failed = failed or error
            elif place in self._at:
                if message.offset() >= self._at[place]:
                    self._waiting.setdefault(place, deque()).append(message)
                else:  # from before a seek, or of another topic of the same name
                    again = True
        if failed is not None:  # when the others are taken
            raise library().KafkaException(failed)
        if again and (found or self._wanted.group is None):
            self._check_topics()

    def _at_end(self, place: TopicPartition, offset: int) -> None:
        """There are no more records before the offset than were fetched: markers at most."""
        if place not in self._at:
            return
        if place in self._waiting:
            self._empty[place] = offset
        else:
            self._at[place] = max(self._at[place], offset)

    def _check_topics(self) -> None:
        """LogError if a topic is not the one that was read so far; partitions that are new are
        read from now on, if there is no group that would assign them."""
        self._look = time.monotonic() + _LOOK
        for topic, id in self._ids.items():
            about: TopicFacts | None = None
            try:
                about = describe(self._cluster, topic, _ANSWER)
            except LogError as cause:
                if is_passing(cause):
                    return
                if not is_missing(cause):
                    raise
            if about is not None and about.id == id:
                self._add(topic, about.partitions)
            else:
                self._waiting = {p: w for p, w in self._waiting.items() if p.topic != topic}
                raise LogError(
                    "HR-LOG-002",
                    f"topic '{topic}' was deleted and made again while it was read",
                    "Its records are others than those that were read: make a new consumer.",
                )

    def _add(self, topic: str, partitions: Sequence[int]) -> None:
        """Read these as well; those that the brokers do not all know yet, the next time."""
        kafka, new = library(), [p for p in partitions if TopicPartition(topic, p) not in self._at]
        if self._wanted.group is not None or not new:
            return
        try:
            known = self._consumer.list_topics(topic, timeout=_ANSWER).topics[topic].partitions
            first = offsets(self._cluster, topic, new, "earliest", timeout=_ANSWER)
        except (LogError, kafka.KafkaException):
            return
        added = {TopicPartition(topic, p): at for p, at in first.items() if p in known}
        if added:
            self._at |= added
            self._consumer.incremental_assign(
                [kafka.TopicPartition(*place, at) for place, at in added.items()]
            )

    def _check_outside(self, place: TopicPartition) -> None:
        """LogError that says why the partition does not have the next offset."""
        self._check_topics()
        at, (low, high) = self._at[place], self.bounds(place)
        if at < low:
            raise LogError(
                "HR-LOG-023",
                f"records {at} to {low - 1} of partition {place.partition} of topic "
                f"'{place.topic}' were removed by retention before they were read",
                "To go on without them: seek(topic, partition, 'earliest').",
            )
        if at > high:
            raise outside(place, at, low, high)
        self.seek(place, at)  # it has it after all: brokers were taking over

    def _batch(self, place: TopicPartition, max_rows: int) -> PolledBatch:
        waiting = self._waiting[place]
        taken = [waiting.popleft() for _ in range(min(max_rows, len(waiting)))]
        if waiting:
            self._waiting[place] = self._waiting.pop(place)  # the others come first then
        else:
            del self._waiting[place]
        end = taken[-1].offset() + 1
        if not waiting:
            end = max(end, self._empty.pop(place, end))
        self._at[place] = end
        columns = [[m.key() for m in taken], [m.value() for m in taken]]
        table = pa.Table.from_arrays([pa.array(c, pa.binary()) for c in columns], schema=BYTES)
        return PolledBatch(
            *place,
            table,
            np.array([m.offset() for m in taken], np.int64),
            np.array([m.timestamp()[1] for m in taken], np.int64),
            end,
            "key",
            headers=[_headers(m, place) for m in taken],
        )

    def assignment(self) -> list[TopicPartition]:
        return sorted(self._at)

    def position(self, place: TopicPartition) -> int:
        return self._at[place]

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._waiting.pop(place, None)
        self._empty.pop(place, None)
        self._at[place] = offset
        kafka = library()
        with in_words(self._cluster):
            if place not in self._outside:
                self._consumer.seek(kafka.TopicPartition(*place, offset))
                return
            # it has stopped: all are read anew
            self._outside, self._waiting, self._empty = set(), {}, {}
            self._consumer.assign([kafka.TopicPartition(*p, at) for p, at in self._at.items()])

    def bounds(self, place: TopicPartition) -> tuple[int, int]:
        asked = library().TopicPartition(*place)
        with in_words(self._cluster):
            low, high = between_leaders(
                lambda: self._consumer.get_watermark_offsets(asked, timeout=PATIENCE)
            )
        return int(low), int(high)

    def offset_for_time(self, place: TopicPartition, ms: int) -> int:
        asked = library().TopicPartition(*place, min(max(ms, 0), _LAST))
        with in_words(self._cluster):
            answer = between_leaders(
                lambda: self._consumer.offsets_for_times([asked], timeout=PATIENCE)
            )
        found = answer[0].offset
        return int(found) if found >= 0 else self.bounds(place)[1]

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        kafka = library()
        reached = [kafka.TopicPartition(*place, at) for place, at in positions.items()]
        try:
            with in_words(self._cluster):
                for one in self._consumer.commit(offsets=reached, asynchronous=False):
                    if one.error is not None:
                        raise kafka.KafkaException(one.error)
        except LogError as error:
            self._refused |= error.code == "HR-LOG-021"
            raise

    def _go_back(self) -> None:
        """What was not committed is read again, also by a member that stays one."""
        kafka, self._waiting, self._empty = library(), {}, {}
        held = {TopicPartition(p.topic, p.partition) for p in self._consumer.assignment()}
        asked = [kafka.TopicPartition(*place) for place in sorted(held & self._at.keys())]
        for one in self._consumer.committed(asked, timeout=PATIENCE) if asked else ():
            place = TopicPartition(one.topic, one.partition)
            self.seek(place, one.offset if one.offset >= 0 else self._first(place))
        self._refused = False

    def committed(self) -> dict[TopicPartition, int]:
        kafka = library()
        if self._wanted.group is None:
            return {}
        with in_words(self._cluster):
            places = [kafka.TopicPartition(*place) for place in self._places()]
            found = self._consumer.committed(places, timeout=PATIENCE)
        return {TopicPartition(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    def close(self) -> None:
        self._revoking = lambda places, lost: None
        with suppress(library().KafkaError):  # of an assignment that the end interrupts
            self._consumer.close()


def _headers(message: Any, place: TopicPartition) -> Headers:
    try:
        return message.headers() or ()
    except UnicodeDecodeError:  # the library takes names for text
        return UnreadableHeaders(place, message.offset())
