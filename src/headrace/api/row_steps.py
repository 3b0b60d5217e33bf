"""Rows and columns: fewer of them, others, new ones. Each row by itself, without state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.api.handles import PLAIN, JoinT, Results, StreamT, TableT, TimedT, flat
from headrace.api.python_columns import is_types, with_python_columns
from headrace.api.small_operators import exploded
from headrace.callables import is_lambda
from headrace.errors import PlanError
from headrace.expr import Expr, Untraceable, col
from headrace.ops.stream.chunk_steps import Explode
from headrace.plan import columns as cols
from headrace.plan.draft import UNKNOWN, unknown_columns
from headrace.plan.signature import row_schema, rows_schema
from headrace.schema import SchemaLike, schema_of

Condition = Expr | str | bool | Callable[[Any], Any]
ColumnLike = Any  # an expression, SQL text, a lambda over the row, or a literal


class RowSteps(Results[StreamT, TimedT, JoinT, TableT]):
    """Streams whose rows are seen one by one."""

    def filter(
        self, condition: Condition, *, name: str | None = None, was: str | None = None
    ) -> StreamT:
        """Keep the rows for which the condition is true."""
        return self._stream(self._step(name, was).filter(condition))

    where = filter

    def select(self, *names: str | Expr | Sequence[str | Expr], **exprs: ColumnLike) -> StreamT:
        """Only these columns; keywords make new ones: `select("area", f="celsius * 1.8 + 32")`."""
        step = self._step()
        picked = step.pick(names)
        step.unique([*picked, *exprs])
        return self._stream(step.columns("select", {**picked, **exprs}))

    def with_columns(
        self,
        *columns: Mapping[str, ColumnLike] | str | Expr,
        types: Mapping[str, Any] | ColumnLike = None,
        **exprs: ColumnLike,
    ) -> StreamT:
        """All columns, and these: new ones at the end, known ones replaced in place.

        Also written `with_columns({"a b": "x + 1"})` and `with_columns("x + 1 as y")`.
        A Python function computes a column of the row: `def f(row) -> float`, or of the type that
        `types` says, `types={"x": "double"}`; so does a lambda that is no expression. It sees the
        row as it came, and a row on which it raises is a dead letter.
        """
        step = self._step()
        kinds = types if is_types(types) else {}
        new = step.named(columns, exprs)
        new = new if types is None or is_types(types) else {"types": types, **new}
        return self._stream(with_python_columns(step, new, kinds))

    def drop(self, *names: str | Sequence[str]) -> StreamT:
        """All columns but these."""
        step, dropped = self._step(), flat(names)
        step.require_columns(dropped)
        columns = {n: col(n) for n in self.schema.names if n not in dropped}
        return self._stream(step.columns("drop", columns))

    def rename(self, *pairs: Any, **names: str) -> StreamT:
        """Other names for columns: `rename(new="old")`."""
        step = self._step()
        known = set(step.schema.names)
        turned = {new: old for new, old in names.items() if new in known and old not in known}
        if pairs or turned:
            first = pairs[0] if pairs and isinstance(pairs[0], Mapping) else {}
            shown = first or turned or {"old": "new"}
            written = ", ".join(f'{new}="{old}"' for old, new in shown.items())
            step.report(
                PlanError(
                    "HR-PLAN-062",
                    "rename takes the new name of a column as a keyword, the old one as its value",
                    f"Write rename({written}).",
                )
            )
            names = {new: old for new, old in names.items() if new not in turned}
        step.require_columns(names.values())
        new = {old: fresh for fresh, old in names.items()}
        renamed = [new.get(n, n) for n in self.schema.names]
        step.unique(renamed)
        return self._stream(
            step.columns("rename", dict(zip(renamed, map(col, self.schema.names), strict=True)))
        )

    def map(
        self,
        fn: Callable[[Any], Any],
        *,
        schema: SchemaLike | None = None,
        name: str | None = None,
        was: str | None = None,
    ) -> StreamT:
        """One row for each row: a traced lambda, or a Python function whose result is known."""
        step, reason = self._step(name, was), PLAIN
        if is_lambda(fn):
            try:
                columns = cols.traced(self._draft, fn, self.schema, schema, step.site)
                return self._stream(step.select("map", None, columns))
            except Untraceable as why:
                reason = why.reason
        return self._stream(step.function("map", fn, lambda: row_schema(fn, schema, "map"), reason))

    def flat_map(
        self,
        fn: Callable[[Any], Any],
        *,
        schema: SchemaLike | None = None,
        name: str | None = None,
        was: str | None = None,
    ) -> StreamT:
        """Any number of rows for each row: a function that returns a list or yields rows."""
        step = self._step(name, was)
        return self._stream(
            step.function("flat_map", fn, lambda: rows_schema(fn, schema, "flat_map"))
        )

    def explode(
        self,
        column: str,
        as_: str | None = None,
        *,
        outer: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> StreamT:
        """A row for each element of an array column, which the element replaces, as `as_`.

        A row whose array is empty or null is dropped; with `outer` it stays, with a null element.
        """
        step, what = self._step(name, was), Explode(column, as_ or column, outer)
        step.require_columns([column])
        resolved = column in self.schema.names and column not in unknown_columns(self.schema)
        schema = step.attempt(lambda: exploded(self.schema, what)) if resolved else UNKNOWN
        return self._stream(step.chunks(what, schema))

    def map_batches(
        self,
        fn: Callable[[pa.Table], pa.Table],
        *,
        schema: SchemaLike | None = None,
        name: str | None = None,
        was: str | None = None,
    ) -> StreamT:
        """A function from Arrow table to Arrow table; without `schema`, of the same columns."""
        step, before = self._step(name, was), self.schema
        return self._stream(
            step.function("map_batches", fn, lambda: schema_of(schema) if schema else before)
        )

    def tap(
        self, fn: Callable[[Any], Any], *, name: str | None = None, was: str | None = None
    ) -> StreamT:
        """Show each row to a function and pass it on; a stream that is tapped is used."""
        return self._stream(self._step(name, was).function("tap", fn, lambda: self.schema))
