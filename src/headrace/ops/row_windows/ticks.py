"""The last rows of a key, looked at by the clock of event time.

A row waits in a timed table for the first tick after it. When the watermark passes a tick,
the keys that have rows waiting for it are found by a scan of that time, and only those are
read; a key that got nothing since its last tick is not shown again. Its book counts, instead
of rows, how often rows came.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.chunk import TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import Step
from headrace.ops.row_windows.ends import ends_of
from headrace.ops.row_windows.kept import KeptWindows
from headrace.ops.row_windows.order import Ordered, ordered
from headrace.ops.row_windows.results import Fired
from headrace.ops.row_windows.store import PackedRows, fitted
from headrace.ops.row_windows.work import Work
from headrace.ops.window.by_rows import LastRows
from headrace.state.table import TableSpec

WAITING = "waiting"


class TickWindows(KeptWindows):
    def __init__(
        self, spec: LastRows, work: Work, key: pa.Schema, rows: pa.Schema, input: pa.Schema
    ) -> None:
        super().__init__(spec, work, key, rows, input)
        self._every = spec.every
        self._waiting = PackedRows(WAITING, key, rows, timed=True)

    def tables(self) -> tuple[TableSpec, ...]:
        return (*super().tables(), self._waiting.spec)

    def step(self, step: Step) -> Iterator[Fired]:
        table, arrived = step.tables[WAITING], step.inputs[0]
        if arrived is not None and arrived.num_rows:
            self._wait(step, ordered(arrived, self._key))
        due = table.scan(MIN_TIME, step.after + 1)
        if due.num_rows:
            yield from self._tick(step, ordered(self._waiting.unpacked(due, keyed=True), self._key))
        table.expire(step.after + 1)
        first = table.first_time()
        step.next = MAX_TIME if first is None else first

    def _wait(self, step: Step, rows: Ordered) -> None:
        """Put rows aside, those of a key that wait for the same tick together."""
        book = self._book(step, rows.keys)
        ends = ends_of(self._spec, rows, np.zeros_like(book.since), None)
        self._write(step, rows.keys, replace(book, since=book.since + 1))
        stop = rows.starts[ends.key] + ends.after
        start = np.append(0, stop[:-1])
        ticks = (rows.times(start) // self._every + 1) * self._every
        owners = rows.keys.take(pa.array(ends.key)).append_column(TIME, pa.array(ticks))
        new = fitted(rows.rows, self._store.rows).take(pa.array(rows.order))
        self._waiting.add(step.tables[WAITING], owners, book.since[ends.key], new, stop - start)

    def _tick(self, step: Step, rows: Ordered) -> Iterator[Fired]:
        book = self._book(step, rows.keys)
        ends = ends_of(self._spec, rows, np.zeros_like(book.since), None)
        last = np.append(ends.key[1:] != ends.key[:-1], True)
        at_end = last & (step.after >= MAX_TIME)
        yield from self._fire(step, rows, replace(ends, since=book.since), book, at_end)
