"""A whole batch through a function of the user's, for what has no operator: Arrow to Arrow.

All rows of a batch (of a task's keys, if there is a key) are one table, in order. There is no
state: what the function remembers by itself is gone after a restart. A function of Spark's
DataFrames is called by the driver: see `engine/spark_batches.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.callables import title
from headrace.chunk import visible
from headrace.errors import HeadraceError, StepError
from headrace.ops.contract import Operator, Place, Spec, Step
from headrace.ops.grouping import in_order
from headrace.ops.stream.whole import all_failed, as_table, placed, timed
from headrace.state.table import TableSpec


@dataclass(frozen=True, eq=False)
class Transform(Spec):
    fn: Callable[[Any], Any] | None  # None where only the driver has it
    time: str | None  # the column that is the event time of what it gives
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
        return _Transforming(self, place.output)

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


class _Transforming(Operator):
    def __init__(self, what: Transform, output: pa.Schema) -> None:
        self._what, self._output = what, output

    def tables(self) -> tuple[TableSpec, ...]:
        return ()

    def step(self, step: Step) -> None:
        arrived = step.inputs[0]
        if arrived is None or not arrived.num_rows:
            return
        try:
            rows = as_table(self._what(visible(in_order(arrived))), self._output)
            given = timed(rows, arrived, self._what.time, step) if self._what.timed else rows
        except Exception as error:
            if self._what.spark and isinstance(error, HeadraceError):
                raise  # the function has not seen the batch
            step.faults.extend(all_failed(arrived, error))
            return
        step.out.append(placed(given))
