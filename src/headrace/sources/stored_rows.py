"""Typed rows of an input that cannot be read twice: a topic of one partition in the job's folder.

One process at a time stores; any may read. Rows are durable when `add` returns. What the log
refuses is an InputError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.errors import InputError, LogError
from headrace.files import close_lock, take_lock
from headrace.log import EmbeddedLog
from headrace.sources.contract import Chunk, damaged
from headrace.state.sealed import make_folder

TOPIC = "rows"  # at rest
SEGMENT = 64 << 20
_BUSY = {"HR-LOG-010", "HR-LOG-016", "HR-LOG-018"}  # it cannot be written now; nothing is damaged
_storing: dict[Path, StoredInput] = {}  # by folder: who stores rows there, in this process


class StoredInput:
    def __init__(self, home: Path) -> None:
        self.home, self.folder = home, home / TOPIC
        self._log = EmbeddedLog(home)
        self._lock: int | None = None

    @contextmanager
    def _as_input(self) -> Iterator[None]:
        try:
            yield
        except LogError as cause:
            if cause.code in _BUSY:
                raise InputError(
                    "HR-INPUT-003",
                    f"cannot store rows of the input in {str(self.folder)!r}: {cause.message}",
                    "Free some space or fix the permissions, then start the job again.",
                ) from cause
            raise damaged(
                "the topic of rows", self.folder, f"cannot be used: {cause.message}"
            ) from cause

    @property
    def exists(self) -> bool:
        return self.folder.exists()

    @property
    def schema(self) -> pa.Schema | None:
        """The columns that are stored; None if there is no topic yet."""
        if not self.exists:
            return None
        with self._as_input():
            return self._log.describe(TOPIC).schema

    def bounds(self) -> tuple[int, int]:
        """The first row that is stored, and the one after the last."""
        if not self.exists:
            return 0, 0
        with self._as_input():
            info = self._log.describe(TOPIC)
            return info.earliest[0], info.latest[0]

    def read(self, start: int, end: int) -> Iterator[Chunk]:
        with self._as_input():
            for first, table in self._log.read(TOPIC, 0, start, end):
                yield table, np.arange(first, first + table.num_rows, dtype=np.int64)

    def last(self, rows: int) -> pa.Table | None:
        """The last rows, at most so many; None if there are none. The very last is never gone."""
        start, end = self.bounds()
        if start == end:
            return None
        tables = [table for table, _ in self.read(max(start, end - rows), end)]
        return pa.concat_tables(tables)

    def lock(self) -> bool:
        """Whether this is the one that stores: no other process, and no earlier run in this."""
        if self._lock is not None:
            return True
        before = _storing.get(self.home)
        if before is not None:
            before.unlock()
        self._lock = storing_lock(self.home)
        if self._lock is None:
            return False
        _storing[self.home] = self
        return True

    def unlock(self) -> None:
        if self._lock is not None:
            close_lock(self._lock)
            self._lock = None
            _storing.pop(self.home, None)

    def begin(self, schema: pa.Schema) -> None:
        """Make the topic, unless it is there."""
        with self._as_input():
            self._log.create(TOPIC, schema=schema, segment_bytes=SEGMENT, exist_ok=True)

    def restart(self, schema: pa.Schema) -> None:
        """An empty topic; what was stored is of no use."""
        with self._as_input():
            if self.exists:
                self._log.delete(TOPIC)
        self.begin(schema)

    def add(self, rows: pa.Table) -> None:
        if rows.num_rows:
            with self._as_input():
                self._log.append(TOPIC, rows, partition=0)

    def forget(self, before: int) -> None:
        if self.bounds()[0] < before:
            with self._as_input():
                self._log.forget(TOPIC, {0: before})


def storing_lock(home: Path) -> int | None:
    """The lock of whoever stores rows in this folder, which is made; None if another has it."""
    try:
        make_folder(home)
        return take_lock(home / "storing")
    except OSError as cause:
        why = (cause.strerror or str(cause)).lower()
        raise InputError(
            "HR-INPUT-003",
            f"cannot store what an input reads, {str(home / 'storing')!r}: {why}",
            "Free some space, fix the permissions, or remove what is in the place of the file or "
            "folder; then start the job again.",
        ) from cause
