"""The settings of a new topic, checked when the user gives them.

A Topic made here can be kept: its columns are of types that a block can hold, its key is one
of them, its numbers make sense. No files here.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headrace.errors import LogError
from headrace.log.topic import Topic, new_id, segment_size
from headrace.schema import schema_of

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
        known = "it has no schema" if columns is None else ", ".join(columns.names)
        raise _unfit(path, f"the key {key!r}", f"The key is one of its columns: {known}.")
    if key is not None and columns is not None and pa.types.is_nested(columns.field(key).type):
        raise _unfit(path, f"the nested key {key!r}", "Choose a column of a plain type.")
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
    )


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
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _unfit(path: Path, what: str, hint: str) -> LogError:
    return LogError("HR-LOG-004", f"topic '{path.name}' cannot have {what}", hint)
