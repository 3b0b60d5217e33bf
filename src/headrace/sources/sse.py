"""Server-sent events as an input: "sse:https://host/path".

The data of each event is a record. The id of the last event that is stored is stored as well. It is
written before the events, with the place that they will have: after a crash it counts if they are
there, and only then. A server that repeats what follows an id loses nothing and repeats nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path

import pyarrow as pa

from headrace.clock import millis
from headrace.connect.http_client import (
    BROKEN,
    HttpClient,
    HttpTarget,
    no_variable,
    permanent,
    variables,
    why,
    wrong_url,
)
from headrace.errors import InputError
from headrace.sources.contract import InputRequest, Source, damaged, refuse_unknown, write_durably
from headrace.sources.received import LineWriter, Received
from headrace.sources.receiving import BackgroundReceiver, ReceivedSource, line_format
from headrace.state.faults import point

LAST = "last_event.json"  # at rest: up to two ids, each with the place after its event
PIECE = 1 << 16
MOST_EVENT = 64 << 20  # bytes
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 30.0  # seconds between two connections
_KNOWN = ("password", "delimiter", "event", "token_env", "headers_env", "timeout")
_BREAKS = bytes.maketrans(b"\r\n", b"  ")


class SseSource(ReceivedSource):
    kind = "sse"
    again = "What the server has sent is not asked for again"

    def __init__(
        self,
        target: HttpTarget,
        event: str,
        schema: pa.Schema,
        *,
        format: str,
        delimiter: str,
        bounded: bool,
        home: Path | None,
    ) -> None:
        super().__init__(
            target.url, schema, format=format, delimiter=delimiter, bounded=bounded, home=home
        )
        self._target, self._event = target, event

    @property
    def loses(self) -> str:
        return (
            f"events of {self.place} without an id cannot be asked for again: what such a server "
            "sends while the job is not connected is lost"
        )

    @property
    def because(self) -> str:
        return "events with an id are asked for again; those without one are not"

    def receiver(self, received: Received) -> BackgroundReceiver:
        missing = self._target.missing()
        if missing:
            raise no_variable(missing, self.place, InputError)
        lines = self.format != "text"
        return SseReceiver(self._target, self._event, lines, received, once=self.bounded)


class SseReceiver(BackgroundReceiver):
    """Stores events; connects again when it must, and asks for what follows the last one stored.

    If it cannot connect at first, it gives up: the address is wrong, or the server not there.
    """

    def __init__(
        self, target: HttpTarget, event: str, lines: bool, received: Received, *, once: bool
    ) -> None:
        self._target, self._event, self._lines = target, event, lines
        self._client, self._reached = HttpClient(target), False
        self._pause = SHORTEST_PAUSE
        super().__init__(target.url, received, once=once)

    def stop(self) -> None:
        self._stop.set()
        while self._thread.is_alive():
            self._client.close()  # it may be waiting for the next event
            self._thread.join(0.1)

    def receive(self, writer: LineWriter) -> None:
        last = LastEvent(self._received.home, writer)
        pause = self._pause
        while not self._stop.is_set():
            answer = self._connected(last.id)
            if answer is not None:
                began = writer.end
                try:
                    ended = self._events(answer, writer, last)
                finally:
                    self._client.done()
                if ended and (self._once or answer.status == 204) and not self._stop.is_set():
                    writer.finish()
                    return
                if self._once and not last.id and writer.end > began and not self._stop.is_set():
                    raise _cut_off(self.place)
                pause = self._pause
            self._stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _connected(self, last: str) -> HTTPResponse | None:
        headers: dict[str, str | bytes] = {"Accept": "text/event-stream"}
        if last:
            headers["Last-Event-ID"] = last.encode()
        try:
            answer = self._client.request("GET", None, headers)
        except BROKEN as cause:
            if not self._reached and not self._stop.is_set():
                raise InputError(
                    "HR-INPUT-015",
                    f"cannot connect to {self.place}: {why(cause)}",
                    "Start the server first, and check the address.",
                ) from cause
            return None
        if permanent(answer.status):
            self._client.done()
            raise InputError(
                "HR-HTTP-004",
                f"{self.place} answers {answer.status} {answer.reason}",
                "Check the address and what it needs (token_env=, headers_env=). A redirect is "
                "not followed: give the address that it leads to.",
            )
        if answer.status not in (200, 204):
            self._client.done()
            return None
        if answer.status == 200 and (other := _not_events(answer)):
            self._client.done()
            raise InputError(
                "HR-HTTP-008",
                f"{self.place} does not answer with events: its {other}",
                "Check the address: it must answer with Content-Type text/event-stream, and not "
                "compressed.",
            )
        self._reached = True
        return answer

    def _events(self, answer: HTTPResponse, writer: LineWriter, last: LastEvent) -> bool:
        """Store events until the connection ends; whether the server has ended it.

        A connection that breaks, or is silent for too long, is not ended by the server.
        """
        if answer.status == 204:
            return True
        parser = EventParser(last.id)
        while not self._stop.is_set():
            try:
                piece = answer.read1(PIECE)
            except (*BROKEN, ValueError, AttributeError):  # closed, maybe by `stop`
                return False
            if not piece:
                return not answer.length  # less than the length it has said: broken
            data = [d for kind, d in parser.feed(piece) if kind == self._event]
            if parser.retry is not None:
                self._pause = min(max(parser.retry / 1000, SHORTEST_PAUSE), LONGEST_PAUSE)
            if data or parser.last != last.id:
                last.next(parser.last, len(data))
                if data:
                    values = [d.translate(_BREAKS) for d in data] if self._lines else data
                    writer.add(pa.array(values, pa.binary()))
        return False


def _not_events(answer: HTTPResponse) -> str:
    """The header that says that the body is not plain text of events; empty if there is none."""
    kind, encoding = answer.headers.get("Content-Type", ""), answer.headers.get("Content-Encoding")
    if kind.partition(";")[0].strip().lower() != "text/event-stream":
        return f"Content-Type is {kind!r}"
    if encoding is not None and encoding.strip().lower() != "identity":
        return f"Content-Encoding is {encoding!r}"
    return ""


def _cut_off(place: str) -> InputError:
    return InputError(
        "HR-HTTP-009",
        f"the connection to {place} broke before the end, and its events have no ids to go on from",
        "Let the server send ids; or start again with a new job folder.",
    )


class EventParser:
    """The events of a stream of bytes, wherever it is cut."""

    def __init__(self, last: str = "") -> None:
        self.last, self.retry = last, None  # of events that are complete
        self._id, self._kind, self._data = last, "", list[bytes]()
        self._rest, self._first = b"", True

    retry: int | None

    def feed(self, piece: bytes) -> Iterator[tuple[str, bytes]]:
        """Kind and data of each event that is complete now."""
        text = self._rest + piece
        if self._first:
            if len(text) < 3 and b"\xef\xbb\xbf".startswith(text):
                self._rest = text
                return
            text, self._first = text.removeprefix(b"\xef\xbb\xbf"), False
        held = b"\r" if text.endswith(b"\r") else b""  # a line feed may follow
        text = text.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._rest = rest + held
        if len(self._rest) + sum(map(len, self._data)) > MOST_EVENT:
            raise InputError(
                "HR-HTTP-007",
                f"an event has more than {MOST_EVENT >> 20} MB",
                "Let the server send smaller events.",
            )
        for line in lines:
            if line:
                self._field(line)
                continue
            self.last = self._id
            if self._data:
                yield self._kind or "message", b"\n".join(self._data)
            self._kind, self._data = "", []

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._kind = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry = int(value)


class LastEvent:
    """The id of the last event that is stored, at rest."""

    def __init__(self, home: Path, writer: LineWriter) -> None:
        self._path, self._writer = home / LAST, writer
        self._ids: list[tuple[int, str]] = [(0, "")]  # the place after an event, and its id
        if self._path.exists():
            try:
                stored = json.loads(self._path.read_text(encoding="utf-8"))
                self._ids = [(int(end), str(id)) for end, id in stored]
            except (ValueError, TypeError) as cause:
                raise damaged("the id of the last event", self._path, "is not JSON") from cause
            counted = [i for i in self._ids if i[0] <= writer.end]
            if counted != self._ids:  # what follows takes the place of what was not stored
                self._ids = counted
                self._write()

    @property
    def id(self) -> str:
        return self._ids[-1][1] if self._ids else ""

    def next(self, id: str, events: int) -> None:
        """This will be the last one, once so many more are stored."""
        if id != self.id:
            self._ids = [*self._ids[-1:], (self._writer.end + events, id)]
            self._write()
            point("sse.id.durable")

    def _write(self) -> None:
        write_durably(self._path, json.dumps(self._ids).encode())


def open_sse(o: InputRequest) -> Source:
    refuse_unknown(o, _KNOWN)
    problem = wrong_url(o.rest)
    if problem:
        raise InputError(
            "HR-INPUT-001",
            f"what follows 'sse:' is not an address: {problem}",
            'Write "sse:https://host/path"; a token comes from the environment: token_env="NAME".',
        )
    format, schema = line_format(o)
    headers, token, event = (o.options.get(n) for n in ("headers_env", "token_env", "event"))
    named = variables(headers)
    if named is None or not isinstance(token, str | None):
        raise InputError(
            "HR-INPUT-013",
            "an 'sse:' input has headers_env= or token_env= that are not names",
            'Name variables of the environment: token_env="FEED_TOKEN", '
            'headers_env={"X-Api-Key": "FEED_KEY"}.',
        )
    timeout = millis(o.options.get("timeout", "90s")) / 1000
    return SseSource(
        HttpTarget(o.rest, token, named, timeout),
        event or "message",
        schema,
        format=format,
        delimiter=o.options.get("delimiter", ","),
        bounded=o.bounded,
        home=o.home,
    )
