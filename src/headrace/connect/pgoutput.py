"""PostgreSQL's logical replication protocol, version 1: from messages of `pgoutput` to changes.

Values are texts, as the session's settings write them (UTC, ISO dates, bytes in hexadecimal).
Nothing here knows a connection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

INSERT, UPDATE, DELETE, TRUNCATE = "insert", "update", "delete", "truncate"
Values = dict[str, str | None]
_EPOCH = 946_684_800_000_000  # microseconds from 1970 to 2000, where PostgreSQL's time begins


class Relation(NamedTuple):
    schema: str
    name: str
    columns: tuple[tuple[str, int, int], ...]  # name, type, modifier
    id: int = 0
    key: frozenset[str] = frozenset()  # the columns by which a row that is gone is named
    full: bool = False  # all columns are


@dataclass(slots=True)
class CapturedChange:
    kind: str
    relation: Relation
    new: Values | None = None
    old: Values | None = None  # the key, or the whole row where the table is so configured
    whole: bool = False  # `old` is the whole row
    unchanged: tuple[str, ...] = ()  # long values that were not sent


@dataclass(slots=True)
class Transaction:
    xid: int
    lsn: int  # of its commit
    time: int  # microseconds since 1970
    end: int = 0  # the position after it
    changes: list[CapturedChange] = field(default_factory=list)


class Decoder:
    """Transactions of messages; remembers the tables that were described."""

    def __init__(self) -> None:
        self._relations: dict[int, Relation] = {}

    def transactions(self, messages: Iterable[bytes]) -> Iterator[Transaction]:
        current: Transaction | None = None
        for message in messages:
            kind = message[:1]
            if kind == b"B":
                lsn, time, xid = struct.unpack_from(">QqI", message, 1)
                current = Transaction(xid, lsn, time + _EPOCH)
            elif kind == b"C":
                assert current is not None
                (current.end,) = struct.unpack_from(">Q", message, 10)
                yield current
                current = None
            elif kind == b"R":
                id, relation = _relation(message)
                self._relations[id] = relation
            elif kind in b"IUDT" and current is not None:
                current.changes += self._changes(kind, message)

    def _changes(self, kind: bytes, message: bytes) -> Iterator[CapturedChange]:
        if kind == b"T":
            count, _ = struct.unpack_from(">IB", message, 1)
            for id in struct.unpack_from(f">{count}I", message, 6):
                yield CapturedChange(TRUNCATE, self._relations[id])
            return
        relation = self._relations[struct.unpack_from(">I", message, 1)[0]]
        names = [name for name, _, _ in relation.columns]
        change = CapturedChange({b"I": INSERT, b"U": UPDATE, b"D": DELETE}[kind], relation)
        at = 5
        while at < len(message):
            part = message[at : at + 1]
            values, unchanged, at = _tuple(message, at + 1, names)
            if part == b"N":
                change.new, change.unchanged = values, unchanged
            else:
                change.old, change.whole = values, part == b"O"
        yield change


def _relation(message: bytes) -> tuple[int, Relation]:
    (id,) = struct.unpack_from(">I", message, 1)
    schema, name, rest = message[5:].split(b"\0", 2)
    (count,) = struct.unpack_from(">H", rest, 1)
    at, columns, key = 3, [], set()
    for _ in range(count):
        end = rest.index(b"\0", at + 1)
        kind, modifier = struct.unpack_from(">Ii", rest, end + 1)
        columns.append((rest[at + 1 : end].decode(), kind, modifier))
        if rest[at] & 1:
            key.add(columns[-1][0])
        at = end + 9
    full = rest[:1] == b"f"
    return id, Relation(schema.decode(), name.decode(), tuple(columns), id, frozenset(key), full)


def _tuple(message: bytes, at: int, names: list[str]) -> tuple[Values, tuple[str, ...], int]:
    (count,) = struct.unpack_from(">H", message, at)
    at += 2
    values, unchanged = Values(), []
    for name in names[:count]:
        kind = message[at : at + 1]
        at += 1
        if kind == b"t":
            (size,) = struct.unpack_from(">I", message, at)
            values[name] = message[at + 4 : at + 4 + size].decode()
            at += 4 + size
        elif kind == b"u":
            unchanged.append(name)
        else:
            values[name] = None
    return values, tuple(unchanged), at


def column(texts: list[str | None], kind: pa.DataType) -> pa.Array:
    """A column of values that were written as texts; pa.ArrowException where one is none."""
    if pa.types.is_string(kind):
        return pa.array(texts, pa.string())
    if pa.types.is_binary(kind):
        return pa.array([None if t is None else bytes.fromhex(t[2:]) for t in texts], pa.binary())
    if pa.types.is_boolean(kind):
        return pa.array([None if t is None else t == "t" for t in texts], pa.bool_())
    if pa.types.is_list(kind):
        lists = [None if t is None else _array(t) for t in texts]
        flat = column([v for items in lists if items is not None for v in items], kind.value_type)
        ends, at = [0], 0
        for items in lists:
            at += len(items or ())
            ends.append(at)
        mask = pa.array([items is None for items in lists], pa.bool_())
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat, mask=mask).cast(kind)
    if pa.types.is_timestamp(kind):
        zoned = [None if t is None else t if t.endswith("+00") else f"{t}+00" for t in texts]
        return pa.array(zoned, pa.string()).cast(kind)
    return pa.array(texts, pa.string()).cast(kind)


def _array(text: str) -> list[str | None]:
    """The elements of an array of one dimension, as PostgreSQL writes it."""
    if not text.startswith("{") or text.startswith("{{"):
        raise pa.ArrowInvalid("an array of several dimensions, or with other bounds")
    items: list[str | None] = []
    item, quoted, was_quoted, i = "", False, False, 1
    while i < len(text):
        char = text[i]
        if quoted:
            if char == "\\":
                i += 1
                item += text[i]
            elif char == '"':
                quoted = False
            else:
                item += char
        elif char == '"':
            quoted = was_quoted = True
        elif char in ",}":
            if item or was_quoted or char == ",":
                items.append(None if item == "NULL" and not was_quoted else item)
            item, was_quoted = "", False
        else:
            item += char
        i += 1
    return items
