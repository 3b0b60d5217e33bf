"""Event times: whatever a column says, as milliseconds."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def milliseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Event times as int64 milliseconds: timestamps of any unit, dates, or integers."""
    kind = column.type
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("ms")).cast(pa.int64())
    per_unit = {"s": 1_000, "ms": 1, "us": -1_000, "ns": -1_000_000}[kind.unit]
    units = column.cast(pa.int64())
    if per_unit > 0:
        return units if per_unit == 1 else pc.multiply(units, per_unit)
    if units.null_count:
        whole = pc.floor(pc.divide(units.cast(pa.float64(), safe=False), float(-per_unit)))
        return whole.cast(pa.int64())
    cut = [pa.array(c.to_numpy() // -per_unit) for c in units.chunks]
    return pa.chunked_array(cut, pa.int64())
