"""Chains of filters and projections, compiled once, run over Arrow chunks.

Invariant: the output has exactly the schema that `infer` announced, rows keep their order,
and columns whose name starts with "__" pass through untouched. One row's error never takes
the rest of the chunk with it: `Kernel.run` sets the bad rows aside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from headrace.errors import HeadraceError, StepError
from headrace.expr import Expr
from headrace.expr.lower import check_condition
from headrace.expr.types import UNREAD
from headrace.kernel import duckdb
from headrace.kernel.arrow import MIRRORED, Mask, simple_mask
from headrace.kernel.sql import Chain, ChainStep, SelectStep, sql_mask

Bad = list[tuple[int, str]]
_EXPLAINED = 50  # bad rows of a chunk that get a reason of their own


def compile_chain(steps: Sequence[ChainStep], schema: pa.Schema) -> Kernel:
    """A kernel that runs `steps` one after another over chunks of `schema`."""
    return Kernel(tuple(SelectStep(s.where, s.columns) for s in steps), schema)


class Kernel:
    """A compiled chain. Calling it gives the whole result or a StepError.

    It may be pickled, and used from any process and thread: each prepares its own queries.
    """

    def __init__(self, steps: tuple[SelectStep, ...], schema: pa.Schema) -> None:
        self.steps = steps
        self.input = schema
        self._masks, remaining = _front(steps, schema)
        self._chain = Chain(remaining, schema)
        self.schema: pa.Schema = self._chain.schema

    def __reduce__(self) -> tuple[object, ...]:
        return (Kernel, (self.steps, self.input))

    def __call__(self, table: pa.Table) -> pa.Table:
        try:
            return self._run(table)
        except duckdb.Error as error:
            raise StepError("HR-STEP-002", plain(error)) from None

    def run(self, table: pa.Table) -> tuple[pa.Table, Bad]:
        """The result of the good rows, and (position in `table`, message) of each bad row."""
        try:
            return self._run(table), []
        except duckdb.Error:
            return self._run_good_rows(table)

    def _run(self, table: pa.Table) -> pa.Table:
        for mask in self._masks:
            table = _filtered(table, mask(table))
        return self._chain(table)

    def _run_good_rows(self, table: pa.Table) -> tuple[pa.Table, Bad]:
        """Find the rows that fail, explain each by running it alone, and run the others."""
        rows = Chain(self.steps, self.input).failing(table)
        good = np.ones(table.num_rows, bool)
        good[rows] = False
        reasons = [self._reason(table.slice(row, 1)) for row in rows[:_EXPLAINED]]
        rest = f"an expression fails on this row; on others: {''.join(reasons[-1:])}"
        bad = [(int(row), reason) for row, reason in zip_longest(rows, reasons, fillvalue=rest)]
        return self(table.filter(pa.array(good))), bad

    def _reason(self, row: pa.Table) -> str:
        try:
            self._run(row)
        except duckdb.Error as error:
            return plain(error)
        return "an expression fails on this row"


def _front(
    steps: tuple[SelectStep, ...], schema: pa.Schema
) -> tuple[list[Mask], tuple[SelectStep, ...]]:
    """Leading filters as masks, and the steps that are left.

    Simple conditions need no SQL; and a chain that only filters needs none to carry its
    columns, so that SQL decides and Arrow picks the rows.
    """
    masks: list[Mask] = []
    only_filters = all(s.columns is None for s in steps)
    while steps and steps[0].where is not None:
        condition = steps[0].where
        check_condition(condition, schema)
        mask = simple_mask(condition.node, schema)
        if mask is None and not only_filters:
            break
        masks.append(mask or sql_mask(condition, schema))
        projection = SelectStep(columns=steps[0].columns)
        steps = steps[1:] if projection.columns is None else (projection, *steps[1:])
    return masks, steps


def _filtered(table: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
    keeps_all = pc.all(mask, skip_nulls=False).as_py()
    return table if keeps_all else table.filter(mask)


# DuckDB's run-time errors in the user's words: lower case, one line, our names of types.


_TYPES = {
    "INT8": "tinyint", "INT16": "smallint", "INT32": "int", "INT64": "bigint",
    "BOOL": "boolean", "DOUBLE": "double", "FLOAT": "float", "VARCHAR": "string",
    "TINYINT": "tinyint", "SMALLINT": "smallint", "INTEGER": "int", "BIGINT": "bigint",
}  # fmt: skip
_RULES = [
    (r"^Python exception occurred while executing the UDF: \w+: ", ""),
    (r"^Could not convert string ['\"](.*)['\"] to ([A-Z0-9(), ]+)$", r"'\1' is not \2"),
    (r"^invalid (date|timestamp) field format: \"(.*?)\".*$", r"'\2' is not \1"),
    (r"^(date|timestamp) field value out of range: \"(.*?)\".*$", r"'\2' is not \1"),
    (r"^Type \w+ with value (\S+) can't be cast .* destination type (\w+).*$",
     r"\1 does not fit \2"),
    (r"^Overflow in (\w+) of \S+ \((.*)\).*$", r"overflow: \2"),
    (r"^Overflow (?:on|in) (.*)$", r"overflow: \1"),
]  # fmt: skip


def plain(error: Exception) -> str:
    """What went wrong, as one line for people."""
    text = str(error).split("\n")[0]
    if UNREAD * 2 in text:  # our own message
        return text.split(UNREAD * 2)[1].rpartition("' to ")[0]
    text = text.replace(UNREAD, "")
    text = re.sub(r"^[A-Z][A-Za-z ]*Error: ", "", text).rstrip("!. ")
    for pattern, replacement in _RULES:
        text = re.sub(pattern, replacement, text)
    for theirs, ours in _TYPES.items():
        text = re.sub(rf"\b{theirs}\b", ours, text)
    return text[:1].lower() + text[1:]


# What is known of an expression before there are rows: its one value, or that it never holds.
# Recognised are values without columns ("1 = 2"), and numbers that a column cannot be at once
# ("v > 1 and v < 0"). Nothing is guessed: another condition may never hold all the same.

_LOW, _HIGH, _BOTH = (exp.GT, exp.GTE), (exp.LT, exp.LTE), (exp.EQ, exp.NullSafeEQ)
_MIRRORED = {**MIRRORED, exp.NullSafeEQ: exp.NullSafeEQ}
_EXACT = 2**53  # below this a number is the same in every type of number

Bound = tuple[str, type[exp.Expr], float]  # a column as text, a comparison, a number


def value_of(expr: Expr) -> Any:
    """The value of an expression that reads no column."""
    return _run(SelectStep(columns=(("value", expr),)))["value"][0].as_py()


def never_true(expr: Expr) -> bool:
    """Whether a condition is certainly false or null for every row."""
    return _never(expr.node.unalias())


def _never(node: exp.Expr) -> bool:
    if not any(node.find_all(exp.Column)):
        return _drops_all(Expr(node))
    if isinstance(node, exp.Or):
        return _never(node.this) and _never(node.expression)
    if isinstance(node, exp.And) and (_never(node.this) or _never(node.expression)):
        return True
    bounds = [*_bounds(node)]
    return any(_empty([b for b in bounds if b[0] == column]) for column in {b[0] for b in bounds})


def _drops_all(expr: Expr) -> bool:
    try:
        return not _run(SelectStep(where=expr)).num_rows
    except HeadraceError:  # no condition, which is reported where it is used
        return False


def _run(step: SelectStep) -> pa.Table:
    row = pa.table({"x": [0]})
    return compile_chain([step], row.schema)(row)


def _bounds(node: exp.Expr) -> Iterator[Bound]:
    """The comparisons of columns with numbers that must all hold."""
    if isinstance(node, exp.And):
        yield from _bounds(node.this)
        yield from _bounds(node.expression)
    elif isinstance(node, exp.Between):
        yield from _bound(exp.GTE, node.this, node.args["low"])
        yield from _bound(exp.LTE, node.this, node.args["high"])
    elif type(node) in _MIRRORED:
        yield from _bound(type(node), node.this, node.expression)
        yield from _bound(_MIRRORED[type(node)], node.expression, node.this)


def _bound(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> Iterator[Bound]:
    sign, right = (-1, right.this) if isinstance(right, exp.Neg) else (1, right)
    number = isinstance(right, exp.Literal) and not right.is_string
    if isinstance(left, exp.Column) and number and abs(float(right.this)) < _EXACT:
        yield left.name, kind, sign * float(right.this)


def _empty(bounds: Sequence[Bound]) -> bool:
    """Whether no number is within all of these, which are of one column."""
    low = max(((n, kind is exp.GT) for _, kind, n in bounds if kind in _LOW + _BOTH), default=None)
    high = min(
        ((n, kind is not exp.LT) for _, kind, n in bounds if kind in _HIGH + _BOTH), default=None
    )
    if low is None or high is None:
        return False
    return low[0] > high[0] or (low[0] == high[0] and (low[1] or not high[1]))
