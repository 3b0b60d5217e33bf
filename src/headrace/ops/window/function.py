"""What is computed over the rows of a window, when the rows themselves are needed.

Named aggregates without an evictor never come here: they live in partials. Everything else
(a user's fold, reduce or process function, aggregates after an eviction) gets windows one after
the other, each window's rows in order, and returns rows and the windows they are of. A window
on which the user's function raises is a fault, not a failure.

A process function sees rows in this order, which in windows of time is by event time. Fold and
reduce see them as they arrived, epoch after epoch, as do those that store no rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, overload

import numpy as np
import pyarrow as pa

from headrace.arrays import Index
from headrace.chunk import HIDDEN
from headrace.isolate import one_by_one
from headrace.ops.agg.named import Aggregate, partial, result
from headrace.ops.agg.order import group_numbers, rises, sorted_by
from headrace.ops.contract import Fault
from headrace.ops.user_metrics import UserMetrics
from headrace.rows import (
    collector_paused,
    pylist,
    row_copier,
    rows_from,
    table_of,
    value_copier,
)
from headrace.state_copies import starting, state_copy

_WINDOW = "__window"


@dataclass(slots=True)
class StoredValues:
    """The values of a function: per key, and per window."""

    owner: Index  # the number of each window's key
    keys: list[dict[str, Any]]  # by number of the key
    windows: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class WindowedRows:
    """Windows one after the other: window i has the rows from starts[i] to starts[i + 1]."""

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
    arrival: Index | None = None  # of each row, rises in order of arrival; None: as they are
    turn: Index | None = None  # of each window: those of a key follow by it; None: by their ends

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def numbers(self) -> Index:
        """The window of each row."""
        return group_numbers(self.starts, self.rows.num_rows)

    def bounds(self, window: int) -> slice:
        last = window + 1 == len(self)
        return slice(
            int(self.starts[window]),
            self.rows.num_rows if last else int(self.starts[window + 1]),
        )

    def fault(self, window: int, error: Exception) -> Fault:
        """The fault of a window on which the user's function raised: it names the first row."""
        return Fault(self.rows.slice(self.bounds(window).start, 1), error)

    def by_arrival(self) -> WindowedRows:
        """The same windows, each with its rows in order of arrival, equals as they are."""
        if self.arrival is None:
            return self
        order = [self.numbers, self.arrival]
        if rises(order):
            return self
        return replace(self, rows=self.rows.take(pa.array(sorted_by(order))), arrival=None)

    @property
    def order(self) -> Index:
        """The windows in the order in which one may build on the one before."""
        if self.turn is None:
            return np.lexsort((self.begins, self.ends))
        return np.argsort(self.turn, kind="stable")

    def calls(self, seen: Sequence[str]) -> Iterator[tuple[int, WindowRows]]:
        """Each window and its rows, of which functions surely see only these columns."""
        return rows_of_windows(self.rows, self.starts.tolist(), seen)


@dataclass(slots=True)
class WindowResults:
    """What came of some windows: rows, and the window each is of."""

    values: pa.Table
    windows: Index
    faults: list[Fault] = field(default_factory=list)
    metrics: UserMetrics = field(default_factory=UserMetrics)  # the user's own


class WindowFunction(Protocol):
    @property
    def schema(self) -> pa.Schema:
        """The columns of its results."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns of a row that it needs."""

    def over(self, windowed: WindowedRows) -> WindowResults:
        """The results of these windows."""


class AggregateRows:
    """Named aggregates of the rows of each window."""

    def __init__(self, aggs: Mapping[str, Aggregate], schema: pa.Schema) -> None:
        self._aggs, self.schema = aggs, schema
        arguments = (a for agg in aggs.values() for a in agg.arguments)
        self.columns = [*dict.fromkeys(a for a in arguments if isinstance(a, str))]

    def over(self, windowed: WindowedRows) -> WindowResults:
        rows = windowed.rows.select(windowed.rows.column_names)
        rows = rows.append_column(_WINDOW, pa.array(windowed.numbers))
        results = result(partial(rows, [_WINDOW], self._aggs), self._aggs)
        windows = results.column(_WINDOW).to_numpy()
        return WindowResults(results.select(self.schema.names).cast(self.schema), windows)


