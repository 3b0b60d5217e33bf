"""A schema registry over HTTP, with a user and a password, on top of a folder."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from headrace.connect.schema_folder import answered


@contextmanager
def registry_server(folder: Path, auth: str) -> Iterator[str]:
    """Its address; every request must bring `auth`, "user:password"."""
    wanted = f"Basic {base64.b64encode(auth.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            if self.headers["Authorization"] != wanted:
                return self._send(401, b"{}")
            if body is not None and "refused" in self.path:
                return self._send(409, b'{"error_code": 409, "message": "it is incompatible"}')
            found = answered(str(folder), self.path, body)
            self._send(404 if found is None else 200, found or b"{}")

        def _send(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
