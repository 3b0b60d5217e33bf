"""A small job to write programs with, and the codes of what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.api.job import Job
from headrace.api.stream import Stream
from headrace.errors import PlanError

TEMPERATURE = "area string, celsius double, at timestamp, sensor bigint"


@pytest.fixture
def job() -> Job:
    return Job("test")


@pytest.fixture
def temperature(job: Job) -> Stream:
    return job.read("log:temperature", schema=TEMPERATURE, time="at", delay="2s")


@pytest.fixture
def problems(job: Job) -> Callable[[], list[PlanError]]:
    """All problems of the job, in order."""

    def found() -> list[PlanError]:
        try:
            job.check()
        except PlanError as error:
            return list(error.problems)
        return []

    return found


@pytest.fixture
def codes(problems: Callable[[], list[PlanError]]) -> Callable[[], list[str]]:
    return lambda: [p.code for p in problems()]
