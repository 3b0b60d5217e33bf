"""The options of a Kafka input: checked by their text and type; nothing is connected here."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.clock import millis_from
from headrace.errors import InputError, LogError
from headrace.log import kafka
from headrace.sources import formats
from headrace.sources.contract import InputRequest, Source, refuse_unknown
from headrace.sources.kafka import FAIL, RECORD, SKIP, KafkaOptions, KafkaSource
from headrace.sources.kafka_rows import (
    DEFAULTS,
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    STAMP,
    RecordColumns,
    check_columns,
)
from headrace.sources.kafka_view import as_input

PARTS = (KEY, HEADERS, PARTITION, OFFSET, STAMP)
ISOLATIONS = ("read_committed", "read_uncommitted")
_KNOWN = (*PARTS, "start", "isolation", "group", "on_data_loss", "delimiter", "options",
          *formats.REGISTRY_OPTIONS)  # fmt: skip


def open_kafka(o: InputRequest) -> Source:
    shorthands = tuple(name for name in o.options if name.startswith(kafka.SHORTHANDS))
    try:
        brokers, topic = kafka.parse(o.uri)
        refuse_unknown(o, (*_KNOWN, *shorthands))
        cluster = kafka.Cluster(brokers, kafka.properties(o.options, repr(o.uri)))
    except LogError as cause:
        raise as_input(cause) from cause
    kafka.library(f"{o.uri!r}")
    format = o.format or ("bytes" if o.schema is None else "json")
    columns = _columns(o, format)
    options = KafkaOptions(
        start=_start(o),
        committed=_choice(o, "isolation", ISOLATIONS) == "read_committed",
        on_data_loss=_choice(o, "on_data_loss", (FAIL, RECORD, SKIP)),
        group=_group(o),
        style=formats.CsvStyle(o.options.get("delimiter", ",")),
        registry=formats.registry_of(o, format),
    )
    return KafkaSource(
        cluster, topic, columns, options, format=format, bounded=o.bounded, home=o.home
    )


def _columns(o: InputRequest, format: str) -> RecordColumns:
    named = {part: o.options[part] for part in PARTS if o.options.get(part) is not None}
    schema = formats.needed_schema(o, format)
    if o.schema is None:
        more = [pa.field(str(name), DEFAULTS[part]) for part, name in named.items()]
        schema = pa.schema([*schema, *more])
    columns = RecordColumns(schema, named)
    check_columns(o.uri, columns)
    return columns


def _choice(o: InputRequest, option: str, known: tuple[str, ...]) -> str:
    chosen = o.options.get(option, known[0])
    if chosen not in known:
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has {option}={chosen!r}",
            f"Pass one of: {', '.join(map(repr, known))}.",
        )
    return str(chosen)


def _group(o: InputRequest) -> str | None:
    group = o.options.get("group")
    if group is not None and (not isinstance(group, str) or not group):
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has group={group!r}",
            'Name the consumer group that shows how far the job is: group="fire-alarm".',
        )
    return group


def _start(o: InputRequest) -> str | int | Mapping[int, int]:
    """ "earliest", "latest", offsets by partition, or a time in milliseconds."""
    start = o.options.get("start", "earliest")
    if start in ("earliest", "latest"):
        return str(start)
    if isinstance(start, Mapping) and all(type(n) is int for pair in start.items() for n in pair):
        return dict(start)
    moment = start if isinstance(start, dt.datetime) else _moment(start)
    if moment is None:
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has start={start!r}",
            'Pass "earliest", "latest", offsets by partition ({0: 1500, 1: 0}), or a time '
            '("2026-01-31T00:00:00Z").',
        )
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return max(0, millis_from(moment))  # no record of Kafka is older than 1970


def _moment(text: Any) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
