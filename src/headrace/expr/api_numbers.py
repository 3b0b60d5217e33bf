"""Functions of numbers, conditions and nulls, for `headrace.functions`.

A text where a column is expected is the column's name; elsewhere it is the text itself.
"""

from __future__ import annotations

from typing import Any

from sqlglot.expressions import Case, If

from headrace.expr.expression import Column, Expr, call, column_of, lit, parsed


def abs(column: Column) -> Expr:
    """The absolute value."""
    return call("abs", column_of(column))


def sign(column: Column) -> Expr:
    """-1.0, 0.0 or 1.0."""
    return call("sign", column_of(column))


def ceil(column: Column, digits: int | None = None) -> Expr:
    """The next whole number upwards, as a long; to so many digits, as a decimal."""
    return call("ceil", column_of(column), *(() if digits is None else (digits,)))


def floor(column: Column, digits: int | None = None) -> Expr:
    """The next whole number downwards, as a long; to so many digits, as a decimal."""
    return call("floor", column_of(column), *(() if digits is None else (digits,)))


def round(column: Column, digits: int = 0) -> Expr:
    """Rounded half away from zero."""
    return call("round", column_of(column), digits)


def sqrt(column: Column) -> Expr:
    """The square root; NaN of a negative number."""
    return call("sqrt", column_of(column))


def exp(column: Column) -> Expr:
    """e to its power."""
    return call("exp", column_of(column))


def ln(column: Column) -> Expr:
    """The natural logarithm; null unless positive."""
    return call("ln", column_of(column))


def log10(column: Column) -> Expr:
    """The logarithm to base 10; null unless positive."""
    return call("log10", column_of(column))


def log2(column: Column) -> Expr:
    """The logarithm to base 2; null unless positive."""
    return call("log2", column_of(column))


def pow(column: Column, exponent: Any) -> Expr:
    """A power, as a double."""
    return call("pow", column_of(column), exponent)


def mod(column: Column, divisor: Any) -> Expr:
    """The remainder with the sign of the left side, as SQL's %."""
    return call("mod", column_of(column), divisor)


def floor_mod(column: Column, divisor: Any) -> Expr:
    """The remainder with the sign of the right side, as Python's %."""
    return call("floor_mod", column_of(column), divisor)


def floor_div(column: Column, divisor: Any) -> Expr:
    """The quotient rounded downwards, as Python's //."""
    return call("floor_div", column_of(column), divisor)


def sin(column: Column) -> Expr:
    """The sine of an angle in radians."""
    return call("sin", column_of(column))


def cos(column: Column) -> Expr:
    """The cosine of an angle in radians."""
    return call("cos", column_of(column))


def tan(column: Column) -> Expr:
    """The tangent of an angle in radians."""
    return call("tan", column_of(column))


def asin(column: Column) -> Expr:
    """The arc sine, in radians."""
    return call("asin", column_of(column))


def acos(column: Column) -> Expr:
    """The arc cosine, in radians."""
    return call("acos", column_of(column))


def atan(column: Column) -> Expr:
    """The arc tangent, in radians."""
    return call("atan", column_of(column))


def atan2(y: Column, x: Column) -> Expr:
    """The angle of the point (x, y), in radians."""
    return call("atan2", column_of(y), column_of(x))


def degrees(column: Column) -> Expr:
    """Radians as degrees."""
    return call("degrees", column_of(column))


def radians(column: Column) -> Expr:
    """Degrees as radians."""
    return call("radians", column_of(column))


def hex(column: Column) -> Expr:
    """A whole number in hexadecimal digits."""
    return call("hex", column_of(column))


def bin(column: Column) -> Expr:
    """A whole number in binary digits."""
    return call("bin", column_of(column))


def bit_count(column: Column) -> Expr:
    """The number of bits set in a whole number."""
    return call("bit_count", column_of(column))


def is_nan(column: Column) -> Expr:
    """Whether it is NaN; false for null."""
    return call("is_nan", column_of(column))


def nanvl(column: Column, other: Any) -> Expr:
    """Itself, or `other` where it is NaN."""
    return call("nanvl", column_of(column), other)


def greatest(*columns: Column) -> Expr:
    """The largest that is not null."""
    return call("greatest", *map(column_of, columns))


def least(*columns: Column) -> Expr:
    """The smallest that is not null."""
    return call("least", *map(column_of, columns))


def coalesce(*columns: Column) -> Expr:
    """The first that is not null."""
    return call("coalesce", *map(column_of, columns))


def nullif(column: Column, other: Any) -> Expr:
    """Itself, or null where it equals `other`."""
    return call("nullif", column_of(column), other)


def nvl2(column: Column, there: Any, missing: Any) -> Expr:
    """`there` where the column is not null, else `missing`."""
    return call("nvl2", column_of(column), there, missing)


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
        made = self.node.copy()
        made.append("ifs", If(this=test.node, true=lit(value).node))
        return When(made)

    def otherwise(self, value: Any) -> Expr:
        """The value where no condition holds."""
        made = self.node.copy()
        made.set("default", lit(value).node)
        return Expr(made)


def log(base: Column, column: Column | None = None) -> Expr:
    """The logarithm of the second to the first as base; of one alone, the natural one."""
    return call("log", column_of(base), *(() if column is None else (column_of(column),)))


def pmod(column: Column, divisor: Any) -> Expr:
    """The remainder, with the divisor added if it is negative."""
    return call("pmod", column_of(column), divisor)


def shiftleft(column: Column, bits: Any) -> Expr:
    """Its bits moved to the left; what leaves an int or a long is lost."""
    return call("shiftleft", column_of(column), bits)


def shiftright(column: Column, bits: Any) -> Expr:
    """Its bits moved to the right, with the sign before them."""
    return call("shiftright", column_of(column), bits)


def shiftrightunsigned(column: Column, bits: Any) -> Expr:
    """Its bits moved to the right, with zeros before them."""
    return call("shiftrightunsigned", column_of(column), bits)
