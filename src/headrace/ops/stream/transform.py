"""A whole batch through a function of the user's, for what has no operator: Arrow to Arrow.

All rows of a batch (of a task's keys, if there is a key) are one table, in order. There is no
state: what the function remembers by itself is gone after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.chunk import visible
from headrace.ops.contract import Operator, Step
from headrace.ops.grouping import in_order
from headrace.ops.stream.base import Basic, Plain
from headrace.ops.stream.whole import all_failed, as_table, placed, timed
from headrace.state.table import TableSpec


@dataclass(frozen=True, eq=False)
class Transform(Basic):
    fn: Callable[[pa.Table], Any]
    time: str | None  # the column that is the event time of what it gives
    timed: bool

    kind = "transform"

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (self.fn,)

    def __str__(self) -> str:
        return "all rows of a batch at once"

    def shape(self) -> dict[str, Any]:
        return {}

    def operator(
        self, keys: Sequence[Sequence[str]], inputs: Sequence[pa.Schema], output: pa.Schema
    ) -> Operator:
        return _Transforming(self, output)


class _Transforming(Plain):
    def __init__(self, what: Transform, output: pa.Schema) -> None:
        self._what, self._output = what, output

    def tables(self) -> tuple[TableSpec, ...]:
        return ()

    def step(self, step: Step) -> None:
        arrived = step.inputs[0]
        if arrived is None or not arrived.num_rows:
            return
        try:
            rows = as_table(self._what.fn(visible(in_order(arrived))), self._output)
            given = timed(rows, arrived, self._what.time, step) if self._what.timed else rows
        except Exception as error:
            step.faults.extend(all_failed(arrived, error))
            return
        step.out.append(placed(given))
