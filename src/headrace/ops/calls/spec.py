"""A step that calls a function for each row, many at once: from chunk to chunk.

What a step keeps (threads, answers, how many calls have failed) belongs to the process; it is
found by the step's own id, because a program is opened anew in each worker.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.chunk import hidden_columns, visible
from headrace.ops.calls.loop import wait_for
from headrace.ops.calls.resource import watch
from headrace.ops.calls.work import Caller, Manner, Outcome
from headrace.ops.contract import ChunkSpec
from headrace.rows import rows_of, table_of

Lost = list[tuple[int, BaseException]]
_callers: dict[tuple[int, str], Caller] = {}


@dataclass(frozen=True, eq=False)
class AsyncCalls(ChunkSpec):
    fn: Callable[..., Any]
    manner: Manner
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    kind = "map_async"

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (self.fn,)

    def __str__(self) -> str:
        return str(self.manner)

    def run(self, chunk: pa.Table, schema: pa.Schema) -> tuple[pa.Table, Lost]:
        """The answers as rows; the rows that failed with the error of their last try."""
        watch()
        rows = rows_of(visible(chunk))
        outcomes = wait_for(self._caller().ask(rows)) if rows else []
        lost: Lost = [(i, o.error) for i, o in enumerate(outcomes) if o.error is not None]
        given = [i for i, o in enumerate(outcomes) if o.error is None]
        if not self.manner.ordered:
            given.sort(key=lambda i: outcomes[i].turn)
        values, given = _fitting(outcomes, given, schema, lost)
        hidden = chunk.select(hidden_columns(chunk)).take(pa.array(given, pa.int64()))
        for name in hidden.column_names:
            values = values.append_column(name, hidden.column(name))
        return values, sorted(lost, key=lambda pair: pair[0])

    def _caller(self) -> Caller:
        place = (os.getpid(), self.id)
        if place not in _callers:
            _callers[place] = Caller(self.fn, self.manner)
        return _callers[place]


def _fitting(
    outcomes: Sequence[Outcome], given: list[int], schema: pa.Schema, lost: Lost
) -> tuple[pa.Table, list[int]]:
    """The answers as a table; only if that fails is each looked at by itself."""
    try:
        return table_of([outcomes[i].answer for i in given], schema), given
    except Exception:
        fit = []
        for i in given:
            try:
                table_of([outcomes[i].answer], schema)
                fit.append(i)
            except Exception as error:
                lost.append((i, error))
        return table_of([outcomes[i].answer for i in fit], schema), fit
