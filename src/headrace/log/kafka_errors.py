"""What Kafka says when something goes wrong, and what it means.

The library's errors are raised as they are where somebody decides by them: `is_gone` says whether
waiting may help, `complaint` why a client is not let in. For programs that are not jobs `in_words`
makes LogErrors of them. Nothing is sent or read here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from headrace.errors import LogError
from headrace.log.kafka import (
    PATIENCE,
    Cluster,
    TopicFacts,
    describe,
    is_missing,
    library,
    no_admission,
    shared_admin,
)

T = TypeVar("T")

# What Kafka's protocol calls retriable, and the library's own words for it. Not among them: damaged
# records, and topics that nobody knows, which are asked about more closely.
_PASSING = frozenset(
    ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT",
     "_RESOLVE", "_WAIT_COORD", "_WAIT_CACHE", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION",
     "REQUEST_TIMED_OUT", "BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "NETWORK_EXCEPTION",
     "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR",
     "NOT_CONTROLLER", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
     "CONCURRENT_TRANSACTIONS", "KAFKA_STORAGE_ERROR", "FETCH_SESSION_ID_NOT_FOUND",
     "INVALID_FETCH_SESSION_EPOCH", "LISTENER_NOT_FOUND", "FENCED_LEADER_EPOCH",
     "UNKNOWN_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE", "PREFERRED_LEADER_NOT_AVAILABLE",
     "ELIGIBLE_LEADERS_NOT_AVAILABLE", "UNSTABLE_OFFSET_COMMIT", "THROTTLING_QUOTA_EXCEEDED",
     "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID")
)  # fmt: skip
_ELECTING = ("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "UNKNOWN_LEADER_EPOCH",
             "FENCED_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE")  # fmt: skip
_PAUSE = 0.1  # seconds between two questions to partitions between two leaders
_UNKNOWN = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
_TOO_LARGE = ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")
_DAMAGED = ("_BAD_MSG", "_BAD_COMPRESSION")
DAMAGED = (
    "What the broker stores there is damaged, or is too large or too new for this client: restore "
    "the partition from a replica, or read on behind it. Nothing that was read before is lost."
)
_TAKEN_OVER = (
    "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "_ASSIGNMENT_LOST",
    "FENCED_INSTANCE_ID", "STALE_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH",
)  # fmt: skip

_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
SLOW_OR_SHARED = (
    "a transaction that takes longer than transaction.timeout.ms (a minute, if options= does not "
    "say otherwise), or whose transactional_id= another producer uses, is aborted by the brokers"
)


def is_gone(error: Any) -> bool:
    """Whether a KafkaError says that no broker answers now, or none that is in charge."""
    return bool(error.retriable()) or error.name() in _PASSING


def between_leaders(ask: Callable[[], T]) -> T:
    """The answer; asked again for a while where a partition has no leader, or a new one."""
    kafka, end = library(), time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except kafka.KafkaException as cause:
            if cause.args[0].name() not in _ELECTING or time.monotonic() > end:
                raise
        time.sleep(_PAUSE)


def complaint(cluster: Cluster) -> str | None:
    """What connections say that are refused."""
    last = shared_admin(cluster).refusal()
    return None if last is None else str(last.str())


def topic_facts(cluster: Cluster, topic: str) -> TopicFacts:
    """What the topic is; LogError, for programs that are not jobs, if there is none."""
    try:
        return describe(cluster, topic)
    except LogError as cause:
        if not is_missing(cause):
            raise
        raise LogError(
            "HR-LOG-002",
            f"Kafka at {cluster.brokers} has no such topic or partition: '{topic}'",
            "Create it first, with the tools of Kafka.",
        ) from cause


@contextmanager
def unwrapped() -> Iterator[None]:
    """The library raises a fatal error in the middle of its callbacks, which then fail."""
    try:
        yield
    except SystemError as cause:
        if isinstance(cause.__cause__, library().KafkaException):
            raise cause.__cause__ from cause
        raise


@contextmanager
def in_words(cluster: Cluster) -> Iterator[None]:
    """What Kafka says, as a LogError."""
    kafka = library()
    try:
        with unwrapped():
            yield
    except kafka.KafkaException as cause:
        raise _said(cluster, cause.args[0]) from cause


def is_denied(name: str) -> bool:
    """Whether the error of this name says that the user may not do that."""
    return name.endswith("_AUTHORIZATION_FAILED")


def _said(cluster: Cluster, error: Any) -> LogError:
    if is_denied(error.name()):
        return no_admission(cluster, error.str())
    if error.name() in _DAMAGED:
        return LogError("HR-KAFKA-011", f"Kafka at {cluster.brokers}: {error.str()}", DAMAGED)
    if error.name() in _UNKNOWN:
        return LogError(
            "HR-LOG-002",
            f"Kafka at {cluster.brokers} has no such topic or partition: {error.str()}",
            "Create it first, with the tools of Kafka.",
        )
    if error.name() in _TAKEN_OVER:
        return LogError(
            "HR-LOG-021",
            f"this consumer is not a member of its group any more: {error.str()}",
            "Nothing was committed; what was not committed is read again.",
        )
    if error.name() in _FENCED:
        return LogError(
            "HR-KAFKA-059",
            f"{SLOW_OR_SHARED}: {error.str()}",
            "Nothing of it is there: send it again, sooner, or with an id that is used once.",
        )
    if error.name() in _TOO_LARGE:
        return LogError(
            "HR-KAFKA-051",
            f"a record is too large for the producer or for its topic: {error.str()}",
            'Raise both: the producer\'s options={"message.max.bytes": ...}, which is 1 MiB if '
            "it is not set, and the topic's max.message.bytes.",
        )
    return LogError(
        "HR-KAFKA-050",
        f"Kafka at {cluster.brokers}: {complaint(cluster) or error.str()}",
        "Is it running, and may this user do that? For a broker on this machine: make kafka.",
    )
