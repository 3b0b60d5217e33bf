"""Casts of Arrow columns that change no value: where Arrow would bend one, ValueError.

Arrow refuses integers that do not fit and fractions cut off, but cuts the time of day off a date,
makes infinity of a large double in a float, and rounds doubles to decimals.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from headrace.schema import ddl_type

_UNITS = ("s", "ms", "us", "ns")


def cast_exactly(column: Any, kind: pa.DataType) -> Any:
    """The array or chunked array as `kind`. Times finer than a microsecond are cut."""
    given = column.type
    if given == kind:
        return column
    if pt.is_dictionary(given) and not pt.is_dictionary(kind):
        return cast_exactly(column.cast(given.value_type), kind)
    if pt.is_timestamp(given) and given.tz and pt.is_date(kind):
        column = column.cast(pa.timestamp(given.unit, "UTC"))
    made = column.cast(kind, safe=not _coarser(given, kind))
    if _may_bend(given, kind):
        _compare(_one(column), _one(made))
    return made


def _coarser(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether times are cut: only then may the cast be unchecked, or far times would wrap."""
    both = pt.is_timestamp(given) and pt.is_timestamp(kind)
    return both and _UNITS.index(given.unit) > _UNITS.index(kind.unit)


def _one(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _may_bend(given: pa.DataType, kind: pa.DataType) -> bool:
    if pt.is_nested(kind):
        return bool(given != kind)
    to_date = pt.is_date(kind) and pt.is_timestamp(given)
    narrower = pt.is_floating(kind) and pt.is_floating(given) and kind.bit_width < given.bit_width
    return bool(to_date or narrower or (pt.is_decimal(kind) and pt.is_floating(given)))


def _compare(given: pa.Array, made: pa.Array) -> None:
    kind = made.type
    if given.type == kind or pt.is_null(given.type) or not _may_bend(given.type, kind):
        return
    if pt.is_struct(kind):
        theirs = {f.name: i for i, f in enumerate(given.type)}
        for field, inner in zip(kind, made.flatten(), strict=True):
            if field.name in theirs:
                _compare(given.flatten()[theirs[field.name]], inner)
    elif pt.is_map(kind):
        _compare(given.keys, made.keys)
        _compare(given.items, made.items)
    elif pt.is_nested(kind):
        _compare(given.flatten(), made.flatten())
    elif pc.any(_bent(given, made)).as_py():
        raise ValueError(f"a value of {given.type} is no {ddl_type(kind)}")


def _bent(given: pa.Array, made: pa.Array) -> pa.Array:
    if pt.is_date(made.type):
        days = made.cast(pa.timestamp(given.type.unit)).cast(pa.int64())
        return pc.not_equal(days, given.cast(pa.int64()))
    if pt.is_floating(made.type):
        return pc.and_(pc.is_inf(made), pc.invert(pc.is_inf(given)))
    return pc.not_equal(made.cast(pa.float64()), given.cast(pa.float64()))
