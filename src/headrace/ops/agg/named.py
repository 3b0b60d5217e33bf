"""Named aggregates over Arrow tables: rows to partials, partials to partials, to results.

    partial(rows, group, aggs) ─► merge(partials, group, aggs) ─► result(partials, aggs)

A partial has one row per group: the group's columns and, for each aggregate, columns named
"<name>__<part>". Partials merge in any order and any grouping to the same result (variances
up to rounding). What each kind does is its synopsis, which `kinds.py` looks up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Column, flat
from headrace.at_rest import described
from headrace.callables import settings
from headrace.chunk import HIDDEN, plain_column
from headrace.errors import PlanError, RunError, call_site
from headrace.ops.agg.base import PLACES, Arguments, Order
from headrace.ops.agg.groups import Finish, Grouping
from headrace.ops.agg.kinds import Aggregate
from headrace.ops.agg.own import OwnAggregate
from headrace.ops.agg.sums import Overflow

if TYPE_CHECKING:
    from headrace.expr import Expr


__all__ = [
    "Aggregate", "collect", "count", "count_distinct", "first", "last", "max", "max_by", "mean",
    "median", "merge", "min", "min_by", "partial", "percentile", "result", "stddev", "sum",
    "variance",
]  # fmt: skip

_QUIET = np.errstate(all="ignore")  # inf and NaN are values here, not accidents


@_QUIET
def partial(table: pa.Table, group: Sequence[str], aggs: Mapping[str, Aggregate]) -> pa.Table:
    """One row per group of `table`: the group's columns and the partials, in `aggs`' order.

    To group by pane, put the pane into a column of another name than "__t", which "first"
    and its like need as the row's own time.
    """
    if not table.num_rows:
        return _empty(table.schema, group, aggs)
    grouping = Grouping(table.select(list(group)))
    order = _order(table)
    finish = {}
    for name, agg in aggs.items():
        with naming(name, agg):
            finish[name] = agg.synopsis.partial(_rows(table, name, agg, order), grouping)
    return _finished(grouping, finish, aggs)


@_QUIET
def merge(partials: pa.Table, group: Sequence[str], aggs: Mapping[str, Aggregate]) -> pa.Table:
    """One row per group from any number of partials of it."""
    if not partials.num_rows:
        return partials.select([*group, *(c for n, a in aggs.items() for c in part_names(n, a))])
    grouping = Grouping(partials.select(list(group)))
    finish = {n: a.synopsis.merge(n, columns_of(partials, n, a), grouping) for n, a in aggs.items()}
    return _finished(grouping, finish, aggs)


@_QUIET
def result(partials: pa.Table, aggs: Mapping[str, Aggregate]) -> pa.Table:
    """The results by name, after the columns of `partials` that are not partials."""
    parts = {c for n, a in aggs.items() for c in part_names(n, a)}
    others = {c: partials[c] for c in partials.column_names if c not in parts}
    results = {n: a.synopsis.result(columns_of(partials, n, a)) for n, a in aggs.items()}
    return pa.table(others | results)


@_QUIET
def singles(table: pa.Table, aggs: Mapping[str, Aggregate]) -> pa.Table:
    """Each row as a partial of its own, without any other column."""
    order, partials = _order(table), {}
    for name, agg in aggs.items():
        with naming(name, agg):
            partials[name] = agg.synopsis.single(_rows(table, name, agg, order))
    return _assemble(table.select([]), partials, aggs)


@contextmanager
def naming(name: str, agg: Aggregate) -> Iterator[None]:
    """Say which aggregate it was that did not fit."""
    try:
        yield
    except Overflow as size:
        raise RunError(
            "HR-AGG-009",
            f"{name} = {agg} does not fit in {size}",
            "Cast the column to double before it is summed, or integers to decimal.",
        ) from None


def part_names(name: str, agg: Aggregate) -> list[str]:
    """The names of the columns that hold the partial of aggregate `name`."""
    parts = agg.synopsis.fields(pa.null(), pa.null())
    return [f"{name}__{part}" for part in parts]


def columns_of(partials: pa.Table, name: str, agg: Aggregate) -> list[Column]:
    return [partials[c] for c in part_names(name, agg)]


def _finished(
    grouping: Grouping, finish: Mapping[str, Finish], aggs: Mapping[str, Aggregate]
) -> pa.Table:
    keys, parts = grouping.run(), {}
    for name, agg in aggs.items():
        with naming(name, agg):
            parts[name] = finish[name]()
    return _assemble(keys, parts, aggs)


def _assemble(
    keys: pa.Table, parts: Mapping[str, Sequence[Column]], aggs: Mapping[str, Aggregate]
) -> pa.Table:
    columns = {c: keys[c] for c in keys.column_names}
    for name, agg in aggs.items():
        columns.update(zip(part_names(name, agg), parts[name], strict=True))
    return pa.table(columns)


def _empty(schema: pa.Schema, group: Sequence[str], aggs: Mapping[str, Aggregate]) -> pa.Table:
    fields = [schema.field(g) for g in group]
    parts = [f for n, a in aggs.items() for f in a.partial_fields(n, schema)]
    return pa.schema([*fields, *parts]).empty_table()


def _rows(table: pa.Table, name: str, agg: Aggregate, order: Order) -> Arguments:
    values, by = (None if c is None else _column(table, str(c)) for c in (agg.column, agg.by))
    return Arguments(name, f"of {agg.column}", table.num_rows, values, by, order)


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    return plain_column(table[name])


def _order(table: pa.Table) -> Order:
    return Order(*(_position(table, name) for name in PLACES))


def _position(table: pa.Table, name: str) -> Column:
    if name in table.column_names:
        return table[name].cast(HIDDEN[name])
    return pa.array(np.zeros(table.num_rows, HIDDEN[name].to_pandas_dtype()))


def count(column: str | Expr | None = None) -> Aggregate:
    """The number of rows, or of rows in which `column` is not null."""
    return aggregate_of("count", column)


def sum(column: str | Expr) -> Aggregate:
    """The exact sum: integers as int64, decimals with 38 digits, or an error; doubles rounded."""
    return aggregate_of("sum", column)


def mean(column: str | Expr) -> Aggregate:
    """The arithmetic mean, as a float."""
    return aggregate_of("mean", column)


def avg(column: str | Expr) -> Aggregate:
    """The same as `mean`, by the name it has in SQL."""
    return mean(column)


def min(column: str | Expr) -> Aggregate:
    """The smallest value."""
    return aggregate_of("min", column)


def max(column: str | Expr) -> Aggregate:
    """The largest value; NaN is larger than every number."""
    return aggregate_of("max", column)


def min_by(column: str | Expr, by: str | Expr) -> Aggregate:
    """`column` in the row where `by` is smallest; of several such rows, the first."""
    return aggregate_of("min_by", column, by)


def max_by(column: str | Expr, by: str | Expr) -> Aggregate:
    """`column` in the row where `by` is largest; of several such rows, the first."""
    return aggregate_of("max_by", column, by)


def stddev(column: str | Expr) -> Aggregate:
    """The standard deviation of a sample; null for fewer than two values."""
    return aggregate_of("stddev", column)


def variance(column: str | Expr) -> Aggregate:
    """The variance of a sample; null for fewer than two values."""
    return aggregate_of("variance", column)


def first(column: str | Expr) -> Aggregate:
    """The earliest value that is not null."""
    return aggregate_of("first", column)


def last(column: str | Expr) -> Aggregate:
    """The latest value that is not null."""
    return aggregate_of("last", column)


def collect(column: str | Expr) -> Aggregate:
    """All values that are not null, as a list in the order of event time."""
    return aggregate_of("collect", column)


def count_distinct(column: str | Expr) -> Aggregate:
    """How many different values there are, exactly; nulls do not count."""
    return aggregate_of("count_distinct", column)


def median(column: str | Expr) -> Aggregate:
    """The exact median, as a float: the middle value, or half way between the two in the middle."""
    return percentile(column, 0.5)


def percentile(column: str | Expr, share: float) -> Aggregate:
    """The exact value below which a `share` of all values lies, from 0 to 1, interpolated.

    State holds every distinct value and the number of its rows.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise PlanError(
            "HR-AGG-016",
            f"percentile has the share {share!r}",
            'Choose a number from 0 to 1: hr.percentile("v", 0.95).',
            site=call_site(),
        )
    return replace(aggregate_of("percentile", column), share=float(share))


