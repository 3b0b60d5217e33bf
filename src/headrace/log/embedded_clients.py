"""Clients of the embedded log: the door through which `clients.py` opens them."""

from __future__ import annotations

from typing import Any

from headrace.log.clients import ConsumerClient, ProducerClient, TopicSubscription, unknown_option
from headrace.log.embedded import EmbeddedLog
from headrace.log.embedded_consumer import EmbeddedConsumer
from headrace.log.embedded_producer import EmbeddedProducer


def open_producer(place: Any, **options: Any) -> ProducerClient:
    unknown_option("a producer of the embedded log", options)
    return EmbeddedProducer(_log_of(place))


def open_consumer(place: Any, subscription: TopicSubscription, **options: Any) -> ConsumerClient:
    unknown_option("a consumer of the embedded log", options)
    return EmbeddedConsumer(_log_of(place), subscription)


def _log_of(place: Any) -> EmbeddedLog:
    return place if isinstance(place, EmbeddedLog) else EmbeddedLog(place)
