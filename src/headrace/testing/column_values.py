"""Values of a column by its type: what `strategies.py` makes rows of.

Few values are likely, so that rows tie; the rest is anything that the type holds and that
equals itself: no NaN and no infinity. Every value fits its column exactly. Needs Hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.errors import PlanError, RunError
from headrace.schema import ddl_type

try:
    from hypothesis import strategies as st
except ImportError as cause:
    raise RunError(
        "HR-TEST-012",
        "strategies are Hypothesis's, and there is no Hypothesis",
        "Install it: pip install 'headrace[testing]'.",
    ) from cause

__all__ = ["st", "time_value", "values"]

Strategy = st.SearchStrategy[Any]
_TEXTS = ["", "a", "b", "B", "ß", "naïve", "日本", "🌊"]
_1970 = datetime(1970, 1, 1)
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_YEARS = 130  # dates and times are of 1970 to 2100


def values(field: pa.Field) -> Strategy:
    """Values of a field; also None, unless it is declared "not null"."""
    strategy = _some(field)
    return st.none() | strategy if field.nullable else strategy


def time_value(ms: int, field: pa.Field) -> Any:
    """A moment in milliseconds since 1970 as a value of a time column."""
    if pa.types.is_timestamp(field.type):
        return _datetime(ms * 1_000, field.type.tz)
    if pa.types.is_integer(field.type):
        return ms
    raise PlanError(
        "HR-TEST-014",
        f"the time column {field.name!r} is of type {ddl_type(field.type)}",
        "Streams are drawn for a time that is a timestamp or bigint.",
    )


def _some(field: pa.Field) -> Strategy:
    for is_kind, make in _KINDS:
        if is_kind(field.type):
            return make(field.type)
    raise PlanError(
        "HR-TEST-013",
        f"no values are known for the column {field.name!r} of type {ddl_type(field.type)}",
        "Give a strategy for the column by its name.",
    )


def _integers(kind: pa.DataType) -> Strategy:
    signed = pa.types.is_signed_integer(kind)
    half = 1 << (kind.bit_width - signed)
    return st.integers(-3 if signed else 0, 3) | st.integers(-half if signed else 0, half - 1)


def _floats(kind: pa.DataType) -> Strategy:
    width = 32 if kind == pa.float32() else 64
    anything = st.floats(allow_nan=False, allow_infinity=False, width=width)  # type: ignore[arg-type]
    return st.sampled_from([0.0, 1.0, -1.5]) | anything


def _texts(kind: pa.DataType) -> Strategy:
    return st.sampled_from(_TEXTS) | st.text(max_size=8)


def _bytes(kind: pa.DataType) -> Strategy:
    return st.sampled_from([b"", b"a", b"\x00\xff"]) | st.binary(max_size=8)


def _dates(kind: pa.DataType) -> Strategy:
    return st.dates(date(1970, 1, 1), date(1970 + _YEARS, 1, 1))


def _times(kind: pa.DataType) -> Strategy:
    unit = _MICROS.get(kind.unit, 1)
    most = _YEARS * 365 * 86_400 * (1_000_000 // unit)
    return (st.integers(0, 3) | st.integers(0, most)).map(lambda n: _datetime(n * unit, kind.tz))


def _datetime(micros: int, zone: str | None) -> datetime:
    moment = _1970 + timedelta(microseconds=micros)
    return moment.replace(tzinfo=UTC) if zone else moment


def _decimals(kind: pa.DataType) -> Strategy:
    def exact(n: int) -> Decimal:  # arithmetic on a Decimal would round at 28 digits
        return Decimal((n < 0, tuple(map(int, str(abs(n)))), -kind.scale))

    most = 10**kind.precision - 1
    near = min(3, most)
    return (st.integers(-near, near) | st.integers(-most, most)).map(exact)


def _lists(kind: pa.DataType) -> Strategy:
    return st.lists(values(kind.value_field), max_size=3)


def _maps(kind: pa.DataType) -> Strategy:
    return st.dictionaries(_some(kind.key_field), values(kind.item_field), max_size=3)


def _structs(kind: pa.DataType) -> Strategy:
    return st.fixed_dictionaries({f.name: values(f) for f in kind})


_KINDS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Strategy]]] = [
    (pa.types.is_boolean, lambda kind: st.booleans()),
    (pa.types.is_integer, _integers),
    (lambda kind: kind in (pa.float32(), pa.float64()), _floats),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), _texts),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), _bytes),
    (pa.types.is_date32, _dates),
    (pa.types.is_timestamp, _times),
    (pa.types.is_decimal, _decimals),
    (lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind), _lists),
    (pa.types.is_map, _maps),
    (pa.types.is_struct, _structs),
]
