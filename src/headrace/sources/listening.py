"""Lines that programs send to the job over TCP, as an input: "listen:9999".

The job is the server: it listens on the driver, on loopback unless a host is named, and any number
of clients send lines. See `receiving.py` for what follows. What a client has sent is stored when
the job has read it from the connection; with ack=True the client is told so, and sends again
what was not acknowledged. Half a line is never taken for a line: it is a dead letter.
"""

from __future__ import annotations

import json
import selectors
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InputError
from headrace.guarantees import AT_LEAST_ONCE, AT_MOST_ONCE
from headrace.sources import formats
from headrace.sources.broken_lines import ENDED, STOPPED, LinesSource, broken
from headrace.sources.contract import InputRequest, Source, refuse_unknown
from headrace.sources.contract import write_durably as write_file
from headrace.sources.http import LOOPBACK, PORTS
from headrace.sources.lines import split_lines
from headrace.sources.received import LineWriter, Received
from headrace.sources.receiving import BackgroundReceiver, line_format

ADDRESS = "listening"  # the file of the input's folder that says where it listens
MAX_LINE_KB = 1024
MOST_LINE_KB = 65_536
MOST_CLIENTS = 1_000  # more wait until one leaves
MOST_AHEAD = 1_000_000  # lines that are stored and that the job has not read for good
PIECE = 1 << 18
_POLL = 0.1  # seconds, so that `stop` is noticed
_KNOWN = ("delimiter", "max_line_kb", "ack", "anyone")


@dataclass(frozen=True)
class ListenSettings:
    host: str
    port: int  # 0: any that is free
    limit: int  # bytes of a line
    ack: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class ListenSource(LinesSource):
    kind = "listen"
    again = "What was sent over a connection is not sent again"

    def __init__(
        self,
        settings: ListenSettings,
        schema: pa.Schema,
        *,
        format: str,
        delimiter: str = ",",
        home: Path | None,
    ) -> None:
        super().__init__(
            str(settings), schema, format=format, delimiter=delimiter, bounded=False, home=home
        )
        self._settings = settings

    @property
    def loses(self) -> str:
        if self._settings.ack:
            return ""
        return (
            f"lines that are sent to {self.place} and not stored yet when the driver dies are lost"
        )

    @property
    def guarantee(self) -> str:
        return AT_LEAST_ONCE if self._settings.ack else AT_MOST_ONCE

    @property
    def because(self) -> str:
        if self._settings.ack:
            return "a line that is stored and not acknowledged when the driver dies is sent again"
        return "a client without ack=True does not know which lines are stored"

    def receiver(self, received: Received) -> BackgroundReceiver:
        return ListeningReceiver(self._settings, received)

    @property
    def listens_at(self) -> tuple[str, str] | None:
        """Where it listens, and the mark of the start that began it; None if it does not yet."""
        if self._home is None:
            return None
        try:
            said = json.loads((self._home / ADDRESS).read_bytes())
            return str(said["at"]), str(said["start"])
        except (OSError, ValueError, KeyError):
            return None


@dataclass
class _Client:
    """One connection."""

    socket: socket.socket
    rest: bytes = b""  # of a line that has not ended
    skips: bool = False  # the rest of a line that was too long
    stored: int = 0  # lines of this connection that are durable
    owed: bool = False  # it has to be told so
    answer: bytes = b""  # of what it is told, the part that is not sent yet
    lines: list[pa.Array] = field(default_factory=list)  # read, and not stored yet


