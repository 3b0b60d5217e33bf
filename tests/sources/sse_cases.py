"""A server of events, for the suite of inputs and the tests of "sse:"."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from headrace.schema import schema_of
from headrace.sources import Source, open_source
from headrace.testing import InputCase

SCHEMA = schema_of("n bigint, name string")
PATIENCE = 20.0


class EventServer(ThreadingHTTPServer):
    """Sends what follows the id it is asked for, at most `each` events on a connection."""

    daemon_threads = True

    def __init__(self, events: list[str], each: int = 10**9, stays: bool = False) -> None:
        self.events, self.each, self.stays = list(events), each, stays
        self.asked: list[dict[str, str]] = []
        self.status = 200
        self.headers = {"Content-Type": "text/event-stream; charset=utf-8"}
        self.breaks: list[str] = []  # how the next connections end, in the middle: reset, silent
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/feed"


class _Handler(BaseHTTPRequestHandler):
    server: EventServer

    def do_GET(self) -> None:
        self.server.asked.append(dict(self.headers))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.server.status != 200:
            return
        after = int(self.headers.get("Last-Event-ID") or 0)
        sent = 0
        if self.server.breaks:
            return self._break(self.server.breaks.pop(0), after)
        while sent < self.server.each:
            if after < len(self.server.events):
                data = self.server.events[after].replace("\n", "\ndata: ")
                after, sent = after + 1, sent + 1
                self.wfile.write(f": a comment\nid: {after}\ndata: {data}\n\n".encode())
            elif self.server.stays:
                time.sleep(0.01)
            else:
                return

    def _break(self, how: str, after: int) -> None:
        """Send five events, then break."""
        for n, event in enumerate(self.server.events[after : after + 5], after + 1):
            named = f"id: {n}\n" if "ids" in how else ""
            self.wfile.write(f"{named}data: {event}\n\n".encode())
        self.wfile.flush()
        time.sleep(0.2)
        if "silent" in how:
            time.sleep(1.0)
        elif "reset" in how:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(events: list[str], **how: Any) -> Iterator[EventServer]:
    server = EventServer(events, **how)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.stays, server.each = False, 0
        server.shutdown()
        server.server_close()
        thread.join()


def wait_for(source: Source, lines: int) -> None:
    end = time.monotonic() + PATIENCE
    while source.latest("lines") < lines:
        assert time.monotonic() < end
        time.sleep(0.01)


def sse_input(rows: Sequence[dict[str, Any]], tmp: Path) -> Iterator[InputCase]:
    opened: list[Source] = []
    with serving([json.dumps(row) for row in rows]) as server:

        def open_one() -> Source:
            for source in opened:
                source.close()
            uri = f"sse:{server.url}"
            opened.append(open_source(uri, SCHEMA, folder=str(tmp / "job"), until="end"))
            opened[-1].latest("lines")
            opened[-1]._receiver._thread.join()  # type: ignore[attr-defined]
            return opened[-1]

        yield InputCase(open_one, rows, lambda: server.events.append('{"n": "one"}'))
        for source in opened:
            source.close()
