"""A receiver of webhooks that honours idempotency keys, once for all tests of a process."""

from __future__ import annotations

import atexit
import json
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from headrace.testing import OutputCase


class Receiver(ThreadingHTTPServer):
    """What was posted, by path: in order, each key once; and every attempt."""

    daemon_threads = True

    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = {}
        self.keys: dict[str, list[str]] = {}
        self.attempts: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[int] = []  # to give before 200
        self.retry_after = ""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        server, body = self.server, self.rfile.read(int(self.headers["Content-Length"]))
        server.attempts.append((self.path, dict(self.headers), body))
        status = server.answers.pop(0) if server.answers else 200
        if status == 200:
            self._take(body)
        if status == 0:  # the connection breaks after the rows were taken
            self._take(body)
            self.close_connection = True
            return
        self.send_response(status)
        if server.retry_after:
            self.send_header("Retry-After", server.retry_after)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"said")

    def _take(self, body: bytes) -> None:
        known, key = self.server.keys.setdefault(self.path, []), self.headers["Idempotency-Key"]
        if key not in known:
            known.append(key)
            array = self.headers["Content-Type"] == "application/json"
            rows = json.loads(body) if array else map(json.loads, body.splitlines())
            self.server.rows.setdefault(self.path, []).extend(rows)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@cache
def receiver() -> Receiver:
    server = Receiver()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    atexit.register(server.server_close)
    atexit.register(server.shutdown)
    return server


def case(tmp: Path, **options: Any) -> OutputCase:
    server, path = receiver(), str(tmp)

    def rows() -> list[tuple[Any, ...]]:
        return sorted(tuple(r.values()) for r in server.rows.get(path, []))

    return OutputCase.of(f"webhook:{server.url}{path}", tmp, rows, **options)
