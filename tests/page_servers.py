"""The servers that pages of the documentation name: a page runs against those of the tests.

A page writes the address that its reader would; the text that is run has another in its place.
"""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
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


def _jobs() -> str:
    """A server of jobs in the working folder; `headrace run` is that of its own tests."""
    from headrace.server.daemon import Daemon
    from headrace.server.http import serve
    from tests.server.forking import forked
    from tests.server.worlds import POLICY

    Path("jobs").mkdir()
    command = _open.enter_context(forked(Path(_open.enter_context(tempfile.TemporaryDirectory()))))
    daemon = _open.enter_context(
        Daemon(".headrace/server", ["jobs"], policy=POLICY, runs=command, questions=command)
    )
    http = _open.enter_context(serve(daemon.service, port=0, tokens=daemon.tokens))
    daemon.home.say_address(http.url, daemon.started)
    return http.url


_open = ExitStack()  # servers that end with the page


def end_servers() -> None:
    _open.close()


SERVERS: dict[str, dict[str, Callable[[], str]]] = {
    "kafka.md": {"localhost:9092": _kafka},
    "kafka-output.md": {"localhost:9092": _kafka},
    "rest.md": {"http://127.0.0.1:8780": _jobs},
    "mqtt.md": {"localhost:1883": _mosquitto},
    "databases.md": {"postgresql://me@localhost/shop": _shop},
}


def with_servers(page: str, text: str) -> str:
    """The text with addresses at which there are servers; skips the test where they cannot be."""
    for address, server in SERVERS.get(page, {}).items():
        assert address in text, f"{page} no longer names {address}"
        text = text.replace(address, server())
    return text
