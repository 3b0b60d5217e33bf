"""`hr.Producer` and `hr.Consumer` over Kafka: `hr.Producer("kafka://broker:9092")`.

Topics hold bytes: values and keys are bytes, text, or dictionaries as JSON, as in a byte topic of
the embedded log. A producer is idempotent; a transaction is one of Kafka's. A consumer reads
committed records only; its group is one of Kafka's, and partitions are shared by its coordinator.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from headrace.errors import LogError
from headrace.log import records
from headrace.log.clients import Headers, TopicSubscription, unknown_option
from headrace.log.contract import Records
from headrace.log.forks import left_to_parent
from headrace.log.kafka import (
    PATIENCE,
    SHORTHANDS,
    Cluster,
    library,
    made,
    parse,
    properties,
)
from headrace.log.kafka_consumer import KafkaConsumer
from headrace.log.kafka_errors import SLOW_OR_SHARED, in_words, topic_facts
from headrace.log.kafka_produce import flush, produce, throughput

LARGEST = "message.max.bytes"
_LIMIT = 1 << 20  # bytes of a record, if the options do not say otherwise


def open_producer(place: str, **options: Any) -> KafkaProducer:
    return KafkaProducer(_cluster(place, options, ("transactional_id",)), options)


def open_consumer(place: str, subscription: TopicSubscription, **options: Any) -> KafkaConsumer:
    return KafkaConsumer(_cluster(place, options, ()), subscription)


def _cluster(place: str, options: Mapping[str, Any], known: Sequence[str]) -> Cluster:
    own = {name: v for name, v in options.items() if not name.startswith(SHORTHANDS)}
    unknown_option(repr(place), own, ("options", *known))
    brokers, _ = parse(f"{place.rstrip('/')}/topic")
    return Cluster(brokers, properties(options, repr(place)))


class KafkaProducer:
    """Sends records to the topics of a cluster."""

    def __init__(self, cluster: Cluster, options: Mapping[str, Any]) -> None:
        self._cluster, self._failed = cluster, list[Any]()
        self._there = set[str]()  # topics that exist: a broker may make one that it is asked about
        self._id = str(options.get("transactional_id") or f"headrace-producer-{uuid.uuid4().hex}")
        self._plain = self._made({"enable.idempotence": True})
        self._transactional: Any = None
        self._current = self._plain
        left_to_parent(self)

    def _made(self, more: Mapping[str, Any]) -> Any:
        ours = {**throughput([self._largest()]), **more}
        return made(library().Producer, self._cluster.config(**ours))

    def _largest(self) -> int:
        """The bytes of the largest record, as the options say."""
        chosen = str(self._cluster.properties.get(LARGEST, _LIMIT))
        if not chosen.isdecimal() or not 1_000 <= int(chosen) <= 1_000_000_000:  # as the client's
            raise LogError(
                "HR-KAFKA-005",
                f"the client of Kafka does not take {LARGEST!r} as it is set",
                "Give a number of bytes, 1,000 to 1,000,000,000.",
            )
        return int(chosen)

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

        with in_words(self._cluster):
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
            flush(self._current, self._failed, others=True)
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
        with in_words(self._cluster):
            produce(self._current, topic, table, self._failed)

    def _check(self, topic: str) -> None:
        """LogError if there is no such topic."""
        if topic in self._there:
            return
        topic_facts(self._cluster, topic)
        self._there.add(topic)

    def flush(self) -> None:
        try:
            with in_words(self._cluster):
                flush(self._current, self._failed, others=True)
        finally:
            self._failed.clear()  # raised once; what is reported later is raised the next time

    def begin(self) -> None:
        self.flush()
        with in_words(self._cluster):
            if self._transactional is None:
                self._transactional = self._made({"transactional.id": self._id})
                self._transactional.init_transactions(PATIENCE)
            self._transactional.begin_transaction()
        self._current = self._transactional

    def commit(self) -> None:
        try:
            with in_words(self._cluster):
                flush(self._current, self._failed)
            with in_words(self._cluster), _in_doubt():
                self._current.commit_transaction(PATIENCE)
        except BaseException:
            self._drop()
            self._failed = []
            raise
        self._current = self._plain

    def abort(self) -> None:
        try:
            with in_words(self._cluster):
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


@contextmanager
def _in_doubt() -> Iterator[None]:
    """An error of a commit, unless it says that there is nothing to be committed."""
    kafka = library()
    try:
        yield
    except kafka.KafkaException as cause:
        if cause.args[0].txn_requires_abort():
            raise
        raise LogError(
            "HR-KAFKA-058",
            f"it is not known whether a transaction was committed: {cause.args[0].str()}",
            "All of it is there, or nothing: look into its topics when the brokers answer, and "
            f"send it again only if it is not there. As a rule {SLOW_OR_SHARED}.",
        ) from cause


def _topic(name: str) -> Any:
    """A topic of bytes, for what makes tables of records."""
    return SimpleNamespace(name=name, schema=None, key=None)


def _encoded(topic: str, value: Any) -> bytes | None:
    return None if value is None else records.encoded(_topic(topic), value)
