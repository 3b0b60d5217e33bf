"""Jobs to plan."""

from __future__ import annotations

import pytest

from headrace.api.job import Job
from headrace.api.stream import Stream

SCHEMA = "area string, celsius double, at timestamp, sensor bigint, note string"


@pytest.fixture
def job() -> Job:
    return Job("test")


@pytest.fixture
def stream(job: Job) -> Stream:
    return job.read("log:temperature", schema=SCHEMA, time="at", delay="2s")
