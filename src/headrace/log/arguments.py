"""What users pass besides records, checked by name: arguments of calls, settings of a new topic.

A Topic that comes from here can be stored: its columns are of types that a block can hold, its
key is one of them, its numbers make sense. Pure: no files here.
"""

from __future__ import annotations

import dataclasses
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

import pyarrow as pa

from headrace.clock import Clock, Duration, SystemClock, millis, millis_from
from headrace.errors import LogError
from headrace.files import remote_scheme
from headrace.log.topic import MOST_VERSIONS, Topic, new_id, segment_size
from headrace.schema import schema_of

_MOST = 2**63 - 1
_LONGEST_NAME = 10_000  # bytes
_BROKERS = re.compile(r"kafka:.*|[\w.-]+:\d+(,[\w.-]+:\d+)*")  # what nobody calls a folder


def is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def folder_of(root: Any) -> Path:
    try:
        path = os.fsencode(root)
        if b"\0" in path:
            raise ValueError("a null in a path")
    except (TypeError, ValueError) as error:
        raise _unusable(f"the log's folder {root!r}", "Give the path of a folder.") from error
    if elsewhere := remote_scheme(os.fsdecode(path)):
        hint = f"{elsewhere} is not a folder of this machine: give the path of one."
        raise _unusable(f"the log's folder {root!r}", hint)
    folder = Path(os.fsdecode(path)).absolute()
    if _BROKERS.fullmatch(os.fsdecode(path)) and not folder.exists():
        hint = 'Write "kafka://host:9092" for Kafka, or give the path of a folder.'
        raise _unusable(f"the log's folder {root!r}", hint)
    return folder


def patience_of(patience: Duration) -> float:
    """Seconds to wait for a lock."""
    return millis(patience) / 1_000


def clock_of(clock: Any) -> Clock:
    if clock is None:
        return SystemClock()
    if isinstance(clock, type) or not callable(getattr(clock, "now", None)):
        raise _no_clock(clock)
    return clock  # type: ignore[no-any-return]


def moment_of(clock: Clock) -> int:
    """What the clock says, checked."""
    now: Any = clock.now()
    if not is_whole(now):
        raise _no_clock(clock)
    return int(now)


def _no_clock(clock: Any) -> LogError:
    return _unusable(
        f"the clock {clock!r}",
        "Give an object whose now() is the time in whole milliseconds "
        "since 1970, as headrace.clock.SystemClock() is, or none.",
    )


def check_limit(max_rows: Any) -> None:
    if max_rows is not None and (not is_whole(max_rows) or max_rows < 0):
        raise _unusable(f"max_rows={max_rows!r}", "Give a whole number of records, or none.")


def check_moment(ms: Any) -> None:
    if not is_whole(ms):
        raise _unusable(f"the moment {ms!r}", "Give whole milliseconds since 1970.")


def check_offset(offset: Any) -> None:
    if not is_whole(offset):
        raise LogError(
            "HR-LOG-007",
            f"{offset!r} is not an offset",
            "An offset is a whole number: the records of a partition are counted from 0.",
        )


