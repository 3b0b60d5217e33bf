"""Records delivered to Kafka topics: an epoch of a job in one transaction, or at least once.

A job has one transactional id in a cluster, and a topic of its own there, compacted, that says who
has delivered to which topic up to which epoch. That is written in the transaction that delivers,
so all outputs of a job in the cluster have an epoch or none has.

    1 a producer is made, and `init_transactions` fences every earlier one of the job: what those
      had begun is aborted, and what they were committing is committed, before it returns
    2 the job's topic of epochs is read to its end: nobody else writes to it, so from now on it is
      known what was delivered
    3 an epoch that is not delivered is: begin, records, the record of the epoch, commit

Whatever fails in 3 leads back to 1, if the job's folder is still ours: also a commit of which it
is not known whether it was done.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.errors import OutputError
from headrace.log import kafka_topics
from headrace.log.kafka import PATIENCE, Cluster, library
from headrace.log.kafka_errors import is_gone, unwrapped
from headrace.log.kafka_produce import flush, produce, purged, throughput
from headrace.log.kafka_topics import Patience
from headrace.state.faults import point

EPOCHS = "headrace-epochs-"  # followed by a job's identity: the topic of its epochs; at rest
ID = "headrace-"  # followed by the same: its transactional id; at rest

_EPOCHS_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
_RECENT = 32  # epochs whose digests are recorded
_FENCED_TIMES = 5  # as often a producer is fenced and made again within one epoch


class Delivery(NamedTuple):
    """What an output delivers in an epoch."""

    topic: str
    topic_id: str
    max_bytes: int  # of a record of the topic
    producer: str
    digest: str  # of what was staged
    tables: Callable[[], Iterable[pa.Table]]

    @property
    def key(self) -> str:
        """Of its record in the topic of epochs; at rest."""
        return json.dumps([self.topic, self.topic_id, self.producer])


class Delivered(NamedTuple):
    """The last epochs that an output has delivered."""

    epoch: int
    recent: tuple[tuple[int, str], ...]  # epochs and digests, the newest first

    def plus(self, epoch: int, digest: str) -> Delivered:
        return Delivered(epoch, ((epoch, digest), *self.recent)[:_RECENT])

    def differs(self, epoch: int, digest: str) -> bool:
        """Whether the epoch, or one after it, was delivered, but not as `digest` says."""
        if epoch > self.epoch or not self.recent or epoch < self.recent[-1][0]:
            return False
        return (epoch, digest) not in self.recent

    def to_json(self) -> str:
        return json.dumps({"epoch": self.epoch, "recent": self.recent})

    @staticmethod
    def from_json(text: bytes) -> Delivered:
        body = json.loads(text)
        return Delivered(body["epoch"], tuple((e, d) for e, d in body["recent"]))


NOTHING = Delivered(-1, ())


class OtherRecords(Exception):
    """An epoch was delivered with other records."""


def delivered(cluster: Cluster, job: str | None = None) -> dict[str, Delivered]:
    """By the key of a delivery: what the job has delivered last, or what all jobs have."""
    names = kafka_topics.topics(cluster, EPOCHS)
    chosen = names if job is None else [n for n in names if n == f"{EPOCHS}{job}"]
    if job is not None and chosen:
        kafka_topics.settle(cluster, chosen[0])
    return _read(cluster, chosen) if chosen else {}


def to_topic(found: Mapping[str, Delivered], topic: str, topic_id: str) -> dict[str, Delivered]:
    """By producer: what of `found` is in that topic, and not in an earlier one of its name."""
    places = {key: json.loads(key) for key in found}
    return {
        producer: found[key]
        for key, (name, id, producer) in places.items()
        if (name, id) == (topic, topic_id)
    }


def _read(cluster: Cluster, names: Sequence[str]) -> dict[str, Delivered]:
    found: dict[str, Delivered] = {}
    for key, value in kafka_topics.committed(cluster, names):
        found[key.decode()] = Delivered.from_json(value)
    return found


class JobTransactions:
    """The producer of a job in a cluster, for one driver."""

    def __init__(self, cluster: Cluster, job: str, timeout: int, tuning: Mapping[str, Any]) -> None:
        self._cluster, self._job, self._timeout = cluster, job, timeout
        self._tuning, self._producer, self._epochs = dict(tuning), None, f"{EPOCHS}{job}"
        self._delivered: dict[str, Delivered] = {}

    def deliver(
        self, epoch: int, deliveries: Sequence[Delivery], check: Callable[[], None]
    ) -> None:
        """Make the epoch visible in all topics at once, unless it is; `check` sees the fence."""
        patience, kafka, fenced = Patience(self._cluster), library(), 0
        while True:
            check()
            begun = time.monotonic()
            try:
                with unwrapped():
                    self._deliver(epoch, deliveries)
                patience.over()
                return
            except kafka.KafkaException as cause:
                self.close()
                error = cause.args[0]
                if is_gone(error):
                    patience.pause(error.str())
                    continue
                if not _is_interrupted(error):
                    raise
                check()
                fenced += 1
                if time.monotonic() - begun >= self._timeout / 1_000:
                    raise self._too_slow(epoch) from cause
                if fenced > _FENCED_TIMES:
                    raise self._always_fenced(epoch) from cause
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Let go of the producer: the next one aborts what it has begun."""
        self._producer = None

    def _deliver(self, epoch: int, deliveries: Sequence[Delivery]) -> None:
        if self._producer is None:
            self._producer = self._begun(deliveries)
        due = [d for d in deliveries if not self._has(d, epoch)]
        if not due:
            return
        producer: Any = self._producer
        producer.begin_transaction()
        point("sink.kafka.begun")
        failed: list[Any] = []
        after = {d.key: self._last(d).plus(epoch, d.digest) for d in due}
        for delivery in due:
            for table in delivery.tables():
                produce(producer, delivery.topic, table, failed)
            record = after[delivery.key].to_json().encode()
            producer.produce(self._epochs, key=delivery.key.encode(), value=record)
        flush(producer, failed)
        point("sink.kafka.produced")
        producer.commit_transaction(self._timeout / 1_000)
        point("sink.kafka.committed")
        self._delivered |= after

    def _has(self, delivery: Delivery, epoch: int) -> bool:
        last = self._last(delivery)
        if last.differs(epoch, delivery.digest):
            raise OtherRecords
        return last.epoch >= epoch

    def _last(self, delivery: Delivery) -> Delivered:
        return self._delivered.get(delivery.key, NOTHING)

    def _begun(self, deliveries: Sequence[Delivery]) -> Any:
        """Steps 1 and 2."""
        if kafka_topics.target(self._cluster, self._epochs) is None:
            create_epochs(self._cluster, self._job)
        limits = [d.max_bytes for d in deliveries]
        ours = {
            **throughput(limits),
            **self._tuning,
            "transactional.id": f"{ID}{self._job}",
            "transaction.timeout.ms": self._timeout,
        }
        producer = library().Producer(self._cluster.config(**ours))
        producer.init_transactions(PATIENCE)
        point("sink.kafka.fenced")
        self._delivered = _read(self._cluster, [self._epochs])
        return producer

    def _too_slow(self, epoch: int) -> OutputError:
        return OutputError(
            "HR-KAFKA-037",
            f"epoch {epoch} could not be written to Kafka within {self._timeout / 1_000:g} s, "
            "when its transaction expires",
            "Nothing is lost. Start the job again with a longer transaction_timeout= (the brokers "
            "allow transaction.max.timeout.ms, 15 minutes if not changed), and with a smaller "
            "max_batch= from then on.",
        )

    def _always_fenced(self, epoch: int) -> OutputError:
        return OutputError(
            "HR-KAFKA-036",
            f"another producer uses the transactional id '{ID}{self._job}' of this job: epoch "
            f"{epoch} was interrupted {_FENCED_TIMES + 1} times",
            "A copy of the job's folder runs elsewhere, or another program uses the id: stop it "
            "and start the job again. Nothing is lost.",
        )


