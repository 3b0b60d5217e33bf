"""SQL functions that round: ceil, floor, round; also to tens, hundreds and digits of a fraction.

Invariant: the type is Spark's. `ceil` and `floor` of one argument give a long; with a number of
digits they give a decimal, and a double goes through decimal(30,15), as there. What does not
fit the type of the result is an error. A double is rounded by its shortest decimal spelling, half
away from zero: 1.005 to two digits is 1.01, although the double is a little less than that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import types as pt

from headrace.errors import PlanError
from headrace.expr.catalog import function
from headrace.expr.expression import Column, Expr, call, column_of, optional
from headrace.expr.types import Term, cast, is_int, type_name

_PRECISION = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}  # Spark's, of integers


def _integral(word: str) -> Callable[[Sequence[Term]], str]:
    """`ceil` and `floor` give a long; NaN and what does not fit are errors."""

    def sql(args: Sequence[Term]) -> str:
        if len(args) == 2:
            return _scaled(args, word)
        (x,) = args
        if is_int(x.type):
            return cast(x, pa.int64()).sql
        return f"CAST({word}({x.sql}) AS BIGINT)"

    return sql


def _integral_type(args: Sequence[Term]) -> pa.DataType:
    if len(args) == 2:
        return _fewer_digits(_decimal_of(args[0].type), _digits(args))
    return pa.int64()


def _decimal_of(t: pa.DataType) -> pa.DataType:
    """The decimal as which Spark rounds a number."""
    if is_int(t):
        return pa.decimal128(_PRECISION[t], 0)
    return t if pt.is_decimal(t) else pa.decimal128(30, 15)


def _fewer_digits(t: pa.DataType, digits: int) -> pa.DataType:
    whole = t.precision - t.scale + 1
    if t.precision > 37:
        raise PlanError(
            "HR-EXPR-003",
            "a decimal of 38 digits cannot be rounded",
            "Cast it to one of 37 digits.",
        )
    if digits < 0:
        return pa.decimal128(max(whole, 1 - digits), 0)
    scale = min(t.scale, digits)
    return pa.decimal128(min(38, whole + scale), scale)


def _scaled(args: Sequence[Term], word: str) -> str:
    """Rounded to the nearest, and one step further if that went the wrong way."""
    x, digits, to = args[0], _digits(args), _integral_type(args)
    value, kind = _as_decimal(x), type_name(to)
    near = f"CAST({value} AS {kind})"
    step = f"CAST('{10.0**-to.scale:.{to.scale}f}' AS {kind})"
    if digits < 0:
        ten = f"CAST({10**-digits} AS HUGEINT)"
        near = f"CAST(CAST(trunc({value}) AS HUGEINT) // {ten} * {ten} AS {kind})"
        step = f"CAST({10**-digits} AS {kind})"
    sign, plus = ("<", "+") if word == "ceil" else (">", "-")
    return (
        f"CAST(CASE WHEN {near} {sign} {value} THEN {near} {plus} {step} ELSE {near} END AS {kind})"
    )


def _as_decimal(x: Term) -> str:
    kind = type_name(_decimal_of(x.type))
    if x.type != pa.float64():
        return f"CAST({x.sql} AS {kind})"
    return f"(CASE WHEN isfinite({x.sql}) THEN CAST(CAST({x.sql} AS VARCHAR) AS {kind}) END)"


def _digits(args: Sequence[Term]) -> int:
    if len(args) == 1:
        return 0
    digits = args[1].literal
    if isinstance(digits, int) and -15 <= digits <= 15:  # digits of a double
        return digits
    raise PlanError(
        "HR-EXPR-003", "the number of digits is a literal, -15 to 15", "Write round(x, 2)."
    )


def _rounded_type(args: Sequence[Term]) -> pa.DataType:
    kind, digits = args[0].type, _digits(args)
    if pt.is_decimal(kind) and digits >= kind.scale:
        return pa.decimal128(min(38, kind.precision + 1), kind.scale)
    if pt.is_decimal(kind):
        return _fewer_digits(kind, digits)
    return kind


def _rounded(args: Sequence[Term]) -> str:
    """Half away from zero, of a double by its decimal spelling; what has no fraction stays."""
    x, digits, to = args[0], _digits(args), _rounded_type(args)
    if digits < 0 and x.type != pa.float64():
        return _to_tens(x, digits, to)
    if is_int(x.type):
        return x.sql
    if pt.is_decimal(x.type):
        return f"CAST({x.sql} AS {type_name(to)})"
    return rounded_double(x.sql, digits)


def _to_tens(x: Term, digits: int, to: pa.DataType) -> str:
    ten = 10**-digits
    half = f"CAST(CASE WHEN {x.sql} < 0 THEN {-ten // 2} ELSE {ten // 2} END AS HUGEINT)"
    whole = f"CAST(trunc({_as_decimal(x)}) AS HUGEINT)"
    ten_sql = f"CAST({ten} AS HUGEINT)"
    return f"CAST(({whole} + {half}) // {ten_sql} * {ten_sql} AS {type_name(to)})"


# doubles: spelling every one out is slow, so it is done only for those near the middle
# between two results

_FAST = "1e9"  # above it the quick way may be off by a half


def rounded_double(x: str, digits: int) -> str:
    """The double `x` to so many digits after the point, or before it if negative."""
    power = f"CAST({10 ** abs(digits)} AS DOUBLE)"
    scaled = f"({x} * {power})" if digits >= 0 else f"({x} / {power})"
    # as Spark, whose decimals have no negative zero
    quick = f"(round({scaled}, 0) + CAST(0 AS DOUBLE)) {'/' if digits >= 0 else '*'} {power}"
    middle = f"abs(abs({scaled} - trunc({scaled})) - 0.5) < 0.001"
    whole = f"abs({x}) >= {'9007199254740992' if digits >= 0 else '1e37'}"
    return (
        f"(CASE WHEN isnan({x}) OR {whole} THEN {x} "
        f"WHEN abs({scaled}) < {_FAST} AND NOT {middle} THEN {quick} "
        f"ELSE CAST(CAST({_exact(x, digits)} AS VARCHAR) AS DOUBLE) END)"
    )


def _exact(x: str, digits: int) -> str:
    spelt = f"CAST({x} AS VARCHAR)"
    if digits >= 0:
        return f"CAST({spelt} AS DECIMAL(38,{digits}))"
    large = f"round(CAST({spelt} AS DECIMAL(38,0)), {digits})"
    small = f"round(CAST({spelt} AS DECIMAL(38,15)), {digits})"
    return f"CASE WHEN abs({x}) < 1e16 THEN CAST({small} AS DECIMAL(38,0)) ELSE {large} END"


# the functions


@function(
    "number int? ->",
    _integral("ceil"),
    returns=_integral_type,
    may_fail=True,
    aliases="ceiling",
)
def ceil(column: Column, digits: int | None = None) -> Expr:
    """The next whole number upwards, as a long; to so many digits, as a decimal."""
    return call("ceil", column_of(column), *optional(digits))


@function("number int? ->", _integral("floor"), returns=_integral_type, may_fail=True)
def floor(column: Column, digits: int | None = None) -> Expr:
    """The next whole number downwards, as a long; to so many digits, as a decimal."""
    return call("floor", column_of(column), *optional(digits))


@function("number int? ->", _rounded, returns=_rounded_type)
def round(column: Column, digits: int = 0) -> Expr:
    """Rounded half away from zero."""
    return call("round", column_of(column), digits)
