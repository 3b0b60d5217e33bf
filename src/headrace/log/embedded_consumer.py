"""A consumer of the embedded log: what `clients.py` asks for, by files.

It polls the heads of its topics; in a group it holds partitions as `consumer_groups.py` says, and a
thread of its own sends heartbeats and looks for members that have died.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress

from headrace.errors import LogError
from headrace.log.clients import (
    PolledBatch,
    Revoking,
    TopicPartition,
    TopicSubscription,
    outside,
)
from headrace.log.consumer_groups import GroupFiles, fenced
from headrace.log.contract import APPEND_TIME, OFFSET, TopicInfo
from headrace.log.embedded import EmbeddedLog
from headrace.log.group_membership import CommittedOffset, GroupMember
from headrace.log.heartbeats import Heartbeat

_SHORTEST, _LONGEST = 0.000_5, 0.02  # seconds between looks at the end of the topics
_BEAT, _BEATS = 0.25, 4  # seconds between heartbeats, and how many there are in a session


class EmbeddedConsumer:
    """A `ConsumerClient`."""

    def __init__(self, log: EmbeddedLog, subscription: TopicSubscription) -> None:
        self._log, self._ask = log, subscription
        self._topics = {name: log.describe(name) for name in subscription.topics}
        self._at: dict[TopicPartition, int] = {}
        self._order: list[TopicPartition] = []
        self._next = 0
        self._member: _Member | None = None
        group = subscription.group
        self._files = None if group is None else GroupFiles(log.root, group, log.patience)
        if self._files is None:
            self._own({p: self._beginning(p) for p in self._places()})

    def poll(self, timeout: float, max_rows: int, revoking: Revoking) -> PolledBatch | None:
        until, pause = time.monotonic() + timeout, _SHORTEST
        while True:
            if self._files is not None:
                self._follow_group(self._files, revoking)
            batch = self._read(max_rows)
            left = until - time.monotonic()
            if batch is not None or left <= 0:
                return batch
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST)

    def assignment(self) -> list[TopicPartition]:
        return sorted(self._at)

    def position(self, place: TopicPartition) -> int:
        return self._at[place]

    def seek(self, place: TopicPartition, offset: int) -> None:
        if place in self._at:
            self._at[place] = offset

    def bounds(self, place: TopicPartition) -> tuple[int, int]:
        info = self._log.describe(place.topic)
        return info.earliest[place.partition], info.latest[place.partition]

    def offset_for_time(self, place: TopicPartition, ms: int) -> int:
        return self._log.offset_for_time(place.topic, place.partition, ms)

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        assert self._files is not None
        member = self._member
        if member is None or member.lost:
            raise fenced(self._files.name)
        for place in positions:
            if place not in member.held:
                raise fenced(self._files.name, place)
        offsets = {at: CommittedOffset(self._topics[at.topic].id, o) for at, o in positions.items()}
        try:
            self._files.commit(offsets, member.name, member.held)
        except LogError as error:
            if error.code == "HR-LOG-021":
                member.lost = True
            raise

    def committed(self) -> dict[TopicPartition, int]:
        if self._files is None:
            return {}
        return {
            place: stored.offset
            for place, stored in self._files.offsets().items()
            if place.topic in self._topics and stored.id == self._topics[place.topic].id
        }

    def close(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            member.close()

    # Reading

    def _places(self) -> list[TopicPartition]:
        return [
            TopicPartition(t, p) for t, info in self._topics.items() for p in range(info.partitions)
        ]

    def _beginning(self, place: TopicPartition) -> int:
        earliest, latest = self.bounds(place)
        return earliest if self._ask.start == "earliest" else latest

    def _own(self, at: dict[TopicPartition, int]) -> None:
        self._at, self._order = at, sorted(at)

    def _read(self, max_rows: int) -> PolledBatch | None:
        """The next records of the partition whose turn it is."""
        latest: dict[str, TopicInfo] = {}
        for _ in range(len(self._order)):
            self._next = (self._next + 1) % len(self._order)
            place = self._order[self._next]
            if place.topic not in latest:
                latest[place.topic] = self._described(place.topic)
            batch = self._read_of(place, latest[place.topic], max_rows)
            if batch is not None:
                return batch
        return None

    def _described(self, topic: str) -> TopicInfo:
        info = self._log.describe(topic)
        if info.id != self._topics[topic].id:
            raise LogError(
                "HR-LOG-002",
                f"topic '{topic}' was deleted and made again while it was read",
                "Its records are others than those that were read: make a new consumer.",
            )
        return info

    def _read_of(self, place: TopicPartition, info: TopicInfo, max_rows: int) -> PolledBatch | None:
        start, end = self._at[place], info.latest[place.partition]
        if start < info.earliest[place.partition]:
            raise self._overtaken(place, start, info.earliest[place.partition])
        if start > end:  # a log that was restored from a copy: never what comes there later
            raise outside(place, start, info.earliest[place.partition], end)
        if start == end:
            return None
        chunks = self._log.read(*place, start, end, times=True, offsets=True)
        chunk = next(chunks, None)
        if chunk is None:  # nothing is left there: compaction has removed it
            self._at[place] = end
            return None
        table = chunk[1].slice(0, max_rows)
        offsets = table[OFFSET].to_numpy()
        self._at[place] = int(offsets[-1]) + 1
        return PolledBatch(
            *place,
            table.drop_columns([APPEND_TIME, OFFSET]),
            offsets,
            table[APPEND_TIME].to_numpy(),
            self._at[place],
            "key" if info.schema is None else info.key,
            info.schema is not None,
        )

    def _overtaken(self, place: TopicPartition, start: int, earliest: int) -> LogError:
        return LogError(
            "HR-LOG-023",
            f"records {start} to {earliest - 1} of partition {place.partition} of topic "
            f"'{place.topic}' were removed by retention before they were read",
            "To go on without them: seek(topic, partition, 'earliest'), or headrace topic "
            "reset-offsets. A topic made with retention_groups=True waits for its groups.",
        )

    # The group

    def _follow_group(self, files: GroupFiles, revoking: Revoking) -> None:
        """Join, release and take partitions, if anything has changed."""
        member = self._member
        if member is not None and member.lost:
            revoking(list(member.held), True)
            member.close()
            self._own({})
            member = None
        topics = {t: (i.id, i.partitions) for t, i in self._topics.items()}
        if member is None:
            self._member = member = _Member(files, self._ask, topics)
        member.polled = time.monotonic()
        stamp = files.stamp()
        if stamp == member.stamp:
            return
        targets = files.membership().targets
        released = [place for place in member.held if targets.get(place) != member.name]
        try:
            if released:
                revoking(released, False)
            member.held = files.sync(member.name, topics, released)
        except LogError as error:
            if error.code != "HR-LOG-021":
                raise
            member.lost = True
            self._own({})  # the next round joins again
            return
        member.stamp = stamp
        self._take(files, member.held)

    def _take(self, files: GroupFiles, held: Mapping[TopicPartition, int]) -> None:
        """Begin new partitions where the group has committed; else where it is to start."""
        new = [place for place in held if place not in self._at]
        begin = {p: CommittedOffset(self._topics[p.topic].id, self._beginning(p)) for p in new}
        stored = files.begin(begin) if begin else {}
        known = {place: at for place, at in self._at.items() if place in held}
        self._own(known | {place: o.offset for place, o in stored.items()})


class _Member:
    """A consumer in its group, and the thread that says that it lives."""

    def __init__(
        self, files: GroupFiles, ask: TopicSubscription, topics: Mapping[str, tuple[str, int]]
    ) -> None:
        self.held: dict[TopicPartition, int] = {}
        self.stamp: tuple[int, int] | None = None
        self.lost = False
        self.polled = time.monotonic()
        self._files, self._ask = files, ask
        me = GroupMember(ask.topics, ask.session_ms, os.getpid(), socket.gethostname())
        self._beat: Heartbeat = files.join(me, topics)
        self.name = self._beat.member
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=_beating, args=(weakref.ref(self), self._stop, self._beat), daemon=True
        )
        self._thread.start()

    def beat(self) -> bool:
        """Say that this member lives, and remove those that do not; False if it is to stop."""
        if (time.monotonic() - self.polled) * 1_000 > self._ask.max_poll_ms:
            self.lost = True
            with suppress(LogError):  # else it is removed after its session
                self._files.leave(self.name)
            return False
        self._beat.beat()
        with suppress(LogError):  # the next round looks again; a poll says what is wrong
            self._files.expire()
        return True

    @property
    def pause(self) -> float:
        return min(_BEAT, self._ask.session_ms / 1_000 / _BEATS)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        with suppress(LogError):  # else it is removed after its session
            self._files.leave(self.name)
        self._beat.close()


def _beating(member: weakref.ref[_Member], stop: threading.Event, beat: Heartbeat) -> None:
    while (alive := member()) is not None:
        pause = alive.pause
        if not alive.beat():
            return
        del alive
        if stop.wait(pause):
            return
    beat.close()  # the consumer was thrown away without being closed
