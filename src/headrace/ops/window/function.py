"""What is computed over the rows of a window, when the rows themselves are needed.

Named aggregates without an evictor never come here: they live in partials. Everything else
(a user's fold, reduce or process function, aggregates after an eviction) is given windows
laid end to end, each window's rows in order, and answers with rows and the windows they are
of. A window on which the user's function raises is a fault, not a failure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.ops.agg.groups import Index
from headrace.ops.agg.named import Aggregate, partial, result
from headrace.ops.contract import Fault
from headrace.rows import collector_paused, rows_of, table_of

_WINDOW = "__window"
_AT_ONCE = 4_000  # rows made into Python objects at a time: so many stay in the processor's cache


@dataclass(slots=True)
class Memory:
    """What a function remembers: values per key, and values per window."""

    owner: Index  # the number of each window's key
    keys: list[dict[str, Any]]  # by number of the key
    windows: list[dict[str, Any]]


class LaidRows(Protocol):
    """As much of a table as is asked of rows; one that fetches columns when asked will do."""

    @property
    def num_rows(self) -> int: ...

    @property
    def column_names(self) -> list[str]: ...

    def select(self, names: Sequence[str]) -> pa.Table: ...

    def slice(self, start: int, length: int) -> pa.Table: ...


@dataclass(frozen=True, slots=True)
class Laid:
    """Windows laid end to end: window i has the rows from starts[i] to starts[i + 1]."""

    rows: LaidRows  # the user's columns and the hidden ones, each window's rows in order
    starts: Index
    keys: pa.Table  # one row per window: "__h" and the key columns
    begins: Index  # the bounds of each window in ms; MIN_TIME and MAX_TIME for none
    ends: Index
    panes: Index  # how often each has fired before
    timings: Sequence[str]  # "early", "on time", "late"
    finals: Sequence[bool]
    watermark: int = 0
    clock: int = 0
    memory: Memory | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def numbers(self) -> Index:
        """The window of each row."""
        counts = np.diff(self.starts, append=self.rows.num_rows)
        return np.repeat(np.arange(len(self)), counts)

    def bounds(self, window: int) -> slice:
        last = window + 1 == len(self)
        return slice(
            int(self.starts[window]),
            self.rows.num_rows if last else int(self.starts[window + 1]),
        )

    def calls(self, row: pa.Schema) -> Iterator[tuple[int, list[Any]]]:
        """Each window and its rows as Python objects, which are made of few windows at a time."""
        rows, starts = self.rows.select(row.names), [*self.starts.tolist(), self.rows.num_rows]
        window = 0
        while window < len(self):
            begin = starts[window]
            stop = bisect_right(starts, begin + _AT_ONCE, window + 2) - 1
            made = rows_of(rows.slice(begin, starts[stop] - begin))
            for i in range(window, stop):
                yield i, made[starts[i] - begin : starts[i + 1] - begin]
            window = stop

    def rows_in(self, window: int, row: pa.Schema) -> list[Any]:
        """The rows of one window as Python objects."""
        mine = self.bounds(window)
        return rows_of(self.rows.slice(mine.start, mine.stop - mine.start).select(row.names))


@dataclass(slots=True)
class Given:
    """What came of some windows: rows, and the window each is of."""

    values: pa.Table
    windows: Index
    faults: list[Fault] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # figures of the user's own


class WindowFunction(Protocol):
    @property
    def schema(self) -> pa.Schema:
        """The columns it gives."""

    def over(self, laid: Laid) -> Given:
        """The results of these windows."""


class AggregateRows:
    """Named aggregates of the rows of each window."""

    def __init__(self, aggs: Mapping[str, Aggregate], schema: pa.Schema) -> None:
        self._aggs, self.schema = aggs, schema

    def over(self, laid: Laid) -> Given:
        rows = laid.rows.select(laid.rows.column_names)
        rows = rows.append_column(_WINDOW, pa.array(laid.numbers))
        made = result(partial(rows, [_WINDOW], self._aggs), self._aggs)
        windows = made.column(_WINDOW).to_numpy()
        return Given(made.select(self.schema.names).cast(self.schema), windows)


class FoldRows:
    """A user's reduce (no zero) or fold over the rows of each window."""

    def __init__(self, fn: Any, zero: Any, row: pa.Schema, schema: pa.Schema) -> None:
        self._fn, self._zero, self._row, self.schema = fn, zero, row, schema
        self.columns = row.names  # what it sees of a row
        self._scalar = zero is not None and schema.names == ["value"]

    @collector_paused()
    def over(self, laid: Laid) -> Given:
        try:
            values = [self._folded(rows) for _, rows in laid.calls(self._row)]
            return Given(table_of(values, self.schema), np.arange(len(laid)))
        except Exception:
            return one_by_one(
                laid, self.schema, lambda i: [self._folded(laid.rows_in(i, self._row))]
            )

    def _folded(self, rows: list[Any]) -> Any:
        if self._zero is None:
            value, rows = rows[0], rows[1:]
        else:
            value = self._zero()
        for row in rows:
            value = self._fn(value, row)
        return (value,) if self._scalar else value  # no row, though it be a dict


def one_by_one(
    laid: Laid, schema: pa.Schema, call: Callable[[int], list[Any]],
    counts: Counter[str] | None = None,
) -> Given:  # fmt: skip
    """Each window by itself, so that one on which the function fails is set aside alone.

    `counts` is where a call counts: what one that fails has counted is left out.
    """
    counts = Counter() if counts is None else counts
    counted: Counter[str] = Counter()
    values: list[Any] = []
    windows: list[int] = []
    faults: list[Fault] = []
    for window in range(len(laid)):
        counts.clear()
        try:
            given = call(window)
            table_of(given, schema)
        except Exception as error:
            faults.append(Fault(laid.rows.slice(laid.bounds(window).start, 1), error))
            continue
        counted.update(counts)
        values.extend(given)
        windows.extend([window] * len(given))
    return Given(table_of(values, schema), np.array(windows, np.int64), faults, counted)
