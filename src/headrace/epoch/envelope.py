"""Envelopes: the only rows that Spark ever sees.

An envelope is addressed to a level and to one task of that level, and carries a small JSON
note or a piece of an Arrow chunk as bytes. Chunks travel in large pieces, never row by row.
What is addressed to a later level passes a task untouched; the sink is the level after the
last.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pyarrow as pa

from headrace.epoch.compact_columns import compact, expand

SCHEMA = pa.schema(
    [
        ("level", pa.int32()),
        ("task", pa.int32()),
        ("op", pa.string()),
        ("port", pa.int32()),
        ("chunk", pa.string()),
        ("piece", pa.int32()),
        ("pieces", pa.int32()),
        ("payload", pa.binary()),
    ]
)
DDL = """level int, task int, op string, port int, chunk string, piece int, pieces int,
    payload binary"""

# Notes, distinguished from operators by a leading "@", which no step name may have.
CONTROL = "@control"  # driver -> each level task: epoch, clock, state references
WATERMARKS = "@watermarks"  # source task -> each level task: what its splits reached
HOLDS = "@holds"  # level task -> each task of later levels: how far rows that wait hold them back
REPORT = "@report"  # any task -> sink: state written, outputs staged, counters
_PIECE = 500_000  # bytes
_FIELDS = attrgetter(*SCHEMA.names)


@dataclass(frozen=True, slots=True)
class Envelope:
    level: int
    task: int
    op: str
    port: int
    chunk: str  # the chunk that this is a piece of; "" for a note
    piece: int
    pieces: int
    payload: bytes

    def note(self) -> Any:
        return json.loads(self.payload)


def note(level: int, task: int, op: str, content: Any) -> Envelope:
    payload = json.dumps(content, separators=(",", ":")).encode()
    return Envelope(level, task, op, 0, "", 0, 1, payload)


def send(
    level: int, task: int, op: str, port: int, table: pa.Table, keys: Sequence[str] | None = None
) -> Iterator[Envelope]:
    """A chunk, compacted, in pieces small enough to stay in the JVM's young generation: a large
    one would be promoted to the old, and every batch would end in a full collection."""
    table = compact(table.combine_chunks(), keys)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    whole, chunk = sink.getvalue(), uuid.uuid4().hex
    pieces = -(-whole.size // _PIECE)
    for piece in range(pieces):
        payload = whole.slice(piece * _PIECE, min(_PIECE, whole.size - piece * _PIECE))
        yield Envelope(level, task, op, port, chunk, piece, pieces, payload.to_pybytes())


class ChunkAssembler:
    """Puts the pieces of chunks together again, in whatever order they come."""

    def __init__(self) -> None:
        self._pieces: dict[str, dict[int, bytes]] = defaultdict(dict)

    def add(self, envelope: Envelope) -> pa.Table | None:
        """A chunk, when this is the last piece of it to come."""
        pieces = self._pieces[envelope.chunk]
        pieces[envelope.piece] = envelope.payload
        if len(pieces) < envelope.pieces:
            return None
        whole = b"".join(pieces[i] for i in range(envelope.pieces))
        del self._pieces[envelope.chunk]
        return expand(pa.ipc.open_stream(pa.py_buffer(whole)).read_all())

    def finish(self) -> None:
        """All have come: a chunk that is not whole would be rows lost."""
        if self._pieces:
            raise RuntimeError(f"pieces of {len(self._pieces)} chunks did not arrive")


def pack(envelopes: Iterable[Envelope]) -> pa.RecordBatch:
    rows = list(map(_FIELDS, envelopes))
    columns = zip(*rows, strict=True) if rows else ([] for _ in SCHEMA)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[Envelope]:
    for batch in batches:
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield Envelope(*values)
