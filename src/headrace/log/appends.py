"""What a group of appends adds to the log, and how each of them is answered.

Appends of a few rows arrive as rows: those of a group become one table, and one block, before any
lock is taken. Only what depends on the end of the log is left for later: offsets, and which appends
a producer has made before. A repeated append must have the same records: if it has others, two
producers share a name, and records would be lost. No files here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import pyarrow as pa

from headrace.errors import LogError
from headrace.log.block import Note, Packed, PartitionRecords, packed_if_small
from headrace.log.contract import Ack
from headrace.log.head import Head
from headrace.log.producers import Seen
from headrace.log.records import Rows, table_of
from headrace.log.topic import Topic

Piece: TypeAlias = pa.Table | Packed | Rows


@dataclass(frozen=True, slots=True)
class Append:
    """One call of `append`: the records of each partition, and who may retry it."""

    parts: Mapping[int, Piece]
    producer: str | None = None
    sequence: int = -1


@dataclass(frozen=True, slots=True)
class Ready:
    """The records that all appends of a group have for one partition, as they are stored."""

    pieces: int
    records: pa.Table | Packed  # a table: too large to be held twice


class Repeated(dict[int, Ack]):
    """The first answer to an append that was made before: its records are still to be compared."""


class Mixed(Exception):
    """A row of one of several appends cannot be stored: each append has to be tried alone."""


def prepare(topic: Topic, appends: Sequence[Append]) -> dict[int, Ready]:
    """What is stored if no append of the group is a repetition."""
    pieces: dict[int, list[Piece]] = {}
    for append in appends:
        for p, piece in append.parts.items():
            pieces.setdefault(p, []).append(piece)
    try:
        return {p: _ready(topic, parts) for p, parts in pieces.items()}
    except Exception as error:
        if len(appends) == 1:
            raise
        raise Mixed from error


def _ready(topic: Topic, pieces: Sequence[Piece]) -> Ready:
    alone = pieces[0]
    if len(pieces) == 1 and isinstance(alone, Packed):
        return Ready(1, alone)
    return Ready(len(pieces), packed_if_small(_joined(topic, pieces)))


def _joined(topic: Topic, pieces: Sequence[Piece]) -> pa.Table:
    tables: list[pa.Table] = []
    for plain, group in groupby(pieces, lambda piece: isinstance(piece, list)):
        if plain:
            rows = [row for piece in group if isinstance(piece, list) for row in piece]
            tables.append(table_of(topic, rows))
        else:
            tables += (_table(topic, piece) for piece in group)
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def draft(
    topic: Topic, appends: Sequence[Append], ready: Mapping[int, Ready], end: Head, seen: Seen
) -> tuple[list[PartitionRecords], list[dict[int, Ack]]]:
    """What the group adds to each partition at this end, and what its appends are answered."""
    new: dict[int, list[Piece]] = {}
    notes: dict[int, list[Note]] = {}
    ends = list(end.ends)
    fresh: dict[tuple[str, int], dict[int, Ack]] = {}  # of this group
    acks: list[dict[int, Ack]] = []
    for append in appends:
        producer, sequence = append.producer, append.sequence
        if producer is not None:
            first = fresh.get((producer, sequence)) or seen.answer(producer, sequence)
            if first is not None:
                acks.append(_repeated(topic, append, first, ends))
                continue
        answers = {p: Ack(ends[p], ends[p] + len(piece)) for p, piece in append.parts.items()}
        acks.append(answers)
        for p, piece in append.parts.items():
            ends[p] = answers[p].end
            new.setdefault(p, []).append(piece)
            if producer is not None:
                notes.setdefault(p, []).append(Note(producer, sequence, *answers[p]))
        if producer is not None:
            fresh[producer, sequence] = answers
    parts = []
    for p in sorted(new):
        all_new = len(new[p]) == ready[p].pieces
        part = ready[p] if all_new else _ready(topic, new[p])
        parts.append(PartitionRecords(p, end.ends[p], part.records, notes.get(p, ())))
    return parts, acks


def _repeated(
    topic: Topic, append: Append, first: dict[int, Ack], ends: Sequence[int]
) -> dict[int, Ack]:
    """The first answer to an append that was made before; of no records if it is forgotten."""
    if not first:
        return {p: Ack(ends[p], ends[p]) for p in append.parts}
    rows = sum(map(len, append.parts.values()))
    before = sum(ack.end - ack.first for ack in first.values())
    if rows == before:
        return Repeated(first)
    raise LogError(
        "HR-LOG-020",
        f"producer {append.producer!r} has appended {before} records to topic '{topic.name}' as "
        f"sequence {append.sequence}, and now appends {rows}",
        "Nothing was appended. Give every append a number of its own; repeat one only with "
        "the same records.",
    )


# Appends that were made before: stored and new records are compared in order, and only if that
# differs (records would go to other partitions now, or NaN is among them) row by row.


def check_repeated(topic: Topic, append: Append, stored: Mapping[int, pa.Table]) -> None:
    """Raise LogError unless `stored`, what was appended first, is what is appended now."""
    now = {p: _table(topic, piece) for p, piece in append.parts.items()}
    if now.keys() == stored.keys() and all(now[p].equals(stored[p]) for p in now):
        return
    if _rows(now.values()) != _rows(stored.values()):
        raise LogError(
            "HR-LOG-020",
            f"producer {append.producer!r} has appended other records to topic '{topic.name}' as "
            f"sequence {append.sequence}",
            "Nothing was appended. Give every append a number of its own; repeat one only "
            "with the same records.",
        )


def _table(topic: Topic, piece: Piece) -> pa.Table:
    if isinstance(piece, list):
        return table_of(topic, piece)
    return piece.table() if isinstance(piece, Packed) else piece


def _rows(tables: Iterable[pa.Table]) -> Counter[str]:
    return Counter(repr(row) for table in tables for row in table.to_pylist())
