"""`hr.Producer` and `hr.Consumer` over Kafka: `hr.Producer("kafka://broker:9092")`.

Topics hold bytes: values and keys are bytes, text, or dictionaries as JSON, as in a byte topic of
the embedded log. A producer is idempotent; a transaction is one of Kafka's. A consumer reads
committed records only; its group is one of Kafka's, and partitions are shared by its coordinator.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import LogError
from headrace.log import kafka_topics, records
from headrace.log.clients import (
    Headers,
    PolledBatch,
    Revoking,
    TopicPartition,
    TopicSubscription,
    unknown_option,
)
from headrace.log.contract import BYTES, Records
from headrace.log.kafka import (
    PATIENCE,
    SHORTHANDS,
    Cluster,
    describe,
    is_missing,
    is_passing,
    library,
    made,
    parse,
    properties,
)
from headrace.log.kafka_delivery import unwrapped
from headrace.log.kafka_produce import flush, produce, throughput
from headrace.log.kafka_topics import UNHEARD

_LIMIT = 1 << 20  # bytes of a record, if the topic does not say otherwise
_SLICE = 0.1  # seconds of one wait for records
_GATHER = 0.01  # seconds in which records are gathered into one batch
_LOOK = 1.0  # seconds after which it is asked whether the topics are still the same
_OUT_OF_RANGE = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")
_TAKEN_OVER = (
    "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "_ASSIGNMENT_LOST",
    "FENCED_INSTANCE_ID", "STALE_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH",
)  # fmt: skip


def open_producer(place: str, **options: Any) -> KafkaProducer:
    return KafkaProducer(_cluster(place, options, ("transactional_id",)), options)


def open_consumer(place: str, subscription: TopicSubscription, **options: Any) -> KafkaConsumer:
    return KafkaConsumer(_cluster(place, options, ()), subscription)


def _cluster(place: str, options: Mapping[str, Any], known: Sequence[str]) -> Cluster:
    own = {name: v for name, v in options.items() if not name.startswith(SHORTHANDS)}
    unknown_option(repr(place), own, ("options", *known))
    brokers, _ = parse(f"{place.rstrip('/')}/topic")
    return Cluster(brokers, properties(options, repr(place)))


@contextmanager
def _in_words(cluster: Cluster) -> Iterator[None]:
    """What Kafka says, as a LogError."""
    kafka = library()
    try:
        with unwrapped():
            yield
    except kafka.KafkaException as cause:
        error = cause.args[0]
        if error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"):
            raise LogError(
                "HR-LOG-002",
                f"Kafka at {cluster.brokers} has no such topic or partition: {error.str()}",
                "Create it first, with the tools of Kafka.",
            ) from cause
        if error.name() in _TAKEN_OVER:
            raise LogError(
                "HR-LOG-021",
                f"another member of the group has taken over: {error.str()}",
                "Nothing was committed; what was not committed is read again.",
            ) from cause
        raise LogError(
            "HR-KAFKA-050",
            f"Kafka at {cluster.brokers}: {kafka_topics.complaint(cluster) or error.str()}",
            "Is it running, and may this user do that? For a broker on this machine: make kafka.",
        ) from cause


class KafkaProducer:
    """Sends records to the topics of a cluster."""

    def __init__(self, cluster: Cluster, options: Mapping[str, Any]) -> None:
        self._cluster, self._failed = cluster, list[Any]()
        self._there = set[str]()  # topics that exist: a broker may make one that it is asked about
        self._id = str(options.get("transactional_id") or f"headrace-producer-{uuid.uuid4().hex}")
        self._plain = self._made({"enable.idempotence": True})
        self._transactional: Any = None
        self._current = self._plain

    def _made(self, more: Mapping[str, Any]) -> Any:
        ours = {**UNHEARD, **throughput([_LIMIT]), **more}
        return made(library().Producer, self._cluster.config(**ours))

    def send(
        self, topic: str, value: Any, key: Any, headers: Headers | None, partition: int | None
    ) -> None:
        message = {
            "value": _encoded(topic, value),
            "key": _encoded(topic, key),
            "partition": -1 if partition is None else partition,
            **({"headers": headers} if headers else {}),
        }
        self._check(topic)
        failed = self._failed

        def report(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)

        with _in_words(self._cluster):
            try:
                self._produce(topic, {**message, "on_delivery": report})
            except (TypeError, ValueError, OverflowError) as cause:
                raise LogError(
                    "HR-LOG-019",
                    f"cannot use headers or partition of a record for topic '{topic}': {cause}",
                    'Write headers=[("name", b"value")] and partition=0.',
                ) from cause
            self._current.poll(0)

    def _produce(self, topic: str, message: dict[str, Any]) -> None:
        if "headers" in message:
            message["headers"] = list(message["headers"])
        try:
            self._current.produce(topic, **message)
        except BufferError:  # as much is queued as may be
            flush(self._current, self._failed)
            self._current.produce(topic, **message)

    def send_all(
        self, topic: str, records_: Records, key: str | Sequence[Any] | None, partition: int | None
    ) -> None:
        given = records.normalized(topic, records_)
        if isinstance(key, str) and key != "key":
            raise LogError(
                "HR-LOG-006",
                f"topic '{topic}' of Kafka cannot have the column {key!r} as its keys",
                'Call the column "key", or give a list with one key for each record.',
            )
        keys = None if key is None or isinstance(key, str) else list(key)
        table = records.table_for(_topic(topic), given, keys).select(["value", "key"])
        if partition is not None:
            where = pa.repeat(pa.scalar(partition, pa.int32()), table.num_rows)
            table = table.append_column("partition", where)
        self._check(topic)
        with _in_words(self._cluster):
            produce(self._current, topic, table, self._failed)

    def _check(self, topic: str) -> None:
        """LogError if there is no such topic."""
        if topic in self._there:
            return
        try:
            describe(self._cluster, topic)
        except LogError as cause:
            if not is_missing(cause):
                raise
            raise LogError(
                "HR-LOG-002",
                f"Kafka at {self._cluster.brokers} has no such topic or partition: '{topic}'",
                "Create it first, with the tools of Kafka.",
            ) from cause
        self._there.add(topic)

    def flush(self) -> None:
        try:
            with _in_words(self._cluster):
                flush(self._current, self._failed)
        finally:
            self._failed = []  # what is wrong is raised once

    def begin(self) -> None:
        self.flush()
        with _in_words(self._cluster):
            if self._transactional is None:
                self._transactional = self._made({"transactional.id": self._id})
                self._transactional.init_transactions(PATIENCE)
            self._transactional.begin_transaction()
        self._current = self._transactional

    def commit(self) -> None:
        try:
            with _in_words(self._cluster):
                flush(self._current, self._failed)
                self._current.commit_transaction(PATIENCE)
        except BaseException:
            self._drop()
            self._failed = []
            raise
        self._current = self._plain

    def abort(self) -> None:
        try:
            with _in_words(self._cluster):
                self._current.abort_transaction(PATIENCE)
        except LogError:
            self._drop()
        self._failed = []  # reports of what was aborted still come, to the list before
        self._current = self._plain

    def _drop(self) -> None:
        """The next transaction gets a producer of its own, which aborts what this one has begun."""
        self._transactional, self._current = None, self._plain

    def close(self) -> None:
        self._plain.purge()
        self._plain.flush(0)
        self._transactional = None


def _topic(name: str) -> Any:
    """A topic of bytes, for what makes tables of records."""
    return SimpleNamespace(name=name, schema=None, key=None)


def _encoded(topic: str, value: Any) -> bytes | None:
    return None if value is None else records.encoded(_topic(topic), value)


class KafkaConsumer:
    """Reads partitions of a cluster, those that its group assigns to it, or all."""

    def __init__(self, cluster: Cluster, subscription: TopicSubscription) -> None:
        self._cluster, self._wanted = cluster, subscription
        self._at: dict[TopicPartition, int] = {}  # the next offset that is returned
        self._waiting: dict[TopicPartition, deque[Any]] = {}
        self._outside: set[TopicPartition] = set()  # those that do not have the next offset
        self._ids: dict[str, str] = {}  # of the topics that are read
        self._look = 0.0  # when the topics are looked at again
        self._starts: dict[TopicPartition, int] = {}  # the ends of the partitions at the beginning
        self._revoking: Revoking = lambda places, lost: None
        own = {
            "group.id": subscription.group or f"headrace-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",  # a gap is never passed over
            "session.timeout.ms": subscription.session_ms,
            "heartbeat.interval.ms": max(1, subscription.session_ms // 3),
            "max.poll.interval.ms": max(subscription.max_poll_ms, subscription.session_ms),
            "fetch.wait.max.ms": 50,
        }
        self._consumer = made(library().Consumer, cluster.config(**UNHEARD, **own))
        with _in_words(cluster):
            self._start()

    def _start(self) -> None:
        kafka, known = library(), self._places()
        self._ids = {t: describe(self._cluster, t).id for t in self._wanted.topics}
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
                self._outside.discard(place)

    def poll(self, timeout: float, max_rows: int, revoking: Revoking) -> PolledBatch | None:
        self._revoking, end = revoking, time.monotonic() + timeout
        with _in_words(self._cluster):
            while not self._waiting:
                left = end - time.monotonic()
                self._fetch(max(0.0, min(left, _SLICE)), max_rows)
                if self._outside and not self._waiting:
                    raise self._out_of_range(min(self._outside))
                if left <= 0:
                    break
        for place in list(self._waiting):
            return self._batch(place, max_rows)
        return None

    def _fetch(self, timeout: float, max_rows: int) -> None:
        """Wait for a record, and take those that come with it."""
        first = self._consumer.poll(timeout)
        found = [] if first is None else [first, *self._consumer.consume(max_rows, _GATHER)]
        failed, again = None, time.monotonic() >= self._look
        for message in found:
            error, place = message.error(), TopicPartition(message.topic(), message.partition())
            if error is not None:
                if error.name() in _OUT_OF_RANGE:
                    self._outside |= {place} & self._at.keys()
                elif not kafka_topics.is_gone(error):
                    failed = failed or error
            elif place in self._at:
                if message.offset() >= self._at[place]:
                    self._waiting.setdefault(place, deque()).append(message)
                else:  # from before a seek, or of another topic of the same name
                    again = True
        if failed is not None:  # when the others are taken
            raise library().KafkaException(failed)
        if found and again:
            self._check_topics()

    def _check_topics(self) -> None:
        """LogError if a topic is not the one that was read so far."""
        for topic, id in self._ids.items():
            try:
                made_again = describe(self._cluster, topic).id != id
            except LogError as cause:
                if is_passing(cause):
                    return
                if not is_missing(cause):
                    raise
                made_again = True
            if made_again:
                self._waiting = {p: w for p, w in self._waiting.items() if p.topic != topic}
                raise LogError(
                    "HR-LOG-002",
                    f"topic '{topic}' was deleted and made again while it was read",
                    "Its records are others than those that were read: make a new consumer.",
                )
        self._look = time.monotonic() + _LOOK

    def _out_of_range(self, place: TopicPartition) -> LogError:
        """Why the partition does not have the next offset."""
        self._check_topics()
        at, (low, high) = self._at[place], self.bounds(place)
        if at < low:
            return LogError(
                "HR-LOG-023",
                f"records {at} to {low - 1} of partition {place.partition} of topic "
                f"'{place.topic}' were removed by retention before they were read",
                "To go on without them: seek(topic, partition, 'earliest').",
            )
        return LogError(
            "HR-LOG-007",
            f"offset {at} is outside partition {place.partition} of topic '{place.topic}', "
            f"which holds [{low}, {high})",
            f"Seek from {low} (the earliest stored) to {high} (the latest).",
        )

    def _batch(self, place: TopicPartition, max_rows: int) -> PolledBatch:
        waiting = self._waiting[place]
        taken = [waiting.popleft() for _ in range(min(max_rows, len(waiting)))]
        if waiting:
            self._waiting[place] = self._waiting.pop(place)  # the others come first then
        else:
            del self._waiting[place]
        end = self._at[place] = taken[-1].offset() + 1
        columns = [[m.key() for m in taken], [m.value() for m in taken]]
        table = pa.Table.from_arrays([pa.array(c, pa.binary()) for c in columns], schema=BYTES)
        return PolledBatch(
            *place,
            table,
            np.array([m.offset() for m in taken], np.int64),
            np.array([m.timestamp()[1] for m in taken], np.int64),
            end,
            "key",
            headers=[m.headers() or () for m in taken],
        )

    def assignment(self) -> list[TopicPartition]:
        return sorted(self._at)

    def position(self, place: TopicPartition) -> int:
        return self._at[place]

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._waiting.pop(place, None)
        self._at[place] = offset
        kafka = library()
        with _in_words(self._cluster):
            if place not in self._outside:
                self._consumer.seek(kafka.TopicPartition(*place, offset))
                return
            self._outside, self._waiting = set(), {}  # it has stopped: all are read anew
            self._consumer.assign([kafka.TopicPartition(*p, at) for p, at in self._at.items()])

    def bounds(self, place: TopicPartition) -> tuple[int, int]:
        with _in_words(self._cluster):
            low, high = self._consumer.get_watermark_offsets(
                library().TopicPartition(*place), timeout=PATIENCE
            )
        return int(low), int(high)

    def offset_for_time(self, place: TopicPartition, ms: int) -> int:
        asked = library().TopicPartition(*place, ms)
        with _in_words(self._cluster):
            found = self._consumer.offsets_for_times([asked], timeout=PATIENCE)[0].offset
        return int(found) if found >= 0 else self.bounds(place)[1]

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        kafka = library()
        offsets = [kafka.TopicPartition(*place, at) for place, at in positions.items()]
        with _in_words(self._cluster):
            for one in self._consumer.commit(offsets=offsets, asynchronous=False):
                if one.error is not None:
                    raise kafka.KafkaException(one.error)

    def committed(self) -> dict[TopicPartition, int]:
        kafka = library()
        if self._wanted.group is None:
            return {}
        with _in_words(self._cluster):
            places = [kafka.TopicPartition(*place) for place in self._places()]
            found = self._consumer.committed(places, timeout=PATIENCE)
        return {TopicPartition(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    def close(self) -> None:
        self._revoking = lambda places, lost: None
        self._consumer.close()
