"""Worlds for the tests of the server: one process that forks commands for all tests of a module."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.forking import Command, forked
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
