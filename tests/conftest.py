"""What all tests share: one Spark for the whole run, the same that jobs use."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The machine's pace is nobody's property: no deadline, and slow generation is no failure.
settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")


@pytest.fixture(scope="session")
def spark() -> Any:
    """The Spark of this test run, started when the first test asks for it."""
    from headrace.engine.session import session

    return session("local[2]")
