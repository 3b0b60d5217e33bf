"""A batch as one Arrow table, given to the user's function, and what it gave as a chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import OFFSET, SOURCE, TIME
from headrace.clock import FIRST_TIME, LAST_TIME, MAX_TIME, MIN_TIME
from headrace.ops.agg.groups import integers
from headrace.ops.contract import Fault, Step


def as_table(given: Any, schema: pa.Schema) -> pa.Table:
    """What a function gave, in the declared columns: Arrow, or what can be read as Arrow."""
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if not isinstance(given, pa.Table) and hasattr(given, "__arrow_c_stream__"):
        given = pa.table(given)
    if not isinstance(given, pa.Table):
        raise TypeError(f"expected an Arrow table, got {type(given).__name__}")
    missing = [n for n in schema.names if n not in given.column_names]
    if missing:
        raise ValueError(f"the table has no column {missing[0]!r}")
    return given.select(schema.names).cast(schema)


def timed(rows: pa.Table, arrived: pa.Table | None, time: str | None, step: Step) -> pa.Table:
    """Rows with their event time: that of a column, or the newest of the batch."""
    count = rows.num_rows
    if time is not None:
        column = rows.column(time)
        if column.null_count:
            raise ValueError(f"the time column {time!r} is null")
        ticks = column if pa.types.is_integer(column.type) else column.cast(pa.timestamp("ms"))
        times = integers(ticks.cast(pa.int64()))
        far = (times < FIRST_TIME) | (times > LAST_TIME)
        if far.any():
            what = f"the time {times[far][0]} ms of column {time!r}"
            raise ValueError(f"{what} is not within the years 1 to 9999")
    else:
        times = np.full(count, _newest(arrived, step), np.int64)
    return rows.append_column(TIME, pa.array(times))


def placed(rows: pa.Table) -> pa.Table:
    """Rows that came from no record: in the order in which they were given."""
    count = rows.num_rows
    rows = rows.append_column(SOURCE, pa.array(np.full(count, -1, np.int32)))
    return rows.append_column(OFFSET, pa.array(np.arange(count)))


def all_failed(arrived: pa.Table | None, error: BaseException) -> list[Fault]:
    """The function saw all rows at once: none of them was used."""
    count = 0 if arrived is None else arrived.num_rows
    return [Fault(arrived.slice(i, 1), error) for i in range(count)] if arrived else []


def _newest(arrived: pa.Table | None, step: Step) -> int:
    if arrived is not None and arrived.num_rows and TIME in arrived.column_names:
        return max(int(integers(arrived.column(TIME)).max()), step.before)
    return step.before if MIN_TIME < step.before < MAX_TIME else step.clock
