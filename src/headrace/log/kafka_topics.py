"""What the driver of a job asks of a Kafka cluster, and does there, to write to its topics.

What the library raises is raised as it is (`kafka_errors` says what it means); `patiently` waits
where that may help, and says so. No records are written here.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from headrace.log.kafka import PATIENCE, Cluster, admin_module, library, shared_admin
from headrace.log.kafka_errors import complaint, is_gone

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between two attempts
NO_NEWS = 2.0  # seconds that brokers need to take over: no news
_QUICK = 1.0  # seconds for an answer of brokers that may not answer
_SAY_AGAIN = 30.0  # seconds between two messages about the same wait
_MOMENT = 1.0  # seconds, at most, until what is committed can be read
_READ, _LOOK = 1_000, 0.02  # records at once, and seconds to gather them

T = TypeVar("T")

_said = logging.getLogger("headrace.kafka")


def _admin(cluster: Cluster) -> Any:
    return shared_admin(cluster).client


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that is written to."""

    id: str  # drawn when the topic was made: another topic of the same name has another
    partitions: int
    max_bytes: int  # of a record


def cluster_id(cluster: Cluster) -> str:
    """The same for all brokers of a cluster, and for no other cluster."""
    return _cluster_id(os.getpid(), cluster.key, cluster)


@lru_cache(maxsize=16)
def _cluster_id(pid: int, key: tuple[Any, ...], cluster: Cluster) -> str:
    admin = shared_admin(cluster)
    return str(admin.answer(admin.client.describe_cluster(request_timeout=PATIENCE)).cluster_id)


def target(cluster: Cluster, name: str) -> Target | None:
    """What the topic is now; None if there is none."""
    kafka, admin = library(), shared_admin(cluster)
    topics = kafka.TopicCollection([name])
    try:
        asked = admin.client.describe_topics(topics, request_timeout=PATIENCE)[name]
        found = admin.answer(asked)
    except kafka.KafkaException as cause:
        if cause.args[0].code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise
    return Target(str(found.topic_id), len(found.partitions), _max_bytes(cluster, name))


def _max_bytes(cluster: Cluster, name: str) -> int:
    admin = admin_module()
    asked = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, name)
    answers = _admin(cluster).describe_configs([asked], request_timeout=PATIENCE)
    return int(next(iter(answers.values())).result()["max.message.bytes"].value)


def create(
    cluster: Cluster,
    name: str,
    partitions: int,
    replication: int | None,
    settings: Mapping[str, str],
) -> None:
    """Make the topic, and wait until it is there; nothing happens if somebody else was first."""
    kafka = library()
    fresh = admin_module().NewTopic(name, partitions, replication or -1, config=dict(settings))
    try:
        _admin(cluster).create_topics([fresh], request_timeout=PATIENCE)[name].result()
    except kafka.KafkaException as cause:
        if cause.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    end = time.monotonic() + PATIENCE
    while target(cluster, name) is None and time.monotonic() < end:
        time.sleep(_FIRST_PAUSE / 10)


def topics(cluster: Cluster, prefix: str) -> list[str]:
    """The names of topics that begin so."""
    found = _admin(cluster).list_topics(timeout=PATIENCE).topics
    return sorted(name for name in found if name.startswith(prefix))


def settle(cluster: Cluster, topic: str) -> None:
    """Wait until no transaction is open in partition 0 of the topic, for a moment at most.

    Kafka confirms a commit before readers see it; what a process left open that was killed is
    aborted later.
    """
    kafka, end = library(), time.monotonic() + _MOMENT
    latest = {kafka.TopicPartition(topic, 0): admin_module().OffsetSpec.latest()}
    levels = (kafka.IsolationLevel.READ_COMMITTED, kafka.IsolationLevel.READ_UNCOMMITTED)
    while time.monotonic() < end:
        asked = [
            _admin(cluster).list_offsets(latest, isolation_level=level, request_timeout=PATIENCE)
            for level in levels
        ]
        committed, written = ([one.result().offset for one in a.values()] for a in asked)
        if committed == written:
            return


def committed(cluster: Cluster, topics: Iterable[str]) -> list[tuple[bytes, bytes]]:
    """Keys and values of all records in partition 0 that are committed now, oldest first."""
    kafka, found = library(), list[tuple[bytes, bytes]]()
    waiting, silent = {(name, 0) for name in topics}, time.monotonic() + PATIENCE
    consumer = kafka.Consumer(
        cluster.config(
            **{
                "group.id": "headrace",  # nothing is committed under it
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            },
        )
    )
    try:
        consumer.assign([kafka.TopicPartition(*place, 0) for place in sorted(waiting)])
        while waiting:
            messages = consumer.consume(_READ, timeout=_LOOK)
            for message in messages:
                error = message.error()
                if error is None:
                    found.append((message.key(), message.value()))
                elif error.code() == kafka.KafkaError._PARTITION_EOF:
                    waiting.discard((message.topic(), message.partition()))
                elif not is_gone(error):
                    raise kafka.KafkaException(error)
            if messages:
                silent = time.monotonic() + PATIENCE
            elif time.monotonic() > silent:
                raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
    finally:
        consumer.close()
    return found


# Brokers that do not answer: waited for, with pauses that become longer.


class Patience:
    """Pauses between attempts, and messages about them: once it takes long, and now and then."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._pause, self._since = cluster, _FIRST_PAUSE, time.monotonic()
        self._silent_until = self._since + NO_NEWS
        self._said = self._back = False

    def pause(self, error: object) -> None:
        now = time.monotonic()
        if now >= self._silent_until and not self._is_back():
            self._silent_until, self._said = now + _SAY_AGAIN, True
            _said.warning(
                "headrace: Kafka at %s does not answer (%s); waiting for it, nothing is lost",
                self._cluster.brokers, complaint(self._cluster) or error,
            )  # fmt: skip
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _is_back(self) -> bool:
        """Whether the brokers answer, and this is the first time: what failed had begun before."""
        if self._back:
            return False
        asked = _admin(self._cluster).describe_cluster(request_timeout=_QUICK)
        self._back = asked.exception() is None
        return self._back

    def over(self) -> None:
        if self._said:
            seconds = time.monotonic() - self._since
            _said.warning(
                "headrace: Kafka at %s answers again, %.0f s later", self._cluster.brokers, seconds
            )


def patiently(
    cluster: Cluster, work: Callable[[], T], check: Callable[[], None] | None = None
) -> T:
    """The result of `work`, which is repeated while no broker answers; `check` may end the wait."""
    patience, kafka = Patience(cluster), library()
    while True:
        if check is not None:
            check()
        try:
            result = work()
        except kafka.KafkaException as cause:
            if not is_gone(cause.args[0]):
                raise
            patience.pause(cause.args[0].str())
        else:
            patience.over()
            return result
