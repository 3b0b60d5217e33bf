"""The server behind an "http:" input: one endpoint that takes POSTs and stores their records.

Each connection has a thread. Bodies that wait are stored together, in one append to the topic; a
POST is answered when that is durable. Too much that the job has not read yet is answered with 503:
the sender waits. Answers are JSON with a sentence; nothing in them tells more than that.
"""

from __future__ import annotations

import hmac
import json
import socket
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from headrace.errors import HeadraceError, InputError
from headrace.sources.http_bodies import Refused, has_body, lines_of, read_body, records_of
from headrace.sources.http_keys import RememberedKeys
from headrace.sources.received import LineWriter

MOST_AHEAD = 1_000_000  # lines that are stored and that the job has not read for good
MOST_WAITING = 512 << 20  # bytes of records that wait to be stored; Arrow appends less than 2 GB
MOST_CONNECTIONS = 256
PATIENCE = 30.0  # seconds for the next bytes of a request
RETRY = "1"  # seconds, as the header says
_LINGER = 2.0  # seconds for the rest of a body that was refused
_PIECE = 1 << 16
_SHOWN = 10  # bad records that an answer names
_LONGEST_KEY = 255


@dataclass(frozen=True)
class EndpointSettings:
    limit: int  # bytes of a body
    refuses: bool  # a body with a bad record, instead of storing it
    remember: int  # milliseconds for which keys are remembered
    json: bool  # the records are
    blank: bool  # whether an empty line is a record


@dataclass
class _Post:
    """One POST, on its way to the topic."""

    lines: pa.Array
    key: str | None
    digest: int
    done: threading.Event = field(default_factory=threading.Event)
    status: int = 503
    answer: dict[str, Any] = field(default_factory=dict)

    def end(self, status: int, **answer: Any) -> None:
        self.status, self.answer = status, answer
        self.done.set()


class Endpoint:
    def __init__(
        self,
        at: tuple[str, int, str],
        settings: EndpointSettings,
        token: str | None,
        writer: LineWriter,
        home: Path,
        reasons: Callable[[pa.Array], list[tuple[int, str]]],
        committed: Callable[[], int],
    ) -> None:
        self.path, self.settings, self.reasons = at[2], settings, reasons
        self.token = None if token is None else token.encode()
        self.failed: HeadraceError | None = None
        self._writer, self._begin, self._committed = writer, writer.end, committed
        self._keys = RememberedKeys(home, writer, settings.remember)
        self._waiting: list[_Post] = []
        self._bytes = 0  # of those that wait
        self._changed, self._stopping = threading.Condition(), False
        self._server = _listen(at, self)
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True),
            threading.Thread(target=self._store_until_stopped, daemon=True),
        ]

    def __enter__(self) -> Endpoint:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Take no more, answer what is being stored, then stop."""
        self._server.shutdown()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._threads[1].join()
        self._server.server_close()

    @property
    def address(self) -> tuple[str, int]:
        return self._server.server_address[0], self._server.server_address[1]  # type: ignore[return-value]

    def full(self) -> bool:
        """Whether the job is so far behind that senders have to wait."""
        if self._bytes >= MOST_WAITING:
            return True
        return self._writer.end - max(self._begin, self._committed()) >= MOST_AHEAD

    @property
    def alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def store(self, body: _Post) -> None:
        """Store it, together with others that wait; returns when it has an answer."""
        with self._changed:
            if self._stopping or self.failed is not None:
                return body.end(503, error="the job is stopping")
            if self._bytes >= MOST_WAITING:
                return body.end(503, error="the job is behind: try again")
            self._waiting.append(body)
            self._bytes += body.lines.nbytes
            self._changed.notify_all()
        body.done.wait()

    def _store_until_stopped(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._stopping:
                    self._changed.wait()
                bodies, self._waiting, self._bytes = self._waiting, [], 0
                if not bodies:
                    return
            try:
                if self.failed is None:
                    self._store_all(bodies)
            except HeadraceError as failed:
                self.failed = failed
            except BaseException as cause:  # else senders would wait for an answer for ever
                self.failed = _unstored(cause)
            for body in bodies:
                if not body.done.is_set():
                    body.end(503, error="it could not be stored")

    def _store_all(self, bodies: list[_Post]) -> None:
        new, repeated = list[_Post](), list[tuple[_Post, _Post]]()
        by_key: dict[str, _Post] = {}
        for body in bodies:
            if body.key is not None and body.key in by_key:
                repeated.append((body, by_key[body.key]))
            elif (known := self._keys.get(body.key)) is not None:
                _answer_again(body, known.digest, known.rows)
            else:
                new.append(body)
                if body.key is not None:
                    by_key[body.key] = body
        self._keys.add([(b.key, len(b.lines), b.digest) for b in new])
        filled = [b.lines for b in new if len(b.lines)]
        if filled:
            self._writer.add(pa.concat_arrays(filled))
        for body in new:
            body.end(200, stored=len(body.lines))
        for body, first in repeated:
            _answer_again(body, first.digest, len(first.lines))


def _answer_again(body: _Post, digest: int, rows: int) -> None:
    if digest == body.digest:
        body.end(200, stored=rows, repeated=True)
    else:
        body.end(422, error="another body was posted with this Idempotency-Key")


def _unstored(cause: BaseException) -> InputError:
    why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return InputError(
        "HR-INPUT-003",
        f"cannot store what was posted: {str(why).lower()}",
        "Free some space or fix the permissions, then start the job again.",
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], endpoint: Endpoint) -> None:
        self.endpoint, self.places = endpoint, threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Without a look at the name service, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, address: Any) -> None:
        if self.places.acquire(blocking=False):
            super().process_request(request, address)
        else:
            self.shutdown_request(request)  # the sender tries again

    def process_request_thread(self, request: Any, address: Any) -> None:
        try:
            super().process_request_thread(request, address)
        finally:
            self.places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that went away is not worth a line."""


