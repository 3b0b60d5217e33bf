"""A server on a free loopback port, and requests to it as bytes of HTTP, without our own client."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.server.http import HttpServer

TOKENS = {"read": "read-" + "r" * 27, "operate": "operate-" + "o" * 24}


@dataclass(frozen=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


def ask(
    server: HttpServer, method: str, path: str, body: Any = None, role: str | None = "operate",
    headers: Mapping[str, str | bytes] | None = None, host: str = "127.0.0.1",
) -> Answered:  # fmt: skip
    """A request; a body that is not bytes is sent as JSON; `headers` replace those of the role."""
    sent: dict[str, str | bytes] = {}
    if role is not None:
        sent["Authorization"] = f"Bearer {TOKENS[role]}"
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        sent["Content-Type"] = "application/json"
    sent |= headers or {}
    connection = http.client.HTTPConnection(host, server.port, timeout=60)
    try:
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        names = {name.lower(): value for name, value in answer.getheaders()}
        return Answered(answer.status, names, answer.read())
    finally:
        connection.close()
