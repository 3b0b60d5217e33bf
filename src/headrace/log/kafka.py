"""Kafka: where a cluster is, how it is reached, and what it says about a topic.

A `Cluster` is a value: brokers and properties of the client. It can be pickled, and never shows
its secrets. Clients are made when they are needed and shared within a process. What the cluster
refuses, or does not answer, is a LogError; nothing is written here.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from headrace.connect.extras import needed
from headrace.errors import LogError, did_you_mean
from headrace.log.forks import left_to_parent

PORT = 9092  # of a broker that is named without one
PATIENCE = 10.0  # seconds for an answer when a job starts
SHOWN = 10  # topics that a message lists
SHORTHANDS = ("security_", "sasl_", "ssl_")  # options that are properties of the client
# What the guarantees rest on; Headrace sets these itself.
OURS = frozenset({
    "bootstrap.servers", "metadata.broker.list", "group.id", "enable.auto.commit",
    "enable.auto.offset.store", "auto.offset.reset", "enable.partition.eof", "isolation.level",
    "transactional.id", "enable.idempotence", "acks", "request.required.acks",
})  # fmt: skip
_client = logging.getLogger("headrace.kafka.client")
_client.addHandler(logging.NullHandler())
_client.propagate = False


def _ignore(error: object) -> None:
    return None


# Errors are raised, or waited for: no thread of the client prints them.
_QUIET = {"log_level": 0, "logger": _client, "error_cb": _ignore}
_SOON = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 2_000,
    "topic.metadata.refresh.interval.ms": 10_000,  # in which a group learns of new partitions
}
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_REFUSING = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED")
_GRACE, _SLICE = 2.0, 0.1  # seconds: a connection may be refused and the next one not


class Properties(dict[str, Any]):
    """Properties of the client; shown without their values."""

    def __repr__(self) -> str:
        return f"<{', '.join(sorted(self)) or 'no properties'}>"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class Cluster:
    """Brokers, as "host:port,host:port", and how they are reached."""

    brokers: str
    properties: Properties = field(default_factory=Properties, hash=False)

    def config(self, **more: Any) -> dict[str, Any]:
        """The configuration of a client."""
        return {"bootstrap.servers": self.brokers, **_QUIET, **_SOON, **self.properties, **more}

    @property
    def key(self) -> tuple[Any, ...]:
        """What clients that may be shared have in common."""
        return self.brokers, tuple(sorted((k, str(v)) for k, v in self.properties.items()))


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as it is now."""

    id: str  # another one if it was deleted and made again
    partitions: tuple[int, ...]


def parse(uri: str) -> tuple[str, str]:
    """Brokers and topic of "kafka://host:port,host:port/topic"."""
    brokers, slash, topic = uri.partition(":")[2].removeprefix("//").partition("/")
    if "@" in brokers:
        raise LogError(
            "HR-KAFKA-003",
            "the address of a Kafka topic holds a user name or a password",
            'Leave it out, and pass sasl_username="..." and sasl_password="env:KAFKA_PASSWORD".',
        )
    named = [_broker(one) for one in brokers.split(",")]
    if not uri.startswith("kafka://") or not slash or not all(named) or not _NAME.fullmatch(topic):
        raise LogError(
            "HR-KAFKA-003",
            f"{uri!r} is not the address of a Kafka topic",
            'Write "kafka://host:9092/topic"; several brokers are separated by commas.',
        )
    return ",".join(map(str, named)), topic