def aggregate_of(kind: str, column: str | Expr | None, by: str | Expr | None = None) -> Aggregate:
    for argument in (column, by):
        if isinstance(argument, Aggregate):
            raise PlanError(
                "HR-AGG-013",
                f"{kind}({argument}) is an aggregate of an aggregate",
                "Compute the inner one in an agg of its own, and the outer one in an agg after it.",
                site=call_site(),
            )
        if isinstance(argument, int | float | bytes | list | tuple):
            raise PlanError(
                "HR-AGG-003",
                f"{kind}({argument!r}) does not name a column",
                f'Write {kind}("column"), or {kind} of an expression.',
                site=call_site(),
            )
    return Aggregate(kind, column, by)


# Partials that arrive, merged with those in state row by row.


_NUMBER = "__number"


def with_stored(
    fresh: pa.Table, stored: pa.Table, present: npt.NDArray[np.bool_], aggs: Mapping[str, Aggregate]
) -> pa.Table:
    """`fresh`, with the partials of `aggs` merged with those in the same row of `stored`.

    Rows where nothing is `present` stay as they are, and every row stays where it is.
    """
    names = [part for name, agg in aggs.items() for part in part_names(name, agg)]
    if not names or not present.any():
        return fresh
    at = pa.array(np.flatnonzero(present))
    both = pa.concat_tables([stored.select(names).take(at), fresh.select(names).take(at)])
    number = np.tile(np.arange(len(at)), 2)
    merged = merge(both.append_column(_NUMBER, pa.array(number)), [_NUMBER], aggs)
    if not np.array_equal(merged.column(_NUMBER).to_numpy(), number[: len(at)]):
        merged = merged.sort_by(_NUMBER)
    index = np.arange(fresh.num_rows)
    index[present] = fresh.num_rows + np.arange(len(at))
    where = pa.array(index)
    for name in names:
        column = pa.concat_arrays([flat(fresh.column(name)), flat(merged.column(name))])
        fresh = fresh.set_column(fresh.column_names.index(name), name, column.take(where))
    return fresh