def _listen(at: tuple[str, int, str], endpoint: Endpoint) -> _Server:
    try:
        return _Server((at[0], at[1]), endpoint)
    except OSError as cause:
        raise InputError(
            "HR-HTTP-002",
            f"cannot listen on {at[0]}:{at[1]}: {(cause.strerror or str(cause)).lower()}",
            "Choose another port or address, or stop the program that has it.",
        ) from cause


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "headrace", ""
    timeout: ClassVar[float] = PATIENCE
    wbufsize = -1
    server: _Server

    def do_POST(self) -> None:
        self._read = False  # whether all of the body was read: only then another may follow
        try:
            self._admit()
            body = self._body()
            self._read = True
            lines = self._lines(body)
            posted = _Post(lines, self._key(), zlib.crc32(body) << 32 | len(body))
            self.server.endpoint.store(posted)
            headers = {"Retry-After": RETRY} if posted.status == 503 else {}
            self._answer(posted.status, posted.answer, headers)
        except Refused as refused:
            self._answer(refused.status, {"error": refused.error}, refused.headers)

    def do_GET(self) -> None:
        self._read = not has_body(self.headers)  # what follows is a body then, and no request
        self._answer(405, {"error": "POST records here"}, {"Allow": "POST"})

    do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no request that HTTP has."""
        self._read = self.close_connection = True
        self._answer(code, {"error": (message or "not a request of HTTP").lower()}, {})

    def _admit(self) -> None:
        endpoint = self.server.endpoint
        if endpoint.token is not None:
            scheme, _, sent = self.headers.get("Authorization", "").partition(" ")
            right = hmac.compare_digest(sent.strip().encode(), endpoint.token)
            if scheme.lower() != "bearer" or not right:
                raise Refused(401, "a token is needed", {"WWW-Authenticate": "Bearer"})
        if self.path.partition("?")[0] != endpoint.path:
            raise Refused(404, "there is nothing at this path")
        if endpoint.full():
            raise Refused(503, "the job is behind: try again", {"Retry-After": RETRY})

    def _key(self) -> str | None:
        key: str | None = self.headers.get("Idempotency-Key")
        if key is not None and not 0 < len(key) <= _LONGEST_KEY:
            raise Refused(400, f"an Idempotency-Key has 1 to {_LONGEST_KEY} characters")
        return key

    def _body(self) -> bytes:
        return read_body(self.headers, self.rfile, self.server.endpoint.settings.limit, self._go_on)

    def _go_on(self) -> None:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
            self.wfile.flush()

    def handle_expect_100(self) -> bool:
        return True  # said when nothing speaks against the body

    def _lines(self, body: bytes) -> pa.Array:
        endpoint = self.server.endpoint
        try:
            lines = (
                records_of(body)
                if endpoint.settings.json
                else lines_of(body, endpoint.settings.blank)
            )
        except (ValueError, RecursionError) as cause:
            raise Refused(400, f"the body is not JSON: {cause}") from cause
        if endpoint.settings.refuses and (bad := endpoint.reasons(lines)):
            shown = "; ".join(f"record {n + 1}: {why}" for n, why in bad[:_SHOWN])
            raise Refused(400, f"{len(bad)} bad records, nothing is stored: {shown}")
        return lines

    def _answer(self, status: int, answer: dict[str, Any], headers: dict[str, str]) -> None:
        content = json.dumps(answer).encode() + b"\n"
        self.close_connection = self.close_connection or not self._read
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()
        if not self._read:
            self._linger()

    def _linger(self) -> None:
        """Let a sender finish that is still sending, so that it sees the answer."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(_LINGER)
            left = self.server.endpoint.settings.limit
            while left > 0 and (piece := self.connection.recv(_PIECE)):
                left -= len(piece)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
