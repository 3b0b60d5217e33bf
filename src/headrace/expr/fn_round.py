"""Rounding: ceil, floor and round, also to tens and hundreds and to digits of a fraction.

Invariant: the type is Spark's. `ceil` and `floor` of one argument give a long; with a number of
digits they give a decimal, and a double goes through decimal(30,15), as there. What does not
fit the type of the result is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import types as pt

from headrace.errors import PlanError
from headrace.expr.catalog import offer
from headrace.expr.rounding import nearest
from headrace.expr.types import DUCKDB, SPARK, Term, cast, is_int, type_name

NUMBERS = "numbers"
_NAN = "CAST('NaN' AS DOUBLE)"
_PRECISION = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}  # Spark's, of integers


def _integral(word: str, dialect: str) -> Callable[[Sequence[Term]], str]:
    """`ceil` and `floor` give a long; NaN and what does not fit are errors."""

    def sql(args: Sequence[Term]) -> str:
        if len(args) == 2:
            return _scaled(args, word, dialect)
        (x,) = args
        if is_int(x.type):
            return cast(x, pa.int64(), dialect).sql
        if dialect == DUCKDB or pt.is_decimal(x.type):
            return f"CAST({word}({x.sql}) AS BIGINT)"
        odd = f"isnan({x.sql}) OR {x.sql} >= 9.223372036854775807E18D"
        return f"(CASE WHEN {odd} THEN CAST({_NAN} AS BIGINT) ELSE {word}({x.sql}) END)"

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


def _scaled(args: Sequence[Term], word: str, dialect: str) -> str:
    """Rounded to the nearest, and one step further if that went the wrong way."""
    x, digits, to = args[0], _digits(args), _integral_type(args)
    if dialect == SPARK:
        return f"{word}({x.sql}, {digits})"
    value, kind = _as_decimal(x), type_name(to, DUCKDB)
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
    kind = type_name(_decimal_of(x.type), DUCKDB)
    if x.type != pa.float64():
        return f"CAST({x.sql} AS {kind})"
    return f"(CASE WHEN isfinite({x.sql}) THEN CAST(CAST({x.sql} AS VARCHAR) AS {kind}) END)"


for _name in ("ceil", "floor"):
    offer(
        NUMBERS,
        _name,
        "number int? ->",
        _integral(_name, DUCKDB),
        _integral(_name, SPARK),
        gives=_integral_type,
    )


def _digits(args: Sequence[Term]) -> int:
    if len(args) == 1:
        return 0
    digits = args[1].literal
    if isinstance(digits, int) and -15 <= digits <= 15:  # digits of a double
        return digits
    raise PlanError(
        "HR-EXPR-003", "the number of digits is a literal, -15 to 15", "Write round(x, 2)."
    )


def _rounded(args: Sequence[Term]) -> pa.DataType:
    kind, digits = args[0].type, _digits(args)
    if pt.is_decimal(kind) and digits >= kind.scale:
        return pa.decimal128(min(38, kind.precision + 1), kind.scale)
    if pt.is_decimal(kind):
        return _fewer_digits(kind, digits)
    return kind


def _round(dialect: str) -> Callable[[Sequence[Term]], str]:
    """Half away from zero, of a double by its decimal spelling; what has no fraction stays."""

    def sql(args: Sequence[Term]) -> str:
        x, digits, to = args[0], _digits(args), _rounded(args)
        if digits < 0 and x.type != pa.float64():
            return _to_tens(x, digits, to, dialect)
        if is_int(x.type):
            return x.sql
        if pt.is_decimal(x.type):
            return f"CAST({x.sql} AS {type_name(to, dialect)})"
        return nearest(x.sql, digits) if dialect == DUCKDB else f"round({x.sql}, {digits})"

    return sql


def _to_tens(x: Term, digits: int, to: pa.DataType, dialect: str) -> str:
    if dialect == SPARK:
        return f"round({x.sql}, {digits})"
    ten = 10**-digits
    half = f"CAST(CASE WHEN {x.sql} < 0 THEN {-ten // 2} ELSE {ten // 2} END AS HUGEINT)"
    whole = f"CAST(trunc({_as_decimal(x)}) AS HUGEINT)"
    ten_sql = f"CAST({ten} AS HUGEINT)"
    return f"CAST(({whole} + {half}) // {ten_sql} * {ten_sql} AS {type_name(to, DUCKDB)})"


offer(NUMBERS, "round", "number int? ->", _round(DUCKDB), _round(SPARK), gives=_rounded)
