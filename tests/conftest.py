"""What all tests share: one Spark for the whole run, the same that jobs use."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Any:
    """The Spark of this test run, started when the first test asks for it."""
    from headrace.engine.session import session

    return session("local[2]")
