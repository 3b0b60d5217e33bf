"""A Kafka topic as an output: exactly once for readers of what is committed, or at least once.

Tasks stage records as the topic will hold them; they need no broker. The driver delivers an epoch
of all Kafka outputs of a job in one transaction of their cluster: they are a group. Who has
delivered what is recorded in that transaction (`log/kafka_delivery.py`).

A cluster is known by its id, whichever brokers are named. What is needed to reach it, secrets
among it, is not stored: an output that is opened again by its description uses what the program
says now about the same cluster.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from headrace.clock import millis
from headrace.errors import LogError, OutputError
from headrace.log import kafka, kafka_delivery, kafka_errors, kafka_topics
from headrace.log.kafka_delivery import (
    Delivered,
    Delivery,
    JobTransactions,
    OtherRecords,
    PlainProducer,
    to_topic,
)
from headrace.sinks.columns import packed
from headrace.sinks.contract import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    Description,
    EpochWriter,
    HeldEpochs,
    OutputKind,
    OutputRequest,
    Reference,
    Sink,
)
from headrace.sinks.delivered import StagedSink, within
from headrace.sinks.durable import noted
from headrace.sinks.formats import without_dictionaries
from headrace.sinks.kafka_options import (
    OPTIONS,
    PARTITIONERS,
    TIMEOUT,
    check_options,
    guarantee_in,
    harmless,
    place_of,
)
from headrace.sinks.kafka_records import layout_of
from headrace.sinks.registered_values import value_schema_of
from headrace.state.faults import point

T = TypeVar("T")

# By process and cluster: brokers and options by which the program reaches it.
_access_to: dict[tuple[int, str], tuple[str, dict[str, Any]]] = {}
# By process, cluster and job: the driver's number, and the producer of its transactions.
_producers: dict[tuple[int, str, str], tuple[int, JobTransactions]] = {}


class KafkaSink(StagedSink):
    def __init__(self, o: OutputRequest, cluster: kafka.Cluster, topic: str) -> None:
        super().__init__(o)
        self._cluster, self._topic, self._options = cluster, topic, dict(o.options)
        self._layout = layout_of(o.uri, o.options)
        self._values = value_schema_of(o.uri, topic, self._layout.format, o.options)
        self._guarantee = guarantee_in(o.options)
        self._target: kafka_topics.Target | None = None  # as of the last look
        self._last = -1  # the last epoch that was delivered at least once, in this run
        self._plain: PlainProducer | None = None  # that delivers it

    @property
    def guarantee(self) -> str:  # type: ignore[override]
        return self._guarantee

    @property
    def because(self) -> str:
        if self._guarantee == AT_LEAST_ONCE:
            return "no transactions: after a crash an epoch may be sent again"
        return (
            "an epoch and its number are one transaction; a consumer must read committed records "
            "only (isolation.level=read_committed)"
        )

    @property
    def retries(self) -> str:
        if self._guarantee == AT_LEAST_ONCE:
            return "without transactions an epoch is sent again when a broker was gone meanwhile"
        return ""

    @property
    def what(self) -> str:
        return f"topic {self._topic!r} of Kafka"

    def describe(self) -> Description:
        """Without anything that could be secret."""
        with self._as_output():
            id = kafka_topics.cluster_id(self._cluster)
        access = {n: v for n, v in self._options.items() if n not in (*OPTIONS, "registry_auth")}
        _access_to[os.getpid(), id] = self._cluster.brokers, access
        options = {n: v for n, v in self._options.items() if n in OPTIONS}
        return {
            "kind": "kafka",
            "place": f"{id}/{self._topic}",
            "format": self._layout.format,
            "options": {**options, "brokers": self._cluster.brokers, **harmless(access)},
            "schema": packed(self.schema),
        }

    def check(self) -> None:
        """Check that the brokers answer, and that the topic can be created, or is ours to write."""
        self._layout.check(self.schema)
        partitions = self._options.get("partitions")
        with self._as_output():
            if self._values is not None:
                self._values.check(self._value_columns())
            target = kafka_topics.target(self._cluster, self._topic)
        if target is None and partitions is None:
            raise OutputError(
                "HR-KAFKA-031",
                f"there is no topic {self._topic!r} at {self._cluster.brokers}",
                "Create it with the tools of Kafka, or let the job create it: pass partitions=, "
                "and replication= if there shall be more copies than the brokers make anyway.",
            )
        self._layout.check_partition(target.partitions if target else partitions)
        self.check_owner()

    def open(self) -> None:
        partitions, copies = self._options.get("partitions", 1), self._options.get("replication")
        with self._as_output():
            if kafka_topics.target(self._cluster, self._topic) is None:
                kafka_topics.create(self._cluster, self._topic, partitions, copies, {})
            self._target = kafka_topics.target(self._cluster, self._topic)
            if self._guarantee == EXACTLY_ONCE:
                kafka_delivery.create_epochs(self._cluster, self._identity.get(), copies)
            if self._values is not None:
                numbered = self._values.registered(self._value_columns())
                self._layout = replace(self._layout, numbered=numbered)
        if self._target is not None:
            self._layout = self._layout.within(self._target.partitions, self._target.max_bytes)

    def _value_columns(self) -> pa.Schema:
        plain = without_dictionaries(self.schema)
        return pa.schema([plain.field(n) for n in self._layout.value_columns(plain)])

    # Who has delivered what.

    def producers(self) -> Mapping[str, int]:
        job = self._identity.known()
        return {} if job is None else self._epochs(job)

    def everybody(self) -> Mapping[str, int]:
        return self._epochs(None)

    def _epochs(self, job: str | None) -> dict[str, int]:
        return {producer: last.epoch for producer, last in self._delivered(job).items()}

    def _delivered(self, job: str | None) -> dict[str, Delivered]:
        with self._as_output():
            target = kafka_topics.target(self._cluster, self._topic)
            found = kafka_delivery.delivered(self._cluster, job) if target is not None else {}
        return to_topic(found, self._topic, target.id) if target is not None else {}

    def held(self) -> HeldEpochs | None:
        return None if self._guarantee == AT_LEAST_ONCE else super().held()

    def knows(self, about: Mapping[str, Any]) -> bool:
        """What was delivered at least once is recorded nowhere."""
        return guarantee_in(about.get("options", {})) == EXACTLY_ONCE

    def reached(self, epoch: int) -> bool:
        """What was delivered is looked up only if the topic was made again since the last call."""
        with self._as_output():
            target = self._patiently(lambda: kafka_topics.target(self._cluster, self._topic))
        if target is None:
            return False
        if self._target is not None and target.id == self._target.id:
            return True
        held = self.held()
        if held is None:  # it cannot be known what is there, only that it is another topic
            return self._target is None
        if held.number < epoch:
            return False
        self._target = target
        return True

    def check_same(self, epoch: int, staged: list[Reference]) -> None:
        if self._guarantee == AT_LEAST_ONCE:
            return
        job, _, id = noted(staged[0], "producer").partition("/")
        for producer, last in self._delivered(job).items():
            if producer.partition("/")[2] == id and last.differs(epoch, _digest(staged)):
                raise self.conflict(epoch)

    # Delivering.

    def group(self) -> str | None:
        """All Kafka outputs of a job in one cluster, unless they are at least once."""
        if self._guarantee == AT_LEAST_ONCE:
            return None
        with self._as_output():
            id = self._patiently(lambda: kafka_topics.cluster_id(self._cluster))
        return f"Kafka {id}"

    def check_group(self, outputs: Sequence[Sink]) -> None:
        others = [o for o in outputs if isinstance(o, KafkaSink)]
        if any(o._cluster.properties != self._cluster.properties for o in others):
            raise OutputError(
                "HR-KAFKA-040",
                f"outputs of this job reach the Kafka cluster at {self._cluster.brokers} in "
                "different ways",
                "They are written in one transaction: pass the same security options to all, or "
                'guarantee="at_least_once" to those that are to differ.',
            )

    def publish(self, epoch: int, staged: list[Reference], writer: EpochWriter) -> None:
        self.publish_group(epoch, [(self, staged)], writer)

    def publish_group(
        self, epoch: int, outputs: Sequence[tuple[Sink, list[Reference]]], writer: EpochWriter
    ) -> None:
        due = [(o, staged) for o, staged in outputs if staged and isinstance(o, KafkaSink)]
        if not due:
            return
        if self._guarantee == AT_LEAST_ONCE:
            return self._publish_again(epoch, due[0][1], writer)
        deliveries = [output._delivery(staged, writer) for output, staged in due]
        point("sink.publish.read")
        job = noted(due[0][1][0], "producer").partition("/")[0]
        with self._as_output():
            try:
                self._transactions(job, writer).deliver(epoch, deliveries, writer.check)
            except OtherRecords as cause:
                raise self.conflict(epoch) from cause
        point("sink.publish.appended")

    def _publish_again(self, epoch: int, staged: list[Reference], writer: EpochWriter) -> None:
        """At least once: again after a crash, but not in one run."""
        if epoch <= self._last:
            return
        delivery = self._delivery(staged, writer)
        point("sink.publish.read")
        self._plain = self._plain or PlainProducer(self._cluster, self._tuning())
        with self._as_output():
            self._plain.deliver(delivery, writer.check)
        self._last = epoch
        point("sink.publish.appended")

    def _delivery(self, staged: list[Reference], writer: EpochWriter) -> Delivery:
        producer = within(noted(staged[0], "producer"), writer.timeline)
        if self._target is None:
            with self._as_output():
                find = lambda: kafka_topics.target(self._cluster, self._topic)  # noqa: E731
                self._target = self._patiently(find, writer.check)
        if self._target is None:
            raise self._gone()
        target = self._target
        return Delivery(
            self._topic, target.id, target.max_bytes, producer, _digest(staged),
            lambda: (self._staging.read(r) for r in staged),
        )  # fmt: skip

    def _transactions(self, job: str, writer: EpochWriter) -> JobTransactions:
        id = self._patiently(lambda: kafka_topics.cluster_id(self._cluster), writer.check)
        place = os.getpid(), id, job
        token, transactions = _producers.get(place, (-1, None))
        if transactions is None or token != writer.token:
            timeout = millis(self._options.get("transaction_timeout", TIMEOUT))
            transactions = JobTransactions(self._cluster, job, timeout, self._tuning())
            _producers[place] = writer.token, transactions
        return transactions

    def _tuning(self) -> dict[str, Any]:
        return {"partitioner": PARTITIONERS[self._options.get("partitioner", "murmur2")]}

    def records(self, rows: pa.Table) -> pa.Table:
        return self._layout.records(rows)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_last": -1, "_plain": None}

    # What Kafka says, in our words.

    def _patiently(self, work: Callable[[], T], check: Callable[[], None] | None = None) -> T:
        return kafka_topics.patiently(self._cluster, work, check)

    @contextmanager
    def _as_output(self) -> Iterator[None]:
        library = kafka.library()
        try:
            yield
        except LogError as cause:
            raise OutputError(cause.code, cause.message, cause.hint) from cause
        except library.KafkaException as cause:
            raise self._translated(cause.args[0]) from cause

    def _translated(self, error: Any) -> OutputError:
        where, code = f"Kafka at {self._cluster.brokers}", kafka.library().KafkaError
        complaint = kafka_errors.complaint(self._cluster)
        refused = kafka.is_refusal(error)  # which may be what connections say
        said = error.str() if refused or complaint is None else f"{error.str()}; {complaint}"
        if refused or complaint is not None:
            return OutputError(
                "HR-KAFKA-038",
                f"{where} refuses output {self._name!r}: {said}",
                "Check the security options, and what the user may do: write to the topic, write "
                f"and read topics {kafka_delivery.EPOCHS}*, use transactional ids "
                f"{kafka_delivery.ID}*. Nothing is lost.",
            )
        if error.code() in (code.UNKNOWN_TOPIC_OR_PART, code._UNKNOWN_TOPIC):
            return self._gone()
        if error.code() in (code.MSG_SIZE_TOO_LARGE, code.RECORD_LIST_TOO_LARGE):
            return OutputError(
                "HR-KAFKA-034",
                f"a record of output {self._name!r} is too large for {self.what}: {said}",
                "The topic takes smaller records than when the job was started: raise its "
                "max.message.bytes and start the job again. Nothing is lost.",
            )
        if kafka_errors.is_gone(error):
            return OutputError(
                "HR-KAFKA-032",
                f"no Kafka broker answers at {self._cluster.brokers}: {said}",
                "Is it running, and is this its address? For a broker on this machine: make kafka.",
            )
        return OutputError(
            "HR-KAFKA-041",
            f"{where} cannot take what output {self._name!r} writes: {said}",
            "Correct that and start the job again: nothing is lost, the epoch is written anew.",
        )

    def _gone(self) -> OutputError:
        return OutputError(
            "HR-KAFKA-039",
            f"{self.what} at {self._cluster.brokers}, to which output {self._name!r} writes, is "
            "gone",
            "Somebody has deleted it. Start the job again: it says what was lost with the topic, "
            "and what is not written yet is written then.",
        )


def _digest(staged: Iterable[Reference]) -> str:
    """What tells an epoch's rows from those of another epoch with its number; at rest."""
    named = json.dumps(sorted((r["file"], r["rows"], r["crc"]) for r in staged))
    return hashlib.sha256(named.encode()).hexdigest()[:16]


def _open(o: OutputRequest) -> Sink:
    return KafkaSink(o, *place_of(o))


def _reopen(about: Description) -> tuple[str, dict[str, Any]]:
    id, _, topic = about["place"].partition("/")
    options = dict(about["options"])
    own = {n: v for n, v in options.items() if n in OPTIONS}
    described = options["brokers"], {n: v for n, v in options.items() if n not in own}
    brokers, access = _access_to.get((os.getpid(), id), described)
    access = {n: v for n, v in access.items() if n != "brokers"}
    return f"//{brokers}/{topic}", {**own, **access}


KAFKA = OutputKind(check_options, _open, _reopen, chooses=True)
