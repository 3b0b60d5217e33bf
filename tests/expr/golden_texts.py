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

GOLDEN: dict[str, tuple[pa.Table, list[str]]] = {"decimals": (NUMBERS, ON_DECIMALS)}
