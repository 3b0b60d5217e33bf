"""Tables: the latest row of each key of a stream of changes.

A table is not a stream of rows but what such a stream says about each key; it can be joined.
It keeps one row for every key ever seen, unless the join says how old one may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.api import join_keys, stream, table_joins
from headrace.api.step_builder import Adding
from headrace.errors import PlanError
from headrace.expr import col
from headrace.hints import named_arguments, no_such_name
from headrace.ops.join.side import GONE
from headrace.plan.draft import Draft
from headrace.plan.nodes import Edge

if TYPE_CHECKING:
    from headrace.api.connected import AnyStream


@named_arguments
class Table:
    """The latest row of each key."""

    def __init__(
        self, draft: Draft, edge: Edge, keys: tuple[str, ...], deletes: bool, unbounded: bool
    ) -> None:
        self._draft, self._edge, self._keys = draft, edge, keys
        self._deletes, self._unbounded = deletes, unbounded

    @property
    def keys(self) -> tuple[str, ...]:
        return self._keys

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return pa.schema([f for f in self._edge.schema if f.name != GONE])

    def changes(
        self, *, time: str = "event", name: str | None = None, was: str | None = None
    ) -> stream.JoinResult:
        """What changes in it: the old row of a key with `change` "-", then the new one with "+"."""
        return table_joins.changes(self, time, name, was)

    def join(
        self,
        other: Table,
        *,
        on: join_keys.On = None,
        how: str = "inner",
        time: str = "event",
        suffix: str = "_right",
        name: str | None = None,
        was: str | None = None,
    ) -> stream.JoinResult:
        """What changes in the join of two tables, with the column `change`: "-" or "+".

        `on` are the columns of this table that hold the key of the other; left out, both have
        the same key. By event time a change counts when the watermark has passed it, with
        time="processing" at once.
        """
        return table_joins.join_tables(self, other, on, how, time, suffix, name, was)

    if not TYPE_CHECKING:

        def __getattr__(self, method: str) -> Any:
            if hasattr(stream.Stream, method):
                raise AttributeError(
                    f"a table has no {method!r}: its changes are a stream, .changes().{method}"
                )
            raise no_such_name("a table", method, dir(Table))

    def __repr__(self) -> str:
        name = stream.Stream(self._draft, self._edge).name
        return f"<Table {name!r} by {', '.join(self._keys)}>"


def table(
    of: AnyStream, keys: tuple[str, ...], delete: Any, unbounded: bool, name: str | None
) -> Table:
    """The latest row of each key of a stream; rows for which `delete` is true end their key."""
    at = Adding(of._draft, of._edge, name)
    keys = keys or tuple(getattr(of, "keys", ()))
    if not keys:
        hint = 'Name the columns that say which row is meant: changes.table("id").'
        at.report(PlanError("HR-JOIN-002", "table names no key", hint))
    at.known(keys)
    edge = of._edge
    if delete is not None:
        condition = at.condition(delete, "table(delete=)")
        kept: dict[str, Any] = {n: col(n) for n in of.schema.names}
        if condition is not None:
            edge = at.columns("table", {**kept, GONE: condition})
    return Table(of._draft, edge, keys, edge is not of._edge, unbounded)
