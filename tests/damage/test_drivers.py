"""Two drivers of a whole job, in short; `make damage` is the long form."""

from __future__ import annotations

import random

import pytest
from damage.drivers import SCENES, Case, Found, judge, points, tiny

SAMPLE = 5


@pytest.mark.parametrize("scene", sorted(SCENES))
def test_a_driver_let_go_after_a_takeover_changes_nothing(tmp_path, scene):
    found, chance = Found(), random.Random(scene)
    with tiny():
        passed = points(scene, tmp_path / "calm")
        for at in chance.sample(range(1, len(passed) + 1), SAMPLE):
            case = Case(
                scene, at, chance.choice([0, 0, 1, 20]), chance.choice([None, "commit.checked"])
            )
            judge(case, tmp_path / "two", found)

    assert found.violations == []


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_driver_that_is_overtaken_again_is_said_to_be_fenced(tmp_path, at):
    """Who was stopped before it took the folder takes it after the newer one, and goes on."""
    found = Found()
    with tiny():
        judge(Case("running", at, 1), tmp_path / "two", found)

    assert found.violations == []


@pytest.mark.parametrize("stopped", ["commit.checked", "manifest.synced"])
def test_a_manifest_that_the_old_driver_links_does_not_stop_the_newer_one(tmp_path, stopped):
    found = Found()
    with tiny():
        at = 1 + points("running", tmp_path / "calm").index(stopped)
        judge(Case("running", at, 0, "commit.checked"), tmp_path / "two", found)
        judge(Case("running", at, 1, "commit.checked"), tmp_path / "two", found)

    assert found.violations == []