def _broker(text: str) -> str | None:
    """A broker as host:port; None if it is none."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT)
    good = host and "/" not in host and port.isdecimal() and 0 < int(port) < 65_536
    return f"{host}:{int(port)}" if good else None


def properties(options: Mapping[str, Any], what: str) -> Properties:
    """The client's properties that options of an input or output name.

    `options` holds `options` (properties by the client's own names) and shorthands such as
    `sasl_password`. A text "env:NAME" or "file:path" stands for what is there.
    """
    given = options.get("options") or {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise LogError(
            "HR-KAFKA-005",
            f"{what} has options that are no properties by name",
            'Write options={"client.rack": "eu-1"}.',
        )
    found = dict(given)
    for name, value in options.items():
        if name.startswith(SHORTHANDS):
            found[name.replace("_", ".")] = value
    for name in found:
        if name in OURS:
            raise LogError(
                "HR-KAFKA-005",
                f"{what} sets the client's property {name!r}",
                "Leave it out: the guarantees of a job depend on it, so Headrace sets it.",
            )
    return Properties({name: referred(name, value, what) for name, value in found.items()})


def referred(name: str, value: Any, what: str) -> Any:
    """The value, or what is where it refers to."""
    scheme, colon, rest = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not colon or scheme not in ("env", "file"):
        return value
    try:
        return os.environ[rest] if scheme == "env" else Path(rest).read_text().rstrip("\r\n")
    except (KeyError, OSError, UnicodeDecodeError) as cause:
        place = f"the environment variable {rest!r}" if scheme == "env" else f"the file {rest!r}"
        raise LogError(
            "HR-KAFKA-004",
            f"the property {name!r} of {what} is in {place}, which cannot be read",
            "Set it before the job is started.",
        ) from cause


def library(what: str = "Kafka") -> Any:
    return needed("confluent_kafka", "kafka", what)


def admin_module() -> Any:
    return needed("confluent_kafka.admin", "kafka", "Kafka")


def made(kind: Any, config: dict[str, Any]) -> Any:
    """A client; a property that it does not take is HR-KAFKA-005, which never shows its value."""
    try:
        return kind(config)
    except (library().KafkaException, TypeError, ValueError) as cause:
        said = cause.args[0].str() if isinstance(cause, library().KafkaException) else str(cause)
        words = {word.strip(".") for word in re.findall(r"[\w.]+", said)}
        named = [name for name in config if name in words] or _not_taken(kind, config)
    raise LogError(  # outside: what the client says holds the value
        "HR-KAFKA-005",
        f"the client of Kafka does not take {', '.join(map(repr, named))} as it is set",
        "Correct its name, or its value: librdkafka's CONFIGURATION.md lists both.",
    )


def _not_taken(kind: Any, config: dict[str, Any]) -> list[str]:
    """The property without which there is a client, where the library does not say which it is."""
    theirs = sorted(set(config) - OURS)
    for name in theirs:
        try:
            kind({other: value for other, value in config.items() if other != name})
        except (library().KafkaException, TypeError, ValueError):
            continue
        return [name]
    return theirs


class Admin:
    """A client that asks; it remembers what its connections last complained about."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.complaint: Any = None
        self._refused: Any = None  # of the complaints since the last answer: that of a refusal
        config = config | {"error_cb": self._complain}
        self.client = made(admin_module().AdminClient, config)
        left_to_parent(self)

    def _complain(self, error: Any) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":
            self.complaint = error
        if is_refusal(error):
            self._refused = error

    def refusal(self) -> Any:
        """What connections say that are refused; requests just get no answer then."""
        self.client.poll(0)  # complaints are heard only then
        return self._refused

    def answer(self, asked: Any) -> Any:
        """The answer to a question; no longer waited for when connections are refused."""
        end = time.monotonic() + _GRACE
        while not asked.done() and not (time.monotonic() > end and self.refusal()):
            with suppress(TimeoutError):
                asked.result(_SLICE)
        if not asked.done():
            raise library().KafkaException(self._refused)
        found = asked.result()
        self._refused = None
        return found


def is_refusal(error: Any) -> bool:
    """Whether the brokers know the client, or not, and do not let it; or it does not trust them."""
    name = error.name()
    distrust = name == "_SSL" and "certificate" in error.str()  # others pass, as brokers start
    return distrust or name in _REFUSING or "AUTHORIZATION_FAILED" in name


@lru_cache(maxsize=16)
def _admin_of(pid: int, key: tuple[Any, ...], config: _Config) -> Admin:
    return Admin(config.content)


class _Config:
    """A configuration as an argument of a cached function, of which the key says enough."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Config)

    def __hash__(self) -> int:
        return 0


def shared_admin(cluster: Cluster) -> Admin:
    """The client of this process that asks the cluster."""
    return _admin_of(os.getpid(), cluster.key, _Config(cluster.config()))


def describe(cluster: Cluster, topic: str, timeout: float = PATIENCE) -> TopicFacts:
    """The topic as it is now; HR-KAFKA-002 if there is none, HR-KAFKA-001 without an answer."""
    admin = shared_admin(cluster)
    topics = library().TopicCollection([topic])
    try:
        asked = admin.client.describe_topics(topics, request_timeout=timeout)[topic]
        about = admin.answer(asked)
    except library().KafkaException as cause:
        raise _refused(cluster, topic, cause, admin) from cause
    return TopicFacts(str(about.topic_id), tuple(sorted(p.id for p in about.partitions)))


def offsets(
    cluster: Cluster,
    topic: str,
    partitions: Iterable[int],
    at: str | int,
    *,
    committed: bool = True,
    timeout: float = PATIENCE,
) -> dict[int, int]:
    """By partition: the "earliest" offset, the "latest" (of what is committed, if only that is
    read), or that of the first record at a time in milliseconds (-1 if there is none)."""
    kafka, spec = library(), admin_module().OffsetSpec
    wanted = {"earliest": spec.earliest, "latest": spec.latest}.get(str(at))
    asked = wanted() if wanted else spec.for_timestamp(at)
    level = kafka.IsolationLevel
    admin = shared_admin(cluster)
    try:
        answers = admin.client.list_offsets(
            {kafka.TopicPartition(topic, p): asked for p in partitions},
            isolation_level=level.READ_COMMITTED if committed else level.READ_UNCOMMITTED,
            request_timeout=timeout,
        )
        return {tp.partition: int(admin.answer(a).offset) for tp, a in answers.items()}
    except kafka.KafkaException as cause:
        raise _refused(cluster, topic, cause, admin) from cause


def is_missing(cause: LogError) -> bool:
    """Whether the cluster has answered that there is no such topic."""
    return cause.code == "HR-KAFKA-002"


def is_passing(cause: LogError) -> bool:
    """Whether the same question may be answered later."""
    return cause.code == "HR-KAFKA-001"


def _refused(cluster: Cluster, topic: str, cause: Exception, admin: Admin) -> LogError:
    error = cause.args[0]
    if error.name() == "UNKNOWN_TOPIC_OR_PART":
        return LogError(
            "HR-KAFKA-002",
            f"there is no topic {topic!r} at {cluster.brokers}",
            f"{_others(topic, admin)}Create the topic first, with the tools of Kafka.",
        )
    complaint, refusal = admin.complaint, admin.refusal()
    for one in (error, refusal):
        if one is not None and is_refusal(one):
            return no_admission(cluster, one.str())
    said = (complaint or error).str()
    return LogError(
        "HR-KAFKA-001",
        f"no Kafka broker answers at {cluster.brokers}: {said}",
        "Is it running, and is this its address? For a broker on this machine: make kafka.",
    )


def no_admission(cluster: Cluster, said: str) -> LogError:
    """The error of a client that the cluster does not let in, or not do what it must."""
    return LogError(
        "HR-KAFKA-006",
        f"Kafka at {cluster.brokers} refuses this client: {said}",
        "Check security_protocol, sasl_mechanism, the user and the password, the "
        "certificates, and what the user may do.",
    )


def _others(topic: str, admin: Admin) -> str:
    try:
        names = sorted(n for n in admin.client.list_topics(timeout=2).topics if n[:2] != "__")
    except library().KafkaException:
        return ""
    if not names:
        return "It has none. "
    return did_you_mean(topic, names) or f"It has: {', '.join(names[:SHOWN])}. "
