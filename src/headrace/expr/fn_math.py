"""Functions of numbers, conditions and nulls.

Invariant: an integer that overflows is an error in both engines; a logarithm outside its
domain is null; NaN equals itself and is larger than every number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import types as pt

from headrace.errors import PlanError
from headrace.expr.arith import nonzero, truncated
from headrace.expr.catalog import listed, offer
from headrace.expr.types import DUCKDB, SPARK, Term, is_int, ordered, type_name

NUMBERS, CONDITIONS = "numbers", "conditions and nulls"
_NAN = "CAST('NaN' AS DOUBLE)"


def _number(name: str, signature: str, duckdb: str, spark: str | None = None) -> None:
    offer(NUMBERS, name, signature, duckdb, spark)


for _name in ("sqrt", "exp", "sin", "cos", "tan", "asin", "acos", "atan", "degrees", "radians"):
    _number(_name, "double -> double", f"{_name}({{0}})")
for _name in ("ln", "log10", "log2"):
    _number(
        _name,
        "double -> double",
        f"(CASE WHEN {{0}} > 0 THEN {_name}({{0}}) END)",
        f"{_name}({{0}})",
    )
_unsigned = "(CASE WHEN {} = 0 THEN CAST(0 AS DOUBLE) ELSE {} END)"  # zero has no sign in SQL
_number(
    "atan2",
    "double double -> double",
    f"atan2({_unsigned.format('{0}', '{0}')}, {_unsigned.format('{1}', '{1}')})",
    "atan2({0}, {1})",
)
_number("positive", "number -> 1", "({0})", "(+ {0})")


def _log(args: Sequence[Term]) -> str:
    """The natural logarithm of one number; of two, that of the second to the first as base."""
    logs = [f"(CASE WHEN {a.sql} > 0 THEN ln({a.sql}) END)" for a in args]
    if len(logs) == 1:
        return logs[0]
    base, of = (a.sql for a in args)
    null = f"coalesce(nullif({of}, {of}), nullif({base}, {base}))"  # once both are computed
    return f"(CASE WHEN {base} > 0 AND {of} > 0 THEN {logs[1]} / {logs[0]} ELSE {null} END)"


offer(NUMBERS, "log", "double double? -> double", _log, listed("log({})"))
_number("abs", "number -> 1", "abs({0})")
_number(
    "sign",
    "double -> double",
    f"(CASE WHEN isnan({{0}}) THEN {_NAN} WHEN {{0}} = 0 THEN {{0}} "
    "ELSE CAST(sign({0}) AS DOUBLE) END)",
    "sign({0})",
)
_number(
    "pow",
    "double double -> double",
    f"(CASE WHEN {{0}} IS NULL THEN NULL "
    f"WHEN isnan({{1}}) OR (isinf({{1}}) AND abs({{0}}) = 1) THEN {_NAN} "
    "ELSE pow({0}, {1}) END)",
    "pow({0}, {1})",
)
_number("is_nan", "double -> bool", "coalesce(isnan({0}), FALSE)", "isnan({0})")
_number(
    "nanvl",
    "double double -> double",
    "(CASE WHEN isnan({0}) THEN {1} ELSE {0} END)",
    "nanvl({0}, {1})",
)
_number("hex", "long -> text", "hex({0})")
_number("bin", "long -> text", "bin({0})")
_number("bit_count", "long -> int", "CAST(bit_count({0}) AS INTEGER)", "bit_count({0})")


def _remainder(dialect: str) -> Callable[[Sequence[Term]], str]:
    return lambda args: truncated(args[0], args[1], dialect)


def _signs_differ(rest: str, divisor: Term) -> str:
    return f"{rest} <> 0 AND ({rest} < 0) <> ({divisor.sql} < 0)"


def _floor_mod(dialect: str) -> Callable[[Sequence[Term]], str]:
    """Python's `%`: the sign of the right side."""

    def sql(args: Sequence[Term]) -> str:
        a, b = args
        rest = truncated(a, b, dialect)
        return f"(CASE WHEN {_signs_differ(rest, b)} THEN {rest} + {b.sql} ELSE {rest} END)"

    return sql


