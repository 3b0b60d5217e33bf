"""The embedded log: topics in a folder, shared by the processes of one machine.

The same interface as any other log, with no server to start. This module checks what users
ask for and passes it on: `writer.py` appends, `reader.py` reads, `topic.py` knows the folder.
An EmbeddedLog holds nothing that is not on disk: it may be pickled, forked and thrown away.
"""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.clock import Clock, Duration, SystemClock, millis
from headrace.errors import LogError
from headrace.log import retention
from headrace.log import topic as topics
from headrace.log.contract import Ack, Partitioner, Records, TopicInfo, check_name
from headrace.log.group import Group
from headrace.log.head import Entry
from headrace.log.partitioning import check_partition, route
from headrace.log.reader import TopicReader, gone
from headrace.log.records import table_for
from headrace.log.settings import new_topic
from headrace.log.topic import Topic
from headrace.log.writer import Append, TopicWriter
from headrace.settings import Settings


class _Open:
    """One topic, open in this process."""

    def __init__(self, topic: Topic, clock: Clock) -> None:
        self.topic = topic
        self.reader = TopicReader(topic)
        self.writer = TopicWriter(topic)
        self.group: Group[Append, dict[int, Ack]] = Group(
            lambda appends: self.writer.commit(appends, clock.now())
        )
        self.turn = itertools.count()  # for appends in turn


