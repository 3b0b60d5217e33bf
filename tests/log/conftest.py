"""Logs under test: every implementation of the contract, with a clock that tests move.

What reads Kafka are inputs, outputs, producers and consumers, each with a contract of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.clock import Clock, ManualClock
from headrace.log import EmbeddedLog, Log

OpenLog = Callable[[Path, Clock], Log]

LOGS: dict[str, OpenLog] = {"embedded": EmbeddedLog}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is such a thing: a sync costs nothing there."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as path:
        yield Path(path)


@pytest.fixture(params=sorted(LOGS))
def reopen(request, folder, clock) -> Callable[[], Log]:
    """Opens the same log again, as another process would."""
    return lambda: LOGS[request.param](folder / "log", clock)


@pytest.fixture
def log(reopen) -> Log:
    return reopen()


@pytest.fixture
def embedded(folder, clock) -> EmbeddedLog:
    return EmbeddedLog(folder / "log", clock)
