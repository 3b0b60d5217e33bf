"""Steps without a name of their own that only a function tells from one another.

They get numbered names by their order ("orders.fold", "orders.fold-2"), so one that is put in,
taken out or moved gives the others another name. Where digests of the functions do not show
that each is where it was, the state is refused: names tell them apart for good.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.plan.nodes import Node
from headrace.plan.shapes import FROM

Facts = Mapping[str, Any]


def confusable(new: Facts, now: Iterable[Facts], old: Facts, before: Iterable[Facts]) -> str:
    """Why a step may have taken the place of another; empty if it cannot."""
    group, was = _like(new, now), _like(old, before)
    if len(group) < 2 and len(was) < 2:
        return ""
    mine = _functions(new)
    several = group.count(mine) > 1 or was.count(mine) > 1
    if mine == _functions(old) and not (several and len(group) != len(was)):
        return ""
    return (
        f"it is one of {max(len(group), len(was))} steps without a name of their own that only "
        "functions tell apart, and these, or their number or order, have changed"
    )


def unnamed_hint(node: Node) -> str:
    name = node.name
    return (
        f"If it is still the same step, say so: name={name!r}. If it is another, give it another "
        f"name=, and name={name!r} to the step whose state that is, or consent to losing it."
    )


def _like(one: Facts, steps: Iterable[Facts]) -> list[str]:
    """The functions of each step that could get the name of `one`."""
    return [_functions(s) for s in steps if "shape" in s and _place(s) == _place(one)]


def _place(step: Facts) -> str:
    """All that identifies an unnamed step but its functions."""
    shape = dict(step["shape"])
    origin = {k: v for k, v in shape.get(FROM, {}).items() if k != "functions"}
    if "unnamed" not in origin:
        return ""
    return json.dumps({**shape, FROM: origin}, sort_keys=True)


def _functions(step: Facts) -> str:
    return json.dumps(step["shape"].get(FROM, {}).get("functions"))
