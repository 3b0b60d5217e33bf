"""Fewer changes of a key: of those in a period, or of so many, only the last is emitted.

By event time, periods begin at multiples of their length, and the last change of each is emitted
when the watermark has passed it: the same ones, however rows are cut into batches. By the clock a
key's period begins with its first change. A change that is the n-th of its key, in its period if
there are periods, is emitted at once. What waits when the input ends is emitted then. The state is
a row for each key that waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, flat, integers
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME, pretty
from headrace.ops.agg.order import sorted_by
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.join.sides import JoinSide, null_keys
from headrace.ops.keys import ORDER, KeyColumns
from headrace.ops.stream.key_groups import group_heads, key_ids, place_in_group
from headrace.ops.tables import RowLayout, column_types, derived_rows
from headrace.state.table import KeyedTable, TableSpec

LAST, WAITING, DUE = "last", "waiting", "due"
_COUNT, _WHEN = "count", "when"


@dataclass(frozen=True)
class Suppress(Spec):
    period: int | None
    rows: int | None  # of a key, after which one is emitted before its period is over
    by_clock: bool
    timed: bool  # rows have an event time
    table: bool  # rows are versions of a table's rows: each has a key
    types: tuple[tuple[str, str], ...]

    kind = "suppress"
    widens_keys = True

    @property
    def thins_table(self) -> bool:
        return self.table

    @property
    def table_ports(self) -> tuple[int, ...]:  # type: ignore[override]
        return (0,) if self.table else ()

    @property
    def by_watermark(self) -> bool:
        return self.period is not None and not self.by_clock

    @property
    def endless(self) -> bool:
        return self.period is None

    @property
    def needs_time(self) -> bool:
        return self.by_watermark

    @property
    def has_late(self) -> bool:
        return self.by_watermark

    def __str__(self) -> str:
        clock = " by the clock" if self.period is not None and self.by_clock else ""
        time = "" if self.period is None else f"each {pretty(self.period)}{clock}"
        rows = "" if self.rows is None else f"{self.rows} changes"
        return f"the last of {' or '.join(part for part in (time, rows) if part)}"

    @property
    def bound(self) -> str:
        return 'unbounded=True; otherwise pass a time: suppress("1m", rows=...).'

    def shape(self) -> dict[str, Any]:
        """Periods of event time divide what is stored; how long one by the clock is, does not."""
        shape: dict[str, Any] = {"timed": self.period is not None, "by_clock": self.by_clock}
        if self.by_watermark:
            shape["period"] = self.period
        return {**shape, "columns": [list(pair) for pair in self.types]}

    @staticmethod
    def of(
        period: int | None,
        rows: int | None,
        by_clock: bool,
        timed: bool,
        table: bool,
        input: pa.Schema,
    ) -> Suppress:
        clock = by_clock and period is not None
        return Suppress(period, rows, clock, timed, table, column_types(input))

    def operator(self, place: Place) -> Operator:
        return (_ByWatermark if self.by_watermark else _ByArrival)(self, place)


class _SuppressOperator(Operator):
    """What both kinds of periods have in common."""

    sliceable = False

    def __init__(self, spec: Suppress, place: Place) -> None:
        self._spec, self._output = spec, place.output
        self._keys = KeyColumns(place.key, place.input)
        self._stored = RowLayout(self._keys, place.input)
        self._side = JoinSide(place.key, place.input) if spec.table else None

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """Where changes are not counted, only the last of each key and period travels."""
        return rows if self._spec.rows is not None else self._cut(self._keys.hashed(rows))

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        return prepared if self._spec.rows is not None else self._cut(prepared)

    def _cut(self, rows: pa.Table) -> pa.Table:
        nulls = null_keys(rows, self._keys.columns) if self._side is not None else None
        if nulls is not None:  # each of them becomes a dead letter
            keyed = self._cut(rows.filter(pa.array(~nulls)))
            return pa.concat_tables([keyed, rows.filter(pa.array(nulls))])
        columns = [*self._groups(rows), key_ids(self._keys.of(rows))]
        order = sorted_by([*columns, *_places(rows, ORDER)])
        return rows.take(pa.array(order[_ends([c[order] for c in columns])]))

    def _groups(self, rows: pa.Table) -> list[Index]:
        """What separates rows besides their key."""
        return []

    def _arrived(self, step: EpochStep) -> pa.Table | None:
        rows = step.inputs[0]
        if self._side is not None:
            rows = self._side.keyed(rows, step)
        return rows if rows is not None and rows.num_rows else None

    def _counted(self, place: Index, count: Index) -> tuple[Mask, Index]:
        """Which changes are emitted at once, and how many wait after each.

        A change is the `place`-th new one of its key, before which `count` have been waiting.
        """
        every = self._spec.rows
        if every is None:
            return np.zeros(len(place), np.bool_), np.minimum(place + count + 1, 1)
        waiting = (place + np.minimum(count, every - 1) + 1) % every
        return waiting == 0, waiting

    def _emit(self, rows: pa.Table, times: Index, step: EpochStep) -> None:
        """Emit stored rows with these event times; offsets put those of a key in order."""
        if not rows.num_rows:
            return
        output = self._stored.rows(rows, self._output.names)
        before = sum(part.num_rows for part in step.out)
        hashes = flat(rows.column(HASH)).to_numpy().view(np.int64)
        offsets = (hashes >> 32 << 32) + before + np.arange(rows.num_rows)
        step.out.append(derived_rows(output, offsets, times if self._spec.timed else None))

    def _emit_now(self, rows: pa.Table, step: EpochStep) -> None:
        """Emit stored rows with their own times, but never behind the watermark."""
        self._emit(rows, np.maximum(integers(rows.column("t")), step.before), step)


class _ByWatermark(_SuppressOperator):
    """Periods of event time. Of a period the row of the last change stays until it is over, also
    when it has been emitted: an earlier one that comes later is no change any more."""

    def tables(self) -> tuple[TableSpec, ...]:
        value = pa.schema([*self._stored.value, (_COUNT, pa.int64())])
        return (TableSpec(LAST, self._keys.schema, value, timed=True),)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        return None if watermark == MIN_TIME else self._marks(rows) <= watermark

    def step(self, step: EpochStep) -> None:
        arrived, table = self._arrived(step), step.tables[LAST]
        if arrived is not None:
            self._absorb(arrived, step)
        if step.after > step.before:
            limit = min(step.after + 1, MAX_TIME)
            due = table.scan(MIN_TIME, limit)
            table.expire(limit)
            due = due.filter(pa.array(integers(due.column(_COUNT)) > 0))
            self._emit(due, integers(due.column(TIME)) - 1, step)
        first = table.first_time()
        step.next = MAX_TIME if first is None else first

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows that wait."""
        stored = tables[LAST].scan(since, until)
        waits = integers(stored.column(_COUNT)) > 0
        return self._stored.whole(stored.filter(pa.array(waits)))

    def _marks(self, rows: pa.Table) -> Index:
        """The watermark at which a row's period is over."""
        times, period = integers(rows.column(TIME)), self._spec.period or 1
        return times - times % period + period

    def _groups(self, rows: pa.Table) -> list[Index]:
        return [self._marks(rows)]

    def _absorb(self, arrived: pa.Table, step: EpochStep) -> None:
        table = step.tables[LAST]
        rows = self._stored.of(arrived).append_column(TIME, pa.array(self._marks(arrived)))
        identity = rows.select([TIME, *self._keys.identity])
        stored, present = table.get(identity)
        newest = np.where(present, _filled(stored, "t"), np.iinfo(np.int64).min)
        count = np.where(present, _filled(stored, _COUNT), 0)
        changes = integers(rows.column("t")) >= newest
        rows, count = rows.filter(pa.array(changes)), count[changes]
        marks, ids = integers(rows.column(TIME)), key_ids(rows.select(self._keys.identity))
        order = sorted_by([marks, ids, *_places(rows, ("t", "s", "o"))])
        marks, ids, rows = marks[order], ids[order], rows.take(pa.array(order))
        ends = _ends([marks, ids])
        group: Index = np.cumsum(ends) - ends
        at_once, waiting = self._counted(place_in_group(group), count[order])
        self._emit_now(rows.filter(pa.array(at_once)), step)
        last = rows.filter(pa.array(ends))
        table.put(last.append_column(_COUNT, pa.array(waiting[ends].astype(np.int64))))


