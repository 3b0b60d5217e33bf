"""The operator for windows that are bounded by rows (see window/by_rows.py).

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

from headrace.chunk import HIDDEN, OFFSET, SOURCE, TIME
from headrace.clock import MIN_TIME
from headrace.ops.agg.named import Aggregate
from headrace.ops.contract import Step
from headrace.ops.row_windows.kept import KeptWindows
from headrace.ops.row_windows.partials import PartialWindows
from headrace.ops.row_windows.results import Fired
from headrace.ops.row_windows.ticks import TickWindows
from headrace.ops.row_windows.work import Aggregating, Calling, Work
from headrace.ops.view import plain_view
from headrace.ops.window.by_rows import (
    LastRows,
    RowWindow,
    check,
    column_of,
    needs_time,
    untimed,
)
from headrace.ops.window.function import WindowFunction
from headrace.state.table import KeyedTable, TableSpec

Function = Mapping[str, Aggregate] | WindowFunction


class _Way(Protocol):
    """How windows are made of rows and state."""

    def tables(self) -> tuple[TableSpec, ...]:
        """The state it keeps."""

    def step(self, step: Step) -> Iterator[Fired]:
        """Apply one epoch to the state; the windows that ended."""


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
        key = pa.schema([input.field(k) for k in keys])
        columns = _read(function, input)
        self._way = _way(spec, function, columns, key, input, output)
        own = column_of(spec)
        self._columns = {*keys, *columns, *HIDDEN, *([own] if own else [])}

    def tables(self) -> tuple[TableSpec, ...]:
        return self._way.tables()

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """Open windows; where rows are kept for them, the keys that have any."""
        if isinstance(self._way, PartialWindows):
            return self._way.view(tables, since, until)
        return plain_view(next(iter(tables.values())), since, until)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        if not needs_time(self._spec) or watermark <= MIN_TIME:
            return None
        self._refuse_untimed(rows)
        bound = watermark
        if isinstance(self._spec, LastRows):
            bound = watermark // self._spec.every * self._spec.every
        return np.asarray(rows.column(TIME).to_numpy() < bound)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """The columns that are needed."""
        self._refuse_untimed(rows)
        return rows.select([n for n in rows.column_names if n in self._columns])

    def _refuse_untimed(self, rows: pa.Table) -> None:
        if needs_time(self._spec) and TIME not in rows.column_names:
            raise untimed(self._spec)

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        return prepared

    def step(self, step: Step) -> None:
        chunks = []
        for fired in self._way.step(step):
            step.faults.extend(fired.faults)
            if len(fired.of):
                chunks.append(fired.chunk(self._schema))
        if chunks:
            step.out.append(pa.concat_tables(chunks))


def _way(
    spec: RowWindow, function: Function, columns: Sequence[str],
    key: pa.Schema, input: pa.Schema, output: pa.Schema,
) -> _Way:  # fmt: skip
    if isinstance(function, Mapping) and spec.tumbles:
        return PartialWindows(spec, function, key, input, numbered="pane" in output.names)
    if isinstance(function, Mapping):
        work: Work = Aggregating(function)
    else:
        work = Calling(function, columns)
        columns = [c for c in columns if c not in key.names]
    rows = pa.schema([*(input.field(c) for c in columns), *_hidden(spec, function)])
    if isinstance(spec, LastRows):
        return TickWindows(spec, work, key, rows, input)
    return KeptWindows(spec, work, key, rows, input)


def _hidden(spec: RowWindow, function: Function) -> list[pa.Field]:
    """Where a row stands, as far as it matters once it is kept."""
    ordered = not isinstance(function, Mapping) or any(a.ordered for a in function.values())
    names = [TIME, SOURCE, OFFSET] if ordered or isinstance(spec, LastRows) else [TIME]
    return [pa.field(n, HIDDEN[n]) for n in names]


def _read(function: Function, input: pa.Schema) -> list[str]:
    """The columns that windows are made of; a function may say so by its `columns`."""
    names = [n for n in input.names if n not in HIDDEN]
    if isinstance(function, Mapping):
        wanted = {str(a) for agg in function.values() for a in agg.arguments}
    else:
        wanted = {*getattr(function, "columns", names)}
    return [n for n in names if n in wanted]
