"""`hr.Consumer`: the records of topics for a program that is not a job, alone or in a group.

What `poll` returns counts as processed when `poll` is called again, and a record of an iteration
when the next one is asked for: that is what `commit` stores. So after a crash records may be seen
again, and none is skipped. The same for every log (see `clients.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any

from headrace.clock import Duration, millis
from headrace.errors import LogError
from headrace.log.arguments import check_offset, is_whole, ms_of
from headrace.log.clients import (
    ConsumerRecord,
    PolledBatch,
    TopicPartition,
    TopicSubscription,
    opened_consumer,
    outside,
)
from headrace.log.consumer_groups import fenced, unusable_name
from headrace.log.contract import Log

_MOST = 262_144  # rows of one batch
_WAIT = 1.0  # seconds that an iteration waits at a time
_POLLS = 3  # how often an iteration polls in `max_poll`, even within a batch


class Consumer:
    """Reads topics; a context manager and an iterable of records.

    With a `group`, its members in all processes share the partitions: each record goes to one
    of them, and the group goes on where it has committed, at `start` ("earliest" or "latest")
    where it has not. Every group sees all records. Without a group it reads all partitions.

    `auto_commit` is how often what was processed is committed, at the least; None: only
    `commit()` does. A member that does not poll for `max_poll`, or whose process hangs for
    `session`, loses its partitions to the others. One thread at a time may use it.
    """

    def __init__(
        self,
        topics: str | Collection[str],
        group: str | None = None,
        *,
        log: Log | str | os.PathLike[str] | None = None,
        start: str = "earliest",
        auto_commit: Duration | None = "5s",
        session: Duration = "10s",
        max_poll: Duration = "5m",
        **options: Any,
    ) -> None:
        self._group, self._closed, self._pid = group, True, os.getpid()
        self._processed: dict[TopicPartition, int] = {}  # of what was returned: not committed yet
        self._returned: dict[
            TopicPartition, int
        ] = {}  # by the last poll: processed when the next begins
        self._records: Iterator[ConsumerRecord] | None = None  # of the batch that is being iterated
        self._auto = None if auto_commit is None else millis(auto_commit) / 1_000
        self._due = time.monotonic() + (self._auto or 0)
        self._poll_every, self._polled = millis(max_poll) / 1_000 / _POLLS, time.monotonic()
        subscription = TopicSubscription(
            _topics(topics), _group(group), _start(start), millis(session), millis(max_poll)
        )
        self._client = opened_consumer(log, subscription, options)
        self._closed = False

    def poll(self, timeout: Duration = "1s", max_rows: int = _MOST) -> PolledBatch | None:
        """The next records of one partition, at most `max_rows`; None if none came in time."""
        self._check()
        if not is_whole(max_rows) or max_rows < 1:
            raise LogError("HR-LOG-019", f"cannot use max_rows={max_rows!r}", "Give 1 or more.")
        self._rewind()
        return self._poll(millis(timeout) / 1_000, max_rows)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Every record as it comes, without end."""
        while True:
            record = self._next(_WAIT)
            if record is not None:
                yield record

    def records(self, timeout: Duration = "1s") -> Iterator[ConsumerRecord]:
        """Every record as it comes, until none has come for `timeout`."""
        seconds = millis(timeout) / 1_000
        while (record := self._next(seconds)) is not None:
            yield record

    def commit(self, positions: Mapping[tuple[str, int], int] | None = None) -> None:
        """Store for the group how far it is: everything returned so far, or these offsets.

        An offset is that of the next record to read. Durable when this returns. HR-LOG-021: another
        member has taken over, and what was not committed is read again; or one of these offsets is
        of a partition that this consumer does not hold. HR-LOG-007: an offset that the partition
        does not have. Nothing was stored.
        """
        self._check()
        if self._group is None:
            raise LogError(
                "HR-LOG-022",
                "a consumer without a group cannot commit",
                'Name one: hr.Consumer(topics, group="..."), or keep its positions() yourself.',
            )
        if positions is None:
            self._settle()
            wanted = dict(self._processed)
        else:
            wanted = {TopicPartition(*place): offset for place, offset in positions.items()}
            held = self._client.assignment()
            for place, offset in wanted.items():
                check_offset(offset)
                if place not in held:
                    raise fenced(self._group, place)
                if not 0 <= offset <= self._client.position(place):
                    earliest, latest = self._client.bounds(place)
                    if not 0 <= offset <= latest:
                        raise outside(place, offset, earliest, latest)
        self._due = time.monotonic() + (self._auto or 0)
        if not wanted:
            return
        try:
            self._client.commit(wanted)
        except LogError as error:
            if error.code == "HR-LOG-021" and positions is None:
                self._rewind()
                self._processed, self._returned = {}, {}
            raise
        for place, offset in wanted.items():
            if self._processed.get(place) == offset:
                del self._processed[place]

    def positions(self) -> dict[TopicPartition, int]:
        """By partition that is read now: the offset of the next record."""
        self._check()
        at = {place: self._client.position(place) for place in self._client.assignment()}
        if self._records is not None:  # the rest of the batch is still to come
            at |= {place: offset for place, offset in self._returned.items() if place in at}
        return at

    def committed(self) -> dict[TopicPartition, int]:
        """By partition: what the group has committed."""
        self._check()
        return self._client.committed()

    def lag(self) -> dict[TopicPartition, int]:
        """By partition that is read now: how many offsets are still to come."""
        return {at: self._client.bounds(at)[1] - offset for at, offset in self.positions().items()}

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now; with a group, known after the first `poll`."""
        self._check()
        return self._client.assignment()

    def seek(self, topic: str, partition: int, offset: int | str) -> None:
        """Go on reading a partition from an offset, or from "earliest" or "latest"."""
        self._check()
        place = TopicPartition(topic, partition)
        self._assigned(place)
        earliest, latest = self._client.bounds(place)
        if isinstance(offset, str):
            offset = earliest if _start(offset) == "earliest" else latest
        check_offset(offset)
        if not earliest <= offset <= latest:
            raise outside(place, offset, earliest, latest)
        self._forget(place, offset)
        self._client.seek(place, offset)

    def seek_to_time(self, moment: datetime | int | str) -> dict[TopicPartition, int]:
        """Go on, in every partition that is read now, with the first record appended at or after a
        moment: a datetime or its ISO text (UTC if it names no zone), or milliseconds since 1970.
        The offsets."""
        self._check()
        ms = ms_of(moment)
        offsets = {at: self._client.offset_for_time(at, ms) for at in self._client.assignment()}
        for place, offset in offsets.items():
            self._forget(place, offset)
            self._client.seek(place, offset)
        return offsets

    def close(self) -> None:
        """Commit what was processed, unless `auto_commit` is None, and leave the group."""
        self._close(commit=True)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(commit=kind is None)  # what was being processed when it failed is read again

    def _close(self, commit: bool) -> None:
        if self._closed or self._pid != os.getpid():
            return
        try:
            if commit and self._auto is not None and self._group is not None:
                self.commit()
        finally:
            self._closed = True
            self._client.close()

    # What was returned, and what of it is processed.

    def _poll(self, timeout: float, max_rows: int) -> PolledBatch | None:
        self._settle()
        self._commit_if_due()
        batch = self._client.poll(timeout, max_rows, self._revoking)
        self._polled = time.monotonic()
        if batch is not None:
            self._returned[batch.place] = batch.end
        return batch

    def _commit_if_due(self) -> None:
        if self._group is not None and self._auto is not None and time.monotonic() >= self._due:
            self.commit()

    def _next(self, timeout: float) -> ConsumerRecord | None:
        self._check()
        if self._records is not None and self._group is not None:
            if time.monotonic() - self._polled >= self._poll_every:  # it is still a member then
                self._rewind()
            else:
                self._commit_if_due()
        if self._records is None:
            batch = self._poll(timeout, _MOST)
            if batch is None:
                return None
            self._records = batch.records()
            self._returned[batch.place] = int(batch.offsets[0])
            self._batch_end = batch.end
        record = next(self._records, None)
        if record is None:
            self._records = None
            self._returned = {place: self._batch_end for place in self._returned}
            return self._next(timeout)
        self._returned[TopicPartition(record.topic, record.partition)] = record.offset + 1
        return record

    def _rewind(self) -> None:
        """The rest of a batch that is being iterated comes again with the next poll."""
        if self._records is None:
            return
        self._records = None
        assigned = self._client.assignment()
        for place, offset in self._returned.items():
            if place in assigned:
                self._client.seek(place, offset)

    def _settle(self) -> None:
        """What was returned so far counts as processed."""
        self._processed |= self._returned
        if self._records is None:
            self._returned = {}

    def _revoking(self, places: Collection[TopicPartition], lost: bool) -> None:
        """Partitions go to another member: commit what was processed of them."""
        done = {p: at for p, at in self._processed.items() if p in places}
        if done and not lost and self._auto is not None:
            self._client.commit(done)
        for place in places:
            self._processed.pop(place, None)

    def _forget(self, place: TopicPartition, offset: int) -> None:
        """Reading goes on elsewhere: that is what is committed next."""
        if place in self._returned:
            self._records = None
            del self._returned[place]
        self._processed[place] = offset

    def _assigned(self, place: TopicPartition) -> None:
        if place not in self._client.assignment():
            raise LogError(
                "HR-LOG-028",
                f"partition {place.partition} of topic '{place.topic}' is not read by this "
                "consumer now",
                "It may belong to another member of the group, or the first poll() is still to "
                "come: see assignment().",
            )

    def _check(self) -> None:
        if self._closed or self._pid != os.getpid():
            why = "is closed" if self._closed else "was made in another process"
            raise LogError(
                "HR-LOG-027",
                f"the consumer {why}",
                "Make a new one: with hr.Consumer(topics, group=...) as consumer",
            )


def _topics(topics: str | Collection[str]) -> tuple[str, ...]:
    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if not names:
        raise LogError("HR-LOG-019", "cannot use no topics", "Name one topic, or more.")
    return names


def _group(group: Any) -> str | None:
    if group is not None and not (isinstance(group, str) and 0 < len(group) <= 80):
        raise unusable_name(group)
    return group


def _start(start: str) -> str:
    if start not in ("earliest", "latest"):
        raise LogError(
            "HR-LOG-019",
            f"cannot use {start!r} as a place to start",
            'Write "earliest" or "latest"; seek() goes to an offset or a time.',
        )
    return start
