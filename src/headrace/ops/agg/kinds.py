"""The kinds of aggregates, and what a user asks for: a kind and its arguments.

An `Aggregate` is a value; what it does is its kind's synopsis, looked up here and nowhere
else. Arguments are columns, or expressions until the plan has made columns of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Column, Index, array, doubles, floats, integers, valid
from headrace.chunk import plain_type
from headrace.errors import PlanError, call_site
from headrace.expr import Expr, lit
from headrace.expr.operators import ColumnOperators, NotAValue
from headrace.expr.tree import Node, call, column_or_text
from headrace.hashing import hash_family
from headrace.hints import AGGREGATES
from headrace.ops.agg.base import Arguments, Synopsis, UnsuitableType
from headrace.ops.agg.groups import Finish, Grouping
from headrace.ops.agg.order import group_numbers
from headrace.ops.agg.ordered import Collect, Distinct, Pick
from headrace.ops.agg.own import OwnAggregate, OwnSynopsis
from headrace.ops.agg.percentile import Percentile
from headrace.ops.agg.plain import Count, Extreme, Mean, Sum, numeric
from headrace.ops.agg.span import Numbers, Span
from headrace.ops.sketch.base import Sketch
from headrace.ops.sketch.count_min import CountMin
from headrace.ops.sketch.frequent import Frequent
from headrace.ops.sketch.hll import HyperLogLog
from headrace.ops.sketch.kll import Quantiles
from headrace.ops.sketch.sample import Reservoir
from headrace.ops.sketch.theta import Theta

# Variance and standard deviation of a sample, stored as (n, mean, M2).
#
# M2 is the sum of squared distances from the mean; two partials merge as Chan, Golub and
# LeVeque do, without subtracting large sums, so a large mean does not eat the digits.


class _MomentsMerge:
    """Chan's merge as an operation on the arrays n, mean, M2."""

    def merge(self, a: Sequence[Numbers], b: Sequence[Numbers]) -> list[Numbers]:
        n = a[0] + b[0]
        share = b[0] / np.maximum(n, 1)
        distance = np.where((a[0] > 0) & (b[0] > 0), b[1] - a[1], 0.0)
        mean = np.where(a[0] > 0, a[1] + distance * share, b[1])
        return [n, mean, a[2] + b[2] + distance * distance * share * a[0]]

    def scan(self, blocks: Sequence[Numbers]) -> list[Numbers]:
        out, step = [b.copy() for b in blocks], 1
        while step < out[0].shape[1]:
            merged = self.merge([o[:, :-step] for o in out], [o[:, step:] for o in out])
            for column, new in zip(out, merged, strict=True):
                column[:, step:] = new
            step *= 2
        return out

    def fold(self, columns: Sequence[Numbers], starts: Index) -> list[Numbers]:
        n, mean, m2 = columns
        group = group_numbers(starts, len(n))
        total = np.add.reduceat(n, starts)
        centre = np.add.reduceat(n * mean, starts) / np.maximum(total, 1)
        distance = np.where(n > 0, mean - centre[group], 0.0)
        return [total, centre, np.add.reduceat(m2 + n * distance * distance, starts)]

    def blank(self) -> Sequence[Any]:
        return [0, 0.0, 0.0]


_MERGE = _MomentsMerge()


