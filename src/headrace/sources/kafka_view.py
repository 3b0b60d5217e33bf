"""What a cluster says about one topic, as a job sees it while it runs.

The view is refreshed as often as it is asked for, at most every `POLL` seconds. A cluster that
does not answer is waited for, with growing pauses: until then the last view holds, so nothing new
is there to read. A topic that is deleted, or made again, is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.errors import InputError, LogError
from headrace.log import kafka
from headrace.log.kafka import Cluster
from headrace.log.kafka_topics import NO_NEWS

POLL = 0.02  # seconds between two questions
SLOW_POLL = 1.0  # seconds: about the topic itself, and its oldest records, while nothing is new
ANSWER = 2.0  # seconds for an answer while the job runs
LONGEST_PAUSE = 5.0
AWHILE = 5.0  # seconds for which a topic may seem gone or shorter, while brokers take over
START_WAIT = 60.0  # seconds: a run that has begun waits for the first answer

_CODES = {"HR-KAFKA-002": "HR-INPUT-010"}


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """By partition: the first offset there is, and the one after the last that can be read."""

    earliest: Mapping[int, int]
    latest: Mapping[int, int]


class TopicView:
    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        committed: bool,
        say: Callable[[str | None], None],
    ) -> None:
        self._cluster, self._topic, self._committed = cluster, topic, committed
        self._say = say  # what the job waits for; None when it goes on
        self.id: str | None = None  # of the topic, once it is known
        self._partitions: tuple[int, ...] = ()
        self._bounds: TopicBounds | None = None
        self._due = 0.0  # when to ask again
        self._whole_due = 0.0  # when to ask about the topic, too
        self._failing_since: float | None = None
        self._pause = 0.0
        self.overdue = False  # what is there was not learnt since `at_once`

    def identify(self) -> str:
        """The topic's id, asked for once."""
        if self.id is None:
            self._describe(kafka.PATIENCE)
        assert self.id is not None
        return self.id

    def bounds(self) -> TopicBounds:
        """What was there when it was last asked for."""
        if self._bounds is None:
            self._first(kafka.PATIENCE)
        assert self._bounds is not None
        return self._bounds

    def refresh(self) -> TopicBounds:
        """What is there now; what was there, while the cluster does not answer."""
        now = time.monotonic()
        if self._bounds is None:
            self._first(START_WAIT, self._say)
            self._say(None)
            return self.bounds()
        if now < self._due:
            return self._bounds
        try:
            self._bounds = self._ask(ANSWER)
        except LogError as cause:
            self._failed(cause, now)
            return self._bounds
        self._answered()
        self.overdue = False
        return self._bounds

    def at_once(self) -> None:
        """The next answer is about the topic, its partitions and records as they are then."""
        self._due = self._whole_due = 0.0
        self._partitions, self.overdue = (), True

    def say(self, text: str | None) -> None:
        """Tell what the job waits for; None when it goes on."""
        self._say(text)

    def watch(self) -> bool:
        """Called while a partition is silent: whether the cluster answered just now. Raises what
        cannot be waited for."""
        now = time.monotonic()
        if now < self._due:
            return False
        try:
            self._describe(ANSWER)
        except LogError as cause:
            self._failed(cause, now)
            return False
        self._answered()
        self._due = time.monotonic() + SLOW_POLL
        return True

    def verify(self) -> None:
        """Raise an error if the topic is another than when it was planned; waits for an answer."""
        while True:
            try:
                self._describe(ANSWER)
            except LogError as cause:
                self._failed(cause, time.monotonic())
                time.sleep(self._pause)
                continue
            self._answered()
            return

    def resolve(self, at: str | int) -> dict[int, int]:
        """By partition: the offset at "earliest", "latest" or a time."""
        if not self._partitions:
            self._describe(kafka.PATIENCE)
        return self._offsets(at, kafka.PATIENCE)

    def _first(self, seconds: float, say: Callable[[str], None] | None = None) -> None:
        """Ask until there is an answer: a topic that was just made has no leader for a moment."""
        began = time.monotonic()
        while self._bounds is None:
            try:
                self._bounds = self._ask(min(ANSWER, seconds))
            except LogError as cause:
                if not kafka.is_passing(cause) or time.monotonic() > began + seconds:
                    raise as_input(cause) from cause
                if say is not None and time.monotonic() - began >= NO_NEWS:
                    say(cause.message)
                time.sleep(0.1)

    def _ask(self, timeout: float) -> TopicBounds:
        try:
            return self._look(timeout)
        except LogError:
            self._describe(timeout)  # says more, if the topic is gone
            raise

    def _look(self, timeout: float) -> TopicBounds:
        """What is there; the topic is looked at after its offsets, so they are this topic's."""
        before, now = self._bounds, time.monotonic()
        if not self._partitions:
            self._describe(timeout)
        latest = self._offsets("latest", timeout)
        if before is not None and latest == before.latest and now < self._whole_due:
            return before
        earliest = self._offsets("earliest", timeout)
        self._describe(timeout)
        if before is not None and any(latest.get(p, 0) < o for p, o in before.latest.items()):
            self._refuse_shorter(now)
        self._whole_due = now + SLOW_POLL
        return TopicBounds(earliest, latest)

    def _refuse_shorter(self, now: float) -> None:
        """Brokers that take over may know less for a moment, so it is asked again for a while."""
        if self._failing_since is None or now - self._failing_since < AWHILE:
            raise LogError("HR-KAFKA-001", f"the brokers of {self._topic!r} are taking over", None)
        raise InputError(
            "HR-INPUT-007",
            f"topic {self._topic!r} has lost records that were there before",
            "A broker that did not have them was elected, or lost its disk: restore the topic, or "
            "start with a new job folder.",
        )

    def _offsets(self, at: str | int, timeout: float) -> dict[int, int]:
        return kafka.offsets(
            self._cluster,
            self._topic,
            self._partitions,
            at,
            committed=self._committed,
            timeout=timeout,
        )

    def _describe(self, timeout: float) -> None:
        facts = kafka.describe(self._cluster, self._topic, timeout)
        if self.id is not None and facts.id != self.id:
            raise InputError(
                "HR-INPUT-016",
                f"topic {self._topic!r} was deleted and made again while it was read",
                "Its records are others than those that the job has "
                "read: start with a new job folder, or read it as an input of another name.",
            )
        self.id, self._partitions = facts.id, facts.partitions

    def _failed(self, cause: LogError, now: float) -> None:
        self._failing_since = self._failing_since or now
        lasting = kafka.is_missing(cause) and now - self._failing_since > AWHILE
        if lasting or not (kafka.is_missing(cause) or kafka.is_passing(cause)):
            raise as_input(cause) from cause
        self._pause = min(LONGEST_PAUSE, max(0.1, 2 * self._pause))
        self._due = time.monotonic() + self._pause
        if self._due - self._pause - self._failing_since >= NO_NEWS:
            self._say(cause.message)

    def _answered(self) -> None:
        if self._failing_since is not None:
            self._failing_since, self._pause = None, 0.0
            self._say(None)
        self._due = time.monotonic() + POLL


def as_input(cause: LogError) -> InputError:
    return InputError(_CODES.get(cause.code, cause.code), cause.message, cause.hint)
