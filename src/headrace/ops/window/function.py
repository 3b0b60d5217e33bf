"""What is computed over the rows of a window, when the rows themselves are needed.

Named aggregates without an evictor never come here: they live in partials. Everything else
(a user's fold, reduce or process function, aggregates after an eviction) is given windows
laid end to end, each window's rows in order, and answers with rows and the windows they are
of. A window on which the user's function raises is a fault, not a failure.

A process function sees rows as they are laid, which in windows of time is by event time. Fold
and reduce see them as they arrived, epoch after epoch, as do those that store no rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.ops.agg.groups import Index
from headrace.ops.agg.named import Aggregate, partial, result
from headrace.ops.agg.order import rises, sorted_by
from headrace.ops.contract import Fault
from headrace.ops.window.rows import RowTable, WindowRows, rows_of_windows
from headrace.rows import collector_paused, table_of

_WINDOW = "__window"


@dataclass(slots=True)
class StoredValues:
    """What a function remembers: values per key, and values per window."""

    owner: Index  # the number of each window's key
    keys: list[dict[str, Any]]  # by number of the key
    windows: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class WindowedRows:
    """Windows laid end to end: window i has the rows from starts[i] to starts[i + 1]."""

    rows: RowTable  # the user's columns and the hidden ones, each window's rows in order
    starts: Index
    keys: pa.Table  # one row per window: "__h" and the key columns
    begins: Index  # the bounds of each window in ms; MIN_TIME and MAX_TIME for none
    ends: Index
    panes: Index  # how often each has fired before
    timings: Sequence[str]  # "early", "on time", "late"
    finals: Sequence[bool]
    watermark: int = 0
    clock: int = 0
    memory: StoredValues | None = None
    arrival: Index | None = None  # of each row, rises in order of arrival; None: as they are laid

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

    def by_arrival(self) -> WindowedRows:
        """The same windows, each with its rows in order of arrival, equals as they are laid."""
        if self.arrival is None:
            return self
        order = [self.numbers, self.arrival]
        if rises(order):
            return self
        return replace(self, rows=self.rows.take(pa.array(sorted_by(order))), arrival=None)

    def calls(self, seen: Sequence[str]) -> Iterator[tuple[int, WindowRows]]:
        """Each window and its rows, of which functions surely see only these columns."""
        return rows_of_windows(self.rows, self.starts.tolist(), seen)


@dataclass(slots=True)
class WindowResults:
    """What came of some windows: rows, and the window each is of."""

    values: pa.Table
    windows: Index
    faults: list[Fault] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # figures of the user's own


class WindowFunction(Protocol):
    @property
    def schema(self) -> pa.Schema:
        """The columns it gives."""

    def over(self, laid: WindowedRows) -> WindowResults:
        """The results of these windows."""


class AggregateRows:
    """Named aggregates of the rows of each window."""

    def __init__(self, aggs: Mapping[str, Aggregate], schema: pa.Schema) -> None:
        self._aggs, self.schema = aggs, schema

    def over(self, laid: WindowedRows) -> WindowResults:
        rows = laid.rows.select(laid.rows.column_names)
        rows = rows.append_column(_WINDOW, pa.array(laid.numbers))
        made = result(partial(rows, [_WINDOW], self._aggs), self._aggs)
        windows = made.column(_WINDOW).to_numpy()
        return WindowResults(made.select(self.schema.names).cast(self.schema), windows)


class FoldRows:
    """A user's reduce (no zero) or fold over the rows of each window, in order of arrival."""

    def __init__(self, fn: Any, zero: Any, row: pa.Schema, schema: pa.Schema) -> None:
        self._fn, self._zero, self.schema = fn, zero, schema
        self.columns = row.names  # what it sees of a row
        self._scalar = zero is not None and schema.names == ["value"]

    @collector_paused()
    def over(self, laid: WindowedRows) -> WindowResults:
        laid = laid.by_arrival()
        try:
            values = [self._folded(rows) for _, rows in laid.calls(self.columns)]
            return WindowResults(table_of(values, self.schema), np.arange(len(laid)))
        except Exception:
            return one_by_one(laid, self.schema, self.columns, lambda _, r: [self._folded(r)])

    def _folded(self, rows: WindowRows) -> Any:
        rest = iter(rows)
        value = next(rest) if self._zero is None else self._zero()
        for row in rest:
            value = self._fn(value, row)
        return (value,) if self._scalar else value  # no row, though it be a dict


def one_by_one(
    laid: WindowedRows,
    schema: pa.Schema,
    seen: Sequence[str],
    call: Callable[[int, WindowRows], list[Any]],
    counts: Counter[str] | None = None,
) -> WindowResults:
    """Each window by itself, so that one on which the function fails is set aside alone.

    `counts` is where a call counts: what one that fails has counted is left out.
    """
    counts = Counter() if counts is None else counts
    counted: Counter[str] = Counter()
    values: list[Any] = []
    windows: list[int] = []
    faults: list[Fault] = []
    for window, rows in laid.calls(seen):
        counts.clear()
        try:
            given = call(window, rows)
            table_of(given, schema)
        except Exception as error:
            faults.append(Fault(laid.rows.slice(laid.bounds(window).start, 1), error))
            continue
        counted.update(counts)
        values.extend(given)
        windows.extend([window] * len(given))
    return WindowResults(table_of(values, schema), np.array(windows, np.int64), faults, counted)
