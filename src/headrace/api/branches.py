"""Rows split into branches: each goes to the first whose condition is true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import and_
from typing import Any, Generic

from headrace.api.handles import StepBuilder, StreamT
from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.plan.draft import bad_name

OTHER = "other"  # the branch of the rows that no other branch takes


class Branches(Generic[StreamT]):
    """`hot, cold = s.split(hot=..., cold=...)`, or `.hot`, `.cold`, and `.other` for the rest."""

    def __init__(
        self, step: StepBuilder, conditions: Mapping[str, Any], kind: type[StreamT]
    ) -> None:
        self._step, self._kind = step, kind
        self._earlier: list[Expr] = []
        self._branches: dict[str, StreamT] = {}
        if not conditions:
            step.report(_no_branches())
        for name, condition in conditions.items():
            problem = _reserved(name) if name == OTHER else bad_name(name, "a branch")
            if problem is not None:
                step.report(problem)
            expr = step.condition(condition, f"the branch {name!r}")
            self._branches[name] = self._branch(name, expr)

    def _branch(self, name: str, condition: Expr | None) -> StreamT:
        """A filter: this condition, and none of the earlier ones."""
        step, own = self._step, [] if condition is None else [condition]
        parts = [*(~earlier.eq_null(True) for earlier in self._earlier), *own]
        where = reduce(and_, parts) if parts else None
        self._earlier += own
        place = f"{step.draft.scope(step.edge)}.{name}"
        return self._kind(step.draft, step.select("", where, None, place))

    def __getattr__(self, name: str) -> StreamT:
        branches = self.__dict__.get("_branches", {})
        if name == OTHER and name not in branches:
            branches[name] = self._branch(name, None)
        if name not in branches:
            raise AttributeError(
                f"there is no branch {name!r}: they are {', '.join(branches)}, other"
            )
        branch: StreamT = branches[name]
        return branch

    def __getitem__(self, name: str) -> StreamT:
        return self.__getattr__(name)

    def __iter__(self) -> Iterator[StreamT]:
        """The branches that were named, in order."""
        return iter([s for n, s in self._branches.items() if n != OTHER])


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