def ms_of(moment: datetime | int | str) -> int:
    """Milliseconds of a moment as users give it: of a time without a zone, as UTC."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            hint = 'Write "2026-01-31T00:00:00Z", or give a datetime.'
            raise _unusable(f"the moment {moment!r}", hint) from None
    if isinstance(moment, datetime):
        return millis_from(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    check_moment(moment)
    return moment


def check_retry(producer: Any, sequence: Any) -> None:
    if producer is None and sequence is None:
        return
    if not _is_text(producer) or not is_whole(sequence) or not 0 <= sequence < _MOST:
        raise LogError(
            "HR-LOG-013",
            f"an append has producer {producer!r} and sequence {sequence!r}",
            "Give a name and a whole number that grows, to make a retry safe, or neither.",
        )


def _is_text(name: Any) -> bool:
    """Whether it is a text that can be stored: one with half of a character cannot."""
    try:
        return isinstance(name, str) and 0 < len(name.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:
        return False


def _unusable(what: str, hint: str) -> LogError:
    return LogError("HR-LOG-019", f"cannot use {what}", hint)


# The settings of a new topic.


MAX_PARTITIONS = 512  # an append may have to lock, and open, all of them


def new_topic(
    path: Path,
    partitions: int,
    schema: object,
    key: str | None,
    retention_ms: int | None,
    retention_bytes: int | None,
    segment_bytes: int | None,
    now: int,
    retention_groups: bool = False,
    tombstone_ms: int | None = None,
) -> Topic:
    if not _whole(partitions, 1, MAX_PARTITIONS):
        raise _unfit(path, f"{partitions!r} partitions", f"Choose 1 to {MAX_PARTITIONS}.")
    for what, value in (
        ("retention of", retention_ms),
        ("retention bytes of", retention_bytes),
        ("segments of", segment_bytes),
    ):
        if value is not None and not _whole(value, 1, 2**62):
            raise _unfit(path, f"{what} {value!r}", "Choose a whole number above 0, or none.")
    columns = None if schema is None else _storable(path, schema_of(schema))
    if key is not None and (columns is None or key not in columns.names):
        names = "it has no schema" if columns is None else ", ".join(columns.names)
        raise _unfit(path, f"the key {key!r}", f"The key is one of its columns: {names}.")
    if key is not None and columns is not None and pa.types.is_nested(columns.field(key).type):
        raise _unfit(path, f"the nested key {key!r}", "Choose a column of a plain type.")
    if tombstone_ms is not None:
        _check_compacted(path, columns, key, retention_ms, retention_bytes)
    return Topic(
        path,
        new_id(),
        partitions,
        columns,
        key,
        retention_ms,
        retention_bytes,
        segment_bytes or segment_size(retention_bytes, partitions),
        now,
        retention_groups=bool(retention_groups),
        tombstone_ms=tombstone_ms,
    )


def _check_compacted(
    path: Path,
    columns: pa.Schema | None,
    key: str | None,
    retention_ms: int | None,
    retention_bytes: int | None,
) -> None:
    if retention_ms is not None or retention_bytes is not None:
        raise _unfit(
            path,
            "both compaction and retention",
            "Choose one: a compacted topic holds the newest record of every key for ever.",
        )
    if columns is None:
        return
    if key is None:
        raise _unfit(path, "compaction without a key", "Name the column: key=...")
    if len(columns) == 1:  # every record would be one that deletes its key
        raise _unfit(
            path,
            f"compaction by {key!r}, its only column",
            "Add a column: a record whose other columns are all null deletes its key.",
        )
    if pa.types.is_floating(columns.field(key).type):
        raise _unfit(
            path, f"compaction by {key!r}, a floating-point column", "Choose a column of text, "
            "whole numbers or times.",
        )  # fmt: skip


def widened(topic: Topic, schema: object) -> Topic:
    """The topic with the columns of `schema` that it does not have yet; HR-LOG-030 if it cannot."""
    if topic.schema is None:
        raise _unaltered(topic, "it holds bytes, and has no columns", "Create a typed topic.")
    wanted, columns = _storable(topic.path, schema_of(schema)), topic.schema
    for field in columns:
        at = wanted.get_field_index(field.name)
        if at < 0:
            raise _unaltered(
                topic,
                f"the new schema lacks column {field.name!r}",
                "Columns can only be added: name all that there are, and the new ones.",
            )
        if (wanted.field(at).type, wanted.field(at).nullable) != (field.type, field.nullable):
            raise _unaltered(
                topic,
                f"column {field.name!r} is {field.type}, in the new schema {wanted.field(at).type}"
                + ("" if wanted.field(at).nullable == field.nullable else ", or not null"),
                "What is stored stays as it is: add a column of another name.",
            )
    new = [field for field in wanted if columns.get_field_index(field.name) < 0]
    required = next((field for field in new if not field.nullable), None)
    if required is not None:
        raise _unaltered(
            topic,
            f"the new column {required.name!r} allows no null",
            "Records that are stored have null in it: leave out 'not null'.",
        )
    if not new:
        return topic
    widths = topic.widths or (len(columns),)
    if len(widths) >= MOST_VERSIONS:
        raise _unaltered(topic, "columns were added too often", "Create another topic.")
    wider = pa.schema([*columns, *new])
    return dataclasses.replace(topic, schema=wider, widths=(*widths, len(wider)))


def _unaltered(topic: Topic, fact: str, hint: str) -> LogError:
    return LogError("HR-LOG-030", f"cannot alter topic '{topic.name}': {fact}", hint)


def _storable(path: Path, schema: pa.Schema) -> pa.Schema:
    """The schema with dictionary-encoded columns as plain ones: blocks stand by themselves."""
    fields = [
        f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema
    ]
    for field in fields:
        if any(map(pa.types.is_dictionary, _types_in(field.type))):
            raise _unfit(path, f"a dictionary inside column {field.name!r}", "Use plain values.")
    return pa.schema(fields)


def _types_in(kind: pa.DataType) -> list[pa.DataType]:
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return [kind, *(deep for t in inner for deep in _types_in(t))]


def _whole(value: object, least: int, most: int) -> bool:
    return is_whole(value) and least <= value <= most


def _unfit(path: Path, what: str, hint: str) -> LogError:
    return LogError("HR-LOG-004", f"topic '{path.name}' cannot have {what}", hint)