class FoldRows:
    """A user's reduce (no zero) or fold over the rows of each window, in order of arrival."""

    def __init__(self, fn: Any, zero: Any, row: pa.Schema, schema: pa.Schema) -> None:
        self._fn, self._zero, self.schema = fn, zero and starting(zero), schema
        self.columns = row.names  # what it sees of a row
        self._scalar = zero is not None and schema.names == ["value"]
        self._copier = value_copier(schema.field(0).type) if self._scalar else row_copier(schema)

    @collector_paused()
    def over(self, windowed: WindowedRows) -> WindowResults:
        windowed = windowed.by_arrival()
        try:
            values = [self._folded(rows) for _, rows in windowed.calls(self.columns)]
            return WindowResults(table_of(values, self.schema), np.arange(len(windowed)))
        except Exception:
            return self._each(windowed)

    def _each(self, windowed: WindowedRows) -> WindowResults:
        """Each window by itself; of one that fails, the rows on which it does are set aside."""
        failing, faults = set[int](), list[Fault]()

        def whole(window_rows: tuple[int, WindowRows]) -> list[Any]:
            folded = [self._folded(window_rows[1])]
            table_of(folded, self.schema)
            return folded

        calls = windowed.calls(self.columns)
        results = dict(one_by_one(calls, whole, lambda window, _: failing.add(window)))
        for window, rows in windowed.calls(self.columns):  # anew: they may have been changed
            if window in failing:
                results[window] = self._row_by_row(windowed, window, rows, faults)
        return WindowResults(*flattened(dict(sorted(results.items())), self.schema), faults)

    def _row_by_row(
        self, windowed: WindowedRows, window: int, rows: WindowRows, faults: list[Fault]
    ) -> list[Any]:
        """The window's result without the rows that fail, if there are others."""
        start, begun, value = windowed.bounds(window).start, False, None
        for number, row in enumerate(rows):
            before = state_copy(value)
            try:
                if begun:
                    value = self._fn(value, row)
                else:
                    value = row if self._zero is None else self._fn(self._zero(), row)
                table_of([self._result(value)], self.schema)
                begun = True
            except Exception as error:
                value = before
                faults.append(Fault(windowed.rows.slice(start + number, 1), error))
        return [self._result(value)] if begun else []

    def _folded(self, rows: WindowRows) -> Any:
        rest = iter(rows)
        value = next(rest) if self._zero is None else self._zero()
        for row in rest:
            value = self._fn(value, row)
        return self._result(value)

    def _result(self, value: Any) -> Any:
        if not isinstance(value, self._copier.plain):  # it may return the same for other windows
            value = self._copier.take(value)
        return (value,) if self._scalar else value  # no row, though it be a dict


def each_window(
    windowed: WindowedRows,
    schema: pa.Schema,
    seen: Sequence[str],
    call: Callable[[int, WindowRows], list[Any]],
    metrics: UserMetrics | None = None,
) -> WindowResults:
    """Each window by itself, so that one on which the function fails is set aside alone.

    `metrics` is where a call counts: what one that fails has counted is left out.
    """
    metrics = UserMetrics() if metrics is None else metrics
    counted = UserMetrics()
    faults: list[Fault] = []

    def checked(window_rows: tuple[int, WindowRows]) -> list[Any]:
        metrics.clear()
        returned = call(*window_rows)
        table_of(returned, schema)
        counted.update(metrics)
        return returned

    def failed(window: int, error: Exception) -> None:
        faults.append(windowed.fault(window, error))

    results = dict(one_by_one(windowed.calls(seen), checked, failed))
    return WindowResults(*flattened(results, schema), faults, counted)


