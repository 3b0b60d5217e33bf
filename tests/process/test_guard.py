"""Shared maps that may be read: whatever way an entry is come by, a change of it is seen."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import PlanError
from headrace.ops.process.shared_maps import SharedMapGuard

WAYS: dict[str, Callable[[Any], Any]] = {
    "[]": lambda m: m["a"],
    "get": lambda m: m.get("a"),
    "values": lambda m: next(iter(m.values())),
    "items": lambda m: next(iter(m.items()))[1],
    "dict": lambda m: dict(m)["a"],
    "**": lambda m: {**m}["a"],
    "copy": lambda m: m.copy()["a"],
    "copy.copy": lambda m: copy.copy(m)["a"],
    "|": lambda m: (m | {})["a"],
    "over keys": lambda m: [m[key] for key in m][0],  # noqa: RUF015
}


def guard() -> SharedMapGuard:
    def kept() -> dict[str, dict[Any, Any]]:
        return {"rules": {"a": [1], "b": [2]}, "plain": {"a": 1}}

    return SharedMapGuard(kept(), ["rules"], kept)


@pytest.mark.parametrize("way", WAYS)
def test_a_change_within_is_refused_and_undone(way: str) -> None:
    made = guard()
    rules = made.maps["rules"]
    made.check()
    WAYS[way](rules).append(3)
    with pytest.raises(PlanError, match="HR-PROCESS-014"):
        made.check()
    made.restore()
    made.check()
    assert rules == {"a": [1], "b": [2]}


@pytest.mark.parametrize("way", WAYS)
def test_reading_is_not_changing(way: str) -> None:
    made = guard()
    assert WAYS[way](made.maps["rules"]) == [1] and WAYS[way](made.maps["plain"]) == 1
    made.check()
    assert made.maps["rules"].get("c", 7) == 7


def test_a_deep_copy_is_ones_own() -> None:
    made = guard()
    mine = copy.deepcopy(made.maps["rules"])
    mine["a"].append(3)
    mine["c"] = []
    made.check()


@pytest.mark.parametrize("name", ["rules", "plain"])
def test_an_assignment_is_refused_at_once(name: str) -> None:
    for change in (lambda m: m.update(a=2), lambda m: m.pop("a"), lambda m: m.__setitem__("a", 2)):
        with pytest.raises(PlanError, match="HR-PROCESS-014"):
            change(guard().maps[name])
