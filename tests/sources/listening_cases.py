"""A listening input to which all rows were sent, for the suite of inputs; and clients."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headrace.schema import schema_of
from headrace.sources import Source, open_source
from headrace.testing import InputCase

SCHEMA = schema_of("n bigint, name string")
PATIENCE = 60.0  # seconds: with tiny cuts each line is a sync, and machines are shared


def listening(job: Path, port: int = 0, schema: Any = None, **more: Any) -> Source:
    """The input, once it listens."""
    source = open_source(f"listen:{port}", schema, folder=str(job), name="in", **more)
    before = source.listens_at
    source.latest("lines")
    wait_until(lambda: source.listens_at not in (None, before), source)
    return source


def wait_until(ready: Any, source: Source) -> None:
    end = time.monotonic() + PATIENCE
    while not ready():
        source.latest("lines")  # raises what went wrong
        assert time.monotonic() < end
        time.sleep(0.005)


def wait_for(source: Source, end: int) -> None:
    wait_until(lambda: source.latest("lines") >= end, source)


def client(source: Source) -> socket.socket:
    assert source.listens_at is not None
    host, _, port = source.listens_at[0].rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE)


def listening_input(rows: Sequence[dict[str, Any]], tmp: Path) -> Iterator[InputCase]:
    sources = [listening(tmp / "job", schema=SCHEMA)]
    for i in range(0, len(rows), 700):
        with client(sources[0]) as one:
            one.sendall("".join(json.dumps(r) + "\n" for r in rows[i : i + 700]).encode())
        wait_for(sources[0], min(i + 700, len(rows)))

    def open_one() -> Source:
        for source in sources:
            source.close()
        sources.append(listening(tmp / "job", schema=SCHEMA))
        return sources[-1]

    def spoil() -> None:
        with client(sources[-1]) as one:
            one.sendall(b'{"n": "one"}\n')
        wait_for(sources[-1], len(rows) + 1)

    yield InputCase(open_one, rows, spoil)
    for source in sources:
        source.close()
