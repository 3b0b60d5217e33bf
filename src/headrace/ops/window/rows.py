"""The rows of a window as a user's function sees them: a sequence of rows, and its columns.

Python objects are made of what is asked for, and of a few windows at a time, so that they stay
in the processor's cache: `rows["celsius"]` makes no row, and no other column.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, overload

import pyarrow as pa

from headrace.chunk import HIDDEN
from headrace.rows import pylist, rows_from

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
        known = [n for n in self._rows.column_names if n not in HIDDEN]
        if name not in known:
            raise KeyError(f"the rows have no column {name!r}; there are {', '.join(known)}")
        self[name] = self._rows.select([name]).column(0)
        return self[name]


class _Block:
    """The rows of a few windows."""

    __slots__ = ("_columns", "_count", "_made", "_rows", "_seen", "_start")

    def __init__(self, columns: _Columns, seen: Sequence[str], start: int, count: int) -> None:
        self._columns, self._seen, self._start, self._count = columns, seen, start, count
        self._made: dict[str, list[Any]] = {}
        self._rows: list[Any] | None = None

    def column(self, name: str) -> list[Any]:
        if name not in self._made:
            self._made[name] = pylist(self._columns[name].slice(self._start, self._count))
        return self._made[name]

    @property
    def rows(self) -> list[Any]:
        if self._rows is None:
            self._rows = rows_from(self._seen, map(self.column, self._seen))
        return self._rows
