"""What holds for every example with a generator: it is short, builds, and is the same each time."""

from __future__ import annotations

from importlib import import_module

import pytest

from headrace.cli.loading import load_job
from tests.examples.playing import EXAMPLES

NAMES = [
    "access_log",
    "digest",
    "enrolment",
    "fraud",
    "page_views",
    "pagerank",
    "spam",
    "wikipedia",
]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_a_program_of_at_most_eighty_lines(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 80


@pytest.mark.parametrize("name", NAMES)
def test_an_example_builds_and_reads_what_its_generator_sends(name: str) -> None:
    job = load_job(EXAMPLES / f"{name}.py")
    text = job.explain().text
    topics = import_module(f"examples.data.{name}").topics()
    assert topics and all(f"log:{topic}" in text for topic in topics)


@pytest.mark.parametrize("name", NAMES)
def test_a_generator_sends_the_same_each_time(name: str) -> None:
    data = import_module(f"examples.data.{name}")
    first, second = ({t: list(r) for t, r in data.topics().items()} for _ in range(2))
    assert first == second and all(len(records) > 100 for records in first.values())


def test_authentication_runs_as_one_fused_step() -> None:
    assert (
        "fused: requests.map, decrypt, lookup, match"
        in load_job(EXAMPLES / "enrolment.py").explain().text
    )
