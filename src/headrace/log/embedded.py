"""The embedded log: topics in a folder, shared by the processes of one machine.

The same interface as any other log, with no server to start. This module checks what users
ask for and passes it on: `writer.py` appends, `reader.py` reads, `topic.py` knows the folder.
An EmbeddedLog holds nothing that is not on disk: it may be pickled, forked and thrown away.
"""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import Clock, Duration, SystemClock, millis
from headrace.errors import LogError
from headrace.log import compaction, retention
from headrace.log import topic as topics
from headrace.log.appends import Append, Mixed, Piece, Repeated, check_repeated
from headrace.log.arguments import (
    check_limit,
    check_moment,
    check_offset,
    check_retry,
    clock_of,
    folder_of,
    moment_of,
    new_topic,
    patience_of,
    widened,
)
from headrace.log.contract import (
    APPEND_TIME,
    OFFSET,
    Ack,
    Partitioner,
    Records,
    TopicInfo,
    check_name,
    is_name,
    unreadable,
)
from headrace.log.group import GroupCommit
from headrace.log.group_admin import GroupAdmin
from headrace.log.head import Head
from headrace.log.lock import PATIENCE, locked
from headrace.log.partitioning import check_partition, keys_of, route, route_rows
from headrace.log.reader import TopicReader, out_of_range
from headrace.log.records import few, normalized, table_for
from headrace.log.recovery import producers
from headrace.log.segment import read_snapshot
from headrace.log.topic import Topic
from headrace.log.transactions import PRODUCER, Transactions
from headrace.log.writer import TopicWriter
from headrace.settings import Settings

_TRIES = 20  # to create a topic while another process deletes one of that name
_AHEAD = 1_000  # ms: a clock further ahead of the machine's is not believed


