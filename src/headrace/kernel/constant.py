"""What can be said of an expression before there are rows: its one value, or that it never holds.

Found are values without columns ("1 = 2"), and numbers that a column cannot be at once
("v > 1 and v < 0"). Nothing is guessed: a condition that is not found may never hold all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from headrace.errors import HeadraceError
from headrace.expr import Expr
from headrace.kernel.compiled import compile_chain
from headrace.kernel.sql import SelectStep

_LOW, _HIGH, _BOTH = (exp.GT, exp.GTE), (exp.LT, exp.LTE), (exp.EQ, exp.NullSafeEQ)
_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE,
    exp.EQ: exp.EQ, exp.NullSafeEQ: exp.NullSafeEQ,
}  # fmt: skip
_EXACT = 2**53  # below this a number is the same in every type of number

Bound = tuple[str, type[exp.Expr], float]  # a column as text, a comparison, a number


def value_of(expr: Expr) -> Any:
    """The value of an expression that reads no column."""
    return _run(SelectStep(columns=(("value", expr),)))["value"][0].as_py()


def never_true(expr: Expr) -> bool:
    """Whether a condition is false or null for every row, as far as it shows."""
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
    one = pa.table({"x": [0]})
    return compile_chain([step], one.schema)(one)


def _bounds(node: exp.Expr) -> Iterator[Bound]:
    """The comparisons of columns with numbers that must all hold."""
    if isinstance(node, exp.And):
        yield from _bounds(node.this)
        yield from _bounds(node.expression)
    elif isinstance(node, exp.Between):
        yield from _bound(exp.GTE, node.this, node.args["low"])
        yield from _bound(exp.LTE, node.this, node.args["high"])
    elif type(node) in _TURNED:
        yield from _bound(type(node), node.this, node.expression)
        yield from _bound(_TURNED[type(node)], node.expression, node.this)


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