class Variance(Synopsis):
    def __init__(self, root: bool) -> None:
        self.root = root  # for the standard deviation

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        numeric(kind)
        return pa.float64()

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {"n": pa.int64(), "mean": pa.float64(), "m2": pa.float64()}

    def partial(self, rows: Arguments, grouping: Grouping) -> Finish:
        values = doubles(rows.column)
        label = f"{rows.label}:float"
        n = grouping.ask(rows.label, rows.column, "count")
        mean, spread = (grouping.ask(label, values, f) for f in ("mean", "variance"))

        def finish() -> list[Column]:
            count = integers(grouping.answer(n))
            m2 = floats(grouping.answer(spread)) * count
            return [*_columns(count, floats(grouping.answer(mean)), m2)]

        return finish

    def single(self, rows: Arguments) -> list[Column]:
        values = doubles(rows.column)
        count = valid(values).astype(np.int64)
        return _columns(count, floats(values), np.zeros(rows.count) * floats(values))

    def merge(self, label: str, columns: Sequence[Column], grouping: Grouping) -> Finish:
        ticket = grouping.ask_rows()

        def finish() -> list[Column]:
            rows, starts = grouping.rows_of(ticket)
            return _columns(*_MERGE.fold([values[rows] for values in _arrays(columns)], starts))

        return finish

    def combine(self, columns: Sequence[Column], span: Span) -> list[Column]:
        n, mean, m2 = span.reduce(_MERGE, _arrays(columns))
        return _columns(n, mean, m2)

    def result(self, columns: Sequence[Column]) -> Column:
        n, _, m2 = _arrays(columns)
        value = m2 / np.maximum(n - 1, 1)
        return array(np.sqrt(value) if self.root else value, pa.float64(), n > 1)


def _arrays(columns: Sequence[Column]) -> list[Numbers]:
    n = integers(columns[0])
    mean, m2 = (np.where(n > 0, floats(c), 0.0) for c in columns[1:])
    return [n, mean, m2]


def _columns(n: Numbers, mean: Numbers, m2: Numbers) -> list[Column]:
    some = n > 0
    return [array(n, pa.int64()), array(mean, pa.float64(), some), array(m2, pa.float64(), some)]


KINDS: dict[str, Synopsis] = {
    "count": Count(),
    "sum": Sum(),
    "mean": Mean(),
    "min": Extreme(largest=False),
    "max": Extreme(largest=True),
    "min_by": Pick(by=True, largest=False),
    "max_by": Pick(by=True, largest=True),
    "stddev": Variance(root=True),
    "variance": Variance(root=False),
    "first": Pick(by=False, largest=False),
    "last": Pick(by=False, largest=True),
    "collect": Collect(),
    "count_distinct": Distinct(),
    "percentile": Percentile(0.5),  # or at the share that the aggregate says
    "approx_count_distinct": HyperLogLog(),  # or the sketch that the aggregate has
    "approx_quantile": Quantiles(),
    "approx_quantiles": Quantiles(shape="list"),
    "approx_top_k": Frequent(),
    "count_min": CountMin(),
    "sample": Reservoir(),
    "theta": Theta(),
    "histogram": Quantiles((0.0, 0.5, 1.0), "buckets"),
}
AGGREGATES.update(KINDS, ["median"])


