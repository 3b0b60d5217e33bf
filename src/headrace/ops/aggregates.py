"""Named aggregates over Arrow tables: rows to partials, partials to partials, to results.

    partial(rows, group, aggs) ─► merge(partials, group, aggs) ─► result(partials, aggs)

A partial has one row per group: the group's columns and, for each aggregate, columns named
"<name>__<part>". Partials merge in any order and any grouping to the same result (floats:
up to rounding). Each kind is a synopsis in a module named agg_*; this one only deals out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.chunk import HIDDEN, OFFSET, SOURCE, TIME
from headrace.errors import PlanError, call_site
from headrace.ops.agg_base import Order, Rows, Synopsis, Unfit
from headrace.ops.agg_groups import Column, Grouping
from headrace.ops.agg_moments import Variance
from headrace.ops.agg_ordered import Collect, Distinct, Pick
from headrace.ops.agg_plain import Count, Extreme, Mean, Sum

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

    def __str__(self) -> str:
        arguments = [str(a) for a in (self.column, self.by) if a is not None]
        return f"{self.kind}({', '.join(arguments)})"

    @property
    def synopsis(self) -> Synopsis:
        return KINDS[self.kind]

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
    kind = schema.field(column).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def partial(table: pa.Table, group: Sequence[str], aggs: Mapping[str, Aggregate]) -> pa.Table:
    """One row per group of `table`: the group's columns and the partials, in `aggs`' order.

    To group by pane, put the pane into a column of another name than "__t", which "first"
    and its like need as the row's own time.
    """
    if not table.num_rows:
        return _empty(table.schema, group, aggs)
    grouping = Grouping(table.select(list(group)))
    order = _order(table)
    finish = {n: a.synopsis.partial(_rows(table, a, order), grouping) for n, a in aggs.items()}
    keys = grouping.run()
    return _assemble(keys, {n: f() for n, f in finish.items()}, _part_names(table.schema, aggs))


def merge(partials: pa.Table, group: Sequence[str], aggs: Mapping[str, Aggregate]) -> pa.Table:
    """One row per group from any number of partials of it, laid end to end."""
    names = {n: part_names(n, a) for n, a in aggs.items()}
    if not partials.num_rows:
        return partials.select([*group, *(c for parts in names.values() for c in parts)])
    grouping = Grouping(partials.select(list(group)))
    finish = {
        n: a.synopsis.merge(n, columns_of(partials, n, a), grouping) for n, a in aggs.items()
    }
    keys = grouping.run()
    return _assemble(keys, {n: f() for n, f in finish.items()}, names)


def result(partials: pa.Table, aggs: Mapping[str, Aggregate]) -> pa.Table:
    """The results by name, after the columns of `partials` that are not partials."""
    parts = {c for n, a in aggs.items() for c in part_names(n, a)}
    kept = {c: partials[c] for c in partials.column_names if c not in parts}
    made = {n: a.synopsis.result(columns_of(partials, n, a)) for n, a in aggs.items()}
    return pa.table(kept | made)


def singles(table: pa.Table, aggs: Mapping[str, Aggregate]) -> pa.Table:
    """Each row as a partial of its own, without any other column."""
    order, names = _order(table), _part_names(table.schema, aggs)
    made = {n: a.synopsis.single(_rows(table, a, order)) for n, a in aggs.items()}
    return _assemble(table.select([]), made, names)


def part_names(name: str, agg: Aggregate) -> list[str]:
    """The names of the columns that hold the partial of aggregate `name`."""
    parts = agg.synopsis.fields(pa.null(), pa.null())
    return [f"{name}__{part}" for part in parts]


def columns_of(partials: pa.Table, name: str, agg: Aggregate) -> list[Column]:
    return [partials[c] for c in part_names(name, agg)]


def _part_names(schema: pa.Schema, aggs: Mapping[str, Aggregate]) -> dict[str, list[str]]:
    return {n: [f.name for f in a.partial_fields(n, schema)] for n, a in aggs.items()}


def _assemble(
    keys: pa.Table, made: Mapping[str, Sequence[Column]], names: Mapping[str, Sequence[str]]
) -> pa.Table:
    columns = {c: keys[c] for c in keys.column_names}
    for name, parts in made.items():
        columns.update(zip(names[name], parts, strict=True))
    return pa.table(columns)


def _empty(schema: pa.Schema, group: Sequence[str], aggs: Mapping[str, Aggregate]) -> pa.Table:
    fields = [schema.field(g) for g in group]
    parts = [f for n, a in aggs.items() for f in a.partial_fields(n, schema)]
    return pa.schema([*fields, *parts]).empty_table()


def _rows(table: pa.Table, agg: Aggregate, order: Order) -> Rows:
    values, by = (None if c is None else _column(table, str(c)) for c in (agg.column, agg.by))
    return Rows(table.num_rows, str(agg.column), values, by, order)


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    column = table[name]
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column


def _order(table: pa.Table) -> Order:
    time, source, offset = (_position(table, name) for name in (TIME, SOURCE, OFFSET))
    return Order(time, source, offset)


def _position(table: pa.Table, name: str) -> Column:
    if name in table.column_names:
        return table[name].cast(HIDDEN[name])
    return pa.array(np.zeros(table.num_rows, HIDDEN[name].to_pandas_dtype()))


def count(column: str | Expr | None = None) -> Aggregate:
    """The number of rows, or of rows in which `column` is not null."""
    return _of("count", column)


def sum(column: str | Expr) -> Aggregate:
    """The sum; of integers int64 (beyond it an error), of decimals a decimal with 38 digits."""
    return _of("sum", column)


def mean(column: str | Expr) -> Aggregate:
    """The arithmetic mean, as a float."""
    return _of("mean", column)


def min(column: str | Expr) -> Aggregate:
    """The smallest value."""
    return _of("min", column)


def max(column: str | Expr) -> Aggregate:
    """The largest value; NaN is larger than every number."""
    return _of("max", column)


def min_by(column: str | Expr, by: str | Expr) -> Aggregate:
    """`column` in the row where `by` is smallest; of several such rows, the first."""
    return _of("min_by", column, by)


def max_by(column: str | Expr, by: str | Expr) -> Aggregate:
    """`column` in the row where `by` is largest; of several such rows, the first."""
    return _of("max_by", column, by)


def stddev(column: str | Expr) -> Aggregate:
    """The standard deviation of a sample; null for fewer than two values."""
    return _of("stddev", column)


def variance(column: str | Expr) -> Aggregate:
    """The variance of a sample; null for fewer than two values."""
    return _of("variance", column)


def first(column: str | Expr) -> Aggregate:
    """The earliest value that is not null."""
    return _of("first", column)


def last(column: str | Expr) -> Aggregate:
    """The latest value that is not null."""
    return _of("last", column)


def collect(column: str | Expr) -> Aggregate:
    """All values that are not null, as a list in the order of event time."""
    return _of("collect", column)


def count_distinct(column: str | Expr) -> Aggregate:
    """How many different values there are, exactly; nulls do not count."""
    return _of("count_distinct", column)


def _of(kind: str, *arguments: str | Expr | None) -> Aggregate:
    for argument in arguments:
        if isinstance(argument, int | float | bytes | list | tuple):
            raise PlanError(
                f"{kind}({argument!r}) does not name a column", code="HR-AGG-003",
                hint=f'Write {kind}("column"), or {kind} of an expression.', site=call_site(),
            )  # fmt: skip
    return Aggregate(kind, *arguments)