def create_epochs(cluster: Cluster, job: str, replication: int | None = None) -> None:
    kafka_topics.create(cluster, f"{EPOCHS}{job}", 1, replication, _EPOCHS_SETTINGS)


class PlainProducer:
    """Delivers at least once: idempotent, without transactions. One that has failed is not used
    again: what it still holds would be sent beside what is delivered again."""

    def __init__(self, cluster: Cluster, tuning: Mapping[str, Any]) -> None:
        self._cluster, self._tuning = cluster, dict(tuning)
        self._open: tuple[dict[str, Any], Any] | None = None  # how, and the producer

    def deliver(self, delivery: Delivery, check: Callable[[], None]) -> None:
        patience, kafka = Patience(self._cluster), library()
        while True:
            check()
            try:
                with unwrapped():
                    self._deliver(delivery)
                patience.over()
                return
            except kafka.KafkaException as cause:
                if not is_gone(cause.args[0]):
                    raise
                patience.pause(cause.args[0].str())

    def _deliver(self, delivery: Delivery) -> None:
        limits = throughput([delivery.max_bytes])
        ours = {**limits, **self._tuning, "enable.idempotence": True}
        if self._open is None or self._open[0] != ours:
            self._open = ours, library().Producer(self._cluster.config(**ours))
        producer, failed = self._open[1], list[Any]()
        try:
            for table in delivery.tables():
                produce(producer, delivery.topic, table, failed)
            flush(producer, failed)
        except BaseException:
            self._open = None
            raise


def _is_interrupted(error: Any) -> bool:
    code = library().KafkaError
    return error.code() in (
        code._FENCED, code.INVALID_PRODUCER_EPOCH, code.PRODUCER_FENCED,
        code.INVALID_PRODUCER_ID_MAPPING, code.INVALID_TXN_STATE,
        code.TRANSACTION_COORDINATOR_FENCED, code.UNKNOWN_PRODUCER_ID, code._FATAL, code._STATE,
        *purged(),
    )  # fmt: skip
