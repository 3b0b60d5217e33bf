"""Appending records to a topic that is open: divided among its partitions, and made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import LogError
from headrace.log.appends import Append, Piece, Repeated, check_repeated
from headrace.log.block import Body, Packed, packed
from headrace.log.contract import Ack, Partitioner, Records
from headrace.log.open_topics import OpenTopic, OpenTopics
from headrace.log.partitioning import keys_of, route, route_rows
from headrace.log.records import few, normalized, table_for
from headrace.log.topic import Topic
from headrace.log.topic_rows import read_rows
from headrace.log.upkeep import Upkeep


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """What decides how records are stored, and where."""

    partitions: int
    key: str | None  # the column that was named; None: the topic's own
    topic_key: str | None
    columns: pa.Schema

    @staticmethod
    def of(topic: Topic, key: str | None) -> RecordLayout:
        return RecordLayout(topic.partitions, key, topic.key, topic.columns)


@dataclass(frozen=True, slots=True)
class PackedRecords:
    """Records by partition, as a topic of this layout stores them."""

    layout: RecordLayout
    parts: Mapping[int, Packed]


class RoutedAppends:
    def __init__(self, topics: OpenTopics, upkeep: Upkeep) -> None:
        self._topics, self._upkeep = topics, upkeep

    def append(
        self,
        topic: str,
        records: Any,
        key: Any,
        partition: int | None,
        partitioner: Partitioner | None,
        producer: str | None,
        sequence: int | None,
    ) -> dict[int, Ack]:
        """As `EmbeddedLog.append`; FileNotFoundError if the topic was deleted meanwhile."""
        opened = self._topics.find(topic)
        turn = next(opened.turn) if sequence is None else sequence
        parts: Mapping[int, Piece] | None = None
        if key is None and partitioner is None and not opened.topic.compacted:
            rows = few(opened.topic, records)
            parts = None if rows is None else route_rows(opened.topic, rows, partition, turn)
        if parts is None:
            table = table_for(opened.topic, records, None if isinstance(key, str) else key)
            if not table.num_rows:
                self._topics.published(topic)  # the topic is there, or this is an error
                return {}
            _check_keys(opened.topic, table)
            parts = route(opened.topic, table, key, partition, partitioner, turn)
        return self._run(opened, Append(parts, producer, -1 if sequence is None else sequence))

    def pack(self, topic: str, records: pa.Table, key: str | None, turn: int) -> PackedRecords:
        """The records as they will be stored, to be appended later."""
        opened = self._topics.find(topic)
        table = table_for(opened.topic, records)
        _check_keys(opened.topic, table)
        parts = route(opened.topic, table, key, None, None, turn)
        layout = RecordLayout.of(opened.topic, key)
        return PackedRecords(layout, {p: packed(part) for p, part in parts.items()})

    def append_packed(
        self, topic: str, pieces: Sequence[PackedRecords], producer: str, sequence: int
    ) -> dict[int, Ack]:
        """As `append`; what the topic stores in another way by now is divided and packed again."""
        opened = self._topics.find(topic)
        key = pieces[0].layout.key
        if all(piece.layout == RecordLayout.of(opened.topic, key) for piece in pieces):
            bodies: dict[int, list[Body]] = {}
            for p, part in (item for piece in pieces for item in piece.parts.items()):
                bodies.setdefault(p, []).extend(part.bodies)
            parts = {p: Packed(opened.topic.columns, bodies[p]) for p in bodies}
            return self._run(opened, Append(parts, producer, sequence))
        tables = [part.table() for piece in pieces for part in piece.parts.values()]
        table = pa.concat_tables(tables, promote_options="default")
        return self.append(topic, table, key, None, None, producer, sequence)

    def _run(self, opened: OpenTopic, append: Append) -> dict[int, Ack]:
        answer = opened.group.run(append)
        if isinstance(answer, Repeated):
            self._check_repeated(opened, append, answer)
        if opened.writer.rolled:
            opened.writer.rolled = False
            if opened.topic.compacted:
                with suppress(LogError):  # the append was made; the next closed segment tries again
                    self._upkeep.compact_if_due(opened)
        return answer

    def _check_repeated(self, opened: OpenTopic, append: Append, acks: Mapping[int, Ack]) -> None:
        """An append that was made before has the same records; what is gone is not compared."""
        if opened.topic.compacted:
            return  # what was appended may be gone
        name, schema, stored = opened.topic.name, opened.topic.columns, dict[int, pa.Table]()
        try:
            for p, ack in acks.items():
                now, head = self._topics.published(name)
                chunks = read_rows(now, head, p, ack.first, ack.end, None, False, False)
                tables = [table for _, table in chunks]
                whole = pa.concat_tables(tables) if tables else schema.empty_table()
                stored[p] = whole.select(schema.names)  # columns may have been added since
        except LogError as error:
            if error.code != "HR-LOG-007":
                raise
            return
        check_repeated(opened.topic, append, stored)


def routed(
    opened: OpenTopic,
    records: Records,
    key: Any = None,
    partition: int | None = None,
    partitioner: Partitioner | None = None,
) -> dict[int, pa.Table]:
    """Records of a transaction, by partition."""
    topic = opened.topic
    rows, key = normalized(topic.name, records), keys_of(topic.name, key)
    table = table_for(topic, rows, None if isinstance(key, str) else key)
    if not table.num_rows:
        return {}
    _check_keys(topic, table)
    return route(topic, table, key, partition, partitioner, next(opened.turn))


def current(topic: Topic, table: pa.Table) -> pa.Table:
    """A table of the topic's columns as they are now: some may have been added."""
    return table if table.schema == topic.columns else table_for(topic, table)


def _check_keys(topic: Topic, table: pa.Table) -> None:
    nulls = table[topic.key_column].null_count if topic.compacted else 0
    if nulls:
        raise LogError(
            "HR-LOG-031",
            f"topic '{topic.name}' is compacted by '{topic.key_column}', and {nulls} records have "
            "no key",
            "Nothing was appended. Give every record a key.",
        )
