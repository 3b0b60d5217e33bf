"""Interval joins: rows of two streams with the same key whose times are near each other.

A pair is emitted when its second row arrives, with the later of the two times. A row without a
partner is emitted when the watermark has passed the last time at which a partner could come.
Rows are stored until then and no longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, Times, numbers
from headrace.chunk import TIME
from headrace.clock import MAX_TIME, pretty
from headrace.ops.contract import EpochStep, Operator, Place
from headrace.ops.join.pairs import matches, shared_key_ids
from headrace.ops.join.row_stores import OuterRows, RowStore, SemiRows
from headrace.ops.join.sides import (
    AT,
    SIDES,
    Columns,
    EventTimeJoin,
    JoinOutput,
    SideRows,
    arrived_rows,
    join_sides,
    late_floor,
    late_rows,
    lateness_text,
    stored_view,
    watermark_after,
)
from headrace.ops.tables import with_column
from headrace.state.table import KeyedTable, TableSpec

WAITING = ("left waiting", "right waiting")  # the rows of outer sides that have no partner so far
HOWS = ("inner", "left", "right", "full", "semi", "anti")
LEAST = 1_000  # ms in a bucket of stored rows, however short the interval is


@dataclass(frozen=True)
class IntervalJoin(EventTimeJoin):
    """`lower` <= right time - left time <= `upper`, in milliseconds."""

    how: str
    lower: int
    upper: int
    lateness: int
    columns: Columns
    rows: tuple[str, ...] = ()  # the columns of each input, as text

    kind = "join"

    def __str__(self) -> str:
        within = f"{pretty(self.lower)} to {pretty(self.upper)}"
        return f"{self.how} within {within}{lateness_text(self.lateness)}"

    def shape(self) -> dict[str, Any]:
        return {"how": self.how, "within": [self.lower, self.upper], "rows": list(self.rows)}

    @property
    def bucket(self) -> int:
        """How much time one search of stored rows covers."""
        return max((self.upper - self.lower) // 2, LEAST)

    def goes_on(self, before: Mapping[str, Any]) -> dict[str, str]:
        """Narrower bounds: all rows that they need are still there. Which partner of a row was
        the first is decided by the bounds that there were."""
        lower, upper = before["within"]
        if self.how == "semi" or self.lower < lower or upper < self.upper:
            return {}
        was = f"{pretty(lower)} to {pretty(upper)}"
        return {"within": f"from {was} to {pretty(self.lower)} to {pretty(self.upper)}"}

    def recut(self, table: str, rows: pa.Table, watermark: int) -> pa.Table:
        """Rows in shorter buckets; those that wait for a partner are due sooner, not before now."""
        at = numbers(rows[AT])
        if table not in WAITING:
            return with_column(rows, TIME, pa.array(at // self.bucket * self.bucket))
        reach = (self.upper, -self.lower)[WAITING.index(table)]
        floor = late_floor(watermark, self.lateness)
        sooner = np.maximum(at + max(reach, 0), np.minimum(numbers(rows[TIME]), floor))
        return with_column(rows, TIME, pa.array(sooner))

    def operator(self, place: Place) -> IntervalOperator:
        return IntervalOperator(self, place)


class IntervalOperator(Operator):
    def __init__(self, spec: IntervalJoin, place: Place) -> None:
        self._spec, self._output = spec, JoinOutput(spec.columns, place.output)
        self._bucket = spec.bucket
        self._sides = join_sides(place)
        left, right = self._sides
        self._stores = RowStore("left", left, self._bucket), RowStore("right", right, self._bucket)
        # How long after its time a row may still meet one of the other side.
        self._reach = spec.upper, -spec.lower
        self._outer: list[OuterRows | None] = [None, None]
        if spec.how in ("left", "full", "anti"):
            self._outer[0] = OuterRows(WAITING[0], left, self._reach[0])
        if spec.how in ("right", "full"):
            self._outer[1] = OuterRows(WAITING[1], right, self._reach[1])
        self._firsts = SemiRows("left met", left, self._reach[0]) if spec.how == "semi" else None

    # its state

    def tables(self) -> tuple[TableSpec, ...]:
        specs = [store.spec for store in self._stores]
        specs += [outer.spec for outer in self._outer if outer is not None]
        if self._firsts is not None:
            specs += [self._firsts.spec, self._firsts.firsts]
        return tuple(specs)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The stored rows, also those without a key that wait to be emitted."""
        parts = []
        for name, side, store, outer in zip(
            SIDES, self._sides, self._stores, self._outer, strict=True
        ):
            rows = [store.rows(tables), *([] if outer is None else [outer.keyless(tables)])]
            parts.append(SideRows(name, side, pa.concat_tables(rows)))
        return stored_view(parts, since, until)

    # where the rows are

    def late(self, port: int, rows: pa.Table, watermark: int) -> Mask | None:
        return late_rows(rows, watermark, self._spec.lateness)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        return rows if self._outer[port] is not None else self._sides[port].without_nulls(rows)

    # one epoch

    def step(self, step: EpochStep) -> None:
        arrived = arrived_rows(self._sides, step, self._bucket)
        floor = late_floor(step.after, self._spec.lateness)
        if any(rows.num_rows for rows in arrived):
            self._match(arrived, floor, step)
        self._emit_outer(floor, step)
        for port, store in enumerate(self._stores):
            reach = self._reach[port] if self._outer[port] is None else max(self._reach[port], 0)
            store.expire(floor, reach, step)
        self._look_ahead(step)

    def _match(self, arrived: list[pa.Table], floor: int, step: EpochStep) -> None:
        for port, outer in enumerate(self._outer):
            arrived[port], keyless = self._sides[port].split_nulls(arrived[port])
            if outer is not None:
                outer.add(keyless, floor, step)
        (left, right), (lower, upper) = arrived, (self._spec.lower, self._spec.upper)
        old_left = self._stores[0].near(right, -upper, -lower, step)
        old_right = self._stores[1].near(left, lower, upper, step)
        for store, rows in zip(self._stores, arrived, strict=True):
            store.add(rows, step)
        parts = [left, old_left, right, old_right]
        ids, old_ids, right_ids, old_right_ids = shared_key_ids(parts, self._sides[0].identity)
        every = pa.concat_tables([right, old_right])
        every_ids = np.concatenate([right_ids, old_right_ids])
        met, reached = self._join(left, every, ids, every_ids, floor, step)
        old_met, again = self._join(old_left, right, old_ids, right_ids, floor, step)
        new, old = reached[: right.num_rows] | again, reached[right.num_rows :]
        self._update_outer(0, left, met, old_left, old_met, floor, step)
        self._update_outer(1, right, new, old_right, old, floor, step)

    def _join(
        self,
        left: pa.Table,
        right: pa.Table,
        left_ids: Index,
        right_ids: Index,
        floor: int,
        step: EpochStep,
    ) -> tuple[Mask, Mask]:
        """Emit the pairs of these rows; which rows of each side have a partner."""
        at, right_at = numbers(left[AT]), numbers(right[AT])
        ranges = matches(
            left_ids, at + self._spec.lower, at + self._spec.upper, right_ids, right_at
        )
        met, reached = ranges.counts > 0, np.zeros(right.num_rows, np.bool_)
        if self._firsts is not None and met.any():
            first = np.maximum(at[met], right_at[ranges.nearest()[met]])
            self._firsts.meet(left.filter(pa.array(met)), first, floor, step)
        elif self._spec.how != "anti" and met.any():
            row, other = ranges.pairs()
            reached[other] = True
            times = np.maximum(at[row], right_at[other]) + self._spec.lateness
            step.out.append(self._output.pairs((left, right), (row, other), times))
        return met, reached

    def _update_outer(
        self,
        port: int,
        new: pa.Table,
        new_met: Mask,
        old: pa.Table,
        old_met: Mask,
        floor: int,
        step: EpochStep,
    ) -> None:
        """Store which rows of an outer side have no partner so far, and which have one now."""
        outer = self._outer[port]
        if outer is not None:
            outer.add(new.filter(pa.array(~new_met)), floor, step)
            outer.meet(old.filter(pa.array(old_met)), step)

    def _emit_outer(self, floor: int, step: EpochStep) -> None:
        for port, waiting in enumerate((self._firsts or self._outer[0], self._outer[1])):
            if waiting is not None:
                rows, due = waiting.take(floor, step)
                self._emit((None, rows) if port else (rows, None), due, step)

    def _emit(self, parts: Sequence[pa.Table | None], at: Times, step: EpochStep) -> None:
        if len(at):
            step.out.append(self._output.rows(parts, at + self._spec.lateness))

    def _look_ahead(self, step: EpochStep) -> None:
        waiting = [w for w in (self._firsts, *self._outer) if w is not None]
        first = min((w.next(step) for w in waiting), default=MAX_TIME)
        step.next = watermark_after(first, self._spec.lateness)
