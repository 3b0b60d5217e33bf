"""Lines from a TCP server as an input: "socket:host:port".

Between the server and the topic the promise is the socket's: what was sent while the job was
down, or was on its way when it was killed, is not seen. Half a line is a dead letter, except where
the input ends (until="end"): there the last line needs no newline. See `receiving.py` for the rest.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pyarrow as pa

from headrace.errors import InputError
from headrace.sources.broken_lines import ENDED, STOPPED, LinesSource, broken
from headrace.sources.contract import InputRequest, Source, refuse_unknown
from headrace.sources.lines import split_lines
from headrace.sources.received import LineWriter, Received
from headrace.sources.receiving import BackgroundReceiver, line_format

PATIENCE = 5.0  # seconds to connect
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between two attempts
PIECE = 1 << 20


class SocketSource(LinesSource):
    kind = "socket"
    again = "A socket cannot be read again"

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
        place, self.address = f"{host}:{port}", (host, port)
        super().__init__(
            place, schema, format=format, delimiter=delimiter, bounded=bounded, home=home
        )

    @property
    def loses(self) -> str:
        return (
            f"lines that {self.place} sends while the job is not connected, or that are not stored "
            "yet when the driver dies, are lost"
        )

    @property
    def because(self) -> str:
        return "a server does not send its lines again"

    def receiver(self, received: Received) -> BackgroundReceiver:
        return SocketReceiver(self.address, received, once=self.bounded)


class SocketReceiver(BackgroundReceiver):
    """Receives lines and stores them; connects again when it must.

    If it cannot connect at first, it gives up: the address is wrong, or the server not there.
    """

    def __init__(self, address: tuple[str, int], received: Received, *, once: bool) -> None:
        self._address, self._reached = address, False
        super().__init__(_named(address), received, once=once)

    def receive(self, writer: LineWriter) -> None:
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
        rest, why = b"", STOPPED
        while not self._stop.is_set():
            try:
                piece = connection.recv(PIECE)
            except TimeoutError:
                continue
            except OSError:
                why = ENDED
                break
            if not piece:
                if rest and self._once:  # where the input ends, its last line does
                    writer.add(split_lines(rest + b"\n", keep_blank=True)[0])
                elif rest:
                    writer.add(broken(ENDED, rest))
                return True
            lines, newline, rest = (rest + piece).rpartition(b"\n")
            if newline:
                writer.add(split_lines(lines + newline, keep_blank=True)[0])
        if rest:
            writer.add(broken(why, rest))
        return False


def open_socket(o: InputRequest) -> Source:
    refuse_unknown(o, ("delimiter",))
    host, port = address_of(o.rest, o.uri)
    format, schema = line_format(o)
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


def _named(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"
