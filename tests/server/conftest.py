"""Worlds for the tests of the server: one process that forks commands for all tests of a package;
and the REST interface of jobs in memory, on a free loopback port."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.server.http import HttpServer, serve
from tests.server.forking import Command, forked
from tests.server.memory_service import MemoryService
from tests.server.rest_client import TOKENS
from tests.server.worlds import World


@pytest.fixture(scope="package")
def command() -> Iterator[Command]:
    with tempfile.TemporaryDirectory() as place, forked(Path(place)) as made:
        yield made


@pytest.fixture
def world(tmp_path: Path, command: Command) -> Iterator[World]:
    made = World(tmp_path, command)
    yield made
    made.end()


@pytest.fixture
def service() -> MemoryService:
    return MemoryService("shop", "fire alarm")


@pytest.fixture
def rest(service: MemoryService) -> Iterator[HttpServer]:
    with serve(service, port=0, tokens=TOKENS) as server:
        yield server
