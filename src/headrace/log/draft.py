"""What a group of appends adds to the log, and what each of them is answered.

Appends of a few rows come as rows: those of a group become one table, and one block, while
nobody waits for a lock of ours. Only what depends on the end of the log is left for then:
offsets, and which appends their producer has made before. No files here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

import pyarrow as pa

from headrace.log.block import Body, Note, Part, body_of
from headrace.log.contract import Ack
from headrace.log.head import Head
from headrace.log.records import Rows, table_of
from headrace.log.seen import Seen
from headrace.log.topic import Topic

Piece: TypeAlias = pa.Table | Rows


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
    table: pa.Table
    body: Body | None  # None: too large to be held twice


class Mixed(Exception):
    """A row of one of several appends cannot be stored: each has to be tried alone."""


def prepare(topic: Topic, appends: Sequence[Append]) -> dict[int, Ready]:
    """What would be stored if all of it is new."""
    pieces: dict[int, list[Piece]] = {}
    for append in appends:
        for p, piece in append.parts.items():
            pieces.setdefault(p, []).append(piece)
    try:
        return {p: _ready(topic, found) for p, found in pieces.items()}
    except Exception as error:
        if len(appends) == 1:
            raise
        raise Mixed from error


def _ready(topic: Topic, pieces: Sequence[Piece]) -> Ready:
    table = _joined(topic, pieces)
    return Ready(len(pieces), table, body_of(table))


def _joined(topic: Topic, pieces: Sequence[Piece]) -> pa.Table:
    tables: list[pa.Table] = []
    for plain, some in groupby(pieces, lambda piece: isinstance(piece, list)):
        if plain:
            tables.append(table_of(topic, [row for rows in some for row in rows]))
        else:
            tables += some
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def draft(
    topic: Topic, appends: Sequence[Append], ready: Mapping[int, Ready], end: Head, seen: Seen
) -> tuple[list[Part], list[dict[int, Ack]]]:
    """What the group adds to each partition at this end, and what its appends are answered."""
    new: dict[int, list[Piece]] = {}
    notes: dict[int, list[Note]] = {}
    ends: dict[int, int] = {}
    fresh: dict[tuple[str, int, int], Ack] = {}  # of this group
    acks: list[dict[int, Ack]] = []
    for append in appends:
        answers: dict[int, Ack] = {}
        acks.append(answers)
        for p, piece in append.parts.items():
            who: Any = (append.producer, p, append.sequence)
            known = None
            if append.producer is not None:
                known = fresh.get(who) or seen.answer(append.producer, p, append.sequence)
            if known is None:
                first = ends.get(p, end.ends[p])
                known = Ack(first, first + len(piece))
                ends[p] = known.end
                new.setdefault(p, []).append(piece)
                if append.producer is not None:
                    fresh[who] = known
                    notes.setdefault(p, []).append(Note(append.producer, append.sequence, *known))
            answers[p] = known
    parts = []
    for p in sorted(new):
        all_new = len(new[p]) == ready[p].pieces
        made = ready[p] if all_new else _ready(topic, new[p])
        parts.append(Part(p, end.ends[p], made.table, made.body, notes.get(p, ())))
    return parts, acks
