"""Handles: immutable values that stand for the rows, or the table, of a place in a program.

Methods that streams with a key and without share are written in mixin classes of their own.
What these return are streams again, which are defined later: here they are type variables.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import pyarrow as pa

from headrace.api.step_builder import StepBuilder
from headrace.errors import PlanError
from headrace.ops.join.sides import GONE
from headrace.plan.draft import Draft
from headrace.plan.nodes import Edge


class Handle:
    """A job's draft, and the port of a step whose rows are meant."""

    _keys: tuple[str, ...] = ()

    def __init__(self, draft: Draft, edge: Edge) -> None:
        self._draft, self._edge = draft, edge

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, as far as they are known."""
        return self._edge.schema

    def _step(self, name: str | None = None, was: str | None = None) -> StepBuilder:
        """A step to be added after these rows."""
        return StepBuilder(self._draft, self._edge, name, was)


class AnyStream(Handle):
    """A stream, with a key or without."""


class AnyTable(Handle):
    """The latest row of each key of a stream."""

    def __init__(
        self, draft: Draft, edge: Edge, keys: tuple[str, ...], deletes: bool, unbounded: bool
    ) -> None:
        super().__init__(draft, edge)
        self._keys, self._deletes, self._unbounded = keys, deletes, unbounded

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return self._keys

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return pa.schema([f for f in self._edge.schema if f.name != GONE])

    @property
    def _gone(self) -> str | None:
        """The column that marks the end of a key, if rows can."""
        return GONE if self._deletes else None


class AnyBroadcast(Handle):
    """A control stream: each of its rows reaches every task."""


StreamT = TypeVar("StreamT", bound=AnyStream)
TimedT = TypeVar("TimedT", bound=AnyStream)
JoinT = TypeVar("JoinT", bound=AnyStream)
TableT = TypeVar("TableT", bound=AnyTable)


class Results(AnyStream, Generic[StreamT, TimedT, JoinT, TableT]):
    """A stream that knows the classes of what its methods return."""

    @property
    def _kinds(self) -> tuple[type[StreamT], type[TimedT], type[JoinT], type[TableT]]:
        """Of a stream, of a result that has late rows, of a join's, and of a table."""
        raise NotImplementedError

    def _stream(self, edge: Edge) -> StreamT:
        return self._kinds[0](self._draft, edge)

    def _timed(self, edge: Edge) -> TimedT:
        return self._kinds[1](self._draft, edge)

    def _joined(self, edge: Edge) -> JoinT:
        return self._kinds[2](self._draft, edge)


def other_job() -> PlanError:
    return PlanError(
        "HR-PLAN-020",
        "streams of two jobs cannot meet",
        "Read both inputs with the same job, or pass data between jobs through a topic.",
    )
