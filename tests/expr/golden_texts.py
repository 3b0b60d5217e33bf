"""Texts of the kind that Spark's own golden files hold: types without digits, signs of zero,
the least literals of each type, nulls without a type.

Spark gets each as it stands; `test_user_texts` compares values, types and the signs of zeros.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import product

import pyarrow as pa

from tests.expr.hard_cases import _table

NUMBERS = _table(
    "s string, x double, p decimal(1,1), q decimal(5,5), w decimal(38,38), v decimal(4,2)",
    [
        (None, None, None, None, None, None),
        ("1.5", 2.7, Decimal("0.5"), Decimal("-0.00001"), Decimal("0.1"), Decimal("12.50")),
        ("-2.5", -2.5, Decimal("-0.9"), Decimal("0.99999"), Decimal("-1E-38"), Decimal("-0.05")),
        ("0", -0.0, Decimal("0.0"), Decimal("0.00000"), Decimal("0E-38"), Decimal("0.00")),
        ("7", 0.0, Decimal("0.1"), Decimal("0.10000"), Decimal("0.12"), Decimal("0.05")),
    ],
)
ON_DECIMALS = [
    *(f"cast({x} as {kind})" for x, kind in product(
        ("s", "x", "p", "v"), ("decimal", "dec", "numeric", "decimal(3)", "dec(5,1)"))),
    *(f"try_cast({x} as {kind})" for x, kind in product("sxq", ("decimal", "numeric(4)"))),
    "s :: dec", "x :: decimal", "(x :: numeric) + 1", "cast(array(s) as array<string>)",
    *(f"cast({x} as string)" for x in "pqwv"), "concat('EUR ', cast(p as string))",
    "cast(q as string) = '0.99999'", "length(cast(w as string))", "p :: string",
    "concat_ws('|', cast(p as string), cast(q as string))", "cast(try_cast(p as string) as double)",
    "cast(0.5BD as string)", "cast(-0.05BD as string)", "lpad(cast(p as string), 6, '*')",
]  # fmt: skip

ZEROS = _table(
    "x double, f float, ds array<double>, i int, k bigint, b tinyint, c smallint",
    [
        (None, None, None, None, None, None, None),
        (-0.0, -0.0, [0.0, -0.0], -128, -(2**63), -128, -(2**15)),
        (0.0, 0.0, [-0.0, 0.0], 2**31 - 1, 2**63 - 1, 127, 2**15 - 1),
        (-3.0, -0.04, [-0.0, None, 0.0, -1.5], -1, -1, -1, -1),
        (4.0, 0.04, [], 7, 7, 7, 7),
        (-0.4, -5.0, [None], -(2**31), 1, 3, -3),
        (float("nan"), float("inf"), [float("nan"), 1.0], 0, 0, 0, 0),
    ],
)  # fmt: skip
ON_ZEROS = [
    "-0.0D", "-(0.0D)", "- -0.0D", "0.0D", "-x", "- (x)", "x * -1", "x + 0.0D", "-0.0D + x",
    "sign(-0.0D)", "sign(x)", "signum(f)", "abs(x)", "abs(-0.0D)", "positive(x)", "+x",
    *(f"round({x}, {n})" for x, n in product("x", (-2, -1, 0, 1, 3))),
    "round(cast(f as double), 1)", "array_max(ds)", "array_min(ds)",
    "array_max(array(0.0D, -0.0D))", "array_sort(array(x))",
    "array_max(array(-0.0D, 0.0D))", "array_min(array(0.0D, -0.0D))", "array_min(array(x, -x))",
    "coalesce(x, -0.0D)", "nullif(x, 1.0D)", "if(x = 0.0D, x, 1.0D)", "sqrt(-0.0D)", "x / 1.0D",
]  # fmt: skip

ON_LEAST = [
    "-128Y", "-32768S", "-9223372036854775808L", "-2147483648", "-127Y", "- 128Y", "-1L", "128S",
    "-2Y * 3Y", "cast(b as int) + -128Y", "3 - -128Y", "-(127Y)", "- -127Y", "123.0E-28BD",
    "-123.0E-28BD", "1.5E3BD + 0BD", "12E-2BD", "-0.5BD",
    *(f"pmod({a}, {b})" for a, b in product(("i", "-128", "7"), (
        "-2147483648", "-2147483647", "-1500000000", "2147483647", "-7"))),
    *(f"pmod(k, {b})" for b in ("-9223372036854775808L", "-9223372036854775807L", "-7L")),
    "pmod(b, -128Y)", "pmod(c, -32768S)", "pmod(-1Y, -128Y)",
    "ceil(i)", "floor(i)", "ceil(b)", "floor(c)", "ceil(k)", "ceil(nanvl(x, 1.0D))", "floor(5Y)",
    "nullif(i, 2.1D)", "nullif(b, 0)", "nullif(b, 3Y)", "nullif(i, k)", "nullif(k, 7.0D)",
    "nullif(k, cast(k as double))", "nullif(i, null)",
    "null + 1", "1 - null", "null * b", "null % k", "b + null", "x * null", "null + null",
    "1.5BD * 1.5BD", "1.1BD % 0.3BD", "1.5BD * b", "12.5BD % 7Y", "0.5BD % 12.25BD",
    "lpad('a', 5, 'xy')", "rpad('a', i % 5, 'xy')", "lpad('a', null, 'x')",
    "repeat('', 2147483647)",
    "repeat('ab', i % 3)", "repeat('ab', null)", "rpad('abc', 2147483647, '')",
]  # fmt: skip

FRACTIONS = _table("s string", [(None,), *((f"2019-10-06 10:11:12.{f}",) for f in (
    "1", "12", "123", "1234", "12345", "123456", "000001", "9"))])  # fmt: skip
ON_FRACTIONS = ["to_timestamp(s, 'yyyy-MM-dd HH:mm:ss.SSSSSS')",
                "to_timestamp(substring(s, 1, 23), 'yyyy-MM-dd HH:mm:ss.SSS')"]  # fmt: skip

GOLDEN: dict[str, tuple[pa.Table, list[str]]] = {
    "decimals": (NUMBERS, ON_DECIMALS),
    "zeros": (ZEROS, ON_ZEROS),
    "least literals": (ZEROS, ON_LEAST),
    "fractions": (FRACTIONS, ON_FRACTIONS),
}
