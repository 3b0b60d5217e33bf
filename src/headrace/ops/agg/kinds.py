"""The kinds of aggregates, and what a user asks for: a kind and its arguments.

An `Aggregate` is a value; what it does is its kind's synopsis, looked up here and nowhere
else. Arguments are columns, or expressions until the plan has made columns of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.chunk import plain_type
from headrace.errors import PlanError
from headrace.ops.agg.base import Synopsis, Unfit
from headrace.ops.agg.moments import Variance
from headrace.ops.agg.ordered import Collect, Distinct, Pick
from headrace.ops.agg.own import Own, OwnAggregate
from headrace.ops.agg.plain import Count, Extreme, Mean, Sum

if TYPE_CHECKING:
    from headrace.expr import Expr

KINDS: dict[str, Synopsis] = {
    "count": Count(), "sum": Sum(), "mean": Mean(),
    "min": Extreme(largest=False), "max": Extreme(largest=True),
    "min_by": Pick(by=True, largest=False), "max_by": Pick(by=True, largest=True),
    "stddev": Variance(root=True), "variance": Variance(root=False),
    "first": Pick(by=False, largest=False), "last": Pick(by=False, largest=True),
    "collect": Collect(), "count_distinct": Distinct(),
}  # fmt: skip


@dataclass(frozen=True)
class Aggregate:
    """What to compute: a kind and its arguments, columns or (until planned) expressions."""

    kind: str
    column: str | Expr | None = None
    by: str | Expr | None = None
    own: OwnAggregate | None = None  # of the user's own

    def __str__(self) -> str:
        arguments = [str(a) for a in (self.column, self.by) if a is not None]
        return f"{self.kind}({', '.join(arguments)})"

    @property
    def synopsis(self) -> Synopsis:
        return KINDS[self.kind] if self.own is None else Own(self.own)

    @property
    def ordered(self) -> bool:
        """Whether the order of rows matters, so that they need their time, split and offset."""
        return self.synopsis.ordered

    @property
    def arguments(self) -> tuple[str | Expr, ...]:
        return tuple(a for a in (self.column, self.by) if a is not None)

    def on(self, column: str | None, by: str | None = None) -> Aggregate:
        """The same aggregate of these columns."""
        return replace(self, column=column, by=by)

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        """The result's type over rows of `schema`; refuses a type that does not suit."""
        try:
            return self.synopsis.result_type(*self._types(schema))
        except Unfit as wanted:
            raise self._unfit(schema, str(wanted)) from None

    def partial_fields(self, name: str, schema: pa.Schema) -> list[pa.Field]:
        """The columns of the partial of aggregate `name` over rows of `schema`."""
        self.result_type(schema)
        parts = self.synopsis.fields(*self._types(schema))
        return [pa.field(f"{name}__{part}", kind) for part, kind in parts.items()]

    def _types(self, schema: pa.Schema) -> tuple[pa.DataType, pa.DataType]:
        return _type(schema, self.column), _type(schema, self.by)

    def _unfit(self, schema: pa.Schema, wanted: str) -> PlanError:
        kinds = " and ".join(str(_type(schema, a)) for a in self.arguments)
        return PlanError(
            f"{self} cannot be computed: its argument is {kinds}",
            code="HR-AGG-001", hint=f"{self.kind} needs {wanted}; cast the column first.",
        )  # fmt: skip


def _type(schema: pa.Schema, column: str | Expr | None) -> pa.DataType:
    if column is None:
        return pa.null()
    if not isinstance(column, str):
        raise TypeError(f"the plan must project {column} into a column first")
    if column not in schema.names:
        raise PlanError(
            f"column {column!r} does not exist", code="HR-AGG-002",
            hint=f"The columns are: {', '.join(n for n in schema.names if n[:2] != '__')}.",
        )  # fmt: skip
    return plain_type(schema.field(column).type)
