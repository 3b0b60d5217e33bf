"""Python values as literals of the tree.

Invariant: a value and its SQL spelling become the same node: `40`, `-1.5`, `date(2024, 2, 29)`
and `DATE '2024-02-29'`. Times are spelt in UTC.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from headrace.errors import PlanError
from headrace.expr import tree


def literal(value: Any) -> tree.Node:
    """The node of a Python value; HR-EXPR-003 if a column cannot hold it."""
    if hasattr(value, "dtype") and hasattr(value, "item") and not getattr(value, "shape", ()):
        value = value.item()  # a NumPy scalar
    if hasattr(value, "as_py"):
        value = value.as_py()
    for kind, make in _MAKERS:
        if isinstance(value, kind):
            return make(value)
    raise PlanError(
        "HR-EXPR-003",
        f"{value!r} ({type(value).__name__}) cannot be part of an expression",
        "Use a number, text, bytes, a bool, None, a date, a datetime, a timedelta, "
        "a Decimal, or a list or dict of those.",
    )


def _int(value: int) -> tree.Node:
    return exp.Neg(this=_int(-value)) if value < 0 else tree.number(str(value))


def _float(value: float) -> tree.Node:
    if math.isnan(value):
        return tree.cast(exp.Literal.string("NaN"), "double")
    if math.copysign(1.0, value) < 0:
        return exp.Neg(this=_float(-value))
    if math.isinf(value):
        return tree.cast(exp.Literal.string("Infinity"), "double")
    return tree.number(repr(value))


def _decimal(value: decimal.Decimal) -> tree.Node:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or sign:
        inner = _decimal(-value) if isinstance(exponent, int) else _float(float(value))
        return exp.Neg(this=inner) if isinstance(exponent, int) else inner
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale + 1)
    return tree.cast(exp.Literal.string(f"{value:f}"), f"decimal({precision},{scale})")


def _datetime(value: dt.datetime) -> tree.Node:
    return tree.cast(exp.Literal.string(value.isoformat(" ")), "timestamp")


def _date(value: dt.date) -> tree.Node:
    return tree.cast(exp.Literal.string(value.isoformat()), "date")


def _timedelta(value: dt.timedelta) -> tree.Node:
    micros = value // dt.timedelta(microseconds=1)
    return tree.interval(micros, "microsecond")


def _bytes(value: bytes) -> tree.Node:
    return tree.call("unhex", exp.Literal.string(value.hex()))


def _array(value: Any) -> tree.Node:
    return tree.call("array", *(_inner(v) for v in value))


def _struct(value: dict[str, Any]) -> tree.Node:
    pairs = [n for k, v in value.items() for n in (exp.Literal.string(str(k)), _inner(v))]
    return tree.call("named_struct", *pairs)


def _inner(value: Any) -> tree.Node:
    node = getattr(value, "node", None)
    return node.copy() if isinstance(node, tree.Node) else literal(value)


_MAKERS: tuple[tuple[Any, Callable[[Any], tree.Node]], ...] = (
    (type(None), lambda _: exp.Null()),
    (bool, lambda v: exp.Boolean(this=v)),
    (int, _int),
    (float, _float),
    (str, exp.Literal.string),
    (bytes, _bytes),
    (dt.datetime, _datetime),
    (dt.date, _date),
    (dt.timedelta, _timedelta),
    (decimal.Decimal, _decimal),
    ((list, tuple), _array),
    (dict, _struct),
)