@dataclass(frozen=True)
class Aggregate(ColumnOperators[Expr], NotAValue):
    """What to compute: a kind and its arguments, columns or (until planned) expressions.

    Operators, and the methods of an expression, make an expression of it, for `agg`. Only `==`
    compares what is written, as values do.
    """

    kind: str
    column: str | Expr | None = None
    by: str | Expr | None = None
    own: OwnAggregate | None = None  # of the user's own
    share: float | None = None  # of the rows that are below a percentile
    sketch: Sketch[Any] | None = None  # of an approximate one

    def __str__(self) -> str:
        arguments = [str(a) for a in (self.column, self.by, self.share) if a is not None]
        options = [] if self.sketch is None else self.sketch.words()
        return f"{self.kind}({', '.join([*arguments, *options])})"

    __ne__ = object.__ne__  # type: ignore[assignment]
    __format__ = object.__format__  # type: ignore[assignment]

    def as_expr(self) -> Expr:
        """The call that it is in SQL text."""
        if self.own is not None:
            raise PlanError(
                "HR-AGG-012",
                f"{self.kind} is an aggregate of your own, which cannot be part of an expression",
                "Compute it under a name, and add with_columns(...) after agg.",
                site=call_site(),
            )
        numbers = [] if self.sketch is None else self.sketch.numbers()
        if numbers is None:
            raise PlanError(
                "HR-AGG-012",
                f"{self} has options that an expression has no place for",
                "Compute it under a name, and add with_columns(...) after agg.",
                site=call_site(),
            )
        share = () if self.share is None else (self.share,)
        further = (lit(n).node for n in (*share, *numbers))
        return Expr(call(self.kind, *map(_written, self.arguments), *further))

    def _infix(self, kind: type[Node], left: Any, right: Any) -> Expr:
        return self.as_expr()._infix(kind, left, right)

    def _prefix(self, kind: type[Node]) -> Expr:
        return self.as_expr()._prefix(kind)

    def _function(self, name: str, *args: Any) -> Expr:
        return self.as_expr()._function(name, *args)

    def is_null(self) -> Expr:
        return self.as_expr().is_null()

    def is_not_null(self) -> Expr:
        return self.as_expr().is_not_null()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not callable(getattr(Expr, name, None)):
            raise AttributeError(f"an aggregate has no {name!r}")
        return getattr(self.as_expr(), name)

    @property
    def synopsis(self) -> Synopsis:
        if self.sketch is not None:
            return self.sketch
        if self.share is not None:
            return Percentile(self.share)
        return KINDS[self.kind] if self.own is None else OwnSynopsis(self.own)

    @property
    def ordered(self) -> bool:
        """Whether the order of rows matters, so that they need their time, split and offset."""
        return self.synopsis.ordered

    @property
    def arguments(self) -> tuple[str | Expr, ...]:
        return tuple(a for a in (self.column, self.by) if a is not None)

    @property
    def draws(self) -> bool:
        """Whether it draws at random, for which it needs the hash of each row's key."""
        return isinstance(self.sketch, Reservoir)

    def for_step(self, name: str) -> Aggregate:
        """The same aggregate in "job/step", which seeds what it draws at random."""
        if not isinstance(self.sketch, Reservoir):
            return self
        return replace(self, sketch=replace(self.sketch, step=name))

    def on(self, column: str | None, by: str | None = None) -> Aggregate:
        """The same aggregate of these columns."""
        return replace(self, column=column, by=by)

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        """The result's type over rows of `schema`; refuses a type that does not suit."""
        try:
            return self.synopsis.result_type(*self._types(schema))
        except UnsuitableType as wanted:
            raise self._unfit(schema, str(wanted)) from None

    def partial_fields(self, name: str, schema: pa.Schema) -> list[pa.Field]:
        """The columns of the partial of aggregate `name` over rows of `schema`."""
        self.result_type(schema)
        parts = self.synopsis.fields(*self._types(schema))
        return [pa.field(f"{name}__{part}", kind) for part, kind in parts.items()]

    def nothing(self, schema: pa.Schema, count: int) -> list[Column]:
        """The columns of the partial of no rows, so many times, over rows of `schema`."""
        types = self._types(schema)
        parts = self.synopsis.nothing(*types, count)
        kinds = self.synopsis.fields(*types).values()
        return [part.cast(kind) for part, kind in zip(parts, kinds, strict=True)]

    def hashed(self, schema: pa.Schema) -> str | None:
        """Of which family of types the values are whose hashes are stored, if they are."""
        stored = self.sketch is not None and self.sketch.hashes
        return hash_family(_type(schema, self.column)) if stored else None

    def _types(self, schema: pa.Schema) -> tuple[pa.DataType, pa.DataType]:
        return _type(schema, self.column), _type(schema, self.by)

    def _unfit(self, schema: pa.Schema, wanted: str) -> PlanError:
        kinds = " and ".join(str(_type(schema, a)) for a in self.arguments)
        return PlanError(
            "HR-AGG-001",
            f"{self} cannot be computed: its argument is {kinds}",
            f"{self.kind} needs {wanted}; cast the column first.",
        )


def _written(argument: str | Expr) -> Node:
    return column_or_text(argument) if isinstance(argument, str) else lit(argument).node


def _type(schema: pa.Schema, column: str | Expr | None) -> pa.DataType:
    if column is None:
        return pa.null()
    if not isinstance(column, str):
        raise TypeError(f"the plan must project {column} into a column first")
    if column not in schema.names:
        raise PlanError(
            "HR-AGG-002",
            f"column {column!r} does not exist",
            f"The columns are: {', '.join(n for n in schema.names if n[:2] != '__')}.",
        )
    return plain_type(schema.field(column).type)