class _Open:
    """One topic, open in this process; `settings` tells whether they are still the same file."""

    def __init__(self, topic: Topic, clock: Clock, patience: float, settings: object) -> None:
        self.topic, self.settings = topic, settings
        self.writer = TopicWriter(topic, patience)
        self.reader = TopicReader(topic, patience, self.writer.catch_up)
        self.group: GroupCommit[Append, dict[int, Ack]] = GroupCommit(
            lambda appends: self.writer.commit(appends, _now(clock)), _harmless, patience
        )
        self.turn = itertools.count()  # for appends in turn


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
        self._root = os.fspath(self.root)
        self._clock = clock_of(clock)
        self._patience = patience_of(patience)
        self._open: dict[str, _Open] = {}
        self._pid = os.getpid()
        self._transactions = Transactions(self.root, self._patience, self._apply)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_opened, (str(self.root), self._clock, self._patience))

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
            _now(self._clock),
            retention_groups,
            millis(delete_after) if compact else None,
        )
        for _ in range(_TRIES):
            try:
                if topics.create(new):
                    return self.describe(topic)
            except OSError as error:
                raise self._unwritable("create", topic, error) from error
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
        opened, _ = self._published(topic)
        try:
            topics.alter(opened.topic, lambda stored: widened(stored, schema), self._patience)
        except FileNotFoundError as error:
            raise self._unknown(topic) from error
        except OSError as error:
            raise self._unwritable("alter", topic, error) from error
        return self.describe(topic)

    def delete(self, topic: str) -> None:
        """Remove the topic and all its records."""
        try:
            topics.remove(self._published(topic)[0].topic, self._patience)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._unknown(topic) from error
        except OSError as error:
            raise self._unwritable("delete", topic, error) from error
        self._open.pop(topic, None)

    def topics(self) -> list[str]:
        """The names of all topics, in order; what else lies in the folder is left alone."""
        try:
            names = sorted(os.listdir(self.root))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise unreadable(self.root, error) from error
        return [n for n in names if is_name(n) and (self.root / n / "topic.json").exists()]

    def describe(self, topic: str) -> TopicInfo:
        """The schema, partitions, offsets and settings of a topic."""
        opened, head = self._published(topic)
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
        try:
            return self._append(topic, records, key, partition, partitioner, producer, sequence)
        except FileNotFoundError:  # deleted, and perhaps made again
            self._open.pop(topic, None)
        try:
            return self._append(topic, records, key, partition, partitioner, producer, sequence)
        except FileNotFoundError as error:
            raise self._unknown(topic) from error

    def _append(
        self,
        topic: str,
        records: Any,
        key: Any,
        partition: int | None,
        partitioner: Partitioner | None,
        producer: str | None,
        sequence: int | None,
    ) -> dict[int, Ack]:
        opened = self._find(topic)
        turn = next(opened.turn) if sequence is None else sequence
        parts: Mapping[int, Piece] | None = None
        if key is None and partitioner is None and not opened.topic.compacted:
            rows = few(opened.topic, records)
            parts = None if rows is None else route_rows(opened.topic, rows, partition, turn)
        if parts is None:
            table = table_for(opened.topic, records, None if isinstance(key, str) else key)
            if not table.num_rows:
                self._published(topic)  # the topic is there, or this is an error
                return {}
            _check_keys(opened.topic, table)
            parts = route(opened.topic, table, key, partition, partitioner, turn)
        append = Append(parts, producer, -1 if sequence is None else sequence)
        answer = opened.group.run(append)
        if isinstance(answer, Repeated):
            self._check_repeated(opened, append, answer)
        if opened.writer.rolled:
            opened.writer.rolled = False
            if opened.topic.compacted:
                with suppress(LogError):  # the append was made; the next closed segment tries again
                    self._compact(opened, force=False)
        return answer

    def _check_repeated(self, opened: _Open, append: Append, acks: Mapping[int, Ack]) -> None:
        """An append that was made before has the same records; what is gone is not compared."""
        if opened.topic.compacted:
            return  # what was appended may be gone
        name, schema, stored = opened.topic.name, opened.topic.columns, dict[int, pa.Table]()
        try:
            for p, ack in acks.items():
                tables = [table for _, table in self.read(name, p, ack.first, ack.end)]
                whole = pa.concat_tables(tables) if tables else schema.empty_table()
                stored[p] = whole.select(schema.names)  # columns may have been added since
        except LogError as error:
            if error.code != "HR-LOG-007":
                raise
            return
        check_repeated(opened.topic, append, stored)

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
            opened, _ = self._published(topic)
            of_topic = parts.setdefault((topic, opened.topic.id), {})
            for partition, table in self._routed(opened, rows, **arguments).items():
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

    def _routed(
        self,
        opened: _Open,
        records: Records,
        key: Any = None,
        partition: int | None = None,
        partitioner: Partitioner | None = None,
    ) -> dict[int, pa.Table]:
        topic = opened.topic
        rows, key = normalized(topic.name, records), keys_of(topic.name, key)
        table = table_for(topic, rows, None if isinstance(key, str) else key)
        if not table.num_rows:
            return {}
        _check_keys(topic, table)
        return route(topic, table, key, partition, partitioner, next(opened.turn))

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
            opened = self._find(topic)
            if opened.topic.id == id:
                parts = {p: _current(opened.topic, table) for p, table in tables.items()}
                opened.group.run(Append(parts, producer, sequence))
        except FileNotFoundError:
            self._open.pop(topic, None)
            stored = topics.load(self.root / topic)
            if stored is not None and stored.id == id:
                raise
        except LogError as error:
            if error.code != "HR-LOG-002":
                raise

    def producers(self, topic: str) -> dict[str, int]:
        """Who has appended to the topic with `producer` and `sequence`: the largest sequence."""
        for _ in range(_TRIES):
            opened, head = self._published(topic)
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
        return dict(enumerate(self._published(topic)[1].ends))

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
        opened, head = self._published(topic)
        check_partition(opened.topic, partition)
        latest = head.ends[partition]
        end = latest if end is None else end
        check_offset(start)
        check_offset(end)
        earliest = 0 if opened.topic.compacted else head.earliest[partition]
        if not earliest <= start <= latest:
            raise out_of_range(opened.topic, partition, start, head)
        if not start <= end <= latest:
            raise out_of_range(opened.topic, partition, end, head)
        if max_rows is not None:
            end = min(end, start + max_rows)
        if opened.topic.compacted:
            if not offsets:
                raise _gaps(topic)
            file = compaction.newest(opened.topic)
            compaction.check_there(opened.topic, head.earliest[partition], file, partition)
            return _sparse(opened, partition, start, end, bool(times))
        tables = opened.reader.read(partition, start, end, bool(times))
        return _numbered(tables) if offsets else tables

    def offset_for_time(self, topic: str, partition: int, ms: int) -> int:
        """The first offset appended at or after `ms`; the latest if there is none."""
        check_moment(ms)
        opened, _ = self._published(topic)
        check_partition(opened.topic, partition)
        if opened.topic.compacted:
            found = compaction.offset_for_time(opened.topic, partition, ms)
            if found is not None:
                return found
        return opened.reader.offset_for_time(partition, ms)

    def compact(self, topic: str) -> int:
        """Compact a topic now, all that it holds; the number of segments removed.

        Appends do so as they go, when what is new is as much as what is left of the rest.
        """
        opened, _ = self._published(topic)
        if not opened.topic.compacted:
            raise LogError(
                "HR-LOG-004",
                f"topic '{topic}' is not compacted",
                "Only a topic that was created so is: create(..., compact=True).",
            )
        return self._compact(opened, force=True)

    def _compact(self, opened: _Open, force: bool) -> int:
        topic = opened.topic
        try:
            with locked(
                topic.compact_lock, self._patience, None if force else lambda: True
            ) as ours:
                if not ours:
                    return 0  # another process does it
                return self._compact_closed(opened, force)
        except FileNotFoundError as error:
            raise self._unknown(topic.name) from error
        except OSError as error:
            raise self._unwritable("compact", topic.name, error) from error

    def _compact_closed(self, opened: _Open, force: bool) -> int:
        topic, now = opened.topic, _now(self._clock)
        if force:
            head, bases = opened.writer.closed(now)
        else:
            published = opened.reader.head()
            if published is None:
                return 0
            head, bases = published, retention.closed(topic, published)
        if not bases and (not force or compaction.newest(topic) is None):
            return 0  # with one, deletes may be old enough to go now
        if not force and not compaction.is_due(topic, head.segment - bases[0]):
            return 0
        ends = read_snapshot(topic.path, head.segment, topic.tag).ends
        compaction.compact(topic, opened.reader, compaction.Plan(head.segment, ends), now)
        removed = opened.writer.drop(head.segment)
        compaction.clean(topic)
        return removed

    def sweep(self, topic: str | None = None) -> dict[str, int]:
        """Apply retention now; segments removed, by topic. Appends do so as they go."""
        if topic is not None:
            return {topic: self._sweep(topic)}
        if self.root.is_dir():
            topics.clear_abandoned(self.root)
        removed = {}
        for name in self.topics():
            try:
                removed[name] = self._sweep(name)
            except LogError as error:
                if error.code != "HR-LOG-002":  # deleted since it was listed
                    raise
        return removed

    def _sweep(self, topic: str) -> int:
        opened, _ = self._published(topic)
        if opened.topic.compacted:
            return self._compact(opened, force=False)
        try:
            return opened.writer.sweep(_now(self._clock))
        except FileNotFoundError as error:
            raise self._unknown(topic) from error

    def forget(self, topic: str, before: Mapping[int, int]) -> int:
        """Remove the segments all of whose records lie before these offsets, by partition.

        The last segment stays. The number of segments removed.
        """
        opened, head = self._published(topic)
        if opened.topic.compacted:
            raise LogError(
                "HR-LOG-004",
                f"topic '{topic}' is compacted: what is left of it is not forgotten",
                "Append a record whose other columns are null to delete a key.",
            )
        offsets = [before.get(p, first) for p, first in enumerate(head.earliest)]
        try:
            return opened.writer.forget(offsets)
        except FileNotFoundError as error:
            raise self._unknown(topic) from error

    def _find(self, topic: str) -> _Open:
        """The topic as it is open here, or opened now."""
        if self._pid != os.getpid():  # forked: the parent's threads and locks are not ours
            self._open, self._pid = {}, os.getpid()
        opened = self._open.get(check_name(topic))
        settings = _settings(f"{self._root}/{topic}/topic.json")
        if opened is not None and settings is not None and settings != opened.settings:
            self._open.pop(topic, None)  # columns were added
            opened = None
        if opened is None:
            stored = topics.load(self.root / topic)
            if stored is None:
                raise self._unknown(topic)
            fresh = _Open(stored, self._clock, self._patience, settings)
            opened = self._open.setdefault(topic, fresh)
        return opened

    def _published(self, topic: str) -> tuple[_Open, Head]:
        """The topic and what it holds at this moment."""
        self._transactions.settle(check_name(topic))
        opened = self._find(topic)
        head = opened.reader.head()
        if head is None:  # deleted, and perhaps made again
            self._open.pop(topic, None)
            opened = self._find(topic)
            head = opened.reader.head()
        if head is None:
            raise self._unknown(topic)
        return opened, head

    def _unknown(self, topic: str) -> LogError:
        names = self.topics()
        near = difflib.get_close_matches(topic, names, 1)
        listed = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        hint = (
            f"Did you mean '{near[0]}'?"
            if near
            else f"It has: {listed}."
            if names
            else (f"It is empty. Create the topic first: headrace topic create {topic}")
        )
        return LogError("HR-LOG-002", f"the log '{self.root}' has no topic '{topic}'", hint)

    def _unwritable(self, verb: str, topic: str, error: OSError) -> LogError:
        return LogError(
            "HR-LOG-010",
            f"cannot {verb} topic '{topic}' in '{self.root}': {error.strerror or error}",
            "Choose a folder that can be written, with --log or HEADRACE_LOG, or free space there.",
        )


