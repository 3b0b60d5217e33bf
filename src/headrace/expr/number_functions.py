"""SQL functions of numbers, bits, conditions and nulls.

Invariant: an integer that overflows is an error; a logarithm outside its domain is null; NaN
equals itself and is larger than every number. A shift is of an int or a long (smaller ones become
an int), by the lowest five or six bits of the amount; what is shifted out is lost, as in Java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types as pt
from sqlglot.expressions import Case, If

from headrace.errors import PlanError
from headrace.expr.catalog import declare, function, listed
from headrace.expr.expression import Column, Expr, call, column_of, lit, parsed
from headrace.expr.operator_rules import nonzero, truncated
from headrace.expr.types import NAN, Term, is_int, ordered, type_name, type_text


@function("number -> 1", "abs({0})", may_fail=True)
def abs(column: Column) -> Expr:
    """The absolute value."""
    return call("abs", column_of(column))


declare("positive", "number -> 1", "({0})")


@function(
    "double -> double",
    f"(CASE WHEN isnan({{0}}) THEN {NAN} WHEN {{0}} = 0 THEN {{0}} "
    "ELSE CAST(sign({0}) AS DOUBLE) END)",
    aliases="signum",
)
def sign(column: Column) -> Expr:
    """-1.0, 0.0 or 1.0."""
    return call("sign", column_of(column))


@function("double -> double", "sqrt({0})")
def sqrt(column: Column) -> Expr:
    """The square root; NaN of a negative number."""
    return call("sqrt", column_of(column))


@function("double -> double", "exp({0})")
def exp(column: Column) -> Expr:
    """e to its power."""
    return call("exp", column_of(column))


def _log_of(name: str) -> str:
    return f"(CASE WHEN {{0}} > 0 THEN {name}({{0}}) END)"


@function("double -> double", _log_of("ln"))
def ln(column: Column) -> Expr:
    """The natural logarithm; null unless positive."""
    return call("ln", column_of(column))


@function("double -> double", _log_of("log10"))
def log10(column: Column) -> Expr:
    """The logarithm to base 10; null unless positive."""
    return call("log10", column_of(column))


@function("double -> double", _log_of("log2"))
def log2(column: Column) -> Expr:
    """The logarithm to base 2; null unless positive."""
    return call("log2", column_of(column))


def _log(args: Sequence[Term]) -> str:
    """The natural logarithm of one number; of two, that of the second to the first as base."""
    logs = [f"(CASE WHEN {a.sql} > 0 THEN ln({a.sql}) END)" for a in args]
    if len(logs) == 1:
        return logs[0]
    base, value = (a.sql for a in args)
    null = f"coalesce(nullif({value}, {value}), nullif({base}, {base}))"  # once both are computed
    return f"(CASE WHEN {base} > 0 AND {value} > 0 THEN {logs[1]} / {logs[0]} ELSE {null} END)"


@function("double double? -> double", _log)
def log(base: Column, column: Column | None = None) -> Expr:
    """The logarithm of the second to the first as base; of one alone, the natural one."""
    return call("log", column_of(base), *(() if column is None else (column_of(column),)))


@function(
    "double double -> double",
    f"(CASE WHEN {{0}} IS NULL THEN NULL "
    f"WHEN isnan({{1}}) OR (isinf({{1}}) AND abs({{0}}) = 1) THEN {NAN} "
    "ELSE pow({0}, {1}) END)",
    aliases="power",
)
def pow(column: Column, exponent: Any) -> Expr:
    """A power, as a double."""
    return call("pow", column_of(column), exponent)


@function("double -> double", "sin({0})")
def sin(column: Column) -> Expr:
    """The sine of an angle in radians."""
    return call("sin", column_of(column))


@function("double -> double", "cos({0})")
def cos(column: Column) -> Expr:
    """The cosine of an angle in radians."""
    return call("cos", column_of(column))


@function("double -> double", "tan({0})")
def tan(column: Column) -> Expr:
    """The tangent of an angle in radians."""
    return call("tan", column_of(column))


@function("double -> double", "asin({0})")
def asin(column: Column) -> Expr:
    """The arc sine, in radians."""
    return call("asin", column_of(column))


@function("double -> double", "acos({0})")
def acos(column: Column) -> Expr:
    """The arc cosine, in radians."""
    return call("acos", column_of(column))


@function("double -> double", "atan({0})")
def atan(column: Column) -> Expr:
    """The arc tangent, in radians."""
    return call("atan", column_of(column))


_UNSIGNED = "(CASE WHEN {} = 0 THEN CAST(0 AS DOUBLE) ELSE {} END)"  # zero has no sign in SQL


@function(
    "double double -> double",
    f"atan2({_UNSIGNED.format('{0}', '{0}')}, {_UNSIGNED.format('{1}', '{1}')})",
)
def atan2(y: Column, x: Column) -> Expr:
    """The angle of the point (x, y), in radians."""
    return call("atan2", column_of(y), column_of(x))


@function("double -> double", "degrees({0})")
def degrees(column: Column) -> Expr:
    """Radians as degrees."""
    return call("degrees", column_of(column))


@function("double -> double", "radians({0})")
def radians(column: Column) -> Expr:
    """Degrees as radians."""
    return call("radians", column_of(column))


# remainders and quotients


def _no_decimals(args: Sequence[Term]) -> pa.DataType:
    if pt.is_decimal(args[0].type) or not (is_int(args[0].type) or args[0].type == pa.float64()):
        raise PlanError(
            "HR-EXPR-003",
            f"it takes integers or doubles, not {args[0].type}",
            "Cast to long or double first.",
        )
    return args[0].type


@function("T T ->", lambda args: truncated(*args), returns=_no_decimals)
def mod(column: Column, divisor: Any) -> Expr:
    """The remainder with the sign of the left side, as SQL's %."""
    return call("mod", column_of(column), divisor)


