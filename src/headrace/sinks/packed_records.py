"""Records of a topic staged as it will store them: an Arrow stream, and where its batches go.

A reference says for what layout the records were packed, and of each batch the partition, rows,
bytes and the checksum that its block will have. So whoever delivers an epoch copies bytes, unless
the topic has another layout by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.log.block import Body, Packed, pad
from headrace.log.routed_appends import PackedRecords, RecordLayout
from headrace.sinks.contract import Reference
from headrace.sinks.durable import Staging, noted

_PACKED = "packed"


def stage(staging: Staging, records: PackedRecords, epoch: int, unique: str) -> Reference:
    layout, parts = records.layout, sorted(records.parts.items())
    bodies = [(p, body) for p, part in parts for body in part.bodies]
    stream = [layout.columns.serialize(), *(body.message for _, body in bodies)]
    rows = sum(body.rows for _, body in bodies)
    return {
        **staging.add_bytes(stream, rows, epoch, unique, ".arrows"),
        _PACKED: {
            "partitions": layout.partitions,
            "key": layout.key,
            "topic_key": layout.topic_key,
            "batches": [[p, body.rows, body.message.size, body.crc] for p, body in bodies],
        },
    }


def read(staging: Staging, staged: Sequence[Reference]) -> list[PackedRecords]:
    """What each task of an epoch has packed."""
    for reference in staged:
        noted(reference, _PACKED)
    data = staging.read_all_bytes(staged)
    return [_records(r[_PACKED], d) for r, d in zip(staged, data, strict=True)]


def _records(about: dict[str, Any], data: pa.Buffer) -> PackedRecords:
    stream = pa.BufferReader(data)
    columns, at = pa.ipc.read_schema(stream), stream.tell()
    layout = RecordLayout(about["partitions"], about["key"], about["topic_key"], columns)
    parts: dict[int, list[Body]] = {}
    for partition, rows, size, crc in about["batches"]:
        message = data.slice(at, size)
        parts.setdefault(partition, []).append(Body(rows, message, bytes(pad(size)), crc))
        at += size
    return PackedRecords(layout, {p: Packed(columns, bodies) for p, bodies in parts.items()})
