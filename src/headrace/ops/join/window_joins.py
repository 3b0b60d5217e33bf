"""Window joins and `cogroup`: rows of two streams with the same key in the same window.

All results of a window are emitted when the watermark has passed its end, with the window's
last millisecond as their event time: a join's pairs and the rows without a partner there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Times, numbers, timestamps
from headrace.chunk import HASH
from headrace.isolate import rows_of_calls
from headrace.ops.contract import EpochStep, Fault, Operator, Place
from headrace.ops.join.pairs import matches
from headrace.ops.join.sides import (
    Columns,
    EventTimeJoin,
    JoinOutput,
    join_sides,
    lateness_text,
    null_keys,
    with_place,
)
from headrace.ops.join.window_store import InputWindows, store_of
from headrace.ops.keys import HIDDEN_KEY, key_values
from headrace.ops.window.assigners import Assigner, Session
from headrace.rows import as_rows, collector_paused, row_copier, rows_of
from headrace.state.table import KeyedTable, TableSpec


class _WindowedInputs(EventTimeJoin):
    """What a window join and `cogroup` share."""

    window: Assigner
    rows: tuple[str, ...]  # the columns of each input, as text

    def __str__(self) -> str:
        return f"{self.window}{lateness_text(self.lateness)}"

    def shape(self) -> dict[str, Any]:
        return {"window": self.window.at_rest(), "rows": list(self.rows)}

    @property
    def runs_user_code(self) -> bool:
        return isinstance(self.window, Session) and self.window.differs


class _WindowedInputsOperator(Operator):
    """`separate_nulls`: a row with a null in its key is in a session of its own."""

    def __init__(self, spec: _WindowedInputs, place: Place, *, separate_nulls: bool) -> None:
        self._sides = join_sides(place)
        self._windows = store_of(spec.window, spec.lateness, place, separate_nulls=separate_nulls)

    def tables(self) -> tuple[TableSpec, ...]:
        return self._windows.tables()

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows of windows that are not over."""
        return self._windows.view(tables, since, until)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        return self._windows.late(port, rows, watermark)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        return self._windows.prepare(port, rows)


@dataclass(frozen=True)
class WindowJoin(_WindowedInputs):
    how: str
    window: Assigner
    lateness: int
    columns: Columns
    rows: tuple[str, ...] = ()

    kind = "join"

    def __str__(self) -> str:
        return f"{self.how} in {super().__str__()}"

    def operator(self, place: Place) -> WindowJoinOperator:
        return WindowJoinOperator(self, place)


class WindowJoinOperator(_WindowedInputsOperator):
    def __init__(self, spec: WindowJoin, place: Place) -> None:
        super().__init__(spec, place, separate_nulls=True)
        self._how, self._output = spec.how, JoinOutput(spec.columns, place.output)
        self._outer = spec.how in ("left", "full", "anti"), spec.how in ("right", "full")

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        rows = rows if self._outer[port] else self._sides[port].without_nulls(rows)
        return super().prepare(port, rows)

    def step(self, step: EpochStep) -> None:
        windowed = self._windows.over(step)
        if windowed is not None:
            self._join(windowed[0], windowed[1], step)

    def _join(self, left: InputWindows, right: InputWindows, step: EpochStep) -> None:
        groups = [self._groups(side, windowed) for side, windowed in enumerate((left, right))]
        left_at, right_at = (np.zeros(len(group), np.int64) for group in groups)
        ranges = matches(groups[0], left_at, left_at, groups[1], right_at)
        met = ranges.counts > 0
        if self._how == "semi":
            self._emit(left, np.flatnonzero(met), 0, step)
        elif self._how != "anti":
            row, other = ranges.pairs()
            reached = np.zeros(len(right.group), np.bool_)
            reached[other] = True
            self._emit_pairs(left, right, row, other, step)
            if self._outer[1]:
                self._emit(right, np.flatnonzero(~reached), 1, step)
        if self._outer[0]:
            self._emit(left, np.flatnonzero(~met), 0, step)

    def _groups(self, side: int, windowed: InputWindows) -> Index:
        """The group of each row; a row with a null in its key is in one of its own."""
        nulls = null_keys(windowed.rows, self._sides[side].key.names)
        return windowed.group if nulls is None else np.where(nulls, -1 - side, windowed.group)

    def _emit_pairs(
        self, left: InputWindows, right: InputWindows, row: Index, other: Index, step: EpochStep
    ) -> None:
        if len(row):
            parts = left.rows.take(pa.array(row)), right.rows.take(pa.array(other))
            self._emit_rows(parts, left.start[row], left.end[row], step)

    def _emit(self, windowed: InputWindows, at: Index, port: int, step: EpochStep) -> None:
        """Emit rows of one side alone."""
        if len(at):
            rows, _, start, end = windowed.only(at)
            self._emit_rows((None, rows) if port else (rows, None), start, end, step)

    def _emit_rows(
        self, parts: Sequence[pa.Table | None], start: Times, end: Times, step: EpochStep
    ) -> None:
        bounds = [timestamps(start), timestamps(end)]
        step.out.append(self._output.rows(parts, end - 1 + self._windows.wait, bounds))