def _opened(root: str, clock: Clock, patience: float) -> EmbeddedLog:
    return EmbeddedLog(root, clock, patience=patience)


def _now(clock: Clock) -> int:
    """The time, but not a time that the machine's own clock has not reached."""
    now, machine = moment_of(clock), SystemClock().now()
    return now if now <= machine + _AHEAD else machine


def _harmless(error: Exception) -> bool:
    """Whether nothing was appended, and the reason may be one append of the group alone."""
    if isinstance(error, Mixed):
        return True
    return isinstance(error, LogError) and error.code not in ("HR-LOG-016", "HR-LOG-018")


def _check_keys(topic: Topic, table: pa.Table) -> None:
    nulls = table[topic.key_column].null_count if topic.compacted else 0
    if nulls:
        raise LogError(
            "HR-LOG-031",
            f"topic '{topic.name}' is compacted by '{topic.key_column}', and {nulls} records have "
            "no key",
            "Nothing was appended. Give every record a key.",
        )


def _gaps(topic: str) -> LogError:
    return LogError(
        "HR-LOG-032",
        f"topic '{topic}' is compacted: there are gaps between its offsets",
        "Read it with offsets=True, which adds the offset of each record, or with hr.Consumer.",
    )


def _numbered(tables: Iterator[tuple[int, pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
    for first, table in tables:
        numbers = np.arange(first, first + table.num_rows, dtype=np.int64)
        yield first, table.append_column(OFFSET, pa.array(numbers))


def _sparse(
    opened: _Open, partition: int, start: int, end: int, times: bool
) -> Iterator[tuple[int, pa.Table]]:
    for numbers, moments, records in compaction.read(
        opened.topic, opened.reader, partition, start, end
    ):
        table = pa.Table.from_batches([records])
        if times:
            table = table.append_column(APPEND_TIME, pa.array(moments))
        yield int(numbers[0]), table.append_column(OFFSET, pa.array(numbers))


def _current(topic: Topic, table: pa.Table) -> pa.Table:
    return table if table.schema == topic.columns else table_for(topic, table)


def _settings(path: str) -> tuple[int, int] | None:
    """What changes when the file does; None if it cannot be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _same_layout(one: Topic, other: Topic) -> bool:
    """Whether a topic that is there is what would be created; columns may have been added."""
    if (one.partitions, one.key) != (other.partitions, other.key):
        return False
    return other.schema in (one.schema, *map(one.columns_of, range(len(one.widths))))
