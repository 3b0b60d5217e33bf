"""Logs under test: every implementation of the contract, with a clock that tests move."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.clock import Clock, ManualClock
from headrace.log import EmbeddedLog, Log

OpenLog = Callable[[Path, Clock], Log]

LOGS: dict[str, OpenLog] = {"embedded": EmbeddedLog}  # Kafka joins here


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture(params=sorted(LOGS))
def reopen(request, tmp_path, clock) -> Callable[[], Log]:
    """Opens the same log again, as another process would."""
    return lambda: LOGS[request.param](tmp_path / "log", clock)


@pytest.fixture
def log(reopen) -> Log:
    return reopen()


@pytest.fixture
def embedded(tmp_path, clock) -> EmbeddedLog:
    return EmbeddedLog(tmp_path / "log", clock)
