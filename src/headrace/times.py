"""Event times of any column type, as milliseconds.

A number that is too large for milliseconds in 64 bits becomes the largest there is, which is
not within the years 1 to 9999; it never wraps round to a time that looks good.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import FIRST_TIME, LAST_TIME

_MOST = 2**63 - 1


def milliseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Event times as int64 milliseconds: timestamps of any unit, dates, or integers."""
    kind = column.type
    if pa.types.is_integer(kind):
        if kind == pa.uint64():
            column = pc.min_element_wise(column, pa.scalar(_MOST, kind), skip_nulls=False)
        return column.cast(pa.int64())
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("ms")).cast(pa.int64())
    per_unit = {"s": 1_000, "ms": 1, "us": -1_000, "ns": -1_000_000}[kind.unit]
    units = column.cast(pa.int64())
    if per_unit > 0:
        return units if per_unit == 1 else _times(units, per_unit)
    cut = [_floor(c, -per_unit) for c in units.chunks]
    return pa.chunked_array(cut, pa.int64())


def beyond(times: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Which times are not within the years 1 to 9999; None if all are. A null is not beyond."""
    reach = pc.min_max(times).as_py()
    if reach["min"] is None or FIRST_TIME <= reach["min"] <= reach["max"] <= LAST_TIME:
        return None
    outside = pc.or_(pc.less(times, FIRST_TIME), pc.greater(times, LAST_TIME))
    return pc.fill_null(outside, False)


def _times(units: pa.ChunkedArray, by: int) -> pa.ChunkedArray:
    most = _MOST // by
    units = pc.min_element_wise(units, most, skip_nulls=False)
    return pc.multiply(pc.max_element_wise(units, -most, skip_nulls=False), by)


def _floor(units: pa.Array, by: int) -> pa.Array:
    if not units.null_count:
        return pa.array(units.to_numpy() // by)
    valid = units.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(units.fill_null(0).to_numpy() // by, mask=~valid)