def _signs_differ(rest: str, divisor: Term) -> str:
    return f"{rest} <> 0 AND ({rest} < 0) <> ({divisor.sql} < 0)"


def _floor_mod(args: Sequence[Term]) -> str:
    """Python's `%`: the sign of the right side."""
    a, b = args
    rest = truncated(a, b)
    return f"(CASE WHEN {_signs_differ(rest, b)} THEN {rest} + {b.sql} ELSE {rest} END)"


@function("T T ->", _floor_mod, returns=_no_decimals)
def floor_mod(column: Column, divisor: Any) -> Expr:
    """The remainder with the sign of the right side, as Python's %."""
    return call("floor_mod", column_of(column), divisor)


def _sum(rest: str, b: Term) -> str:
    """Their sum, which wraps around below the least integer, as in Java."""
    if not is_int(b.type) or (isinstance(b.literal, int) and b.literal > -(2**30)):
        return f"({rest} + {b.sql})"
    kind = type_name(b.type)
    whole = f"(CAST({rest} AS HUGEINT) + {b.sql})"
    if b.type not in (pa.int32(), pa.int64()):
        return whole
    least, around = -(2 ** (b.type.bit_width - 1)), 2**b.type.bit_width
    return f"CAST(CASE WHEN {whole} < {least} THEN {whole} + {around} ELSE {whole} END AS {kind})"


def _pmod(args: Sequence[Term]) -> str:
    """Spark's: a remainder that is negative has the divisor added, once."""
    a, b = args
    rest = truncated(a, b)
    up = truncated(Term(_sum(rest, b), a.type), b)
    return f"(CASE WHEN {rest} < 0 THEN {up} ELSE {rest} END)"


@function("T T ->", _pmod, returns=_no_decimals)
def pmod(column: Column, divisor: Any) -> Expr:
    """The remainder, with the divisor added if it is negative."""
    return call("pmod", column_of(column), divisor)


def _floor_div(args: Sequence[Term]) -> str:
    """Python's `//`: toward minus infinity."""
    a, b = args
    if not is_int(a.type):
        return f"CAST(floor({a.sql} / {nonzero(b)}) AS DOUBLE)"
    whole = f"({a.sql} // {nonzero(b)})"
    down = _signs_differ(truncated(a, b), b)
    value = f"CASE WHEN {down} THEN {whole} - 1 ELSE {whole} END"
    return f"CAST({value} AS {type_name(a.type)})"


@function("T T ->", _floor_div, returns=_no_decimals, may_fail=True)
def floor_div(column: Column, divisor: Any) -> Expr:
    """The quotient rounded downwards, as Python's //."""
    return call("floor_div", column_of(column), divisor)


# bits


@function("long -> text", "hex({0})")
def hex(column: Column) -> Expr:
    """A whole number in hexadecimal digits."""
    return call("hex", column_of(column))


@function("long -> text", "bin({0})")
def bin(column: Column) -> Expr:
    """A whole number in binary digits."""
    return call("bin", column_of(column))


@function("long -> int", "CAST(bit_count({0}) AS INTEGER)")
def bit_count(column: Column) -> Expr:
    """The number of bits set in a whole number."""
    return call("bit_count", column_of(column))


_WIDE = {32: "BIGINT", 64: "HUGEINT"}
_NARROW = {32: "INTEGER", 64: "BIGINT"}


