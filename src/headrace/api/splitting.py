"""Branches of a stream, where each row goes to the first whose condition is true; and the
rows that `explode` makes of one.

A branch is an ordinary filter that also says "and none of those before", so it costs no
operator of its own; a condition that is null is not true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import and_
from typing import Any, Generic

import pyarrow as pa

from headrace.api.handles import StreamT
from headrace.api.step_builder import StepBuilder
from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.ops.stream.chunk_steps import Explode, is_array
from headrace.plan.draft import bad_name
from headrace.schema import ddl_type

OTHER = "other"


class Branches(Generic[StreamT]):
    """`hot, cold = s.split(hot=..., cold=...)`, or `.hot`, `.cold`, and `.other` for the rest."""

    def __init__(
        self, step: StepBuilder, conditions: Mapping[str, Any], kind: type[StreamT]
    ) -> None:
        self._step, self._kind = step, kind
        self._tried: list[Expr] = []
        self._made: dict[str, StreamT] = {}
        if not conditions:
            step.report(_no_branches())
        for name, condition in conditions.items():
            wrong = _reserved(name) if name == OTHER else bad_name(name, "a branch")
            if wrong is not None:
                step.report(wrong)
            self._made[name] = self._branch(name, step.condition(condition, f"the branch {name!r}"))

    def _branch(self, name: str, condition: Expr | None) -> StreamT:
        """A filter: this condition, and none of the earlier ones."""
        step, own = self._step, [] if condition is None else [condition]
        parts = [*(~earlier.eq_null(True) for earlier in self._tried), *own]
        where = reduce(and_, parts) if parts else None
        self._tried += own
        place = f"{step.draft.scope(step.edge)}.{name}"
        return self._kind(step.draft, step.select("", where, None, place))

    def __getattr__(self, name: str) -> StreamT:
        made = self.__dict__.get("_made", {})
        if name == OTHER and name not in made:
            made[name] = self._branch(name, None)
        if name not in made:
            raise AttributeError(f"there is no branch {name!r}: they are {', '.join(made)}, other")
        branch: StreamT = made[name]
        return branch

    def __getitem__(self, name: str) -> StreamT:
        return self.__getattr__(name)

    def __iter__(self) -> Iterator[StreamT]:
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


def exploded(schema: pa.Schema, what: Explode) -> pa.Schema:
    """The columns after `explode`: the elements take the place of their array."""
    kind = schema.field(what.column).type
    if not is_array(kind):
        raise PlanError(
            "HR-STREAM-012",
            f"explode takes an array, but {what.column!r} is of type {ddl_type(kind)}",
            "Of a map make an array first, by map_keys or map_values; of a text by split.",
        )
    if what.into != what.column and what.into in schema.names:
        raise PlanError(
            "HR-STREAM-012",
            f"explode would make a second column {what.into!r}",
            "Give the elements another name: as_=.",
        )
    place = schema.get_field_index(what.column)
    return schema.set(place, pa.field(what.into, kind.value_type))
