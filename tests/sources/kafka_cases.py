"""Kafka for the contract of inputs: one partition with the rows, in several shapes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kafka.running import (
    add_partitions,
    broker,
    new_topic,
    produce,
    produce_transactions,
)

from headrace.schema import schema_of
from headrace.sources import Source, open_source
from headrace.testing import InputCase

SCHEMA = schema_of("n bigint, name string")


def rows() -> list[dict[str, Any]]:
    return [{"n": i, "name": f"row {i} é"} for i in range(2_500)]


def uri(topic: str) -> str:
    return f"kafka://{broker().address}/{topic}"


_transactions: list[str] = []  # the topic, once it is made


def transactions() -> str:
    """Small transactions, every third aborted: a marker after each, and at the end."""
    if not _transactions:
        _transactions.append(new_topic())
        values = [json.dumps(r).encode() for r in rows()]
        produce_transactions(_transactions[0], values, 300)
    return _transactions[0]


def opened(topic: str, tmp: Path, until: str | None = "end") -> Source:
    return open_source(uri(topic), SCHEMA, folder=str(tmp / "job"), name="in", until=until)


def put(topic: str, part: list[dict[str, Any]], partition: int = 0) -> None:
    produce(topic, [json.dumps(r).encode() for r in part], partition)


def kafka_plain(tmp: Path) -> Iterator[InputCase]:
    topic = new_topic()
    put(topic, rows())
    yield InputCase(lambda: opened(topic, tmp), rows(), lambda: produce(topic, [b'{"n": "one"}']))


def kafka_partitions(tmp: Path) -> Iterator[InputCase]:
    topic, parts = new_topic(2), {"0": rows()[:1_000], "1": rows()[1_000:]}
    for split, part in parts.items():
        put(topic, part, int(split))

    def add() -> dict[str, Any]:
        add_partitions(topic, 4)
        put(topic, rows()[:100], 2)
        put(topic, rows()[100:120], 3)
        return {"2": rows()[:100], "3": rows()[100:120]}

    yield InputCase(lambda: opened(topic, tmp, None), parts, add_split=add)


def kafka_transactions(tmp: Path) -> Iterator[InputCase]:
    topic = transactions()
    yield InputCase(lambda: opened(topic, tmp), rows())
