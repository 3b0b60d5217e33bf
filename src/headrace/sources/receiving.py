"""Inputs that are received: nothing of them can be read twice at its origin.

A thread on the driver appends what it receives to a topic in the job's folder (`received.py`), and
only what is durable there is offered. From the topic on nothing is lost and nothing comes twice;
what holds before it, each kind of input says for itself.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from headrace.errors import HeadraceError, InputError
from headrace.sources import formats
from headrace.sources.contract import (
    BEGINNING,
    RAW,
    Chunk,
    Decoded,
    InputRequest,
    Range,
    Source,
    even_cuts,
    refuse_shorter,
)
from headrace.sources.received import LineWriter, Received

SPLIT = "lines"
LEAST = 4_096  # lines: fewer are not worth a task of their own
_WAIT = 0.05  # seconds until it is tried again to be the one process that receives
_RAW = pa.schema([(RAW, pa.binary())])


class ReceivedSource(Source):
    raw = True
    forgets = True
    kind: ClassVar[str]  # at rest
    again: ClassVar[str]  # why it cannot be read again, in words

    def __init__(
        self,
        place: str,
        schema: pa.Schema,
        *,
        format: str,
        delimiter: str = ",",
        bounded: bool,
        home: Path | None,
    ) -> None:
        self.place, self.schema, self.bounded = place, schema, bounded
        self.format, self._delimiter = format, delimiter
        self._home = home  # in the job's folder: where lines are stored
        self._received: Received | None = None
        self._receiver: BackgroundReceiver | None = None

    @abstractmethod
    def receiver(self, received: Received) -> BackgroundReceiver:
        """The thread that receives and stores."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_received": None, "_receiver": None}

    @property
    def received(self) -> Received:
        if self._home is None:
            raise InputError(
                "HR-INPUT-013",
                f"{self.place} needs a job's folder, to store what it sends",
                "Read it in a job.",
            )
        if self._received is None:
            self._received = Received(self._home)
        return self._received

    @property
    def because(self) -> str:
        return "what was received is stored in the job's folder before it is used"

    def identity(self) -> dict[str, str]:
        return {"kind": self.kind, "place": self.place, "thing": ""}

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        """Checks only what is stored: to try a connection would receive lines and lose them."""
        self.received.check(offsets.get(SPLIT, 0))
        self._refuse_forgotten(offsets.get(SPLIT, self.received.start))

    def has_more(self, split: str, offset: int) -> bool:
        return self.received.end != offset

    def splits(self) -> list[str]:
        return [SPLIT]

    def start(self, split: str) -> int:
        return self.received.start

    def latest(self, split: str) -> int:
        if self._receiver is None:
            self._receiver = self.receiver(self.received)
        return self._receiver.end()

    def ended(self, split: str, offset: int) -> bool:
        return self.bounded and self.received.ended and offset >= self.received.end

    def cut(self, split: str, start: int, end: int, pieces: int) -> list[Range]:
        refuse_shorter(self.in_words(split), start, end)
        if start < end:
            self._refuse_forgotten(start)
        return [Range(split, a, b) for a, b in pairwise(even_cuts(start, end, pieces, LEAST))]

    def read(self, range: Range) -> Iterator[Chunk]:
        for lines, offsets in self.received.read(
            range.start, range.end, blank=self.format == "text"
        ):
            yield pa.Table.from_arrays(lines.columns, schema=_RAW), offsets

    def decode(self, chunk: pa.Table) -> Decoded:
        values, format = chunk.column(RAW), str(self.format)
        return formats.decode(format, values, self.schema, style=formats.CsvStyle(self._delimiter))

    def _refuse_forgotten(self, start: int) -> None:
        first = self.received.start
        if start < first:
            raise InputError(
                "HR-INPUT-011",
                f"the first {first} lines of {self.place} were read and forgotten",
                f"{self.again}: go on from a later epoch, or start with a new job folder.",
            )

    def where(self, split: str, offset: int) -> str:
        return f"{self.place} line {offset + 1}"

    def commit(self, offsets: Mapping[str, int]) -> None:
        if SPLIT in offsets:
            self.received.forget(self.forgettable(SPLIT, offsets[SPLIT]))
            if self._receiver is not None:
                self._receiver.committed = offsets[SPLIT]

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver.stop()
            self._receiver = None


class BackgroundReceiver:
    """A thread that receives and stores, in the one process that may."""

    def __init__(self, place: str, received: Received, *, once: bool = False) -> None:
        self.place, self._received, self._once = place, received, once
        self.committed = 0  # lines that the job has read for good, since this one began
        self._failed: HeadraceError | None = None
        self._stop = threading.Event()
        self._writer = self._open()
        self._thread = threading.Thread(target=self._run, name="headrace-receiver", daemon=True)
        self._thread.start()

    @abstractmethod
    def receive(self, writer: LineWriter) -> None:
        """Receive and store until `_stop` is set, or nothing more will come."""

    def end(self) -> int:
        """Where the durable lines end."""
        if self._failed is not None:
            raise self._failed
        writer = self._writer
        return self._received.end if writer is None else writer.end

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _open(self) -> LineWriter | None:
        """The writer to the topic; None while another process still has it."""
        try:
            return LineWriter(self._received.home)
        except BlockingIOError:
            return None
        except OSError as cause:
            raise unstored(self.place, self._received, cause) from cause

    def _run(self) -> None:
        try:
            while self._writer is None and not self._stop.wait(_WAIT):
                self._writer = self._open()
            if self._writer is not None and not (self._once and self._received.ended):
                self.receive(self._writer)
        except HeadraceError as failed:
            self._failed = failed
        except OSError as cause:
            self._failed = unstored(self.place, self._received, cause)
        except BaseException as cause:  # no thread ends unnoticed
            self._failed = broken_off(self.place, cause)
        finally:
            if self._writer is not None:
                self._writer.close()


def unstored(place: str, received: Received, cause: OSError) -> InputError:
    why = (cause.strerror or str(cause)).lower()
    return InputError(
        "HR-INPUT-003",
        f"cannot store what {place} sends in {str(received.folder)!r}: {why}",
        "Free some space or fix the permissions, then start the job again.",
    )


def broken_off(place: str, cause: BaseException) -> InputError:
    failed = InputError(
        "HR-INPUT-063",
        f"{place} is no longer received: {type(cause).__name__}: {cause}",
        "Start the job again. If it happens again, report it with this message.",
    )
    failed.__cause__ = cause
    return failed


def line_format(o: InputRequest) -> tuple[str, pa.Schema]:
    """The format of the lines that an input receives, and their schema."""
    format = o.format or ("text" if o.schema is None else "json")
    if format not in ("json", "csv", "text"):
        raise InputError(
            "HR-INPUT-004",
            f"{o.uri!r} cannot have format {format!r}",
            'Lines are "text", "json" or "csv".',
        )
    schema = formats.needed_schema(o, format)
    formats.check_schema(format, schema)
    return format, schema
