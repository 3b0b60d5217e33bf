"""Fixtures for pytest: `harness` and `spark_harness`.

A module beside the package, because pytest imports it at every start, in every project that
has Headrace installed: nothing of Headrace is imported before a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

try:
    import pytest
except ImportError as cause:
    from headrace.errors import RunError

    raise RunError(
        "HR-TEST-012",
        "fixtures are pytest's, and there is no pytest",
        "Install it: pip install 'headrace[testing]'.",
    ) from cause

pytest.register_assert_rewrite(
    "headrace.testing.input_suite",
    "headrace.testing.output_suite",
    "headrace.testing.output_drivers",
)

if TYPE_CHECKING:
    from headrace.testing import Harness


@pytest.fixture
def harness() -> Iterator[Callable[..., Harness]]:
    """`harness(job)`: the job under test in this process, closed when the test is over."""
    yield from _factory("local")


@pytest.fixture
def spark_harness() -> Iterator[Callable[..., Harness]]:
    """`spark_harness(job)`: the same on real Spark, in the process's session."""
    yield from _factory("spark")


def _factory(on: str) -> Iterator[Callable[..., Harness]]:
    from headrace.testing import Harness

    with ExitStack() as open_ones:

        def make(job: Any, **options: Any) -> Harness:
            return open_ones.enter_context(Harness(job, **{"on": on, **options}))

        yield make
