"""A whole batch through a user's function, for what has no operator: Arrow to Arrow.

All rows of a batch (of a task's keys, if there is a key) are one table, in order. There is no
state: what the function remembers by itself is gone after a restart. A function of Spark's
DataFrames is called by the driver: see `engine/spark_batches.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import integers, owned
from headrace.callables import title
from headrace.chunk import TIME, visible
from headrace.clock import FIRST_TIME, LAST_TIME, MAX_TIME, MIN_TIME
from headrace.errors import HeadraceError, StepError
from headrace.ops.contract import EpochStep, Fault, Operator, Place, Spec
from headrace.ops.keys import in_order
from headrace.ops.tables import derived_rows
from headrace.state.table import TableSpec


def as_table(returned: Any, schema: pa.Schema) -> pa.Table:
    """What a function returned, in the declared columns: Arrow, or what can be read as Arrow."""
    if isinstance(returned, pa.RecordBatch):
        returned = pa.Table.from_batches([returned])
    if not isinstance(returned, pa.Table) and hasattr(returned, "__arrow_c_stream__"):
        returned = pa.table(returned)
    if not isinstance(returned, pa.Table):
        raise TypeError(f"expected an Arrow table, got {type(returned).__name__}")
    missing = [n for n in schema.names if n not in returned.column_names]
    if missing:
        raise ValueError(f"the table has no column {missing[0]!r}")
    return owned(returned.select(schema.names).cast(schema))


def with_event_time(
    rows: pa.Table, arrived: pa.Table | None, time: str | None, step: EpochStep
) -> pa.Table:
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


def with_output_place(rows: pa.Table) -> pa.Table:
    """Rows that came from no record: in the order in which they were returned."""
    return derived_rows(rows, np.arange(rows.num_rows))


def faults_of_all(arrived: pa.Table | None, error: BaseException, port: int = 0) -> list[Fault]:
    """The function saw all rows at once: none of them was used."""
    count = 0 if arrived is None else arrived.num_rows
    return [Fault(arrived.slice(i, 1), error, port) for i in range(count)] if arrived else []


def _newest(arrived: pa.Table | None, step: EpochStep) -> int:
    if arrived is not None and arrived.num_rows and TIME in arrived.column_names:
        return max(int(integers(arrived.column(TIME)).max()), step.before)
    return step.before if MIN_TIME < step.before < MAX_TIME else step.clock


@dataclass(frozen=True, eq=False)
class Transform(Spec):
    fn: Callable[[Any], Any] | None  # None where only the driver has it
    time: str | None  # the column that is the event time of what it returns
    timed: bool
    spark: bool = False  # the function takes a DataFrame, so only the driver can call it
    ask: Callable[[pa.Table], pa.Table] | None = None  # how a task lets the driver do so

    kind = "transform"
    stateless = True

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return () if self.fn is None else (self.fn,)

    def __str__(self) -> str:
        return "all rows of a batch at once" + (", by Spark" if self.spark else "")

    @property
    def python(self) -> str | None:
        if not self.spark:
            return super().python
        return f"{title(self.fn)}: a function of Spark's DataFrames, called by the driver"

    @property
    def emits_time(self) -> str | None:
        return self.time

    def operator(self, place: Place) -> Operator:
        return _TransformOperator(self, place.output)

    def __reduce__(self) -> tuple[object, ...]:
        """What only the driver can call stays there."""
        fn = None if self.spark else self.fn
        return (Transform, (fn, self.time, self.timed, self.spark, self.ask))

    def __call__(self, rows: pa.Table) -> Any:
        function = self.ask or _not_here if self.spark else self.fn
        assert function is not None
        return function(rows)


def _not_here(batch: Any) -> Any:
    raise StepError(
        "HR-STREAM-010",
        "Spark cannot transform a batch here: there is no Spark session",
        'Say Harness(job, on="spark"), or give the job another function in this test.',
    )


class _TransformOperator(Operator):
    def __init__(self, spec: Transform, output: pa.Schema) -> None:
        self._spec, self._output = spec, output

    def tables(self) -> tuple[TableSpec, ...]:
        return ()

    def step(self, step: EpochStep) -> None:
        arrived = step.arrived
        if arrived is None:
            return
        try:
            rows = as_table(self._spec(visible(in_order(arrived))), self._output)
            returned = (
                with_event_time(rows, arrived, self._spec.time, step) if self._spec.timed else rows
            )
        except Exception as error:
            if self._spec.spark and isinstance(error, HeadraceError):
                raise  # the function has not seen the batch
            step.faults.extend(faults_of_all(arrived, error))
            return
        step.out.append(with_output_place(returned))
