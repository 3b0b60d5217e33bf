"""The options of a Kafka output: checked by their text and type; nothing is connected here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.clock import millis
from headrace.errors import LogError, OutputError
from headrace.guarantees import spelled
from headrace.log import kafka
from headrace.sinks import registered_values
from headrace.sinks.contract import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    OutputRequest,
    appends,
    bad_option,
    refuse_unknown,
)
from headrace.sinks.kafka_records import layout_of
from headrace.sinks.registered_values import value_schema_of

TIMEOUT = "60s"  # that a transaction may last
PARTITIONERS = {
    "murmur2": "murmur2_random", "crc32": "consistent_random", "fnv1a": "fnv1a_random",
}  # fmt: skip
_RECORDS = ("key", "value", "format", "headers", "partition", "timestamp")
OPTIONS = (
    *_RECORDS, *registered_values.OPTIONS, "partitioner", "partitions", "replication", "guarantee",
    "transaction_timeout", "mode",
)  # fmt: skip
_NOT_SECRET = ("protocol", "mechanism", "mechanisms", "username", "location")  # ends of names

_LEAST_TIMEOUT = 1_000  # milliseconds


def check_options(o: OutputRequest) -> None:
    _, topic = place_of(o)
    own = {n: v for n, v in o.options.items() if not n.startswith(kafka.SHORTHANDS)}
    refuse_unknown(replace(o, options=own), (*OPTIONS, "options", "registry_auth"))
    appends(o)
    value_schema_of(o.uri, topic, layout_of(o.uri, o.options).format, o.options)
    for name in ("partitions", "replication"):
        number = o.options.get(name, 1)
        if type(number) is not int or number < 1:
            raise bad_option(o, name, number, "Give a whole number, 1 or more.")
    if o.options.get("partitioner", "murmur2") not in PARTITIONERS:
        known = ", ".join(PARTITIONERS)
        raise bad_option(o, "partitioner", o.options["partitioner"], f"Known: {known}.")
    if guarantee_in(o.options) not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        hint = 'Pass "exactly_once" (the default) or "at_least_once".'
        raise bad_option(o, "guarantee", o.options["guarantee"], hint)
    timeout = millis(o.options.get("transaction_timeout", TIMEOUT))
    if timeout < _LEAST_TIMEOUT:
        hint = "Give a second or more, and not more than the brokers allow (15 minutes)."
        raise bad_option(o, "transaction_timeout", o.options["transaction_timeout"], hint)


def guarantee_in(options: Mapping[str, Any]) -> str:
    """What the options of an output ask for."""
    return str(spelled(options.get("guarantee", EXACTLY_ONCE)))


def place_of(o: OutputRequest) -> tuple[kafka.Cluster, str]:
    try:
        brokers, topic = kafka.parse(o.uri)
        return kafka.Cluster(brokers, kafka.properties(o.options, repr(o.uri))), topic
    except LogError as cause:
        raise OutputError(cause.code, cause.message, cause.hint) from cause


def harmless(access: Mapping[str, Any]) -> dict[str, Any]:
    """What of the options may be stored: where a secret is, but no secret."""
    stored = {n: v for n, v in access.items() if n != "options" and _is_harmless(n, v)}
    named = access.get("options") or {}
    inner = {n: v for n, v in named.items() if _is_harmless(n, v)}
    return {**stored, **({"options": inner} if inner else {})}


def _is_harmless(name: str, value: Any) -> bool:
    reference = isinstance(value, str) and value.startswith(("env:", "file:"))
    return reference or name.endswith(_NOT_SECRET)
