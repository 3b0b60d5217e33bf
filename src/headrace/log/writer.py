"""Appending: from tables to acknowledged blocks.

One commit, in this order; a crash anywhere leaves every append whole or absent:

    1. lock the partitions concerned, and read the head
    2. cut what an appender that died left beyond the head; roll a full segment
    3. skip appends that their producer has made before; write the blocks of the others
    4. sync the segments
    5. publish the head: now readers see all of it, in all partitions at once
    6. remove segments that retention no longer wants; unlock

Nothing before step 5 is visible or acknowledged, so nothing of it needs to be undone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from headrace.errors import LogError
from headrace.log.contract import Ack
from headrace.log.head import Entry
from headrace.log.lock import all_locked
from headrace.log.partition import PartitionWriter
from headrace.log.recovery import recover
from headrace.log.topic import Topic
from headrace.state.faults import point

_HEAD_SYNC = 1.0  # seconds: how far the head on disk may be behind, and so how much to scan
_SYNCS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Append:
    """One call of `append`: the records of each partition, and who may retry it."""

    parts: Mapping[int, pa.Table]
    producer: str | None = None
    sequence: int = -1


class TopicWriter:
    """Appends to one topic from this process; other processes have their own."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self._head = topic.head
        self._all = [PartitionWriter(topic, p) for p in range(topic.partitions)]
        self._head_synced = time.monotonic()

    def commit(self, appends: Sequence[Append], now: int) -> list[dict[int, Ack]]:
        """Make the appends durable with one sync per partition; steps as above."""
        used = sorted({p for append in appends for p in append.parts})
        acks: list[dict[int, Ack]] = [{} for _ in appends]
        with self._opened(used, now) as writers:  # 1, 2
            for writer in writers:
                for append, ack in zip(appends, acks, strict=True):
                    part = append.parts.get(writer.number)
                    if part is not None:
                        ack[writer.number] = writer.add(part, append.producer, append.sequence)  # 3
            self._finish(writers)  # 4, 5, 6
        return acks

    def sweep(self, now: int) -> int:
        """Apply retention to all partitions; the number of segments removed."""
        removed = 0
        if self.topic.retention_ms is not None or self.topic.retention_bytes is not None:
            for partition in range(self.topic.partitions):
                with self._opened([partition], now) as (writer,):
                    writer.expire()
                    removed += self._finish([writer])
        return removed

    @contextmanager
    def _opened(self, used: Sequence[int], now: int) -> Iterator[list[PartitionWriter]]:
        """The partitions' writers, locked and ready at the head."""
        writers = [self._all[p] for p in used]
        begun: list[PartitionWriter] = []  # the others stand where an earlier append left them
        with self._locked(writers) as entries:
            try:
                for writer in writers:
                    begun.append(writer)
                    writer.begin(entries[writer.number], now)
                yield writers
            except (OSError, LogError) as error:
                for writer in begun:
                    writer.undo()
                if isinstance(error, LogError):
                    raise
                raise _cannot_write(self.topic, error) from error
            finally:
                for writer in writers:
                    writer.close()

    @contextmanager
    def _locked(self, writers: Sequence[PartitionWriter]) -> Iterator[Sequence[Entry]]:
        """The heads of all partitions, with these locked; FileNotFoundError if deleted."""
        while True:
            with all_locked(writer.folder for writer in writers):
                heads, trusted = self._head.read()
                if heads is not None and heads.topic != self.topic.id:
                    raise FileNotFoundError(f"{self.topic.path} was replaced")
                if heads is not None and trusted:
                    yield heads.entries
                    return
            recover(self.topic)  # takes all locks, so it cannot be done under some of them

    def _finish(self, writers: Sequence[PartitionWriter]) -> int:
        point("log.written")
        _at_once([writer.sync for writer in writers if writer.wrote])
        point("log.synced")
        changes = {writer.number: writer.entry for writer in writers if writer.changed}
        if changes:
            self._head.publish(changes)
            for writer in writers:
                writer.published()
        point("log.published")
        try:
            return self._tidy(writers)
        except OSError:  # the records are safe; what is left undone costs space or time only
            return 0

    def _tidy(self, writers: Sequence[PartitionWriter]) -> int:
        forgets = any(writer.forgets for writer in writers)
        if forgets:
            self._head.publish({})  # in the other slot too: neither may name a file that goes
        if forgets or time.monotonic() - self._head_synced > _HEAD_SYNC:
            self._head.sync()
            self._head_synced = time.monotonic()
        return sum(writer.settle() for writer in writers)


def _at_once(syncs: Sequence[Callable[[], None]]) -> None:
    if len(syncs) < 2:
        for sync in syncs:
            sync()
        return
    with ThreadPoolExecutor(min(len(syncs), _SYNCS_AT_ONCE)) as pool:
        for done in [pool.submit(sync) for sync in syncs]:
            done.result()


def _cannot_write(topic: Topic, error: OSError) -> LogError:
    where = error.filename or topic.path
    return LogError(
        f"cannot append to topic '{topic.name}': {error.strerror or error} ({where})",
        code="HR-LOG-010", hint="Nothing was appended. Free space or repair the permissions, "
        "then append again.",
    )  # fmt: skip
