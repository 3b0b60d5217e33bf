"""An endpoint to which all rows were posted, for the suite of inputs; and clients for its tests."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.schema import schema_of
from headrace.sources import Source, open_source
from headrace.testing import InputCase

SCHEMA = schema_of("n bigint, name string")
PATIENCE = 20.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@dataclass
class Poster:
    """A client that posts to the endpoint of a job's folder."""

    job: Path
    port: int
    path: str = "/orders"
    name: str = "in"
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def token(self) -> str:
        return (self.job / "inputs" / self.name / "token").read_text().strip()

    def post(
        self, body: Any, *, method: str = "POST", token: str | None = None, **headers: str
    ) -> tuple[int, dict[str, Any], dict[str, str]]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"Authorization": f"Bearer {token or self.token}", **self.headers, **named}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, self.path, body, sent)
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content or b"{}"), dict(answer.getheaders())
        finally:
            connection.close()


def opened(job: Path, port: int, **options: Any) -> Source:
    """The input, once its endpoint is there."""
    source = open_source(f"http:{port}/orders", SCHEMA, options=options, folder=str(job), name="in")
    source.latest("lines")
    wait_until(lambda: getattr(source._receiver, "endpoint", None), source)  # type: ignore[attr-defined]
    return source


def wait_until(ready: Any, source: Source) -> None:
    import time

    end = time.monotonic() + PATIENCE
    while not ready():
        source.latest("lines")  # raises what went wrong
        assert time.monotonic() < end
        time.sleep(0.01)


def http_input(rows: Sequence[dict[str, Any]], tmp: Path) -> Iterator[InputCase]:
    port, job = free_port(), tmp / "job"
    sources = [opened(job, port)]
    for i in range(0, len(rows), 700):
        status, _, _ = Poster(job, port).post(json.dumps(rows[i : i + 700]))
        assert status == 200

    def open_one() -> Source:
        for source in sources:
            source.close()
        sources.append(opened(job, port))
        return sources[-1]

    yield InputCase(open_one, rows, lambda: Poster(job, port).post(b'{"n": "one"}'))
    for source in sources:
        source.close()
