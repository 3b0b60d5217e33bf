"""Aggregates of the user's own: zero, add, merge, result, in Python.

They go wherever named aggregates go: into partials at the source, panes, sessions, running
aggregates. The user's state is a typed column, so it is stored and sent like any other. What
`merge` returns must not depend on how the rows were cut into partials.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.arrays import Column, Index, flat
from headrace.errors import PlanError, call_site
from headrace.ops.agg.base import Arguments, Exploding
from headrace.ops.agg.groups import Finish, Grouping
from headrace.ops.agg.order import group_numbers, inverse
from headrace.records import like, maker
from headrace.rows import collector_paused, pylist, table_of, value_copier
from headrace.schema import SchemaLike, type_of

_STATE = "state"
_REQUIRED = ("zero", "merge", "result")


class OwnAggregate:
    """Subclass me: `class Spread(hr.Aggregate)`, and use it as `agg(spread=Spread("celsius"))`.

    `state` and `output` are types (float, "array<double>", a dataclass). `zero()` is where it
    begins; `add(state, value)` takes one value of the column in, `add_chunk(state, values)`
    a whole Arrow array at once if you have that; `merge(state, state)` joins two; `result`
    is what people see. Without a column, `add` gets None for every row.
    """

    state: ClassVar[SchemaLike] = None
    output: ClassVar[SchemaLike] = None

    def __init__(self, column: Any = None) -> None:
        self.column = column

    def zero(self) -> Any:
        """The state before the first value."""
        raise NotImplementedError

    def merge(self, a: Any, b: Any) -> Any:
        """The state of the values of both, `a` before `b`."""
        raise NotImplementedError

    def result(self, state: Any) -> Any:
        """What is emitted for a state."""
        raise NotImplementedError


def check_own(own: OwnAggregate) -> None:
    """Refuse a class that cannot work."""
    title = type(own).__name__
    missing = [n for n in _REQUIRED if getattr(type(own), n) is getattr(OwnAggregate, n)]
    if not any(callable(getattr(own, n, None)) for n in ("add", "add_chunk")):
        missing.append("add")
    missing += [n for n in (_STATE, "output") if getattr(own, n) is None]
    if missing:
        raise PlanError(
            "HR-AGG-010",
            f"the aggregate {title} has no {missing[0]}",
            "Give it zero, add or add_chunk, merge, result, and the types state and output.",
            site=call_site(),
        )
    try:
        kind = type_of(own.state)
    except PlanError as error:
        raise PlanError(
            "HR-AGG-011",
            f"{title}.state is not a type: {error.message}",
            error.hint,
            site=call_site(),
        ) from error
    try:
        _column([own.zero()], kind)
    except (ValueError, PlanError) as error:
        raise PlanError(
            "HR-AGG-011",
            f"what {title}.zero() gives is not of its state's type: {error}",
            "Let zero() give a value of the type that `state` names.",
            site=call_site(),
        ) from error


class OwnSynopsis(Exploding):
    """The synopsis of a user's aggregate."""

    ordered = True

    def __init__(self, own: OwnAggregate) -> None:
        self._own = own
        self._chunks = callable(getattr(own, "add_chunk", None))
        self._make = maker(own.state) or like(own.zero())
        self._copied = value_copier(type_of(own.state)).take

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        return type_of(self._own.output)

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {_STATE: type_of(self._own.state)}

    def partial(self, rows: Arguments, grouping: Grouping) -> Finish:
        ticket = grouping.ask_rows()
        order = _in_order(rows)

        def finish() -> list[Column]:
            groups = _groups(grouping, ticket, order)
            return [self._states(self._added(rows, members) for members in groups)]

        return finish

    def single(self, rows: Arguments) -> list[Column]:
        each = (np.array([i]) for i in range(rows.count))
        return [self._states(self._added(rows, members) for members in each)]

    def nothing(self, kind: pa.DataType, by: pa.DataType, count: int) -> list[Column]:
        return [self._states(self._own.zero() for _ in range(count))]

    def merge(self, label: str, columns: Sequence[Column], grouping: Grouping) -> Finish:
        ticket = grouping.ask_rows()

        @collector_paused()
        def finish() -> list[Column]:
            states = self._loaded(columns[0])
            groups = _groups(grouping, ticket, None)
            return [self._states(self._merged([states[i] for i in members]) for members in groups)]

        return finish

    def result(self, columns: Sequence[Column]) -> Column:
        kind = type_of(self._own.output)
        states, copied = self._loaded(columns[0]), value_copier(kind).take
        results = [None if s is None else copied(self._own.result(s)) for s in states]
        return _column(results, kind)

    def _added(self, rows: Arguments, members: Index) -> Any:
        state = copy.deepcopy(self._own.zero())
        values = pa.nulls(rows.count) if rows.values is None else rows.values
        chosen = flat(values).take(pa.array(members))
        if self._chunks:
            return self._own.add_chunk(state, chosen)  # type: ignore[attr-defined]
        add: Callable[[Any, Any], Any] = self._own.add  # type: ignore[attr-defined]
        for value in chosen.to_pylist():
            state = add(state, value)
        return state

    def _merged(self, states: list[Any]) -> Any:
        first, *rest = states
        for state in rest:
            first = self._own.merge(first, state)
        return first

    def _loaded(self, column: Column) -> list[Any]:
        """States as the user's code knows them: of the type that `zero` gives."""
        states = pylist(column)
        return states if self._make is None else list(map(self._make, states))

    def _states(self, states: Iterable[Any]) -> pa.Array:
        """Each is copied before the next is made, which may be the same object."""
        return _column(list(map(self._copied, states)), type_of(self._own.state))


def _in_order(rows: Arguments) -> Index:
    """The rows by event time, split and offset: the order in which a group's are added."""
    columns = [np.asarray(c) for c in rows.order.columns]
    return np.lexsort(columns[::-1])


def _groups(grouping: Grouping, ticket: str, order: Index | None) -> list[Index]:
    """The rows of each group, in order."""
    rows, starts = grouping.rows_of(ticket)
    if order is not None:
        rows = rows[np.lexsort((inverse(order)[rows], group_numbers(starts, len(rows))))]
    return np.split(rows, starts[1:])


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    return flat(table_of([(v,) for v in values], pa.schema([("value", kind)])).column(0))