# `cogroup`: a user's function over the rows of two streams, key by key and window by window.
#
# It is called once for each key and window that has rows on either side, when the watermark has
# passed the window's end. If a call fails, its first row is a dead letter; the others go on.


@dataclass(frozen=True, eq=False)
class Cogroup(_WindowedInputs):
    function: Callable[[Any, list[Any], list[Any]], Any]
    window: Assigner
    lateness: int
    rows: tuple[str, ...] = ()

    kind = "cogroup"

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (self.function,)

    def operator(self, place: Place) -> CogroupOperator:
        return CogroupOperator(self, place)


class CogroupOperator(_WindowedInputsOperator):
    def __init__(self, spec: Cogroup, place: Place) -> None:
        super().__init__(spec, place, separate_nulls=False)
        self._function, self._schema = spec.function, place.output
        self._value = pa.schema(list(place.output)[len(place.key) + 2 :])  # after key and bounds

    @collector_paused()
    def step(self, step: EpochStep) -> None:
        windowed = self._windows.over(step)
        if windowed is not None:
            self._call(windowed, step)

    def _call(self, windowed: list[InputWindows], step: EpochStep) -> None:
        groups = np.unique(np.concatenate([p.group for p in windowed]))
        bounds = [[*np.searchsorted(p.group, groups).tolist(), len(p.group)] for p in windowed]
        left, right = (rows_of(self._as_arrived(port, p.rows)) for port, p in enumerate(windowed))
        keys, at = _first_of_each(windowed)
        keys = keys.take(pa.array(at))
        of_key = key_values(keys, self._sides[0].key.names)
        calls = [*zip(of_key, *map(pairwise, bounds), strict=True)]
        copier = row_copier(self._value)  # a function may change what it returned, and return it

        def call(group: tuple[Any, tuple[int, int], tuple[int, int]]) -> list[Any]:
            key, (a, b), (c, d) = group  # lists of its own, also if it is called again
            return copier.all(as_rows(self._function(key, left[a:b], right[c:d])))

        def failed(number: int, error: Exception) -> None:
            _, (first, last), _ = calls[number]
            port = 0 if first < last else 1
            row = windowed[port].rows.slice(bounds[port][number], 1)
            step.faults.append(Fault(self._as_arrived(port, row), error))

        table, number = rows_of_calls(calls, call, self._value, failed)
        self._emit(table, number, keys, _bounds(windowed, at), step)

    def _emit(
        self,
        table: pa.Table,
        calls: Index,
        keys: pa.Table,
        bounds: tuple[Index, Index],
        step: EpochStep,
    ) -> None:
        """Emit the rows that the calls returned; `keys` and `bounds` are those of the calls."""
        if not table.num_rows:
            return
        keys, (start, end) = keys.take(pa.array(calls)), (b[calls] for b in bounds)
        key_columns = keys.select(self._sides[0].key.names).columns
        columns = [*key_columns, timestamps(start), timestamps(end), *table.columns]
        table = pa.Table.from_arrays(columns, self._schema.names).cast(self._schema)
        at = end - 1 + self._windows.wait
        step.out.append(with_place(table, at, numbers(keys[HASH])))

    def _as_arrived(self, port: int, stored: pa.Table) -> pa.Table:
        """Stored rows with the columns of their input, in its order."""
        side = self._sides[port]
        names = dict(zip(side.keys, side.key.names, strict=True))
        return stored.select([names.get(n, n) for n in side.names]).rename_columns(side.names)


def _first_of_each(windowed: list[InputWindows]) -> tuple[pa.Table, Index]:
    """The keys of all rows, and for each group the place of one of its rows among them."""
    names = [n for n in windowed[0].rows.column_names if n == HASH or n.startswith(HIDDEN_KEY)]
    keys = pa.concat_tables([p.rows.select(names) for p in windowed]).combine_chunks()
    every = np.concatenate([p.group for p in windowed])
    _, first = np.unique(every, return_index=True)
    return keys, first


def _bounds(windowed: list[InputWindows], at: Index) -> tuple[Index, Index]:
    start = np.concatenate([p.start for p in windowed])[at]
    return start, np.concatenate([p.end for p in windowed])[at]
