"""Window joins: rows of two streams with the same key in the same window.

Everything of a window comes out when the watermark has passed its end: the pairs, and the
rows that met nobody there. Its event time is the window's last millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import pretty
from headrace.ops.agg.groups import Index
from headrace.ops.contract import Operator, Place, Spec, Step
from headrace.ops.join.layout import Columns, Layout
from headrace.ops.join.pairs import meeting
from headrace.ops.join.sessions import windows_of
from headrace.ops.join.side import Side, null_keys
from headrace.ops.join.windows import Placed
from headrace.ops.window.aligned import Times
from headrace.ops.window.assigners import Assigner, Session
from headrace.schema import TIMESTAMP
from headrace.state.table import KeyedTable, TableSpec


@dataclass(frozen=True)
class WindowJoin(Spec):
    how: str
    window: Assigner
    lateness: int
    columns: Columns
    rows: tuple[str, ...] = ()  # the columns of each input, as text

    kind = "join"
    needs_time = True
    has_late = True

    def __str__(self) -> str:
        late = f", lateness {pretty(self.lateness)}" if self.lateness else ""
        return f"{self.how} in {self.window}{late}"

    def shape(self) -> dict[str, Any]:
        return {"window": self.window.at_rest(), "rows": list(self.rows)}

    @property
    def lengths(self) -> dict[str, int]:
        return {"lateness": self.lateness}

    @property
    def runs_user_code(self) -> bool:
        return isinstance(self.window, Session) and self.window.differs

    def operator(self, place: Place) -> WindowJoinOperator:
        return WindowJoinOperator(self, place.keys, place.inputs, place.output)


class WindowJoinOperator(Operator):
    def __init__(
        self,
        spec: WindowJoin,
        keys: Sequence[Sequence[str]],
        inputs: Sequence[pa.Schema],
        output: pa.Schema,
    ) -> None:
        self._spec, self._layout = spec, Layout(spec.columns, output)
        self._sides = [Side(k, s) for k, s in zip(keys, inputs, strict=True)]
        self._windows = windows_of(spec.window, spec.lateness, keys, inputs, apart=True)
        self._alone = spec.how in ("left", "full", "anti"), spec.how in ("right", "full")

    def tables(self) -> tuple[TableSpec, ...]:
        return self._windows.tables()

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows of windows that are not over."""
        return self._windows.view(tables, since, until)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        return self._windows.late(port, rows, watermark)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        rows = rows if self._alone[port] else self._sides[port].without_nulls(rows)
        return self._windows.prepare(port, rows)

    def step(self, step: Step) -> None:
        placed = self._windows.over(step)
        if placed is not None:
            self._join(placed[0], placed[1], step)

    def _join(self, left: Placed, right: Placed, step: Step) -> None:
        groups = [self._meets(side, placed) for side, placed in enumerate((left, right))]
        nowhen = np.zeros(len(left.group), np.int64)
        found = meeting(groups[0], nowhen, nowhen, groups[1], np.zeros(len(right.group), np.int64))
        met, how = found.many > 0, self._spec.how
        if how == "semi":
            self._give(left, np.flatnonzero(met), 0, step)
        elif how != "anti":
            row, other = found.pairs()
            reached = np.zeros(len(right.group), np.bool_)
            reached[other] = True
            self._give_pairs(left, right, row, other, step)
            if self._alone[1]:
                self._give(right, np.flatnonzero(~reached), 1, step)
        if self._alone[0]:
            self._give(left, np.flatnonzero(~met), 0, step)

    def _meets(self, side: int, placed: Placed) -> Index:
        """The group of each row; a row with a null in its key is in one of its own."""
        nulls = null_keys(placed.rows, self._sides[side].key.names)
        return placed.group if nulls is None else np.where(nulls, -1 - side, placed.group)

    def _give_pairs(
        self, left: Placed, right: Placed, row: Index, other: Index, step: Step
    ) -> None:
        if len(row):
            parts = left.rows.take(pa.array(row)), right.rows.take(pa.array(other))
            self._out(parts, left.start[row], left.end[row], step)

    def _give(self, of: Placed, at: Index, port: int, step: Step) -> None:
        if len(at):
            rows = of.rows.take(pa.array(at))
            self._out((None, rows) if port else (rows, None), of.start[at], of.end[at], step)

    def _out(self, parts: Sequence[pa.Table | None], start: Times, end: Times, step: Step) -> None:
        bounds = [moments(start), moments(end)]
        step.out.append(self._layout.rows(parts, end - 1 + self._windows.wait, bounds))


def moments(times: Times) -> pa.Array:
    """Milliseconds as the times that users see."""
    return pa.array(times * 1_000).cast(TIMESTAMP)
