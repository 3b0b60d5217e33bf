"""Envelopes: the only rows that Spark ever sees.

An envelope is addressed to a level and to one task of that level, and carries an Arrow
chunk or a small JSON note as bytes. Chunks travel whole, never row by row. What is
addressed to a later level passes a task untouched; the sink is the level after the last.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("level", pa.int32()),
        ("task", pa.int32()),
        ("op", pa.string()),
        ("port", pa.int32()),
        ("payload", pa.binary()),
    ]
)
DDL = "level int, task int, op string, port int, payload binary"

# Notes, told apart from operators by a leading "@", which no step name may have.
CONTROL = "@control"  # driver -> each level task: epoch, clock, state references
WATERMARKS = "@watermarks"  # source task -> each level task: what its splits reached
REPORT = "@report"  # any task -> sink: state written, outputs staged, counters
_PIECE = 500_000  # bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    level: int
    task: int
    op: str
    port: int
    payload: bytes

    def note(self) -> Any:
        return json.loads(self.payload)

    def chunk(self) -> pa.Table:
        return pa.ipc.open_stream(pa.py_buffer(self.payload)).read_all()


def note(level: int, task: int, op: str, content: Any) -> Envelope:
    return Envelope(level, task, op, 0, json.dumps(content, separators=(",", ":")).encode())


def chunks(level: int, task: int, op: str, port: int, table: pa.Table) -> Iterator[Envelope]:
    """A chunk in pieces that the JVM's collector takes for short-lived things: a large one
    would be copied among the old, and every batch would end in a search through all of them."""
    table = table.combine_chunks()
    step = max(1, table.num_rows * _PIECE // max(1, table.nbytes))
    for start in range(0, table.num_rows, step):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(start, step))
        yield Envelope(level, task, op, port, sink.getvalue().to_pybytes())


def pack(envelopes: Iterable[Envelope]) -> pa.RecordBatch:
    rows = [(e.level, e.task, e.op, e.port, e.payload) for e in envelopes]
    columns = zip(*rows, strict=True) if rows else ([] for _ in SCHEMA)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[Envelope]:
    for batch in batches:
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield Envelope(*values)
