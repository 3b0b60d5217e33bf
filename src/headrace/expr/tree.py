"""The canonical tree: how each of its nodes is made, and shown as text.

Invariant: a meaning has one tree. Every call is an `Anonymous` node with one spelling of its
name, a field is a `Dot`, there are no parentheses, a number is spelt one way and a literal
time is in UTC; so what operators, SQL text and traced lambdas build can be compared.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from headrace.errors import PlanError
from headrace.expr.catalog import canonical_name, default_argument
from headrace.expr.dialect import Dialect
from headrace.expr.text_grammar import time_text

Node = exp.Expr


def unreadable(text: str, why: str) -> PlanError:
    return PlanError(
        "HR-EXPR-004",
        f"cannot read the expression {text!r}: {why}",
        "Write one Spark SQL expression, such as \"celsius > 40 and area = 'roof'\"; "
        "put a column name with spaces or signs in `backticks`.",
    )


def column(name: str) -> Node:
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


def column_or_text(text: str) -> Node:
    """A column's name or SQL text: which of the two is decided by a schema."""
    return exp.Column(this=exp.Identifier(this=text, quoted=False))


def undecided(node: Node) -> str | None:
    """The text that `column_or_text` holds, or None for all other nodes."""
    is_text = isinstance(node, exp.Column) and not node.this.quoted
    return str(node.name) if is_text else None


def field(of: Node, name: str) -> Node:
    return exp.Dot(this=of, expression=exp.Identifier(this=name, quoted=True))


def call(name: str, *args: Node) -> Node:
    """A call under the one name of the function, with the argument that it has by default."""
    name = canonical_name(name)
    last = default_argument(name, len(args))
    if last is not None:
        args = (*args, exp.Literal.string(last) if isinstance(last, str) else number(str(last)))
    return exp.Anonymous(this=name, expressions=list(args))


_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def number(spelling: str) -> Node:
    """A literal: an integer, or a double if it has a point or an exponent."""
    if not _NUMBER.fullmatch(spelling):
        raise unreadable(spelling, "it is not a number")
    if any(c in spelling.lower() for c in ".e"):
        if math.isinf(float(spelling)):
            raise unreadable(spelling, "the number is beyond every double")
        return exp.Literal(this=repr(float(spelling)), is_string=False)
    return exp.Literal(this=str(int(spelling)), is_string=False)


def cast(value: Node, to: str, *, safe: bool = False) -> Node:
    """A cast to the DDL type `to`; a literal of a time is read here and now, in UTC."""
    kind = _with_digits(exp.DataType.build(to, dialect="spark"))
    if _is_number(value) and kind.this == exp.DataType.Type.DOUBLE:
        return number(repr(float(value.this)))  # 1.5D is how Spark spells our 1.5
    if _is_number(value) and kind.this == exp.DataType.Type.FLOAT and not _is_float(value.this):
        raise unreadable(f"{value.this}F", "the number is beyond every float")
    if isinstance(value, exp.Literal) and value.args["is_string"] and not safe:
        value = _canonical_time(value, kind.sql(dialect="spark"))
        if kind.this == exp.DataType.Type.DECIMAL:
            value = exp.Literal.string(_without_exponent(value.this))
    return exp.TryCast(this=value, to=kind, safe=True) if safe else exp.Cast(this=value, to=kind)


def _with_digits(kind: Node) -> Node:
    """Each decimal in it with its precision and scale: Spark's own where they are left out."""
    for inner in kind.find_all(exp.DataType):
        if inner.this == exp.DataType.Type.DECIMAL:
            digits = [p.this.this for p in inner.expressions] or ["10"]
            both = [*digits, "0"][:2]
            inner.set("expressions", [exp.DataTypeParam(this=number(d)) for d in both])
    return kind


def _without_exponent(text: str) -> str:
    """1.23E-26 as 0.0...123: DuckDB first reads the digits, which may not fit by themselves."""
    match = _NUMBER.fullmatch(text)
    if match is None or not match[3] or abs(int(match[3][1:])) > 99:
        return text
    return f"{decimal.Decimal(text):f}"


def _canonical_time(value: Node, to: str) -> Node:
    if to not in ("DATE", "TIMESTAMP"):
        return value
    try:
        return exp.Literal.string(time_text(value.this, to))
    except ValueError:
        raise unreadable(f"{to} '{value.this}'", f"it is not an ISO {to.lower()}") from None


