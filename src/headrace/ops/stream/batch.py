"""Rows of a key packed into lists: so many, or those of a while, whichever comes first.

A list begins with the earliest row that waits, and ends with its n-th row or before the first
that is `within` or more later. A full one leaves at once; another when the watermark (or the
clock) has passed its end. The state is the rows that wait, and when their lists are due.
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
from headrace.ops.keys import KeyColumns
from headrace.ops.stream.key_groups import group_heads, key_ids, list_starts
from headrace.ops.tables import RowLayout, column_types, derived_rows
from headrace.state.table import KeyedTable, TableSpec

WAITING, DUE = "waiting", "due"
_TURN, _WHEN = "turn", "when"


@dataclass(frozen=True)
class Batch(Spec):
    rows: int
    within: int | None
    by_clock: bool
    into: str
    timed: bool  # its rows have an event time
    types: tuple[tuple[str, str], ...]

    kind = "batch"
    widens_keys = True

    @property
    def endless(self) -> bool:
        return self.within is None

    @property
    def needs_time(self) -> bool:
        return self.within is not None and not self.by_clock

    def __str__(self) -> str:
        time = "" if self.within is None else f" or those of {pretty(self.within)}"
        clock = " by the clock" if self.within is not None and self.by_clock else ""
        return f"{self.rows} rows{time}{clock}"

    @property
    def bound(self) -> str:
        return 'unbounded=True; otherwise pass within="1m": what waits is emitted by then.'

    def shape(self) -> dict[str, Any]:
        timed = self.within is not None
        shape = {"timed": timed, "by_clock": timed and self.by_clock}
        return {**shape, "columns": [list(pair) for pair in self.types]}

    @staticmethod
    def of(
        rows: int, within: int | None, by_clock: bool, into: str, timed: bool, input: pa.Schema
    ) -> Batch:
        return Batch(rows, within, by_clock, into, timed, column_types(input))

    def operator(self, place: Place) -> Operator:
        return _BatchOperator(self, KeyColumns(place.key, place.input), place.input, place.output)


def packed_schema(keys: Sequence[str], into: str, input: pa.Schema) -> pa.Schema:
    """The key, and a list of records of the other columns."""
    inner = pa.struct([f for f in input if f.name not in keys])
    return pa.schema([*(input.field(k) for k in keys), pa.field(into, pa.list_(inner))])


class _BatchOperator(Operator):
    def __init__(self, spec: Batch, keys: KeyColumns, input: pa.Schema, output: pa.Schema) -> None:
        self._spec, self._keys, self._input, self._output = spec, keys, input, output
        self._stored = RowLayout(keys, input)

    def tables(self) -> tuple[TableSpec, ...]:
        place = pa.schema([*self._keys.schema, (_TURN, pa.int64())])
        value = pa.schema([*self._stored.value, (_WHEN, pa.int64())])
        due = TableSpec(DUE, self._keys.schema, pa.schema([]), timed=True)
        waiting = TableSpec(WAITING, place, value)
        return (waiting,) if self._spec.within is None else (waiting, due)

    def step(self, step: EpochStep) -> None:
        rows = self._concerned(step)
        if rows.num_rows:
            self._pack(rows, step)
        if self._spec.within is not None:
            first = step.tables[DUE].first_time()
            due = MAX_TIME if first is None else first
            step.wake, step.next = (due, MAX_TIME) if self._spec.by_clock else (MAX_TIME, due)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows that wait."""
        return self._stored.whole(tables[WAITING].scan())

    def _now(self, step: EpochStep) -> int:
        ended = step.after >= MAX_TIME
        return step.clock if self._spec.by_clock and not ended else step.after

    def _concerned(self, step: EpochStep) -> pa.Table:
        """The new rows, and all that wait under their keys or under keys whose lists are due."""
        arrived, waiting = step.arrived, step.tables[WAITING]
        fresh = None if arrived is None else self._fresh(arrived, step)
        hashes = [self._due(step), *([] if fresh is None else [fresh.column(HASH).to_numpy()])]
        ended = step.after >= MAX_TIME
        stored = waiting.scan() if ended else waiting.match(np.concatenate(hashes))
        return stored if fresh is None else pa.concat_tables([stored, fresh.cast(stored.schema)])

    def _fresh(self, arrived: pa.Table, step: EpochStep) -> pa.Table:
        """New rows as they wait; those of this batch have the highest turns."""
        count = arrived.num_rows
        if self._spec.by_clock or TIME not in arrived.column_names:
            when = np.full(count, step.clock)
        else:
            when = integers(arrived.column(TIME))
        fresh = self._stored.of(arrived)
        fresh = fresh.append_column(_TURN, pa.array((step.epoch << 32) + np.arange(count)))
        fresh = fresh.append_column(_WHEN, pa.array(when))
        return fresh.select(
            [HASH, *self._keys.schema.names, _TURN, *self._stored.value.names, _WHEN]
        )

    def _due(self, step: EpochStep) -> np.ndarray:
        """The hashes of keys that have a list which is due."""
        if self._spec.within is None:
            return np.zeros(0, np.uint64)
        table, limit = step.tables[DUE], min(self._now(step) + 1, MAX_TIME)
        due = table.scan(MIN_TIME, limit)
        table.expire(limit)
        hashes: np.ndarray = flat(due.column(HASH)).to_numpy()
        return hashes

    def _pack(self, rows: pa.Table, step: EpochStep) -> None:
        ids = key_ids(rows.select(self._keys.identity))
        ties = [integers(rows.column(n)) for n in (_WHEN, "t", "s", "o", _TURN)]
        order = sorted_by([ids, *ties])
        rows, ids = rows.take(pa.array(order)), ids[order]
        when = integers(rows.column(_WHEN))
        starts = list_starts(ids, when, group_heads(ids), self._spec.rows, self._spec.within)
        first = np.flatnonzero(starts)
        sizes = np.diff(first, append=len(ids))
        ends = when[first] + (self._spec.within or 0)
        over = np.full(len(first), step.after >= MAX_TIME)
        if self._spec.within is not None:
            over |= ends <= self._now(step)
        leaves = over | (sizes == self._spec.rows)
        leaving = np.repeat(leaves, sizes)
        self._remember(rows, leaving, first[~leaves], ends[~leaves], step)
        if leaves.any():
            packed = rows.filter(pa.array(leaving))
            step.out.append(self._lists(packed, sizes[leaves], ends[leaves], step))

    def _remember(
        self, rows: pa.Table, leaving: Mask, first: Index, ends: Index, step: EpochStep
    ) -> None:
        """Store new rows that wait and when lists are due; delete old rows that left."""
        old = integers(rows.column(_TURN)) >> 32 != step.epoch
        waiting = step.tables[WAITING]
        place = [*self._keys.identity, _TURN]
        waiting.delete(rows.select(place).filter(pa.array(leaving & old)))
        waiting.put(rows.filter(pa.array(~leaving & ~old)))
        if self._spec.within is not None:
            keys = rows.select(self._keys.identity).take(pa.array(first))
            step.tables[DUE].put(keys.append_column(TIME, pa.array(ends)))

    def _lists(self, rows: pa.Table, sizes: Index, ends: Index, step: EpochStep) -> pa.Table:
        stops = np.cumsum(sizes)
        starts = stops - sizes
        head = rows.take(pa.array(starts))
        inner = self._output.field(self._spec.into).type.value_type
        records = self._stored.rows(rows, [f.name for f in inner])
        columns = [flat(c).cast(f.type) for c, f in zip(records.columns, inner, strict=True)]
        struct = pa.StructArray.from_arrays(columns, fields=list(inner))
        lists = pa.ListArray.from_arrays(pa.array([0, *stops], pa.int32()), struct)
        keys = self._stored.rows(head, self._keys.columns)
        output = pa.table([*keys.columns, lists], [*self._keys.columns, self._spec.into])
        output = output.select(self._output.names).cast(self._output)
        times = np.maximum(np.maximum.reduceat(integers(rows.column("t")), starts), step.before)
        if self._spec.within is not None and not self._spec.by_clock:
            timed_out = sizes < self._spec.rows
            times = np.where(timed_out, np.maximum(ends - 1, times), times)
        hashes = flat(head.column(HASH)).to_numpy()
        return derived_rows(output, hashes.view(np.int64), times if self._spec.timed else None)
