"""Lines from a TCP server as an input: "socket:host:port".

A socket cannot be read twice, so a thread on the driver appends what it receives to a topic
in the job's folder, and only what is durable there is offered. From the topic on nothing is
lost and nothing comes twice. Between the server and the topic the promise is the socket's:
what was sent while the job was down, or was on its way when it was killed, is not seen.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import InputError, StateError
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
    refuse_unknown,
)
from headrace.sources.lines import split_lines
from headrace.sources.received import LineWriter, Received

SPLIT = "lines"
PATIENCE = 5.0  # seconds to connect
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between two attempts
PIECE = 1 << 20
LEAST = 4_096  # lines: fewer are not worth a task of their own
_RAW = pa.schema([(RAW, pa.binary())])


class SocketSource(Source):
    raw = True

    def __init__(
        self,
        host: str,
        port: int,
        schema: pa.Schema,
        *,
        format: str,
        delimiter: str = ",",
        bounded: bool,
        home: Path | None,
    ) -> None:
        self.schema, self.bounded, self._delimiter = schema, bounded, delimiter
        self.address, self.format = (host, port), format
        self._home = home  # in the job's folder: where lines are stored
        self._received: Received | None = None
        self._receiver: Receiver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_received": None, "_receiver": None}

    @property
    def received(self) -> Received:
        if self._home is None:
            raise InputError(
                "HR-INPUT-013",
                f"{_named(self.address)} needs a job's folder, to store what it sends",
                "Read it in a job.",
            )
        if self._received is None:
            self._received = Received(self._home)
        return self._received

    def identity(self) -> dict[str, str]:
        return {"kind": "socket", "place": _named(self.address), "thing": ""}

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
        return self._receiving().end()

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
                f"the first {first} lines of {_named(self.address)} were read and forgotten",
                "A socket cannot be read again: go on from a later "
                "epoch, or start with a new job folder.",
            )

    def where(self, split: str, offset: int) -> str:
        return f"{_named(self.address)} line {offset + 1}"

    def commit(self, offsets: Mapping[str, int]) -> None:
        if SPLIT in offsets:
            self.received.forget(offsets[SPLIT])

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver.stop()
            self._receiver = None

    def _receiving(self) -> Receiver:
        if self._receiver is None:
            self._receiver = Receiver(self.address, self.received, once=self.bounded)
        return self._receiver


class Receiver:
    """The thread that receives lines and stores them; connects again when it must.

    If it cannot connect at first, it gives up: the address is wrong, or the server not there.
    """

    def __init__(self, address: tuple[str, int], received: Received, *, once: bool) -> None:
        self._address, self._received, self._once = address, received, once
        self._failed: InputError | StateError | None = None
        self._reached = False
        self._stop = threading.Event()
        self._writer = self._open()
        self._thread = threading.Thread(target=self._run, name="headrace-socket", daemon=True)
        self._thread.start()

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
            raise unstored(self._address, self._received, cause) from cause

    def _run(self) -> None:
        try:
            while self._writer is None and not self._stop.wait(0.05):
                self._writer = self._open()
            if self._writer is not None and not (self._once and self._received.ended):
                self._receive_until_stopped(self._writer)
        except (InputError, StateError) as failed:
            self._failed = failed
        except OSError as cause:
            self._failed = unstored(self._address, self._received, cause)
        finally:
            if self._writer is not None:
                self._writer.close()

    def _receive_until_stopped(self, writer: LineWriter) -> None:
        pause = SHORTEST_PAUSE
        while not self._stop.is_set():
            connection = self._connected()
            if connection is not None:
                pause = SHORTEST_PAUSE
                with connection:
                    whole = self._receive(connection, writer)
                if self._once and whole:
                    writer.finish()
                    return
            self._stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _connected(self) -> socket.socket | None:
        try:
            connection = socket.create_connection(self._address, PATIENCE)
        except OSError as cause:
            if not self._reached:
                raise unreachable(self._address, cause) from cause
            return None
        self._reached = True
        connection.settimeout(0.1)  # so that `stop` is noticed
        return connection

    def _receive(self, connection: socket.socket, writer: LineWriter) -> bool:
        """Store lines until the server closes; False if the connection broke or we stopped."""
        rest = b""
        try:
            while not self._stop.is_set():
                try:
                    piece = connection.recv(PIECE)
                except TimeoutError:
                    continue
                except OSError:
                    return False
                if not piece:
                    return True
                lines, newline, rest = (rest + piece).rpartition(b"\n")
                if newline:
                    writer.add(split_lines(lines + newline, keep_blank=True)[0])
            return False
        finally:
            if rest:  # a last line without its end: better a bad record than none
                writer.add(split_lines(rest + b"\n", keep_blank=True)[0])


def open_socket(o: InputRequest) -> Source:
    refuse_unknown(o, ("delimiter",))
    host, port = address_of(o.rest, o.uri)
    format = o.format or ("text" if o.schema is None else "json")
    if format not in ("json", "csv", "text"):
        raise InputError(
            "HR-INPUT-004",
            f"{o.uri!r} cannot have format {format!r}",
            'Lines are "text", "json" or "csv".',
        )
    schema = formats.needed_schema(o, format)
    formats.check_schema(format, schema)
    return SocketSource(
        host, port, schema, format=format, bounded=o.bounded, home=o.home, **o.options
    )


def address_of(rest: str, uri: str) -> tuple[str, int]:
    """Host and port of "host:port"; the host may be an IPv6 address in brackets."""
    host, _, port = rest.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise InputError("HR-INPUT-001", f"{uri!r} is not an address", 'Write "socket:host:port".')
    return host.strip("[]"), int(port)


def unreachable(address: tuple[str, int], cause: OSError) -> InputError:
    why = (cause.strerror or str(cause) or type(cause).__name__).lower()
    return InputError(
        "HR-INPUT-015",
        f"cannot connect to {_named(address)}: {why}",
        "Start the server first; for a try-out: nc -lk " + str(address[1]),
    )


def unstored(address: tuple[str, int], received: Received, cause: OSError) -> InputError:
    why = (cause.strerror or str(cause)).lower()
    return InputError(
        "HR-INPUT-003",
        f"cannot store what {_named(address)} sends in {str(received.folder)!r}: {why}",
        "Free some space or fix the permissions, then start the job again.",
    )


def _named(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"
