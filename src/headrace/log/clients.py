"""What `hr.Producer` and `hr.Consumer` need of a log: the values and two small protocols.

The public classes (`producer.py`, `consumer.py`) hold the meaning that is the same for every log:
when records are acknowledged, what is committed, how records are iterated. What a log does by its
own means is behind `ProducerClient` and `ConsumerClient`: the embedded log's are in
`embedded_producer.py` and `embedded_consumer.py`. A log elsewhere adds a scheme to `SCHEMES`: a
module with the functions `open_producer(place, **options)` and `open_consumer(place, subscription,
**options)`, imported when it is first needed. Nothing here touches a file.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.errors import LogError
from headrace.files import remote_scheme
from headrace.log.contract import Records

SCHEMES = {"kafka://": "headrace.log.kafka_clients"}  # scheme: module
EMBEDDED = "headrace.log.embedded_clients"

Headers: TypeAlias = Sequence[tuple[str, bytes]]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


Revoking: TypeAlias = Callable[[Collection[TopicPartition], bool], None]


class ConsumerRecord(NamedTuple):
    """One record: of a typed topic `value` is a dictionary, of another it is bytes."""

    topic: str
    partition: int
    offset: int
    time: int  # of the append, milliseconds since 1970
    key: Any
    value: Any
    headers: Headers = ()


@dataclass(frozen=True, slots=True, eq=False)
class PolledBatch:
    """Records of one partition in their order, as an Arrow table."""

    topic: str
    partition: int
    table: pa.Table
    offsets: np.ndarray  # int64, growing; with gaps where a topic is compacted
    times: np.ndarray  # int64 milliseconds since 1970
    end: int  # the offset after the batch: where reading goes on
    key: str | None = None  # the column that is the key; of a byte topic, "key"
    typed: bool = False  # whether a record's value is a row, or the column "value"
    headers: Sequence[Headers] | None = None

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        where = f"{self.topic!r}, partition {self.partition}"
        return f"<PolledBatch of topic {where}: {len(self)} records, up to offset {self.end}>"

    @property
    def place(self) -> TopicPartition:
        """The topic and the partition."""
        return TopicPartition(self.topic, self.partition)

    def rows(self) -> list[dict[str, Any]]:
        """The records as dictionaries of the table's columns."""
        return list(self.table.to_pylist())

    def records(self) -> Iterator[ConsumerRecord]:
        """The records one by one."""
        n = len(self)
        keys = self.table[self.key].to_pylist() if self.key is not None else [None] * n
        values: list[Any] = self.rows() if self.typed else self.table["value"].to_pylist()
        headers: Sequence[Headers] = self.headers if self.headers is not None else [()] * n
        columns = (self.offsets.tolist(), self.times.tolist(), keys, values, headers)
        topic, partition = self.topic, self.partition
        for offset, time, key, value, header in zip(*columns, strict=True):
            yield ConsumerRecord(topic, partition, offset, time, key, value, header)


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """What a consumer asks for; times are milliseconds."""

    topics: tuple[str, ...]
    group: str | None
    start: str = "earliest"  # or "latest": where a partition begins of which nothing is committed
    session_ms: int = 10_000
    max_poll_ms: int = 300_000


class ProducerClient(Protocol):
    """Sends records to one log. What was sent is durable when `flush`, or `commit`, returns."""

    def send(
        self, topic: str, value: Any, key: Any, headers: Headers | None, partition: int | None
    ) -> None:
        """Take one record; it may be sent now or later. Outside of a transaction, or in one."""

    def send_all(
        self, topic: str, records: Records, key: str | Sequence[Any] | None, partition: int | None
    ) -> None:
        """Take many records, after those that were taken before; the same."""

    def flush(self) -> None:
        """Return when all records taken are durable; raise if one of them cannot be."""

    def begin(self) -> None:
        """From now on records belong to a transaction."""

    def commit(self) -> None:
        """All records of the transaction appear together; durable when this returns."""

    def abort(self) -> None:
        """None of them appears."""

    def close(self) -> None:
        """Release what is held; nothing is flushed."""


class ConsumerClient(Protocol):
    """Reads partitions of one log: all of them, or those that its group assigns to it."""

    def poll(self, timeout: float, max_rows: int, revoking: Revoking) -> PolledBatch | None:
        """The next records of one partition, one or more; None if none come in `timeout` seconds.

        `revoking(places, lost)` is called before partitions go to another member, so that what
        was processed of them can be committed; if they are `lost`, they have gone already.
        """

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now."""

    def position(self, place: TopicPartition) -> int:
        """The offset of the next record that `poll` returns of it."""

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Go on reading from there."""

    def bounds(self, place: TopicPartition) -> tuple[int, int]:
        """The earliest offset that is stored, and the one after the last."""

    def offset_for_time(self, place: TopicPartition, ms: int) -> int:
        """The first offset appended at or after a moment; the latest if there is none."""

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Store for the group how far it is; durable when this returns. HR-LOG-021 if another
        member has taken over one of the partitions: then nothing is stored."""

    def committed(self) -> dict[TopicPartition, int]:
        """What the group has committed of the consumer's topics."""

    def close(self) -> None:
        """Leave the group, so that others take over at once; nothing is committed."""


def opened_producer(place: Any, options: Mapping[str, Any]) -> ProducerClient:
    client: ProducerClient = _module(place).open_producer(place, **options)
    return client


def opened_consumer(
    place: Any, subscription: TopicSubscription, options: Mapping[str, Any]
) -> ConsumerClient:
    client: ConsumerClient = _module(place).open_consumer(place, subscription, **options)
    return client


def _module(place: Any) -> Any:
    scheme = remote_scheme(place) if isinstance(place, str) else None
    return importlib.import_module(SCHEMES.get(scheme or "", EMBEDDED))


def unknown_option(what: str, options: Mapping[str, Any], known: Collection[str] = ()) -> None:
    """Raise LogError for the first option that is not known."""
    for name in options:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise LogError(
                "HR-LOG-019", f"cannot use option {name!r} of {what}", f"Its options: {listed}."
            )


def outside(place: TopicPartition, offset: int, earliest: int, latest: int) -> LogError:
    return LogError(
        "HR-LOG-007",
        f"offset {offset} is outside partition {place.partition} of topic '{place.topic}', "
        f"which holds [{earliest}, {latest})",
        f"Choose one from {earliest} (the earliest stored) to {latest} (the latest).",
    )
