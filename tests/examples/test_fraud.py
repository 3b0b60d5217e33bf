"""The fraud example finds what its generator planted, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from examples.data.fraud import planted
from examples.data.playing import BEGIN

import headrace as hr
from tests.examples.playing import PLACES, played


@pytest.fixture(scope="module", params=PLACES)
def printed(request, tmp_path_factory) -> Iterator[str]:
    with played(request, tmp_path_factory, "fraud", max_batch=700) as text:
        yield text


def test_the_frauds_that_were_planted_are_found(printed):
    frauds = {(card, round(1_000 * a), round(1_000 * b)) for card, a, b in planted()[1]}
    assert len(frauds) > 50
    found = []
    for row in hr.read_output(".headrace/fraud/found").to_pylist():
        times = (round(1_000 * (row[n].timestamp() - BEGIN)) for n in ("small_at", "large_at"))
        found.append((row["card"], *times))
    assert len(found) == len(set(found)) and set(found) == frauds


def test_it_tells_of_them(printed):
    frauds = planted()[1]
    assert f"payments, {len(frauds)} frauds; {len(frauds)} were planted" in printed