def _shifted_type(args: Sequence[Term]) -> pa.DataType:
    if not is_int(args[0].type):
        raise PlanError(
            "HR-EXPR-003", f"{type_text(args[0].type)} has no bits", "Cast it to int or bigint."
        )
    return pa.int64() if args[0].type == pa.int64() else pa.int32()


def _shift(template: str) -> Callable[[Sequence[Term]], str]:
    """{x} in twice as many bits, {u} without a sign, {n} the amount, {one} a wide 1."""

    def sql(args: Sequence[Term]) -> str:
        bits = 64 if _shifted_type(args) == pa.int64() else 32
        wide = _WIDE[bits]
        mask, half = f"CAST({2**bits - 1} AS {wide})", f"CAST({2 ** (bits - 1)} AS {wide})"
        x = f"CAST({args[0].sql} AS {wide})"
        shifted = template.format(
            x=x, u=f"({x} & {mask})", n=f"({args[1].sql} & {bits - 1})", one=f"CAST(1 AS {wide})"
        )
        return f"CAST(xor({shifted} & {mask}, {half}) - {half} AS {_NARROW[bits]})"

    return sql


@function("any int ->", _shift("({x} * ({one} << {n}))"), returns=_shifted_type)
def shiftleft(column: Column, bits: Any) -> Expr:
    """Its bits moved to the left; what leaves an int or a long is lost."""
    return call("shiftleft", column_of(column), bits)


@function("any int ->", _shift("({x} >> {n})"), returns=_shifted_type)
def shiftright(column: Column, bits: Any) -> Expr:
    """Its bits moved to the right, with the sign before them."""
    return call("shiftright", column_of(column), bits)


@function("any int ->", _shift("({u} >> {n})"), returns=_shifted_type)
def shiftrightunsigned(column: Column, bits: Any) -> Expr:
    """Its bits moved to the right, with zeros before them."""
    return call("shiftrightunsigned", column_of(column), bits)


# conditions and nulls


@function("double -> bool", "coalesce(isnan({0}), FALSE)", aliases="isnan")
def is_nan(column: Column) -> Expr:
    """Whether it is NaN; false for null."""
    return call("is_nan", column_of(column))


@function("double double -> double", "(CASE WHEN isnan({0}) THEN {1} ELSE {0} END)")
def nanvl(column: Column, other: Any) -> Expr:
    """Itself, or `other` where it is NaN."""
    return call("nanvl", column_of(column), other)


@function("T T T* ->", listed("greatest({})"), returns=lambda a: ordered(a[0].type))
def greatest(*columns: Column) -> Expr:
    """The largest that is not null."""
    return call("greatest", *map(column_of, columns))


@function("T T T* ->", listed("least({})"), returns=lambda a: ordered(a[0].type))
def least(*columns: Column) -> Expr:
    """The smallest that is not null."""
    return call("least", *map(column_of, columns))


@function("T T* -> T", listed("coalesce({})"), aliases="ifnull nvl")
def coalesce(*columns: Column) -> Expr:
    """The first that is not null."""
    return call("coalesce", *map(column_of, columns))


@function("T T -> 0", "(CASE WHEN {0} = {1} THEN NULL ELSE {2} END)")
def nullif(column: Column, other: Any) -> Expr:
    """Itself, or null where it equals `other`."""
    return call("nullif", column_of(column), other)


@function("any T T -> T", "(CASE WHEN {0} IS NOT NULL THEN {1} ELSE {2} END)")
def nvl2(column: Column, there: Any, missing: Any) -> Expr:
    """`there` where the column is not null, else `missing`."""
    return call("nvl2", column_of(column), there, missing)


declare("if", "bool T T -> T", "(CASE WHEN {0} THEN {1} ELSE {2} END)", aliases="iff")
declare("isnull", "any -> bool", "({0} IS NULL)")
declare("isnotnull", "any -> bool", "({0} IS NOT NULL)")
declare("equal_null", "T T -> bool", "({0} IS NOT DISTINCT FROM {1})")


def when(condition: Any, value: Any) -> When:
    """The value where the condition holds; go on with `.when(...)` and `.otherwise(...)`."""
    return When(None).when(condition, value)


class When(Expr):
    """A CASE in the making: itself an expression, null where no condition holds."""

    __slots__ = ()

    def __init__(self, node: Any) -> None:
        super().__init__(Case(ifs=[]) if node is None else node)

    def when(self, condition: Any, value: Any) -> When:
        """One more condition, looked at if those before do not hold."""
        test = parsed(condition) if isinstance(condition, str) else lit(condition)
        case = self.node.copy()
        case.append("ifs", If(this=test.node, true=lit(value).node))
        return When(case)

    def otherwise(self, value: Any) -> Expr:
        """The value where no condition holds."""
        case = self.node.copy()
        case.set("default", lit(value).node)
        return Expr(case)
