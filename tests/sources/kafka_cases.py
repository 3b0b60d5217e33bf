"""Kafka for the contract of inputs: one partition with the rows, in several shapes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kafka.running import broker, new_topic, produce, produce_transactions

from headrace.schema import schema_of
from headrace.sources import Source, open_source

SCHEMA = schema_of("n bigint, name string")


def rows() -> list[dict[str, Any]]:
    return [{"n": i, "name": f"row {i} é"} for i in range(2_500)]


def uri(topic: str) -> str:
    return f"kafka://{broker().address}/{topic}"


_topics: dict[str, str] = {}


def plain() -> str:
    if "plain" not in _topics:
        _topics["plain"] = new_topic()
        produce(_topics["plain"], [json.dumps(r).encode() for r in rows()])
    return _topics["plain"]


def transactions() -> str:
    """Small transactions, every third aborted: a marker after each, and at the end."""
    if "transactions" not in _topics:
        _topics["transactions"] = new_topic()
        values = [json.dumps(r).encode() for r in rows()]
        produce_transactions(_topics["transactions"], values, 300)
    return _topics["transactions"]


def opened(topic: str, tmp: Path) -> Source:
    return open_source(uri(topic), SCHEMA, folder=str(tmp / "job"), name="in", until="end")


def kafka_plain(tmp: Path) -> Iterator[Any]:
    topic = plain()
    yield lambda: opened(topic, tmp)


def kafka_transactions(tmp: Path) -> Iterator[Any]:
    topic = transactions()
    yield lambda: opened(topic, tmp)
