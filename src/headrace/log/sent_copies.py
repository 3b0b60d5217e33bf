"""Copies of what a producer was called with: callers may fill the same dictionary again.

Records are encoded when they are appended, many at a time; until then they are copies.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.errors import LogError
from headrace.log.records import normalized
from headrace.rows import LEAVES


def copied(value: Any) -> Any:
    """A value that does not change with the caller's; itself if it cannot be changed."""
    try:
        return _copied(value)
    except Exception as error:  # what its class does when it is copied
        raise LogError(
            "HR-LOG-006",
            f"a record cannot be sent: its {type(value).__name__} cannot be copied "
            f"({type(error).__name__}: {error})",
            "Send a dictionary of plain values, or bytes.",
        ) from error


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind in LEAVES:
        return value
    if kind is dict:
        return {k: v if type(v) in LEAVES else _copied(v) for k, v in value.items()}
    if kind is list or kind is tuple:
        return kind([v if type(v) in LEAVES else _copied(v) for v in value])
    if kind is memoryview:
        return bytes(value)
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    return copy.deepcopy(value)


def copied_records(topic: str, records: Any) -> pa.Table | list[Any]:
    """The same of what is sent with `send_all`; Arrow's tables do not change."""
    if isinstance(records, pa.Table | pa.RecordBatch):
        return normalized(topic, records)
    rows = normalized(topic, records)
    if isinstance(rows, list):
        return [row if type(row) in LEAVES else copied(row) for row in rows]
    sink = pa.BufferOutputStream()  # a data frame's columns may be its own memory
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_all()
