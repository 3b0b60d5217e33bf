"""The operator for windows that are bounded by rows (see row_specs.py).

Windows that follow each other and have named aggregates live in partials; all others keep
rows. A row counts in the epoch in which it comes; within an epoch rows are in the order of
event time, source and offset. Windows that are complete are shown in the epoch in which they
become so, all others when the input ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, HIDDEN, OFFSET, SOURCE, TIME
from headrace.clock import MIN_TIME
from headrace.ops.aggregates import Aggregate
from headrace.ops.contract import Step
from headrace.ops.row_kept import KeptWindows
from headrace.ops.row_partials import PartialWindows
from headrace.ops.row_results import Fired
from headrace.ops.row_specs import (
    LastRows,
    RowWindow,
    check,
    column_of,
    needs_time,
    refuse_untimed,
)
from headrace.ops.row_ticks import TickWindows
from headrace.ops.row_work import Aggregating, Calling
from headrace.ops.window_function import WindowFunction
from headrace.state.table import TableSpec

Function = Mapping[str, Aggregate] | WindowFunction


class _Way(Protocol):
    """How windows are made of rows and state."""

    def tables(self) -> tuple[TableSpec, ...]: ...
    def step(self, step: Step) -> Iterator[Fired]: ...


class RowWindowOperator:
    version = 1

    def __init__(
        self,
        spec: RowWindow,
        function: Function,
        keys: Sequence[str],
        input: pa.Schema,
        output: pa.Schema,
    ) -> None:
        check(spec, input)
        self._spec, self._schema = spec, output
        rows = _needed(function, input)
        key = pa.schema([input.field(k) for k in keys])
        self._way = _way(spec, function, key, rows, input, output)
        own = column_of(spec)
        self._columns = {*keys, *rows.names, HASH, SOURCE, OFFSET, *([own] if own else [])}

    def tables(self) -> tuple[TableSpec, ...]:
        return self._way.tables()

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        if watermark <= MIN_TIME or not needs_time(self._spec):
            return None
        bound = watermark
        if isinstance(self._spec, LastRows):
            bound = watermark // self._spec.every * self._spec.every
        return np.asarray(rows.column(TIME).to_numpy() < bound)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """The columns that are needed."""
        if needs_time(self._spec) and TIME not in rows.column_names:
            raise refuse_untimed(self._spec)
        return rows.select([n for n in rows.column_names if n in self._columns])

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        return prepared

    def step(self, step: Step) -> None:
        for fired in self._way.step(step):
            step.faults.extend(fired.faults)
            if len(fired.of):
                step.out.append(fired.chunk(self._schema))


def _way(
    spec: RowWindow, function: Function, key: pa.Schema,
    rows: pa.Schema, input: pa.Schema, output: pa.Schema,
) -> _Way:  # fmt: skip
    if not isinstance(function, Mapping):
        work: Aggregating | Calling = Calling(function)
    elif spec.tumbles:
        return PartialWindows(spec, function, key, input, numbered="pane" in output.names)
    else:
        work = Aggregating(function)
    if isinstance(spec, LastRows):
        return TickWindows(spec, work, key, rows, input)
    return KeptWindows(spec, work, key, rows, input)


def _needed(function: Function, input: pa.Schema) -> pa.Schema:
    """The columns that windows are made of, and where their rows stand."""
    names = [n for n in input.names if n not in HIDDEN]
    if isinstance(function, Mapping):
        wanted = {str(a) for agg in function.values() for a in agg.arguments}
        names = [n for n in names if n in wanted]
    hidden = [pa.field(n, HIDDEN[n]) for n in (TIME, SOURCE, OFFSET)]
    return pa.schema([*(input.field(n) for n in names), *hidden])
