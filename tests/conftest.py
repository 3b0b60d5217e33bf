"""What all tests share: one Spark for the whole run, the same that jobs use."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from tests.cuts import forget_what_was_computed, make_tiny

# The machine's pace is nobody's property: no deadline, and slow generation is no failure.
settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")

# Who starts the tests may ignore signals (nohup, a job in the background); what the tests start
# must not inherit that, for a program that is told to ignore them does.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# These run twice, the second time with every constant at which work is cut made tiny: 1, 2 or
# 3, by the module's name. Of each test's cases every fifth does so, chosen by their names, to be
# quick; HEADRACE_CUTS=1,2,3 runs all of these sizes over all of them.
MODELS = ("graph", "joins", "log/test_model.py", "ops", "patterns", "process",
          "driver/test_crashes.py",
          "sinks", "sources", "state", "streams", "testing/test_drawn_scripts.py",
          "topology/test_acks.py", "topology/test_replays.py", "transcripts",
          "windows")  # fmt: skip
SIZES = [int(size) for size in os.environ.get("HEADRACE_CUTS", "").split(",") if size]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    place = Path(metafunc.module.__file__).relative_to(Path(__file__).parent).as_posix()
    as_they_are = map(metafunc.definition.get_closest_marker, ("spark", "constants"))
    if place.startswith(MODELS) and not any(as_they_are):
        sizes = SIZES or [1 + crc32(place.encode()) % 3]
        metafunc.parametrize("cuts", [0, *sizes], ids=_cut_name, indirect=True, scope="module")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of what runs with tiny cuts, the first case of each test and every fifth of the others."""
    seen, thinned = set[str](), list[pytest.Item]()
    for item in items if not SIZES else ():
        case = getattr(item, "callspec", None)
        if case is None or not case.params.get("cuts"):
            continue
        test = item.nodeid.partition("[")[0]
        if test in seen and crc32(item.nodeid.encode()) % 5:
            thinned.append(item)
        seen.add(test)
    if thinned:
        config.hook.pytest_deselected(items=thinned)
        gone = set(map(id, thinned))
        items[:] = [item for item in items if id(item) not in gone]


def _cut_name(size: int) -> str:
    return f"cut-{size}" if size else "whole"


@pytest.fixture(scope="module", autouse=True)
def cuts(request: pytest.FixtureRequest) -> Iterator[int]:
    """How small every cut is in this test; 0 where they are as they are."""
    size: int = getattr(request, "param", 0)
    with pytest.MonkeyPatch.context() as patch:
        if size:
            make_tiny(patch, size)
        yield size
    if size:
        forget_what_was_computed()


@pytest.fixture(scope="session")
def spark() -> Any:
    """The Spark of this test run, started when the first test asks for it."""
    from headrace.engine.session import session

    return session("local[2]")


@pytest.fixture(scope="session")
def kafka() -> Any:
    """The Kafka broker of this test run, started when the first test asks for it."""
    from tests.kafka.running import broker

    return broker()
