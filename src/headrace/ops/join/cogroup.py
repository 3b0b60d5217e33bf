"""`cogroup`: a user's function over the rows of two streams, key by key and window by window.

It is called once for each key and window that has rows on either side, when the watermark has
passed the window's end. A call that fails sets its first row aside; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH
from headrace.clock import pretty
from headrace.ops.agg.groups import Index
from headrace.ops.contract import Fault, Operator, Place, Spec, Step
from headrace.ops.join.columns import numbers
from headrace.ops.join.layout import placed as placed_rows
from headrace.ops.join.sessions import windows_of
from headrace.ops.join.side import Side
from headrace.ops.join.windowed import moments
from headrace.ops.join.windows import Placed
from headrace.ops.process.call import many
from headrace.ops.window.assigners import Assigner, Session
from headrace.rows import collector_paused, rows_of, table_of
from headrace.state.table import KeyedTable, TableSpec


@dataclass(frozen=True, eq=False)
class Cogroup(Spec):
    function: Callable[[Any, list[Any], list[Any]], Any]
    window: Assigner
    lateness: int
    rows: tuple[str, ...] = ()

    kind = "cogroup"
    needs_time = True
    has_late = True

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (self.function,)

    def __str__(self) -> str:
        late = f", lateness {pretty(self.lateness)}" if self.lateness else ""
        return f"{self.window}{late}"

    def shape(self) -> dict[str, Any]:
        return {"window": self.window.at_rest(), "rows": list(self.rows)}

    @property
    def lengths(self) -> dict[str, int]:
        return {"lateness": self.lateness}

    @property
    def runs_user_code(self) -> bool:
        return isinstance(self.window, Session) and self.window.differs

    def operator(self, place: Place) -> CogroupOperator:
        return CogroupOperator(self, place.keys, place.inputs, place.output)


class CogroupOperator(Operator):
    def __init__(
        self,
        spec: Cogroup,
        keys: Sequence[Sequence[str]],
        inputs: Sequence[pa.Schema],
        output: pa.Schema,
    ) -> None:
        self._spec, self._keys, self._inputs = spec, keys, inputs
        self._sides = [Side(k, s) for k, s in zip(keys, inputs, strict=True)]
        self._windows = windows_of(spec.window, spec.lateness, keys, inputs, apart=False)
        self._schema = output
        self._value = pa.schema(list(output)[len(keys[0]) + 2 :])  # after key and bounds

    def tables(self) -> tuple[TableSpec, ...]:
        return self._windows.tables()

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows of windows that are not over."""
        return self._windows.view(tables, since, until)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        return self._windows.late(port, rows, watermark)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        return self._windows.prepare(port, rows)

    @collector_paused()
    def step(self, step: Step) -> None:
        placed = self._windows.over(step)
        if placed is not None:
            self._call(placed, step)

    def _call(self, placed: list[Placed], step: Step) -> None:
        groups = np.unique(np.concatenate([p.group for p in placed]))
        bounds = [[*np.searchsorted(p.group, groups).tolist(), len(p.group)] for p in placed]
        seen = [rows_of(self._as_came(port, p.rows)) for port, p in enumerate(placed)]
        known, at = _first_of_each(placed, groups)
        known = known.take(pa.array(at))
        calls = [
            (key, seen[0][a:b], seen[1][c:d])
            for key, (a, b), (c, d) in zip(self._plain(known), *map(pairwise, bounds), strict=True)
        ]
        try:
            made = [many(self._spec.function(*call)) for call in calls]
            table = table_of([row for rows in made for row in rows], self._value)
        except Exception:  # only if a call fails or does not fit is each looked at by itself
            made, table = self._carefully(calls, placed, bounds, step)
        number = np.repeat(np.arange(len(made)), list(map(len, made)))
        self._give(table, number, known, _bounds(placed, at), step)

    def _carefully(
        self, calls: list[Any], placed: list[Placed], bounds: list[list[int]], step: Step
    ) -> tuple[list[list[Any]], pa.Table]:
        made: list[list[Any]] = [[] for _ in calls]
        for i, call in enumerate(calls):
            try:
                given = many(self._spec.function(*call))
                table_of(given, self._value)
                made[i] = given
            except Exception as error:
                port = 0 if call[1] else 1
                row = placed[port].rows.slice(bounds[port][i], 1)
                step.faults.append(Fault(self._as_came(port, row), error))
        return made, table_of([row for rows in made for row in rows], self._value)

    def _give(
        self,
        table: pa.Table,
        calls: Index,
        known: pa.Table,
        bounds: tuple[Index, Index],
        step: Step,
    ) -> None:
        if not table.num_rows:
            return
        owners, (start, end) = known.take(pa.array(calls)), (b[calls] for b in bounds)
        keys = [owners.column(n) for n in self._sides[0].key.names]
        columns = [*keys, moments(start), moments(end), *table.columns]
        table = pa.Table.from_arrays(columns, self._schema.names).cast(self._schema)
        at = end - 1 + self._windows.wait
        step.out.append(placed_rows(table, at, numbers(owners[HASH])))

    def _as_came(self, port: int, held: pa.Table) -> pa.Table:
        """Held rows with the columns of their input, in its order."""
        names = dict(zip(self._keys[port], self._sides[port].key.names, strict=True))
        columns = [names.get(n, n) for n in self._inputs[port].names]
        return held.select(columns).rename_columns(self._inputs[port].names)

    def _plain(self, known: pa.Table) -> list[Any]:
        rows = rows_of(known.select(self._sides[0].key.names))
        return [row[0] for row in rows] if len(self._keys[0]) == 1 else list(map(tuple, rows))


def _first_of_each(placed: list[Placed], groups: Index) -> tuple[pa.Table, Index]:
    """The keys of all rows, and for each group the place of one of its rows among them."""
    names = [n for n in placed[0].rows.column_names if n == HASH or n.startswith("$k")]
    keys = pa.concat_tables([p.rows.select(names) for p in placed]).combine_chunks()
    every = np.concatenate([p.group for p in placed])
    _, first = np.unique(every, return_index=True)
    return keys, first


def _bounds(placed: list[Placed], at: Index) -> tuple[Index, Index]:
    start = np.concatenate([p.start for p in placed])[at]
    return start, np.concatenate([p.end for p in placed])[at]