def _is_float(spelling: str) -> bool:
    return float(spelling) < 2.0**128 - 2.0**103  # what would be rounded to infinity


def _is_number(node: Node) -> bool:
    return isinstance(node, exp.Literal) and not node.args["is_string"]


_UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "year")


def interval(amount: object, unit: str, text: str = "") -> Node:
    word, digits = unit.lower().removesuffix("s"), str(amount).strip()
    if word not in _UNITS or not digits.lstrip("+-").isdigit():
        raise unreadable(text or f"INTERVAL {amount} {unit}", f"units are {', '.join(_UNITS)}")
    return exp.Interval(this=exp.Literal.string(str(int(digits))), unit=exp.Var(this=word))


_CLOSED = (exp.Column, exp.Literal, exp.Anonymous, exp.Null, exp.Boolean, exp.Identifier, exp.Dot,
           exp.Bracket, exp.Case, exp.Cast, exp.TryCast, exp.DataType, exp.Var,
           exp.If, exp.Alias, exp.Interval, exp.Lambda)  # fmt: skip


def _is_type(node: Node) -> bool:
    return isinstance(node, exp.DataType)


_OPEN = (exp.Anonymous, exp.Alias, exp.If, exp.Case)
# What is read from the left: "a or b or c" is "(a or b) or c", "a + b - c" is "(a + b) - c".
_FROM_LEFT = ((exp.And,), (exp.Or,), (exp.Add, exp.Sub), (exp.Mul,))


def _needs_parentheses(inner: Node, above: Node | None) -> bool:
    if above is None or isinstance(above, _OPEN):
        return False
    if isinstance(above, exp.Dot) and isinstance(inner, exp.Literal):
        return True  # "0.x" would be a number
    if any(isinstance(inner, kinds) and isinstance(above, kinds) for kinds in _FROM_LEFT):
        return inner is not above.this  # such chains may be long, and are not nested so
    return not isinstance(inner, _CLOSED)


def show(node: Node) -> str:
    """SQL text that `parse` reads back as the same tree: inner operations are in parentheses."""
    shown = node.copy()
    for inner in list(shown.walk(bfs=False, prune=_is_type))[::-1]:
        if _needs_parentheses(inner, inner.parent):
            inner.replace(exp.Paren(this=inner.copy()))
    return str(shown.sql(dialect=Dialect, normalize_functions=False))


def refused(node: Node, fact: str, hint: str) -> PlanError:
    return PlanError("HR-EXPR-003", f"in {show(node).replace('`', '')!r}: {fact}", hint)


# Python values as literals: a value and its SQL spelling become the same node


def literal(value: Any) -> Node:
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


def _int(value: int) -> Node:
    return exp.Neg(this=_int(-value)) if value < 0 else number(str(value))


def _float(value: float) -> Node:
    if math.isnan(value):
        return cast(exp.Literal.string("NaN"), "double")
    if math.copysign(1.0, value) < 0:
        return exp.Neg(this=_float(-value))
    if math.isinf(value):
        return cast(exp.Literal.string("Infinity"), "double")
    return number(repr(value))


def _decimal(value: decimal.Decimal) -> Node:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or sign:
        inner = _decimal(-value) if isinstance(exponent, int) else _float(float(value))
        return exp.Neg(this=inner) if isinstance(exponent, int) else inner
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale + 1)
    return cast(exp.Literal.string(f"{value:f}"), f"decimal({precision},{scale})")


def _datetime(value: dt.datetime) -> Node:
    return cast(exp.Literal.string(value.isoformat(" ")), "timestamp")


def _date(value: dt.date) -> Node:
    return cast(exp.Literal.string(value.isoformat()), "date")


def _timedelta(value: dt.timedelta) -> Node:
    micros = value // dt.timedelta(microseconds=1)
    return interval(micros, "microsecond")


def _bytes(value: bytes) -> Node:
    return call("unhex", exp.Literal.string(value.hex()))


def _array(value: Any) -> Node:
    return call("array", *(_inner(v) for v in value))


def _struct(value: dict[str, Any]) -> Node:
    pairs = [n for k, v in value.items() for n in (exp.Literal.string(str(k)), _inner(v))]
    return call("named_struct", *pairs)


def _inner(value: Any) -> Node:
    node = getattr(value, "node", None)
    return node.copy() if isinstance(node, Node) else literal(value)


_MAKERS: tuple[tuple[Any, Callable[[Any], Node]], ...] = (
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