# Named aggregates as a part of a step: what identifies them, and how `explain` shows them.


Aggs = tuple[tuple[str, Aggregate], ...]


def aggregates_shape(aggs: Aggs, input: pa.Schema) -> list[list[Any]]:
    """What shapes the partials of aggregates over rows of `input`, as plain JSON."""
    shapes = []
    for name, agg in aggs:
        entry: list[Any] = [name, agg.kind, described(pa.schema(agg.partial_fields(name, input)))]
        own = settings(agg.own, OwnAggregate) if agg.own is not None else {}
        own.pop("column", None)
        if agg.sketch is not None:
            own = agg.sketch.at_rest()
        shapes.append([*entry, own] if own else entry)
    return shapes


def aggregates_code(aggs: Aggs) -> list[Any]:
    """The user's own aggregates: their classes and their settings."""
    own = [agg.own for _, agg in aggs if agg.own is not None]
    return [part for one in own for part in (type(one), vars(one))]


def aggregates_text(aggs: Sequence[tuple[str, Aggregate]], panes: int = 1) -> str:
    """The aggregates, and the memory of those that say it; a window is made of so many `panes`."""
    return ", ".join(f"{name} = {bare_sql(str(agg))}{_memory(agg, panes)}" for name, agg in aggs)


def _memory(agg: Aggregate, panes: int) -> str:
    if agg.sketch is None:
        return ""
    each = f", {panes} panes a window" if panes > 1 else ""
    room = agg.sketch.room().replace("per key", "per key and pane" if each else "per key", 1)
    return f" ({room}{each})"


def bare_sql(sql: str) -> str:
    """SQL for people: names are quoted only where they must be."""
    return re.sub(r"`([A-Za-z_]\w*)`", r"\1", sql)
