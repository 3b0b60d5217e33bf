"""Process functions in a harness."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.testing import Harness
from tests.process.playing import job_of


@pytest.fixture
def play(harness: Callable[..., Harness]) -> Callable[..., Harness]:
    """Play a process function: `test = play(Function(), "side")`."""
    return lambda fn, *sides, **reading: harness(job_of(fn, *sides, **reading))
