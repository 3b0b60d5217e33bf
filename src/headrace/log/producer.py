"""`hr.Producer`: records to the topics of a log, from a program that is not a job.

What is sent is collected and appended many at a time; it is durable when `flush` returns, when the
producer is closed, or when a transaction is committed. The same for every log (see `clients.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from headrace.errors import LogError
from headrace.log.clients import Headers, opened_producer
from headrace.log.contract import Log, Records
from headrace.log.partitioning import check_number


class Producer:
    """Sends records to topics; a context manager, which flushes at its end.

    `place` is a log, its folder, or a URI; by default the embedded log ($HEADRACE_LOG, or
    .headrace/log here). One thread at a time may use it.
    """

    def __init__(self, place: Log | str | os.PathLike[str] | None = None, **options: Any) -> None:
        self._client = opened_producer(place, options)
        self._pid = os.getpid()
        self._closed = self._in_transaction = False

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Send one record: bytes, text or a dictionary; a dictionary or tuple to a typed topic.

        Records with equal keys go to the same partition and stay in order. It is durable after
        `flush`.
        """
        if self._closed or self._pid != os.getpid():
            self._refuse()
        if partition is not None:
            check_number(topic, partition)
        self._client.send(topic, value, key, headers, partition)

    def send_all(
        self,
        topic: str,
        records: Records,
        *,
        key: str | Sequence[Any] | None = None,
        partition: int | None = None,
    ) -> None:
        """Send many records: a table, a data frame, or any iterable of rows; the fastest way."""
        self._check()
        if partition is not None:
            check_number(topic, partition)
        self._client.send_all(topic, records, key, partition)

    def flush(self) -> None:
        """Wait until everything that was sent is durable and visible to readers."""
        self._check()
        if self._in_transaction:
            raise LogError(
                "HR-LOG-027",
                "flush was called in a transaction",
                "What a transaction sends is durable when its block ends; leave flush out.",
            )
        self._client.flush()

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """What is sent in the block appears together, in all topics, when the block ends.

        If the block raises, or the program ends in it, nothing of it appears.
        """
        self._check()
        if self._in_transaction:
            raise LogError(
                "HR-LOG-027",
                "a transaction was begun inside another",
                "End the first block before the second begins.",
            )
        self._client.begin()
        self._in_transaction = True
        try:
            yield self
        except BaseException:
            self._in_transaction = False
            self._client.abort()
            raise
        self._in_transaction = False
        self._client.commit()

    def close(self) -> None:
        """Flush, and release what is held."""
        if not self._closed and self._pid == os.getpid():
            try:
                self._client.flush()
            finally:
                self._closed = True
                self._client.close()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        elif not self._closed:  # what was not flushed may or may not be there
            self._closed = True
            self._client.close()

    def _check(self) -> None:
        if self._closed or self._pid != os.getpid():
            self._refuse()

    def _refuse(self) -> None:
        why = "is closed" if self._closed else "was made in another process"
        raise LogError(
            "HR-LOG-027", f"the producer {why}", "Make a new one: with hr.Producer(...) as producer"
        )
