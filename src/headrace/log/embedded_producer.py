"""A producer of the embedded log: what `clients.py` asks for, by files.

It collects records and appends them together, when there are enough or after a moment.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.errors import LogError
from headrace.log.clients import Headers
from headrace.log.contract import Records
from headrace.log.embedded import EmbeddedLog
from headrace.log.partitioning import OwnPartitions, keys_of
from headrace.log.sent_copies import copied, copied_records
from headrace.rows import LEAVES

_ROWS = 16_384  # records of a topic that are appended at once
_LINGER = 0.005  # seconds after which a few are
_OF_ONE = ("HR-LOG-005", "HR-LOG-006", "HR-LOG-031")  # what one record may be refused for
_IDLE = 0.5  # seconds between looks whether a producer is still in use


class _Buffer:
    """Records of one topic that are not appended yet."""

    __slots__ = ("keyed", "keys", "partitions", "placed", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.keys: list[Any] = []
        self.partitions: list[int] = []
        self.keyed = self.placed = False

    def add(self, value: Any, key: Any, partition: int | None) -> None:
        self.values.append(value if type(value) in LEAVES else copied(value))
        self.keys.append(key if type(key) in LEAVES else copied(key))
        self.keyed |= key is not None
        self.partitions.append(-1 if partition is None else partition)
        self.placed |= partition is not None

    def arguments(self) -> dict[str, Any]:
        """How `append` is to route them."""
        keys = self.keys if self.keyed else None
        if not self.placed:
            return {"key": keys}
        return {"key": keys, "partitioner": OwnPartitions(np.array(self.partitions, np.int64))}


class EmbeddedProducer:
    """A `ProducerClient`."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._waiting: dict[str, _Buffer] = {}
        self._transaction: list[tuple[str, Any, dict[str, Any]]] | None = None
        self._collected: dict[str, _Buffer] = {}  # of the transaction
        self._open = threading.Lock()  # held while `_waiting` changes
        self._appends = threading.Lock()  # held while records are appended: they stay in order
        self._error: Exception | None = None
        self._work = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def send(
        self, topic: str, value: Any, key: Any, headers: Headers | None, partition: int | None
    ) -> None:
        if headers:
            raise LogError(
                "HR-LOG-026",
                f"topic '{topic}' of the embedded log cannot hold headers",
                "Make them columns of a typed topic, or fields of the value.",
            )
        if self._transaction is not None:
            self._collected.setdefault(topic, _Buffer()).add(value, key, partition)
            return
        with self._open:
            buffer = self._waiting.get(topic)
            if buffer is None:
                buffer = self._waiting[topic] = _Buffer()
                self._wake()
            buffer.add(value, key, partition)
        if len(buffer.values) >= _ROWS:
            self._append_waiting()
        if self._error is not None:  # of records before this one, which is sent nevertheless
            self._raise()

    def send_all(
        self, topic: str, records: Records, key: str | Sequence[Any] | None, partition: int | None
    ) -> None:
        arguments: dict[str, Any] = {"key": key, "partition": partition}
        if self._transaction is not None:  # the caller may change them before it ends
            keys = keys_of(topic, key)
            arguments["key"] = copied(keys) if type(keys) is list else keys
            self._collect().append((topic, copied_records(topic, records), arguments))
            return
        self._append_waiting()
        self._log.append(topic, records, **arguments)
        self._raise()

    def flush(self) -> None:
        self._append_waiting()
        self._raise()

    def begin(self) -> None:
        self.flush()
        self._transaction = []

    def commit(self) -> None:
        parts = self._collect()
        self._transaction = None
        if parts:
            self._log.transact(parts)

    def abort(self) -> None:
        self._transaction, self._collected = None, {}

    def close(self) -> None:
        self._ended = True
        self._work.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _collect(self) -> list[tuple[str, Any, dict[str, Any]]]:
        """What the transaction has sent so far, in order."""
        assert self._transaction is not None
        sent, self._collected = self._collected, {}
        self._transaction += [(t, b.values, b.arguments()) for t, b in sent.items()]
        return self._transaction

    def _append_waiting(self) -> None:
        with self._appends:
            with self._open:
                waiting, self._waiting = self._waiting, {}
            for topic, buffer in waiting.items():
                try:
                    self._append(topic, buffer)
                except Exception as error:  # whatever it is: who sends has to know
                    self._error = self._error or error

    def _append(self, topic: str, buffer: _Buffer) -> None:
        try:
            self._log.append(topic, buffer.values, **buffer.arguments())
        except LogError as error:
            if error.code not in _OF_ONE or len(buffer.values) == 1:
                raise
            self._one_by_one(topic, buffer)

    def _one_by_one(self, topic: str, buffer: _Buffer) -> None:
        """Append each record that fits; raise about the first that does not."""
        failure: LogError | None = None
        rows = zip(buffer.values, buffer.keys, buffer.partitions, strict=True)
        for value, key, partition in rows:
            one = _Buffer()
            one.add(value, key, None if partition < 0 else partition)
            try:
                self._log.append(topic, [value], **one.arguments())
            except LogError as error:
                if error.code not in _OF_ONE:
                    raise
                failure = failure or error
        if failure is not None:
            raise failure

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    # What waits is appended after a moment, even if nothing more is sent.

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=_lingering, args=(weakref.ref(self),))
            self._thread.daemon = True
            self._thread.start()
        self._work.set()

    def _linger(self) -> bool:
        """One round of the thread; whether there are more."""
        self._work.wait(_IDLE)
        if self._ended:
            return False
        if self._work.is_set():
            self._work.clear()
            time.sleep(_LINGER)
            self._append_waiting()
        return True


def _lingering(producer: weakref.ref[EmbeddedProducer]) -> None:
    while (client := producer()) is not None and client._linger():
        del client