def flattened(results: Mapping[int, Sequence[Any]], schema: pa.Schema) -> tuple[pa.Table, Index]:
    """The rows that came of each window as one table, and the window of each row."""
    table = table_of([row for rows in results.values() for row in rows], schema)
    windows = np.array(list(results), np.int64)
    return table, np.repeat(windows, [len(rows) for rows in results.values()])


# The rows of a window as a user's function sees them: a sequence of rows, and its columns.
#
# Python objects are made of what is asked for, and of a few windows at a time, so that they stay
# in the processor's cache: `rows["celsius"]` makes no row, and no other column.


_AT_ONCE = 4_000  # rows of which objects are made at a time


class RowTable(Protocol):
    """As much of a table as is asked of rows; one that fetches columns when asked will do."""

    @property
    def num_rows(self) -> int: ...

    @property
    def column_names(self) -> list[str]: ...

    def select(self, names: Sequence[str]) -> pa.Table: ...

    def slice(self, start: int, length: int) -> pa.Table: ...

    def take(self, indices: pa.Array) -> RowTable: ...


class WindowRows(Sequence[Any]):
    """The rows of one window, in order: `rows[0]`, `for row in rows`; a column: `rows["name"]`."""

    __slots__ = ("_block", "_start", "_stop")

    def __init__(self, block: _Block, start: int, stop: int) -> None:
        self._block, self._start, self._stop = block, start, stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[Any]:
        return iter(self._block.rows[self._start : self._stop])

    @overload
    def __getitem__(self, what: int) -> Any: ...
    @overload
    def __getitem__(self, what: slice | str) -> list[Any]: ...
    def __getitem__(self, what: int | slice | str) -> Any:
        if isinstance(what, str):
            return self._block.column(what)[self._start : self._stop]
        places, rows = range(self._start, self._stop)[what], self._block.rows
        return rows[places] if isinstance(places, int) else [rows[i] for i in places]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


def rows_of_windows(
    rows: RowTable, starts: Sequence[int], seen: Sequence[str]
) -> Iterator[tuple[int, WindowRows]]:
    """Each window and its rows; window i has those from starts[i] on, the last all others.

    A row has the columns `seen`; by name, all can be had.
    """
    columns, ends = _Columns(rows), [*starts, rows.num_rows]
    window = 0
    while window < len(starts):
        begin = ends[window]
        stop = bisect_right(ends, begin + _AT_ONCE, window + 2) - 1
        block = _Block(columns, seen, begin, ends[stop] - begin)
        for i in range(window, stop):
            yield i, WindowRows(block, ends[i] - begin, ends[i + 1] - begin)
        window = stop


class _Columns(dict[str, pa.ChunkedArray]):
    """Columns by name, each fetched when it is first asked for."""

    def __init__(self, rows: RowTable) -> None:
        self._rows = rows

    def __missing__(self, name: str) -> pa.ChunkedArray:
        names = [n for n in self._rows.column_names if n not in HIDDEN]
        if name not in names:
            raise KeyError(f"the rows have no column {name!r}; there are {', '.join(names)}")
        self[name] = self._rows.select([name]).column(0)
        return self[name]


class _Block:
    """The rows of a few windows."""

    __slots__ = ("_columns", "_count", "_lists", "_rows", "_seen", "_start")

    def __init__(self, columns: _Columns, seen: Sequence[str], start: int, count: int) -> None:
        self._columns, self._seen, self._start, self._count = columns, seen, start, count
        self._lists: dict[str, list[Any]] = {}
        self._rows: list[Any] | None = None

    def column(self, name: str) -> list[Any]:
        if name not in self._lists:
            self._lists[name] = pylist(self._columns[name].slice(self._start, self._count))
        return self._lists[name]

    @property
    def rows(self) -> list[Any]:
        if self._rows is None:
            self._rows = rows_from(self._seen, map(self.column, self._seen))
        return self._rows
