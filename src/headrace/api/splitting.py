"""Branches of a stream: each row goes to the first whose condition is true.

A branch is an ordinary filter that also says "and none of those before", so it costs no
operator of its own; a condition that is null is not true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import and_
from typing import Any

from headrace.api import stream
from headrace.api.step_builder import Adding
from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.plan.draft import Draft, bad_name
from headrace.plan.nodes import Edge

OTHER = "other"


class Branches:
    """`hot, cold = s.split(hot=..., cold=...)`, or `.hot`, `.cold`, and `.other` for the rest."""

    def __init__(self, draft: Draft, edge: Edge, conditions: Mapping[str, Any]) -> None:
        self._at = at = Adding(draft, edge)
        self._tried: list[Expr] = []
        self._made: dict[str, stream.Stream] = {}
        if not conditions:
            at.report(_no_branches())
        for name, condition in conditions.items():
            wrong = _reserved(name) if name == OTHER else bad_name(name, "a branch")
            if wrong is not None:
                at.report(wrong)
            self._made[name] = self._branch(name, at.condition(condition, f"the branch {name!r}"))

    def _branch(self, name: str, condition: Expr | None) -> stream.Stream:
        """A filter: this condition, and none of the earlier ones."""
        at, mine = self._at, [] if condition is None else [condition]
        parts = [*(~earlier.eq_null(True) for earlier in self._tried), *mine]
        where = reduce(and_, parts) if parts else None
        self._tried += mine
        place = f"{at.draft.scope(at.edge)}.{name}"
        return stream.Stream(at.draft, at.select("", where, None, place))

    def __getattr__(self, name: str) -> stream.Stream:
        made = self.__dict__.get("_made", {})
        if name == OTHER and name not in made:
            made[name] = self._branch(name, None)
        if name not in made:
            raise AttributeError(f"there is no branch {name!r}: they are {', '.join(made)}, other")
        branch: stream.Stream = made[name]
        return branch

    def __getitem__(self, name: str) -> stream.Stream:
        return self.__getattr__(name)

    def __iter__(self) -> Iterator[stream.Stream]:
        """The branches that were named, in order."""
        return iter([s for n, s in self._made.items() if n != OTHER])


def _reserved(name: str) -> PlanError:
    return PlanError(
        "HR-PLAN-010",
        f"the branch name {name!r} is reserved",
        "The rows that no branch takes are in `.other` without being asked for.",
    )


def _no_branches() -> PlanError:
    return PlanError(
        "HR-PLAN-023",
        "split has no branches",
        'Name each with its condition: split(hot="celsius > 40", cold="celsius < 0").',
    )