def _sum(rest: str, b: Term) -> str:
    """DuckDB's SQL of their sum, which begins anew below the least integer, as in Java."""
    if not is_int(b.type) or (isinstance(b.literal, int) and b.literal > -(2**30)):
        return f"({rest} + {b.sql})"
    kind = type_name(b.type, DUCKDB)
    whole = f"(CAST({rest} AS HUGEINT) + {b.sql})"
    if b.type not in (pa.int32(), pa.int64()):
        return whole
    least, round_ = -(2 ** (b.type.bit_width - 1)), 2**b.type.bit_width
    return f"CAST(CASE WHEN {whole} < {least} THEN {whole} + {round_} ELSE {whole} END AS {kind})"


def _pmod(dialect: str) -> Callable[[Sequence[Term]], str]:
    """Spark's: a remainder that is negative has the divisor added, once."""

    def sql(args: Sequence[Term]) -> str:
        a, b = args
        if dialect == SPARK:
            return f"pmod({a.sql}, {nonzero(b, dialect)})"
        rest = truncated(a, b, dialect)
        up = truncated(Term(_sum(rest, b), a.type), b, dialect)
        return f"(CASE WHEN {rest} < 0 THEN {up} ELSE {rest} END)"

    return sql


def _floor_div(dialect: str) -> Callable[[Sequence[Term]], str]:
    """Python's `//`: toward minus infinity."""

    def sql(args: Sequence[Term]) -> str:
        a, b = args
        if not is_int(a.type):
            return f"CAST(floor({a.sql} / {nonzero(b, dialect)}) AS DOUBLE)"
        word = "//" if dialect == DUCKDB else "div"
        whole = f"({a.sql} {word} {nonzero(b, dialect)})"
        down = _signs_differ(truncated(a, b, dialect), b)
        value = f"CASE WHEN {down} THEN {whole} - 1 ELSE {whole} END"
        return f"CAST({value} AS {type_name(a.type, dialect)})"

    return sql


def _no_decimals(args: Sequence[Term]) -> pa.DataType:
    if pt.is_decimal(args[0].type) or not (is_int(args[0].type) or args[0].type == pa.float64()):
        raise PlanError(
            "HR-EXPR-003",
            f"it takes integers or doubles, not {args[0].type}",
            "Cast to long or double first.",
        )
    return args[0].type


offer(NUMBERS, "mod", "T T ->", _remainder(DUCKDB), _remainder(SPARK), gives=_no_decimals)
offer(NUMBERS, "floor_mod", "T T ->", _floor_mod(DUCKDB), _floor_mod(SPARK), gives=_no_decimals)
offer(NUMBERS, "pmod", "T T ->", _pmod(DUCKDB), _pmod(SPARK), gives=_no_decimals)
offer(NUMBERS, "floor_div", "T T ->", _floor_div(DUCKDB), _floor_div(SPARK), gives=_no_decimals)
offer(NUMBERS, "greatest", "T T T* ->", listed("greatest({})"), gives=lambda a: ordered(a[0].type))
offer(NUMBERS, "least", "T T T* ->", listed("least({})"), gives=lambda a: ordered(a[0].type))

offer(CONDITIONS, "coalesce", "T T* -> T", listed("coalesce({})"))
offer(CONDITIONS, "nullif", "T T -> 0", "(CASE WHEN {0} = {1} THEN NULL ELSE {2} END)")
offer(CONDITIONS, "if", "bool T T -> T", "(CASE WHEN {0} THEN {1} ELSE {2} END)")
offer(CONDITIONS, "nvl2", "any T T -> T", "(CASE WHEN {0} IS NOT NULL THEN {1} ELSE {2} END)")
offer(CONDITIONS, "isnull", "any -> bool", "({0} IS NULL)")
offer(CONDITIONS, "isnotnull", "any -> bool", "({0} IS NOT NULL)")
offer(CONDITIONS, "equal_null", "T T -> bool", "({0} IS NOT DISTINCT FROM {1})", "({0} <=> {1})")
