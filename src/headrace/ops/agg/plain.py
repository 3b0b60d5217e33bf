"""Count, sum, mean, min, max: synopses made of numbers.

Nulls are ignored; a group without any value has a null result (a count has 0). Sums of
integers, decimals and doubles are exact, of doubles the result is rounded once; nothing is ever
subtracted, so an inf or NaN touches only the groups that hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, array, doubles, flat, floats, integers, valid
from headrace.ops.agg import exact
from headrace.ops.agg.base import Arguments, Synopsis, UnsuitableType
from headrace.ops.agg.groups import Finish, Grouping
from headrace.ops.agg.order import codes, is_sortable
from headrace.ops.agg.span import ADD, Numbers, Span, Ufunc
from headrace.ops.agg.sums import (
    ask_sum,
    cannot_overflow,
    fits,
    from_limbs,
    halves,
    joined,
    limbs,
    partial_type,
    sum_type,
    whole_numbers,
)


def numeric(kind: pa.DataType) -> None:
    """Refuse what cannot be added up."""
    types = pa.types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        raise UnsuitableType("a number")


class Count(Synopsis):
    """Rows, or the rows in which a column is not null."""

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        return pa.int64()

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {"n": pa.int64()}

    def partial(self, rows: Arguments, grouping: Grouping) -> Finish:
        values = rows.values
        ask = grouping.ask_count() if values is None else grouping.ask(rows.label, values, "count")
        return lambda: [grouping.answer(ask)]

    def single(self, rows: Arguments) -> list[Column]:
        present = np.ones(rows.count, np.bool_) if rows.values is None else valid(rows.values)
        return [array(present.astype(np.int64), pa.int64())]

    def nothing(self, kind: pa.DataType, by: pa.DataType, count: int) -> list[Column]:
        return [pa.array(np.zeros(count, np.int64))]

    def merge(self, label: str, columns: Sequence[Column], grouping: Grouping) -> Finish:
        ask = grouping.ask(f"{label}:n", columns[0], "sum")
        return lambda: [grouping.answer(ask)]

    def combine(self, columns: Sequence[Column], span: Span) -> list[Column]:
        return [array(span.reduce(ADD, [integers(columns[0])])[0], pa.int64())]

    def result(self, columns: Sequence[Column]) -> Column:
        return columns[0].fill_null(0)


class Sum(Synopsis):
    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        numeric(kind)
        return sum_type(kind)

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {"sum": partial_type(kind)}

    def partial(self, rows: Arguments, grouping: Grouping) -> Finish:
        total = ask_sum(grouping, rows.label, rows.column)
        return lambda: [total()]

    def single(self, rows: Arguments) -> list[Column]:
        if pa.types.is_integer(rows.column.type):
            return [whole_numbers(rows.column)]
        if pa.types.is_floating(rows.column.type):
            return [exact.singles(rows.column)]
        return [rows.column.cast(sum_type(rows.column.type))]

    def merge(self, label: str, columns: Sequence[Column], grouping: Grouping) -> Finish:
        total = ask_sum(grouping, f"{label}:sum", columns[0])
        return lambda: [total()]

    def combine(self, columns: Sequence[Column], span: Span) -> list[Column]:
        present = _present(columns[0], span)
        if pa.types.is_decimal(columns[0].type):
            parts = [span.reduce(ADD, [limb])[0] for limb in limbs(columns[0])]
            return [from_limbs(parts, columns[0].type, present)]
        if pa.types.is_integer(columns[0].type):
            return [_whole(columns[0], present, span)]
        return [exact.combined(columns[0], present, span)]

    def result(self, columns: Sequence[Column]) -> Column:
        if not pa.types.is_list(columns[0].type):
            return columns[0]
        return array(exact.rounded(columns[0]), pa.float64(), valid(columns[0]))


def _whole(column: Column, present: Any, span: Span) -> pa.Array:
    values = integers(column)
    if cannot_overflow(values, span.widest):
        return array(span.reduce(ADD, [values])[0], pa.int64(), present)
    high, low = (span.reduce(ADD, [half])[0] for half in halves(values))
    return joined(array(high, pa.int64(), present), array(low, pa.int64(), present))


def _present(column: Column, span: Span) -> Numbers | None:
    """Which stretches hold a value; None for all."""
    if not column.null_count:
        return None
    return span.reduce(ADD, [valid(column).astype(np.int64)])[0] > 0


class Mean(Synopsis):
    """Stored as (sum, n): the sum without rounding, of integers and decimals as doubles if huge."""

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        numeric(kind)
        return pa.float64()

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {"sum": exact.TERMS, "n": pa.int64()}

    def partial(self, rows: Arguments, grouping: Grouping) -> Finish:
        values, label = rows.column, rows.label
        n = grouping.ask(rows.label, rows.column, "count")
        if _short(values):
            ints = ask_sum(grouping, label, values)
            return lambda: [exact.encoded(exact.of_integers(integers(ints()))), grouping.answer(n)]
        if not pa.types.is_floating(values.type):
            values, label = doubles(values), f"{label}:float"
        total = ask_sum(grouping, label, values)
        return lambda: [total(), grouping.answer(n)]

    def single(self, rows: Arguments) -> list[Column]:
        values = doubles(rows.column)
        return [exact.singles(values), array(valid(values).astype(np.int64), pa.int64())]

    def merge(self, label: str, columns: Sequence[Column], grouping: Grouping) -> Finish:
        total = ask_sum(grouping, f"{label}:sum", columns[0])
        n = grouping.ask(f"{label}:n", columns[1], "sum")
        return lambda: [total(), grouping.answer(n)]

    def combine(self, columns: Sequence[Column], span: Span) -> list[Column]:
        n = span.reduce(ADD, [integers(columns[1])])[0]
        return [exact.combined(columns[0], None, span), array(n, pa.int64())]

    def result(self, columns: Sequence[Column]) -> Column:
        n = integers(columns[1])
        return array(exact.rounded(columns[0]) / n, pa.float64(), n > 0)


def _short(values: Column) -> bool:
    return pa.types.is_integer(values.type) and fits(values)


class Extreme(Synopsis):
    """The smallest or largest value; NaN counts as the largest number, as in Spark."""

    def __init__(self, largest: bool) -> None:
        self.largest = largest
        self.function = "max" if largest else "min"

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        if not is_sortable(kind):
            raise UnsuitableType("a number, text, a time or a boolean")
        return kind

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {self.function: kind}

    def partial(self, rows: Arguments, grouping: Grouping) -> Finish:
        return self._ask(rows.label, rows.column, grouping)

    def single(self, rows: Arguments) -> list[Column]:
        return [rows.column]

    def merge(self, label: str, columns: Sequence[Column], grouping: Grouping) -> Finish:
        return self._ask(f"{label}:{self.function}", columns[0], grouping)

    def _ask(self, label: str, values: Column, grouping: Grouping) -> Finish:
        best = grouping.ask(label, values, self.function)
        if not (self.largest and pa.types.is_floating(values.type) and _has_nan(values)):
            return lambda: [grouping.answer(best)]
        nan = grouping.ask(f"{label}:nan", pc.is_nan(values), "max")  # Arrow passes over NaN
        return lambda: [_with_nan(grouping.answer(best), grouping.answer(nan))]

    def combine(self, columns: Sequence[Column], span: Span) -> list[Column]:
        values, present = columns[0], _present(columns[0], span)
        if pa.types.is_floating(values.type):
            zero = -np.inf if self.largest else np.nan  # maximum keeps NaN, fmin drops it
            op = Ufunc(np.maximum if self.largest else np.fmin, zero)
            filled = values.fill_null(zero) if values.null_count else values
            best = span.reduce(op, [filled.to_numpy(zero_copy_only=False)])[0]
            return [array(best, values.type, present)]
        return [self._by_code(values, present, span)]

    def _by_code(self, values: Column, present: Any, span: Span) -> pa.Array:
        coded = codes(values)
        bound = np.iinfo(np.int64)
        zero = int(bound.min if self.largest else bound.max)
        op = Ufunc(np.maximum if self.largest else np.minimum, zero)
        best = span.reduce(op, [np.where(valid(values), coded.codes, zero)])[0]
        return coded.decode(best, present)

    def result(self, columns: Sequence[Column]) -> Column:
        return columns[0]


def _has_nan(values: Column) -> bool:
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return any(len(c) and bool(np.isnan(floats(c).max())) for c in chunks)


def _with_nan(best: Column, nan: Column) -> pa.Array:
    return pc.if_else(flat(nan), pa.scalar(np.nan, best.type), flat(best))
