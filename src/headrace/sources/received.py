"""Lines received from a socket: a topic in the job's folder, since they are not sent again.

The topic has one partition. A record is a line without its line end; a null marks the end of the
input, and is skipped by readers. Lines are durable when `add` returns. One process at a time may
add; any may read. What the log refuses is an InputError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InputError, LogError, StateError
from headrace.files import close_lock, take_lock
from headrace.log import EmbeddedLog
from headrace.sources.contract import Chunk, damaged
from headrace.state.sealed import make_folder

SEGMENT = 64 << 20
TOPIC = "lines"
_SPOOL = "spool"  # where an earlier version stored them
_LINE = pa.schema([("line", pa.binary())])
_END = pa.table({"line": pa.nulls(1, pa.binary())}, _LINE)
_WHAT = "the topic of lines received"
_BUSY = {"HR-LOG-010", "HR-LOG-016", "HR-LOG-018"}  # it cannot be written now; nothing is damaged


def received(folder: Path) -> dict[str, Path]:
    """By key: the inputs that have stored lines in a job's folder, whoever reads them now."""
    homes = {place.parent for name in (TOPIC, _SPOOL) for place in folder.glob(f"inputs/*/{name}")}
    topics = {home.name: Received(home) for home in sorted(homes)}
    return {unquote(key): topic.folder for key, topic in topics.items() if topic.end}


@contextmanager
def as_input(folder: Path, what: str = _WHAT) -> Iterator[None]:
    """What the log refuses, as an error of this input."""
    try:
        yield
    except LogError as cause:
        if cause.code in _BUSY:
            raise InputError(
                "HR-INPUT-003",
                f"cannot store what was received in {str(folder)!r}: {cause.message}",
                "Free some space or fix the permissions, then start the job again.",
            ) from cause
        raise damaged(what, folder, f"cannot be used: {cause.message}") from cause


class Received:
    """The reading side. `home` is the input's own folder."""

    def __init__(self, home: Path) -> None:
        _refuse_spool(home)
        self.home, self.folder = home, home / TOPIC
        self.log = EmbeddedLog(home)
        self._last = (0, False)  # how many records there are, and whether the last is an end

    @property
    def start(self) -> int:
        return self._bounds()[0]

    @property
    def end(self) -> int:
        """After the last line."""
        return self._bounds()[1] - self.ended

    @property
    def ended(self) -> bool:
        """Whether the last record is the mark of the end, which is never forgotten."""
        earliest, latest = self._bounds()
        if latest > earliest and latest != self._last[0]:
            with as_input(self.folder):
                last = [t for _, t in self.log.read(TOPIC, 0, latest - 1, latest)]
            self._last = latest, any(t.column(0).null_count for t in last)  # none: it was erased
        return latest > earliest and self._last[1]

    def check(self, position: int = 0) -> None:
        """Raise an error if the lines up to `position` cannot have been received here."""
        if position > self.end:
            how = f"ends at line {self.end}, but the job has read up to {position}"
            raise damaged(_WHAT, self.folder, how)

    def read(self, start: int, end: int, *, blank: bool) -> Iterator[Chunk]:
        """Lines [start, end) with their offsets; empty ones only if `blank`."""
        with as_input(self.folder):
            for first, table in self.log.read(TOPIC, 0, start, end):
                lines = table.column(0)
                selected = lines.is_valid() if blank else pc.fill_null(pc.binary_length(lines), 0)
                rows = np.flatnonzero(selected.to_numpy())
                yield table.take(pa.array(rows)), rows + first

    def forget(self, before: int) -> None:
        """Remove segments whose lines all lie before `before`; the last segment stays."""
        if self._bounds()[0] < before:
            with as_input(self.folder):
                self.log.forget(TOPIC, {0: before})

    def _bounds(self) -> tuple[int, int]:
        """The first record and the one after the last; an error if the topic is not whole."""
        if not self.folder.exists():
            return 0, 0
        with as_input(self.folder):
            info = self.log.describe(TOPIC)
            return info.earliest[0], info.latest[0]


def _refuse_spool(home: Path) -> None:
    """Refuse lines in the format of an earlier version: they would never be read."""
    old = next((home / _SPOOL).glob("*.lines"), None)
    if old is not None:
        raise StateError(
            "HR-STATE-002",
            f"{str(old)!r} holds lines as an earlier version of Headrace stored them",
            "Run the job with the version of Headrace that wrote the folder.",
        )


class LineWriter:
    """The writing side; made by the one process that receives."""

    def __init__(self, home: Path) -> None:
        make_folder(home)
        self._received = Received(home)
        lock = take_lock(home / "receiving")
        if lock is None:
            raise BlockingIOError("another process receives")
        self._lock = lock
        try:
            self._received.check()
            with as_input(self._received.folder):
                log = self._received.log
                log.create(TOPIC, schema=_LINE, segment_bytes=SEGMENT, exist_ok=True)
            self._ended, self.end = self._received.ended, self._received.end
        except (OSError, InputError, StateError):
            self.close()
            raise

    def add(self, lines: pa.BinaryArray) -> None:
        """Append lines; durable when this returns."""
        table = pa.Table.from_arrays([lines], schema=_LINE)
        self._append(pa.concat_tables([table, _END]) if self._ended else table)

    def finish(self) -> None:
        """Record that nothing more will come."""
        if not self._ended:
            self._ended = True
            self._append(_END)

    def close(self) -> None:
        close_lock(self._lock)

    def _append(self, table: pa.Table) -> None:
        with as_input(self._received.folder):
            ack = self._received.log.append(TOPIC, table, partition=0)[0]
        self.end = ack.end - self._ended
