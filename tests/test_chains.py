"""Chains of changed programs, in their short form, and that they notice what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evolution.play import play

from headrace.driver import program_change, start
from headrace.driver.start_checks import Inspection
from headrace.plan.comparison import Comparison
from headrace.state.manifest import Manifest


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_chain_of_changed_programs_holds_what_the_model_says(seed: int) -> None:
    assert play(seed).violations == []


def noticed(what: str, seeds: range = range(1, 20)) -> bool:
    return any(what in v for seed in seeds for v in play(seed).violations)


def test_changes_that_are_accepted_unseen_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Comparison, "check", lambda *told: None)
    assert noticed("must be refused")


def test_state_that_is_lost_on_the_way_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = program_change.changed_manifest

    def forgetful(found: Inspection, moves: Any) -> Manifest:
        return replace(real(found, moves), state={})

    monkeypatch.setattr(program_change, "changed_manifest", forgetful)
    assert noticed("lacks")


def test_a_refused_start_that_leaves_a_trace_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = start.refuse

    def late(found: Inspection, *told: Any) -> None:
        found.log.open(found.name, 8)
        found.log.take_fence()
        real(found, *told)

    monkeypatch.setattr(start, "refuse", late)
    assert noticed("has changed")
