"""The offsets of a consumer group, so that tools that show lag see how far a job is.

They are committed beside the job, by a thread: nothing depends on them, and a broker that is gone
holds nothing up. Of several that wait the newest counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from headrace.log.forks import left_to_parent
from headrace.log.kafka import Cluster, library

CLOSING = 5.0  # seconds for the last commit
_PAUSE = 1.0  # seconds after one that failed


class GroupCommitter:
    def __init__(self, cluster: Cluster, topic: str, group: str) -> None:
        self._kafka = library()
        self._topic = topic
        self._consumer = self._kafka.Consumer(
            cluster.config(**{"group.id": group, "enable.auto.commit": False})
        )
        left_to_parent(self)
        self._news = threading.Condition()
        self._next: dict[int, int] | None = None
        self._closing, self._until = False, 0.0  # until then the last commit is tried again
        self._thread = threading.Thread(target=self._run, name="headrace-kafka-group", daemon=True)
        self._thread.start()

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit these, soon."""
        with self._news:
            self._next = dict(offsets)
            self._news.notify()

    def close(self) -> None:
        """Commit what waits, if the cluster answers, and end."""
        with self._news:
            self._closing, self._until = True, time.monotonic() + CLOSING - _PAUSE
            self._news.notify()
        self._thread.join(CLOSING)

    def _run(self) -> None:
        while True:
            with self._news:
                while self._next is None and not self._closing:
                    self._news.wait()
                offsets, self._next = self._next, None
            if offsets is None:
                self._consumer.close()
                return
            self._try(offsets)

    def _try(self, offsets: dict[int, int]) -> None:
        places = [self._kafka.TopicPartition(self._topic, p, o) for p, o in offsets.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except self._kafka.KafkaException:
            with self._news:
                again = not self._closing or time.monotonic() < self._until
                if self._next is None and again:
                    self._next = offsets
                    self._news.wait(_PAUSE)