class _ByArrival(_SuppressOperator):
    """Periods by the clock, or none: batch after batch, the rows of one by event time."""

    def tables(self) -> tuple[TableSpec, ...]:
        value = pa.schema([*self._stored.value, (_COUNT, pa.int64()), (_WHEN, pa.int64())])
        waiting = TableSpec(WAITING, self._keys.schema, value)
        due = TableSpec(DUE, self._keys.schema, pa.schema([]), timed=True)
        return (waiting,) if self._spec.period is None else (waiting, due)

    def step(self, step: EpochStep) -> None:
        arrived = self._arrived(step)
        if arrived is not None:
            self._absorb(arrived, step)
        table, ended = step.tables[WAITING], step.after >= MAX_TIME
        if ended:
            due = table.scan()
        elif self._spec.period is not None:
            due = self._due(step)
        else:
            return
        self._emit_now(due, step)
        table.delete(due.select(self._keys.identity))
        if self._spec.period is not None:
            first = step.tables[DUE].first_time()
            step.wake = MAX_TIME if first is None or ended else first

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows that wait."""
        return self._stored.whole(tables[WAITING].scan())

    def _due(self, step: EpochStep) -> pa.Table:
        """The rows that wait and whose time has come; a key may have waited anew meanwhile."""
        table, limit = step.tables[DUE], min(step.clock + 1, MAX_TIME)
        keys = table.scan(MIN_TIME, limit).select(self._keys.identity)
        table.expire(limit)
        keys = keys.take(pa.array(np.flatnonzero(_first_of(key_ids(keys)))))
        values, present = step.tables[WAITING].get(keys)
        for name in values.column_names:
            keys = keys.append_column(name, values.column(name))
        keys = keys.filter(pa.array(present))
        return keys.filter(pa.array(integers(keys.column(_WHEN)) < limit))

    def _absorb(self, arrived: pa.Table, step: EpochStep) -> None:
        table, rows = step.tables[WAITING], self._stored.of(arrived)
        ids = key_ids(rows.select(self._keys.identity))
        order = sorted_by([ids, *_places(rows, ("t", "s", "o"))])
        ids, rows = ids[order], rows.take(pa.array(order))
        heads, ends = group_heads(ids), _ends([ids])
        keys = rows.select(self._keys.identity).filter(pa.array(heads))
        stored, present = table.get(keys)
        sizes = np.diff(np.flatnonzero(heads), append=len(ids))
        count = np.repeat(np.where(present, _filled(stored, _COUNT), 0), sizes)
        at_once, waiting = self._counted(place_in_group(ids), count)
        self._emit_now(rows.filter(pa.array(at_once)), step)
        left = waiting[ends]
        restarts = ~present | np.logical_or.reduceat(at_once, np.flatnonzero(heads))
        due = np.where(restarts, step.clock + (self._spec.period or 0), _filled(stored, _WHEN))
        last = rows.filter(pa.array(ends)).append_column(_COUNT, pa.array(left.astype(np.int64)))
        last = last.append_column(_WHEN, pa.array(due))
        table.delete(keys.filter(pa.array(left == 0)))
        table.put(last.filter(pa.array(left > 0)))
        if self._spec.period is not None:
            begins = pa.array((left > 0) & restarts)
            begun = keys.filter(begins).append_column(TIME, pa.array(due).filter(begins))
            step.tables[DUE].put(begun)


def _places(rows: pa.Table, names: Sequence[str]) -> list[Index]:
    return [integers(rows.column(n)) for n in names if n in rows.column_names]


def _filled(values: pa.Table, name: str) -> Index:
    """A column of values that may be absent."""
    filled: Index = flat(values.column(name)).fill_null(0).to_numpy()
    return filled


def _ends(columns: Sequence[Index]) -> Mask:
    """Whether each row is the last of its group; those of one lie side by side."""
    last = np.zeros(len(columns[0]), np.bool_)
    last[-1:] = True
    for column in columns:
        last[:-1] |= column[1:] != column[:-1]
    return last


def _first_of(ids: Index) -> Mask:
    """Whether each row is the first with its id, in no order."""
    first = np.zeros(len(ids), np.bool_)
    first[np.unique(ids, return_index=True)[1]] = True
    return first
