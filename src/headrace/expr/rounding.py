"""Rounding of doubles by their shortest decimal spelling, half away from zero, as Spark does.

1.005 to two digits is 1.01, although the double is a little less than that. Spelling every
double out is slow, so it is done only for those near the middle between two results.
"""

from __future__ import annotations

_FAST = "1e9"  # above it the quick way may be off by a half


def nearest(x: str, digits: int) -> str:
    """DuckDB's SQL: the double `x` to so many digits after the point, or before it if negative."""
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
