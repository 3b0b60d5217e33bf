"""What removes records from the topics of an embedded log: compaction, retention and erasing.

Appends do both as they go; here they are asked for, too. `compaction.py`, `retention.py` and
`erasing.py` say what goes.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.clock import Clock
from headrace.errors import LogError
from headrace.log import compaction, erasing, retention
from headrace.log import topic as topics
from headrace.log.erased import is_erased
from headrace.log.lock import locked
from headrace.log.open_topics import OpenTopic, OpenTopics, now_of
from headrace.log.segment import read_snapshot


class Upkeep:
    def __init__(self, topics: OpenTopics, clock: Clock, patience: float) -> None:
        self._topics, self._clock, self._patience = topics, clock, patience

    def compact(self, topic: str) -> int:
        """Compact a topic, all that it holds; the number of segments removed."""
        opened, _ = self._topics.published(topic)
        if not opened.topic.compacted:
            raise LogError(
                "HR-LOG-004",
                f"topic '{topic}' is not compacted",
                "Only a topic that was created so is: create(..., compact=True).",
            )
        return self._compact(opened, force=True)

    def compact_if_due(self, opened: OpenTopic) -> int:
        """Compact what is closed, if it is enough, and no other process does."""
        return self._compact(opened, force=False)

    def _compact(self, opened: OpenTopic, force: bool) -> int:
        topic = opened.topic
        try:
            with locked(
                topic.compact_lock, self._patience, None if force else lambda: True
            ) as ours:
                if not ours:
                    return 0  # another process does it
                return self._compact_closed(opened, force)
        except FileNotFoundError as error:
            raise self._topics.unknown(topic.name) from error
        except OSError as error:
            raise self._topics.unwritable("compact", topic.name, error) from error

    def _compact_closed(self, opened: OpenTopic, force: bool) -> int:
        topic, now = opened.topic, now_of(self._clock)
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
        """Apply retention, to one topic or all; segments removed, by topic."""
        if topic is not None:
            return {topic: self._sweep(topic)}
        if self._topics.root.is_dir():
            topics.clear_abandoned(self._topics.root)
        removed = {}
        for name in self._topics.names():
            try:
                removed[name] = self._sweep(name)
            except LogError as error:
                if error.code != "HR-LOG-002":  # deleted since it was listed
                    raise
        return removed

    def _sweep(self, topic: str) -> int:
        opened, _ = self._topics.published(topic)
        if opened.topic.compacted:
            return self._compact(opened, force=False)
        try:
            return opened.writer.sweep(now_of(self._clock))
        except FileNotFoundError as error:
            raise self._topics.unknown(topic) from error

    def forget(self, topic: str, before: Mapping[int, int]) -> int:
        """Remove the segments all of whose records lie before these offsets."""
        opened, head = self._topics.published(topic)
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
            raise self._topics.unknown(topic) from error

    def spare_blocks(self, topic: str) -> int:
        """How many blocks have bytes of records that are not theirs."""
        return erasing.spare_blocks(self._topics.published(topic)[0])

    def erase(self, topic: str, hits: compaction.Hits, spare: int, dry_run: bool) -> int:
        """Erase records; how many they are. The last `spare` of each partition stay."""
        opened, _ = self._topics.published(topic)
        lock, now = opened.topic.compact_lock, now_of(self._clock)
        try:
            if dry_run:
                return erasing.count(opened, hits, spare)
            with locked(lock, self._patience):
                erasing.clean(opened.topic.path)
                found = erasing.count(opened, hits, spare)
                if found or is_erased(opened.topic) or erasing.spare_blocks(opened):
                    if opened.topic.compacted:
                        erasing.erase_compacted(opened, hits, now)
                    else:
                        erasing.erase(opened, hits, now, spare)
                return found
        except FileNotFoundError as error:
            raise self._topics.unknown(topic) from error
        except OSError as error:
            raise self._topics.unwritable("erase records of", topic, error) from error
