"""Appending: from tables to acknowledged blocks.

One commit, in this order; a crash anywhere leaves every append whole or absent:

    0. make blocks of the records, as far as that can be done without knowing where they go
    1. lock `write`; walk from the head past what others wrote and have not published yet
    2. cut what a writer that died left beyond that; begin a new segment when this one is full
    3. skip appends that their producer has made before; write the blocks of the others, of
       all partitions, as one group; unlock
    4. lock `sync`, unless another has published the group meanwhile
    5. sync the segment: this is the commit, for all groups that were written so far
    6. publish the head: now readers see all of it, in all partitions at once; unlock

While one process syncs, others write: the next sync is for all of them. A group that cannot
be written whole is cut by its own writer; one that cannot be synced is given up, and the
generation grows, so that nobody takes it for a later one.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace.errors import LogError
from headrace.log import disk, retention
from headrace.log.appends import Append, Ready, draft, prepare
from headrace.log.block import Stamp, encode
from headrace.log.contract import Ack
from headrace.log.head import Head, age
from headrace.log.lock import locked
from headrace.log.producers import Seen
from headrace.log.recovery import ProducerHistory, follow, opened, recover
from headrace.log.segment import extend_index, segment_path
from headrace.log.topic import Topic
from headrace.state.faults import point

Result = TypeVar("Result")

_HEAD_SYNC = 1.0  # seconds: how far the head on disk may be behind, and so how much to scan


@dataclass(frozen=True, slots=True)
class _AppendedBatch:
    """A group in the log: where it ends, and what its appends are answered once it is synced."""

    after: int  # the version of the head that it follows
    end: Head
    acks: list[dict[int, Ack]]

    @property
    def place(self) -> int:
        return self.end.place

    @property
    def generation(self) -> int:
        return self.end.generation


class _Untrusted(Exception):
    """The head cannot be trusted; `sure` where it says that it can."""

    def __init__(self, sure: bool = False) -> None:
        self.sure = sure


class TopicWriter:
    """Appends to one topic from this process; other processes have their own."""

    def __init__(self, topic: Topic, patience: float) -> None:
        self.topic = topic
        self._patience = patience
        self._head_file, self._folder = topic.head, str(topic.path)
        self._write_lock, self._sync_lock = topic.write_lock, topic.sync_lock
        self._memory = ProducerHistory(topic.path, topic.tag)
        self._head_synced = time.monotonic()
        self.rolled = False  # a segment was closed since this was last looked at

    def commit(self, appends: Sequence[Append], now: int) -> list[dict[int, Ack]]:
        """Make the appends durable together, with one sync; steps as above."""
        with self._failing():
            ready = prepare(self.topic, appends)
            written = self._trusting(lambda: self._write(appends, ready, now))
        with self._uncertain():
            self._trusting(lambda: self._publish(written))
        return written.acks

    def sweep(self, now: int) -> int:
        """Apply retention; the number of segments removed."""
        if not retention.forgets(self.topic):
            return 0
        with suppress(OSError):  # a look without locks: mostly there is nothing to do
            head, trusted = self._head_file.read()
            if head is not None and trusted and not retention.is_due(self.topic, head, now):
                return 0
        with self._failing():
            return self._trusting(lambda: self._expire(now))

    def forget(self, before: Sequence[int]) -> int:
        """Remove whole segments before these offsets, one per partition; how many they are."""
        with suppress(OSError):  # a look without locks: mostly there is nothing to do
            head, trusted = self._head_file.read()
            if (
                head is not None
                and trusted
                and retention.first_with(self.topic, head, before) == head.first
            ):
                return 0
        with self._failing():
            return self._trusting(lambda: self._forget(before))

    def closed(self, now: int) -> tuple[Head, list[int]]:
        """Begin a new segment if this one has records; the head, and the segments before it."""
        with self._failing():
            return self._trusting(lambda: self._closed(now))

    def replace(self, segment: int, fresh: Path) -> bool:
        """Put a file in the place of a closed segment's; False if retention has removed that."""
        with self._failing(), self._settled() as (head, _):
            there = segment in retention.closed(self.topic, head)
            if there:
                disk.rename(fresh, segment_path(self.topic.path, segment))
                disk.sync_folder(self.topic.path)
            return there

    def drop(self, first: int) -> int:
        """Remove the segments before `first`, which are compacted; how many they are."""
        with self._failing():
            return self._trusting(lambda: self._drop(first))

    def catch_up(self, *, wait: bool) -> None:
        """Publish the whole groups beyond the head: a writer that died left them, or the head is an
        old copy. Unless `wait`, leave that to a process that is publishing now.
        """
        with suppress(_GivenUp):  # their writer is told
            self._trusting(lambda: self._catch_up(wait))

    def _catch_up(self, wait: bool) -> None:
        with locked(self._sync_lock, self._patience, None if wait else lambda: True) as held:
            if held:
                head = self._head()
                with opened(self.topic.path, head.segment) as fd:
                    end = follow(fd, self.topic, head)
                    if os.path.exists(f"{self._folder}/{end.place:020d}.log"):
                        raise _Untrusted(sure=True)
                    if end.place > head.place:
                        self._sync(head, end, fd)

    def _trusting(self, work: Callable[[], Result]) -> Result:
        while True:
            try:
                return work()
            except _Untrusted as untrusted:
                recover(self.topic, self._patience, distrust=untrusted.sure)

    def _head(self) -> Head:
        head, trusted = self._head_file.read()
        if head is None or not trusted:
            raise _Untrusted
        return head

    # Steps 1 to 3

    def _write(
        self, appends: Sequence[Append], ready: Mapping[int, Ready], now: int
    ) -> _AppendedBatch:
        while True:
            with locked(self._write_lock, self._patience):
                head = self._head()
                with opened(self.topic.path, head.segment) as fd:
                    end = self._end(head, fd)
                    if not retention.is_full(self.topic, end, now):
                        return self._add(appends, ready, head, end, fd, now)
            self._roll(now)

    def _end(self, head: Head, fd: int) -> Head:
        """Where the last whole group ends; what a writer that died left beyond it is cut."""
        path = segment_path(self.topic.path, head.segment)
        end = follow(fd, self.topic, head)
        disk.cut(fd, path, end.position, head.position)
        if os.path.exists(f"{self._folder}/{end.place:020d}.log"):  # the head is an old copy
            raise _Untrusted(sure=True)
        return end

    def _add(
        self,
        appends: Sequence[Append],
        ready: Mapping[int, Ready],
        head: Head,
        end: Head,
        fd: int,
        now: int,
    ) -> _AppendedBatch:
        retries = any(append.producer is not None for append in appends)
        seen = self._memory.upto(fd, end) if retries else Seen()
        parts, acks = draft(self.topic, appends, ready, end, seen)
        time_of = max(now, end.time)
        stamp = Stamp(self.topic.tag, end.generation, time_of, head.place, self.topic.version)
        position, points = end.position, []
        ends, sizes = list(end.ends), list(end.sizes)
        try:
            for header, buffers in encode(parts, stamp):
                p = header.partition
                points.append((p, header.base, position, header.time))
                position = disk.write(fd, buffers, position)
                ends[p], sizes[p] = header.end, sizes[p] + header.size
                point("log.block")
        except OSError:
            with suppress(OSError):  # else the next writer does it
                path = segment_path(self.topic.path, end.segment)
                disk.cut(fd, path, end.position, head.position)
            raise
        point("log.written")
        extend_index(self.topic.path, end.segment, points, position)
        time = stamp.time if parts else end.time
        new = end._replace(position=position, time=time, ends=tuple(ends), sizes=tuple(sizes))
        return _AppendedBatch(head.version, new, acks)

    # Steps 4 to 6

    def _publish(self, written: _AppendedBatch) -> None:
        def published() -> bool:
            head, trusted = self._head_file.read()
            return head is not None and trusted and self._survived(head, written)

        with locked(self._sync_lock, self._patience, published) as held:
            head = self._head()
            if held and not self._survived(head, written):
                with opened(self.topic.path, head.segment) as fd:
                    time.sleep(0)  # writers that are about to finish share this sync
                    end = self._beyond(head, fd, written)
                    if end.place < written.place:
                        raise _given_up(self.topic)
                    self._sync(head, end, fd)

    def _beyond(self, head: Head, fd: int, written: _AppendedBatch) -> Head:
        """Where the last whole group ends: ours, unless anybody has done anything since."""
        same = head.version == written.after and os.fstat(fd).st_size == written.end.position
        return written.end if same else follow(fd, self.topic, head)

    def _survived(self, head: Head, written: _AppendedBatch) -> bool:
        """Whether the group is published; an error if it was given up."""
        if head.generation == written.generation:
            return head.place >= written.place
        if head.generation > written.generation + 1:
            raise OSError(errno.EIO, "the log was repaired twice")
        if head.since < written.place:
            raise _given_up(self.topic)
        return True

    def _sync(self, head: Head, end: Head, fd: int, *, both: bool = False) -> Head:
        """The commit of all between the two; the head that is published."""
        try:
            disk.sync(fd)
        except OSError as error:
            self._give_up(head, fd, both)
            raise _given_up(self.topic) from error
        point("log.synced")
        head = self._head_file.publish(end._replace(clock=age(end.time)), head.version)
        point("log.published")
        if time.monotonic() - self._head_synced > _HEAD_SYNC:
            with suppress(OSError):  # it only saves time after a restart
                self._head_file.sync()
            self._head_synced = time.monotonic()
        return head

    def _give_up(self, head: Head, fd: int, both: bool) -> None:
        """Nothing beyond the head can be vouched for: not even a second sync could."""
        with nullcontext() if both else locked(self._write_lock, self._patience):
            generation = head.generation + 1
            self._head_file.restart(head._replace(generation=generation, since=head.place))
            with suppress(OSError):
                path = segment_path(self.topic.path, head.segment)
                disk.cut(fd, path, head.position, head.position)

    # What needs both locks

    @contextmanager
    def _settled(self) -> Iterator[tuple[Head, int]]:
        """The head, with all that was written published, and its segment's file."""
        patience = self._patience
        with locked(self._sync_lock, patience), locked(self._write_lock, patience):
            head = self._head()
            with opened(self.topic.path, head.segment) as fd:
                end = self._end(head, fd)
                if end.place > head.place:
                    head = self._sync(head, end, fd, both=True)
                yield head, fd

    def _roll(self, now: int) -> None:
        self.rolled = True
        with self._settled() as (head, fd):
            if retention.is_full(self.topic, head, now):
                rolled = retention.roll(self.topic, head, self._memory, fd, now)
                retention.expire(self.topic, rolled, now)

    def _expire(self, now: int) -> int:
        with self._settled() as (head, fd):
            old = retention.is_expired(self.topic, head, now)
            rolled = retention.roll(self.topic, head, self._memory, fd, now) if old else head
            return retention.expire(self.topic, rolled, now)

    def _forget(self, before: Sequence[int]) -> int:
        with self._settled() as (head, _):
            return retention.forget(self.topic, head, before)

    def _closed(self, now: int) -> tuple[Head, list[int]]:
        with self._settled() as (head, fd):
            used = head.position > head.start
            last = retention.roll(self.topic, head, self._memory, fd, now) if used else head
            return last, retention.closed(self.topic, last)

    def _drop(self, first: int) -> int:
        with self._settled() as (head, _):
            return retention.drop(self.topic, head, first)

    # Errors

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise  # the topic was deleted
        except OSError as error:
            raise _cannot_write(self.topic, error) from error

    @contextmanager
    def _uncertain(self) -> Iterator[None]:
        """Of a group that is written: unless it was given up, others may publish it."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, _GivenUp):
            raise
        except (OSError, LogError) as error:
            raise _unknown(self.topic, error) from error


def _cannot_write(topic: Topic, error: OSError) -> LogError:
    where = error.filename or topic.path
    return LogError(
        "HR-LOG-010",
        f"cannot append to topic '{topic.name}': {error.strerror or error} ({where})",
        "Nothing was appended. Free space or repair the permissions, then append again.",
    )


class _GivenUp(LogError):
    pass


def _given_up(topic: Topic) -> LogError:
    return _GivenUp(
        "HR-LOG-010",
        f"cannot append to topic '{topic.name}': the disk could not sync ({topic.path})",
        "Nothing was appended. See to the disk, then append again.",
    )


def _unknown(topic: Topic, error: OSError | LogError) -> LogError:
    why = error.message if isinstance(error, LogError) else error.strerror or error
    return LogError(
        "HR-LOG-018",
        f"an append to topic '{topic.name}' was written, but not acknowledged: {why}",
        "It may appear as a whole, or not at all. With the same producer "
        "and sequence it can be appended again; else look for its records first.",
    )
