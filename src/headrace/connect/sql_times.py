"""Times and dates of databases that nothing else here can hold: infinite, or of other years."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.sql import UnmappedError

_DATES = -719_162, 2_932_896  # days: the years 1 to 9999, which all of Headrace can hold
_TIMES = _DATES[0] * 86_400_000_000, (_DATES[1] + 1) * 86_400_000_000 - 1
AS_A_TEXT = (
    "Read it as text in a query, or leave such rows out there; of changes, declare the columns "
    "without it: schema=..."
)


def in_range(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """The column, unless a time in it is infinite or outside of the years 1 to 9999."""
    values = column
    while pa.types.is_list(values.type):
        values = pc.list_flatten(values)
    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        is_time = pa.types.is_timestamp(values.type)
        numbers = values.cast(pa.int64()) if is_time else values.cast(pa.int32())
        least, most = pc.min_max(numbers).as_py().values()
        first, last = _TIMES if is_time else _DATES
        if least is not None and not first <= least <= most <= last:
            declared = "not always a time of the years 1 to 9999 (infinity, or another year)"
            raise UnmappedError(name, declared, AS_A_TEXT)
    return column
