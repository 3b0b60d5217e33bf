"""The embedded log: topics in a folder, shared by the processes of one machine.

The same interface as any other log, with no server to start. This module checks what users
ask for and passes it on: `routed_appends.py` appends, `topic_rows.py` reads, `upkeep.py` compacts
and removes, `topic.py` knows the folder.
An EmbeddedLog holds nothing that is not on disk: it may be pickled, forked and thrown away.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from headrace.clock import Clock, Duration, millis
from headrace.errors import LogError
from headrace.log import topic as topics
from headrace.log.appends import Append
from headrace.log.arguments import (
    check_limit,
    check_moment,
    check_retry,
    clock_of,
    folder_of,
    new_topic,
    patience_of,
    widened,
)
from headrace.log.contract import Ack, Partitioner, Records, TopicInfo, check_name, unreadable
from headrace.log.group_admin import GroupAdmin
from headrace.log.lock import PATIENCE
from headrace.log.open_topics import OpenTopics, now_of
from headrace.log.partitioning import keys_of
from headrace.log.records import normalized
from headrace.log.recovery import producers
from headrace.log.routed_appends import RoutedAppends, current, routed
from headrace.log.topic import Topic
from headrace.log.topic_rows import first_at, read_rows
from headrace.log.transactions import PRODUCER, Transactions
from headrace.log.upkeep import Upkeep
from headrace.settings import Settings

T = TypeVar("T")
_TRIES = 20  # to create a topic while another process deletes one of that name


class EmbeddedLog(GroupAdmin):
    """A log in the folder `root` ($HEADRACE_LOG, or .headrace/log here).

    `patience` is how long an append waits for a lock that another process holds.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        *,
        patience: Duration = PATIENCE,
    ) -> None:
        self.root = folder_of(root or Settings.load().log)
        self._clock = clock_of(clock)
        self._patience = patience_of(patience)
        self._transactions = Transactions(self.root, self._patience, self._apply)
        shared = self._clock, self._patience
        self._topics = OpenTopics(self.root, *shared, self._transactions.settle)
        self._upkeep = Upkeep(self._topics, *shared)
        self._appends = RoutedAppends(self._topics, self._upkeep)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_opened, (type(self), str(self.root), self._clock, self._patience))

    @property
    def patience(self) -> float:
        """Seconds that a call waits for a lock that another process holds."""
        return self._patience

    def __repr__(self) -> str:
        return f"EmbeddedLog({str(self.root)!r})"

    def create(
        self,
        topic: str,
        partitions: int = 1,
        schema: object = None,
        key: str | None = None,
        retention: Duration | None = None,
        retention_bytes: int | None = None,
        *,
        retention_groups: bool = False,
        compact: bool = False,
        delete_after: Duration = "1d",
        exist_ok: bool = False,
        segment_bytes: int | None = None,
    ) -> TopicInfo:
        """Make a topic: typed if it has a schema, else of bytes.

        `key` is the column whose value chooses the partition. With `retention_groups` retention
        waits for consumer groups: what one of them has not committed stays. With `compact` only the
        newest record of each key stays for ever; one whose other columns are all null deletes its
        key, and goes itself after `delete_after`. With `exist_ok` a topic of the same columns and
        partitions is taken as it is.
        """
        new = new_topic(
            self.root / check_name(topic),
            partitions,
            schema,
            key,
            None if retention is None else millis(retention),
            retention_bytes,
            segment_bytes,
            now_of(self._clock),
            retention_groups,
            millis(delete_after) if compact else None,
        )
        for _ in range(_TRIES):
            try:
                if topics.create(new):
                    return self.describe(topic)
            except OSError as error:
                raise self._topics.unwritable("create", topic, error) from error
            existing = topics.load(new.path)
            if existing is None:
                continue  # it was deleted meanwhile
            if not (exist_ok and _same_layout(existing, new)):
                other = ", with other columns or partitions" if exist_ok else ""
                raise LogError(
                    "HR-LOG-003",
                    f"topic '{topic}' exists already{other}",
                    "Choose another name, or delete the topic first.",
                )
            return self.describe(topic)
        raise LogError(
            "HR-LOG-003",
            f"cannot create topic '{topic}': '{new.path}' is there, and is not a topic",
            "Move it away, or choose another name.",
        )

    def alter(self, topic: str, schema: object) -> TopicInfo:
        """Add columns to a typed topic: `schema` has all of its columns, and new ones.

        New columns allow null: records that are stored, and appends that leave them out, have null
        there. Programs that run need not be stopped.
        """
        opened, _ = self._topics.published(topic)
        try:
            topics.alter(opened.topic, lambda stored: widened(stored, schema), self._patience)
        except FileNotFoundError as error:
            raise self._topics.unknown(topic) from error
        except OSError as error:
            raise self._topics.unwritable("alter", topic, error) from error
        return self.describe(topic)

    def delete(self, topic: str) -> None:
        """Remove the topic and all its records."""
        try:
            topics.remove(self._topics.published(topic)[0].topic, self._patience)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._topics.unknown(topic) from error
        except OSError as error:
            raise self._topics.unwritable("delete", topic, error) from error
        self._topics.close(topic)

    def topics(self) -> list[str]:
        """The names of all topics, in order; what else lies in the folder is left alone."""
        return self._topics.names()

    def describe(self, topic: str) -> TopicInfo:
        """The schema, partitions, offsets and settings of a topic."""
        opened, head = self._topics.published(topic)
        t = opened.topic
        sizes = tuple(a - b for a, b in zip(head.sizes, head.removed, strict=True))
        return TopicInfo(
            t.name,
            t.partitions,
            t.schema,
            t.key,
            t.retention_ms,
            t.retention_bytes,
            t.created,
            (0,) * t.partitions if t.compacted else head.earliest,
            head.ends,
            sizes,
            t.id,
            t.added,
            t.retention_groups,
            t.compacted,
        )

    def append(
        self,
        topic: str,
        records: Records,
        *,
        key: str | Sequence[Any] | None = None,
        partition: int | None = None,
        partitioner: Partitioner | None = None,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> dict[int, Ack]:
        """Append records; they are on disk, and visible all at once, when this returns.

        The partition is the one given, or chosen by `partitioner`, by `key` (a column, or one
        value per record), or in turn. With `producer` and `sequence`, a whole number that
        grows, an append that was made before is not made again, wherever its records would go
        now: retry as often as you like. The same number with other records is an error.
        """
        check_retry(producer, sequence)
        records, key = normalized(topic, records), keys_of(topic, key)
        return self._again(
            topic,
            lambda: self._appends.append(
                topic, records, key, partition, partitioner, producer, sequence
            ),
        )

    def _again(self, topic: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except FileNotFoundError:  # deleted, and perhaps made again
            self._topics.close(topic)
        try:
            return work()
        except FileNotFoundError as error:
            raise self._topics.unknown(topic) from error

    def transact(
        self,
        records: Mapping[str, Records] | Sequence[tuple[str, Records, Mapping[str, Any]]],
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> bool:
        """Append to several topics at once: readers see all of it or nothing, even after a crash.

        `records` are those of each topic, routed as `append` does; or (topic, records, arguments of
        `append`) in order. With `producer` and `sequence`, a number that grows, a transaction that
        was committed before is not committed again: then False is returned.
        """
        check_retry(producer, sequence)
        sent = [(t, r, {}) for t, r in records.items()] if isinstance(records, Mapping) else records
        parts: dict[tuple[str, str], dict[int, list[pa.Table]]] = {}
        for topic, rows, arguments in sent:
            opened, _ = self._topics.published(topic)
            of_topic = parts.setdefault((topic, opened.topic.id), {})
            for partition, table in routed(opened, rows, **arguments).items():
                of_topic.setdefault(partition, []).append(table)
        whole = {
            topic: {p: pa.concat_tables(tables) for p, tables in by.items()}
            for topic, by in parts.items()
            if by
        }
        if len(whole) == 1 and producer is None:  # an append is one transaction
            ((opened_topic, tables),) = whole.items()
            self._apply(*opened_topic, tables, None, -1)
            return True
        return not whole or self._transactions.commit(whole, producer, sequence)

    def _apply(
        self,
        topic: str,
        id: str,
        tables: Mapping[int, pa.Table],
        producer: str | None,
        sequence: int,
    ) -> None:
        """Append a transaction's records to one of its topics, unless that is gone."""
        try:
            opened = self._topics.find(topic)
            if opened.topic.id == id:
                parts = {p: current(opened.topic, table) for p, table in tables.items()}
                opened.group.run(Append(parts, producer, sequence))
        except FileNotFoundError:
            self._topics.close(topic)
            stored = topics.load(self.root / topic)
            if stored is not None and stored.id == id:
                raise
        except LogError as error:
            if error.code != "HR-LOG-002":
                raise

    def producers(self, topic: str) -> dict[str, int]:
        """Who has appended to the topic with `producer` and `sequence`: the largest sequence."""
        for _ in range(_TRIES):
            opened, head = self._topics.published(topic)
            try:
                with opened.reader.of_this_topic():
                    known = producers(opened.topic.path, opened.topic.tag, head)
                    return {n: at for n, at in known.items() if not n.startswith(PRODUCER)}
            except FileNotFoundError as error:  # retention has removed the segment, or the topic
                failure = error
        raise unreadable(opened.topic.path, failure)

    def earliest(self, topic: str) -> dict[int, int]:
        """The first offset that is still stored, by partition."""
        return dict(enumerate(self.describe(topic).earliest))

    def latest(self, topic: str) -> dict[int, int]:
        """The offset that the next record will get, by partition. Cheap: one small read."""
        return dict(enumerate(self._topics.published(topic)[1].ends))

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        max_rows: int | None = None,
        *,
        times: bool = False,
        offsets: bool = False,
    ) -> Iterator[tuple[int, pa.Table]]:
        """Records [start, end) in chunks of at most 256 k rows, each with its first offset.

        `end` is the latest if not given; `max_rows` limits the whole. With `times` there is
        one more column, "__append_time" in milliseconds, with `offsets` another, "__offset": a
        compacted topic, whose offsets have gaps, is read only so. The chunks are not copied:
        they point into the log's files.
        """
        check_limit(max_rows)
        opened, head = self._topics.published(topic)
        return read_rows(opened, head, partition, start, end, max_rows, bool(times), offsets)

    def offset_for_time(self, topic: str, partition: int, ms: int) -> int:
        """The first offset appended at or after `ms`; the latest if there is none."""
        check_moment(ms)
        opened, _ = self._topics.published(topic)
        return first_at(opened, partition, ms)

    def compact(self, topic: str) -> int:
        """Compact a topic now, all that it holds; the number of segments removed.

        Appends do so as they go, when what is new is as much as what is left of the rest.
        """
        return self._upkeep.compact(topic)

    def sweep(self, topic: str | None = None) -> dict[str, int]:
        """Apply retention now; segments removed, by topic. Appends do so as they go."""
        return self._upkeep.sweep(topic)

    def erase(
        self,
        topic: str,
        hits: Callable[[pa.Table], np.ndarray],
        *,
        spare: int = 0,
        dry_run: bool = False,
    ) -> int:
        """Erase the records that `hits` marks in a table of them; how many they are.

        Their bytes are gone when this returns; all others have the offsets that they had, and
        readers pass over what is missing. The last `spare` records of each partition stay. With
        `dry_run` they are only counted. Repeat it if it was interrupted.
        """
        if not dry_run:
            self._transactions.clean()
        return self._upkeep.erase(topic, hits, spare, dry_run)

    def spare_blocks(self, topic: str) -> int:
        """How many blocks of a topic have bytes of records that are not theirs: see `erase`."""
        return self._upkeep.spare_blocks(topic)

    def forget(self, topic: str, before: Mapping[int, int]) -> int:
        """Remove the segments all of whose records lie before these offsets, by partition.

        The last segment stays. The number of segments removed.
        """
        return self._upkeep.forget(topic, before)


def _opened(kind: type[EmbeddedLog], root: str, clock: Clock, patience: float) -> EmbeddedLog:
    return kind(root, clock, patience=patience)


def _same_layout(one: Topic, other: Topic) -> bool:
    """Whether a topic that is there is what would be created; columns may have been added."""
    if (one.partitions, one.key) != (other.partitions, other.key):
        return False
    return other.schema in (one.schema, *map(one.columns_of, range(len(one.widths))))
