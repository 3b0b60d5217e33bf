"""Rows of several inputs in windows that end: what window joins and `cogroup` have in common.

Rows lie by their time, and the windows that have rows by their end; a window is taken out when
the watermark has passed its end, with all its rows. A row is kept while a window that holds it
is to come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.groups import Index
from headrace.ops.contract import Step
from headrace.ops.join.columns import numbers
from headrace.ops.join.pairs import shared_numbers
from headrace.ops.join.side import AT, PLACE, Side
from headrace.ops.join.view import SIDES, Held, held_view
from headrace.ops.window.aligned import Times, floor_of
from headrace.ops.window.assigners import Assigner
from headrace.state.table import KeyedTable, TableSpec

WINDOWS = "windows"
_START = "$start"


class Placed(NamedTuple):
    """Rows of one input, once for each window that is over: its group is key and window."""

    rows: pa.Table
    group: Index
    start: Times
    end: Times

    def only(self, at: Index) -> Placed:
        return Placed(self.rows.take(pa.array(at)), self.group[at], self.start[at], self.end[at])


class Windows:
    def __init__(self, sides: Sequence[Side], assigner: Assigner, lateness: int) -> None:
        self._sides, self._assigner, self._lateness = sides, assigner, lateness
        self.wait = lateness  # from a window's end until it is over
        self._rows = [
            TableSpec(name, side.key, pa.schema([*side.value, *PLACE]), timed=True, once=True)
            for name, side in zip(SIDES, sides, strict=True)
        ]
        start = pa.schema([(_START, pa.int64())])
        self._windows = TableSpec(WINDOWS, start, pa.schema([]), timed=True)

    def tables(self) -> tuple[TableSpec, ...]:
        return (*self._rows, self._windows)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows of windows that are to come."""
        parts = [
            Held(name, side, tables[name].scan().select(side.held.names))
            for name, side in zip(SIDES, self._sides, strict=True)
        ]
        return held_view(parts, since, until)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        if watermark == MIN_TIME:
            return None
        reach = self._assigner.reach(numbers(rows[TIME]), rows)
        late: np.ndarray = reach < floor_of(watermark, self._lateness)
        return late

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        return rows

    def over(self, step: Step) -> list[Placed] | None:
        """Keep the rows that arrived; the rows of all windows that are over now."""
        self._add(step)
        placed = self._ended(step)
        self._forget(step)
        step.next = self._next(step)
        return placed

    def _add(self, step: Step) -> None:
        """Keep the rows that arrived, and which windows they open."""
        for side, spec, rows in zip(self._sides, self._rows, step.inputs, strict=True):
            held = side.arrived(rows, step.epoch)
            if held.num_rows:
                at = numbers(held[AT])
                step.tables[spec.name].put(held.append_column(TIME, pa.array(at)))
                self._open(at, held, step)

    def _open(self, at: Times, held: pa.Table, step: Step) -> None:
        """Every slot of the task knows every window: they are few, and slots may move."""
        placed = self._assigner.place(np.unique(at), held)
        there = placed.end >= floor_of(step.before, self._lateness)
        bounds = np.unique(np.stack([placed.end[there], placed.start[there]], 1), axis=0)
        homes = np.array(step.homes, np.uint64)
        count, every = len(bounds), np.repeat(np.arange(len(bounds)), len(homes))
        ends, starts = bounds[every, 0], bounds[every, 1]
        columns = [pa.array(ends), pa.array(np.tile(homes, count)), pa.array(starts)]
        step.tables[WINDOWS].put(pa.table(columns, [TIME, HASH, _START]))

    def _ended(self, step: Step) -> list[Placed] | None:
        """The rows of all windows that are over now, in order of group and time."""
        first, last = (floor_of(w, self._lateness) for w in (step.before, step.after))
        ended = step.tables[WINDOWS].scan(MIN_TIME, last)
        step.tables[WINDOWS].expire(last)
        if not ended.num_rows:
            return None
        since = int(numbers(ended[_START]).min())
        until = int(numbers(ended[TIME]).max())
        parts = []
        for side, spec in zip(self._sides, self._rows, strict=True):
            rows = step.tables[spec.name].scan(since, until).select(side.held.names)
            placed = self._assigner.place(numbers(rows[AT]), rows)
            there = (placed.end >= first) & (placed.end < last)
            at = placed.row[there]
            parts.append((rows.take(pa.array(at)), placed.start[there], placed.end[there]))
        return _grouped(parts, self._sides[0].identity)

    def _forget(self, step: Step) -> None:
        """Drop the rows that are in no window that is still to come."""
        passed = floor_of(step.after, self._lateness)
        if MIN_TIME < passed < MAX_TIME:  # the first window that still counts holds this time
            now = np.array([passed - 1])
            passed = int(self._assigner.place(now, self._sides[0].held.empty_table()).start.min())
        for spec in self._rows:
            step.tables[spec.name].expire(min(passed, MAX_TIME))

    def _next(self, step: Step) -> int:
        first = step.tables[WINDOWS].first_time()
        return MAX_TIME if first is None else first + self._lateness


def _grouped(parts: list[tuple[pa.Table, Times, Times]], identity: list[str]) -> list[Placed]:
    """Rows with the number of their key and window, which all inputs share."""
    keys = shared_numbers([rows for rows, _, _ in parts], identity)
    bounds = np.concatenate([np.stack([end, start], 1) for _, start, end in parts])
    _, window = np.unique(bounds, axis=0, return_inverse=True)
    window = window.reshape(-1)
    most, found, at = int(window.max(initial=0)) + 1, [], 0
    for (rows, start, end), key in zip(parts, keys, strict=True):
        group = key * most + window[at : at + len(key)]
        at += len(key)
        found.append(Placed(rows, group, start, end))
    return [one.only(np.lexsort((numbers(one.rows[AT]), one.group))) for one in found]
