"""The servers that pages of the documentation name: a page runs against those of the tests.

A page writes the address that its reader would; the text that is run has another in its place.
"""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

_count = itertools.count(1)


@cache
def _kafka() -> str:
    from tests.kafka.running import broker

    return str(broker().address)


@cache
def _mosquitto() -> str:
    from tests.mqtt.broker import PROGRAM, Broker

    if PROGRAM is None:
        pytest.skip("no mosquitto here: apt-get install mosquitto")
    folder = Path(tempfile.mkdtemp(prefix="headrace-mosquitto-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    broker = Broker(folder)
    atexit.register(broker.stop)
    return f"127.0.0.1:{broker.port}"


def _shop() -> str:
    """A new database of PostgreSQL."""
    from tests.databases import postgres_database, run, server

    name = f"shop{next(_count)}"
    run(postgres_database(), f"CREATE DATABASE {name}")
    return server().url.rpartition("/")[0] + f"/{name}"


SERVERS: dict[str, dict[str, Callable[[], str]]] = {
    "kafka.md": {"localhost:9092": _kafka},
    "kafka-output.md": {"localhost:9092": _kafka},
    "mqtt.md": {"localhost:1883": _mosquitto},
    "databases.md": {"postgresql://me@localhost/shop": _shop},
}


def with_servers(page: str, text: str) -> str:
    """The text with addresses at which there are servers; skips the test where they cannot be."""
    for address, server in SERVERS.get(page, {}).items():
        assert address in text, f"{page} no longer names {address}"
        text = text.replace(address, server())
    return text
