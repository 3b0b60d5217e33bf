"""Records to a producer of Kafka: columns in, messages queued and waited for.

The library takes records as Python objects, so there is a step per record here and nowhere else;
without times and headers it takes many of them in one call. The order of records that go to one
partition is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.log.kafka import PATIENCE, library

HEADER = "header:"  # begins the name of a column that is a header
OVERHEAD = 512  # bytes: the most that a record and its batch need besides what they hold
_BATCH = 10_000  # records that are passed to the library at once
_QUEUED = 32 << 20  # bytes that are queued before they are waited for
_REQUEST = 1_000_000  # bytes of records in one batch to a broker
_LARGEST = 1_000_000_000  # bytes of a record, that the library can send

Report = Callable[[Any, Any], None]


def throughput(limits: Sequence[int]) -> dict[str, Any]:
    """Settings for topics whose records may have so many bytes."""
    largest = min(max([*limits, _REQUEST]), _LARGEST)
    return {
        "queue.buffering.max.messages": 0,  # `produce` sees to it
        "batch.num.messages": 100_000,
        "batch.size": max(1, min([*limits, _REQUEST]) - OVERHEAD),
        "message.max.bytes": largest,
        "linger.ms": 2,
        "delivery.report.only.error": True,
        "partitioner": "murmur2_random",  # as Java's producers: a key has one partition
    }


def produce(producer: Any, topic: str, records: pa.Table, failed: list[Any]) -> None:
    """Queue the records, in their order; `failed` gets the errors of what cannot be delivered."""

    def report(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    single = any(n == "timestamp" or n.startswith(HEADER) for n in records.column_names)
    queued = 0
    for at in range(0, records.num_rows, _BATCH):
        part = records.slice(at, _BATCH)
        (_one_by_one if single else _at_once)(producer, topic, part, report)
        producer.poll(0)
        queued += part.nbytes
        if queued >= _QUEUED:
            flush(producer, failed)
            queued = 0


def _at_once(producer: Any, topic: str, records: pa.Table, report: Report) -> None:
    """In one call for each partition that is named: the library takes one for a whole batch."""
    for partition, part in _by_partition(records):
        messages = _messages(part)
        accepted = producer.produce_batch(topic, messages, partition=partition, on_delivery=report)
        if accepted < len(messages):
            refused = next(m["_error"] for m in messages if "_error" in m)
            raise library().KafkaException(refused)


def _one_by_one(producer: Any, topic: str, records: pa.Table, report: Report) -> None:
    headers = [n for n in records.column_names if n.startswith(HEADER)]
    messages = _messages(records.drop_columns(headers))
    if headers:
        names = [n.removeprefix(HEADER) for n in headers]
        values = zip(*(records.column(n).to_pylist() for n in headers), strict=True)
        for message, row in zip(messages, values, strict=True):
            message["headers"] = list(zip(names, row, strict=True))
    for message in messages:
        producer.produce(topic, on_delivery=report, **message)


def _messages(records: pa.Table) -> list[dict[str, Any]]:
    names = records.column_names
    columns = [column.to_pylist() for column in records.columns]
    if names == ["value", "key"]:  # the usual ones, without a dictionary of names for each record
        return [{"value": value, "key": key} for value, key in zip(*columns, strict=True)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _by_partition(records: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The records of each partition, in their order; -1 is whichever the key decides."""
    if "partition" not in records.column_names:
        yield -1, records
        return
    chosen = records.column("partition").to_numpy()
    records = records.drop_columns(["partition"])
    order = np.argsort(chosen, kind="stable")
    found, firsts = np.unique(chosen[order], return_index=True)
    for partition, rows in zip(found.tolist(), np.split(order, firsts[1:]), strict=True):
        yield partition, records.take(pa.array(rows))


def flush(producer: Any, failed: list[Any], *, others: bool = False) -> None:
    """Wait until everything that was queued is at the brokers; raise if something cannot be, with
    `others` when the other records are there."""
    kafka = library()
    left, since = producer.flush(1.0), time.monotonic()
    while left and (others or not failed):
        fewer = producer.flush(1.0)
        if fewer < left:
            left, since = fewer, time.monotonic()
        elif time.monotonic() - since > PATIENCE:
            failed.append(kafka.KafkaError(kafka.KafkaError._MSG_TIMED_OUT))
            break
    if failed:
        causes = [e for e in failed if e.code() not in purged()]
        raise kafka.KafkaException([*causes, *failed][0])


def purged() -> tuple[int, ...]:
    """What is said of records that were queued when something else went wrong."""
    code = library().KafkaError
    return (code._PURGE_QUEUE, code._PURGE_INFLIGHT)