class ListeningReceiver(BackgroundReceiver):
    """Serves all clients in one thread; what they sent in a turn is stored by one append."""

    def __init__(self, settings: ListenSettings, received: Received) -> None:
        self._settings = settings
        super().__init__(str(settings), received)

    def receive(self, writer: LineWriter) -> None:
        begin = writer.end
        with _listening(self._settings) as server, selectors.DefaultSelector() as selector:
            self._selector, self._server = selector, server
            selector.register(server, selectors.EVENT_READ)
            self._say_where(server)
            try:
                while not self._stop.is_set():
                    ahead = writer.end - max(begin, self.committed)
                    if ahead >= MOST_AHEAD:  # senders wait, as TCP lets them
                        self._stop.wait(_POLL)
                        continue
                    self._turn(writer)
            finally:
                for client in self._clients():
                    self._leave(client, STOPPED)
                    self._store([client], writer)
                (self._received.home / ADDRESS).unlink(missing_ok=True)

    def _say_where(self, server: socket.socket) -> None:
        host, port = server.getsockname()[:2]
        at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        said = {"at": at, "start": uuid.uuid4().hex}
        write_file(self._received.home / ADDRESS, json.dumps(said).encode())

    def _turn(self, writer: LineWriter) -> None:
        busy = []
        for key, events in self._selector.select(_POLL):
            client: _Client | None = key.data
            if client is None:
                self._accept()
                continue
            if events & selectors.EVENT_READ:
                self._read(client)
                busy.append(client)
            if events & selectors.EVENT_WRITE:
                self._answer(client)
        self._store(busy, writer)

    def _clients(self) -> list[_Client]:
        return [key.data for key in self._selector.get_map().values() if key.data is not None]

    def _accept(self) -> None:
        with suppress(OSError):  # it may have gone again
            connection, _ = self._server.accept()
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, _Client(connection))
            if len(self._selector.get_map()) > MOST_CLIENTS:
                self._selector.unregister(self._server)

    def _read(self, client: _Client) -> None:
        try:
            piece = client.socket.recv(PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._leave(client, ENDED)
            return
        lines, newline, rest = (client.rest + piece).rpartition(b"\n")
        limit = self._settings.limit
        if newline:
            if client.skips:
                _, _, lines = (lines + newline).partition(b"\n")
                client.skips = False
            else:
                lines += newline
            if lines:
                client.lines.append(_bounded(split_lines(lines, keep_blank=True)[0], limit))
        if client.skips:
            rest = b""
        elif len(rest) > limit:
            client.lines.append(broken(_too_long(limit), rest[:limit]))
            client.skips, rest = True, b""
        client.rest = rest

    def _leave(self, client: _Client, why: str) -> None:
        if client.rest:
            client.lines.append(broken(why, client.rest))
            client.rest = b""
        self._selector.unregister(client.socket)
        if self._server not in self._selector.get_map() and not self._stop.is_set():
            self._selector.register(self._server, selectors.EVENT_READ)
        if not self._settings.ack:
            client.socket.close()  # else when it has been told what is stored

    def _store(self, clients: list[_Client], writer: LineWriter) -> None:
        lines = [part for client in clients for part in client.lines]
        if lines:
            writer.add(pa.concat_arrays(lines))
        for client in clients:
            if client.lines and self._settings.ack:
                client.stored += sum(map(len, client.lines))
                client.owed = True
                self._answer(client)
            client.lines = []
            if client.socket.fileno() >= 0 and client.socket not in self._selector.get_map():
                client.socket.close()

    def _answer(self, client: _Client) -> None:
        """Tell the client how many of its lines are durable, as far as it listens."""
        try:
            while client.answer or client.owed:
                if not client.answer:
                    client.answer, client.owed = b"%d\n" % client.stored, False
                sent = client.socket.send(client.answer)
                client.answer = client.answer[sent:]
            events = selectors.EVENT_READ
        except BlockingIOError:
            events = selectors.EVENT_READ | selectors.EVENT_WRITE
        except OSError:  # it is gone: reading will notice
            client.answer, client.owed = b"", False
            return
        if client.socket in self._selector.get_map():
            self._selector.modify(client.socket, events, client)


def _bounded(lines: pa.Array, limit: int) -> pa.Array:
    """The lines, those that are too long as what they are."""
    long = np.flatnonzero(pc.greater(pc.binary_length(lines), limit).to_numpy(False))
    if not len(long):
        return lines
    parts, start = [], 0
    for i in map(int, long):
        parts += [lines.slice(start, i - start)]
        parts += [broken(_too_long(limit), lines[i].as_py()[:limit])]
        start = i + 1
    return pa.concat_arrays([*parts, lines.slice(start)])


def _too_long(limit: int) -> str:
    return f"the line is longer than {limit >> 10} kB: this is how it begins"


def _listening(settings: ListenSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        server = socket.create_server((settings.host, settings.port), family=family)
    except OSError as cause:
        why = (cause.strerror or str(cause)).lower()
        raise InputError(
            "HR-INPUT-081",
            f"cannot listen on {settings}: {why}",
            "Another program may have the port: choose another one, or 0 for any that is free.",
        ) from cause
    server.setblocking(False)
    return server


def settings_of(o: InputRequest) -> ListenSettings:
    host, _, port = o.rest.rpartition(":")
    if not port.isdecimal() or int(port) >= PORTS:
        raise InputError(
            "HR-INPUT-001",
            f"{o.uri!r} is not an address to listen on",
            'Write "listen:port", as in "listen:9999", or "listen:host:port".',
        )
    host = host.strip("[]") or LOOPBACK[0]
    limit, ack = o.options.get("max_line_kb", MAX_LINE_KB), o.options.get("ack", False)
    anyone = o.options.get("anyone", False)
    if type(limit) is not int or not 1 <= limit <= MOST_LINE_KB:
        raise _bad(o, "max_line_kb", limit, f"Give kilobytes, 1 to {MOST_LINE_KB}.")
    for name, flag in (("ack", ack), ("anyone", anyone)):
        if type(flag) is not bool:
            raise _bad(o, name, flag, "Pass True or False.")
    if not anyone and host not in LOOPBACK:
        raise InputError(
            "HR-INPUT-080",
            f"{o.uri!r} would take lines of everybody who can reach {host!r}",
            "A connection has no password: pass anyone=True if that is meant, listen on this "
            'machine only ("listen:9999"), or read "http:", which wants a token.',
        )
    return ListenSettings(host, int(port), limit << 10, ack)


def open_listen(o: InputRequest) -> Source:
    refuse_unknown(o, _KNOWN)
    settings = settings_of(o)
    if o.bounded:
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has no end to run to",
            'Another client may always come: run without until="end".',
        )
    format, schema = line_format(o)
    delimiter = o.options.get("delimiter", formats.CsvStyle().delimiter)
    return ListenSource(settings, schema, format=format, delimiter=delimiter, home=o.home)


def _bad(o: InputRequest, option: str, value: Any, hint: str) -> InputError:
    return InputError("HR-INPUT-013", f"{o.uri!r} has {option}={value!r}", hint)