class EmbeddedLog:
    """A log in the folder `root` ($HEADRACE_LOG, or .headrace/log here)."""

    def __init__(
        self, root: str | os.PathLike[str] | None = None, clock: Clock | None = None
    ) -> None:
        self.root = Path(root or Settings.load().log).absolute()
        self._clock = clock or SystemClock()
        self._open: dict[str, _Open] = {}
        self._pid = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return (EmbeddedLog, (str(self.root), self._clock))

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
        exist_ok: bool = False,
        segment_bytes: int | None = None,
    ) -> TopicInfo:
        """Make a topic: typed if it has a schema, else of bytes.

        `key` is the column whose value chooses the partition. With `exist_ok` a topic of the
        same columns and partitions is taken as it is.
        """
        wanted = new_topic(
            self.root / check_name(topic), partitions, schema, key,
            None if retention is None else millis(retention), retention_bytes, segment_bytes,
            self._clock.now(),
        )  # fmt: skip
        try:
            made = topics.create(wanted)
        except OSError as error:
            raise LogError(
                f"cannot create topic '{topic}' in '{self.root}': {error.strerror}",
                code="HR-LOG-010", hint="Choose a folder that can be written, with --log or "
                "HEADRACE_LOG.",
            ) from error  # fmt: skip
        if not made and not (exist_ok and _alike(self._find(topic).topic, wanted)):
            raise LogError(
                f"topic '{topic}' exists already" + (", with other columns" if exist_ok else ""),
                code="HR-LOG-003", hint="Choose another name, or delete the topic first.",
            )  # fmt: skip
        return self.describe(topic)

    def delete(self, topic: str) -> None:
        """Remove the topic and all its records."""
        try:
            topics.remove(self._now(topic)[0].topic)
        except FileNotFoundError as error:
            raise self._unknown(topic) from error
        except OSError as error:
            raise LogError(
                f"cannot delete topic '{topic}': {error.strerror} ({self.root})",
                code="HR-LOG-010", hint="Repair the permissions of the folder.",
            ) from error  # fmt: skip
        self._open.pop(topic, None)

    def topics(self) -> list[str]:
        if not self.root.is_dir():
            return []
        return sorted(p.parent.name for p in self.root.glob("[!.]*/topic.json"))

    def describe(self, topic: str) -> TopicInfo:
        opened, entries = self._now(topic)
        t = opened.topic
        sizes = tuple(retention.size_of(t.folder(p), e) for p, e in enumerate(entries))
        return TopicInfo(
            t.name, t.partitions, t.schema, t.key, t.retention_ms, t.retention_bytes, t.created,
            tuple(e.earliest for e in entries), tuple(e.end for e in entries), sizes,
        )  # fmt: skip

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
        grows, an append that was made before is not made again: retry as often as you like.
        """
        _check_retry(producer, sequence)
        opened, _ = self._now(topic)
        keys = None if isinstance(key, str) else key
        table = table_for(opened.topic, records, keys)
        if not table.num_rows:
            return {}
        turn = next(opened.turn) if sequence is None else sequence
        parts = route(opened.topic, table, key, partition, partitioner, turn)
        try:
            return opened.group.run(Append(parts, producer, -1 if sequence is None else sequence))
        except FileNotFoundError as error:  # deleted since we looked
            raise self._unknown(topic) from error

    def earliest(self, topic: str) -> dict[int, int]:
        """The first offset kept, by partition."""
        return {p: entry.earliest for p, entry in enumerate(self._now(topic)[1])}

    def latest(self, topic: str) -> dict[int, int]:
        """The offset that the next record will get, by partition. Cheap: one small read."""
        return {p: entry.end for p, entry in enumerate(self._now(topic)[1])}

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        max_rows: int | None = None,
        *,
        times: bool = False,
    ) -> Iterator[tuple[int, pa.Table]]:
        """Records [start, end) in chunks of at most 256 k rows, each with its first offset.

        `end` is the latest if not given; `max_rows` limits the whole. With `times` there is
        one more column, "__append_time" in milliseconds. The chunks are not copied: they
        point into the log's files.
        """
        opened, entry = self._entry(topic, partition)
        end = entry.end if end is None else end
        if not entry.earliest <= start <= entry.end:
            raise gone(opened.topic, partition, start, entry)
        if not start <= end <= entry.end:
            raise gone(opened.topic, partition, end, entry)
        if max_rows is not None:
            end = min(end, start + max_rows)
        return opened.reader.read(partition, start, end, times)

    def offset_for_time(self, topic: str, partition: int, ms: int) -> int:
        """The first offset appended at or after `ms`; the latest if there is none."""
        opened, entry = self._entry(topic, partition)
        return opened.reader.offset_for_time(partition, ms, entry)

    def sweep(self, topic: str | None = None) -> dict[str, int]:
        """Apply retention now; segments removed, by topic. Appends do so as they go."""
        removed = {}
        for name in [topic] if topic else self.topics():
            opened, _ = self._now(name)
            with opened.group.leading:
                removed[name] = opened.writer.sweep(self._clock.now())
        return removed

    def _find(self, topic: str) -> _Open:
        """The topic as it is open here, or opened now."""
        if self._pid != os.getpid():  # forked: the parent's threads and locks are not ours
            self._open, self._pid = {}, os.getpid()
        opened = self._open.get(topic)
        if opened is None:
            found = topics.load(self.root / check_name(topic))
            if found is None:
                raise self._unknown(topic)
            opened = self._open.setdefault(topic, _Open(found, self._clock))
        return opened

    def _now(self, topic: str) -> tuple[_Open, Sequence[Entry]]:
        """The topic and its partitions' ends at this moment."""
        opened = self._find(topic)
        entries = opened.reader.entries()
        if entries is None:  # deleted, and perhaps made again
            self._open.pop(topic, None)
            opened = self._find(topic)
            entries = opened.reader.entries()
        if entries is None:
            raise self._unknown(topic)
        return opened, entries

    def _entry(self, topic: str, partition: int) -> tuple[_Open, Entry]:
        opened, entries = self._now(topic)
        return opened, entries[check_partition(opened.topic, partition)]

    def _unknown(self, topic: str) -> LogError:
        known = self.topics()
        near = difflib.get_close_matches(topic, known, 1)
        listed = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
        hint = f"Did you mean '{near[0]}'?" if near else f"It has: {listed}." if known else (
            f"It is empty. Create the topic first: headrace topic create {topic}"
        )  # fmt: skip
        return LogError(
            f"the log '{self.root}' has no topic '{topic}'", code="HR-LOG-002", hint=hint
        )


def _check_retry(producer: str | None, sequence: int | None) -> None:
    both = producer and isinstance(sequence, int) and sequence >= 0
    if not both and not (producer is None and sequence is None):
        raise LogError(
            f"an append has producer {producer!r} and sequence {sequence!r}", code="HR-LOG-013",
            hint="Give a name and a whole number that grows, to make a retry safe, or neither.",
        )  # fmt: skip


def _alike(one: Topic, other: Topic) -> bool:
    return (one.partitions, one.schema, one.key) == (other.partitions, other.schema, other.key)
