"""Reduce and fold over sliding windows, from panes that windows share.

A row is folded once, into its pane; `merge` makes windows of panes, in order of time. All
windows of a key that fire in an epoch take about three calls per pane, whatever their overlap;
nothing is subtracted, unless there is an `inverse`: see `sliding_values.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, timestamps
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import EpochStep, Operator
from headrace.ops.fold import NOTHING, Folder
from headrace.ops.keys import in_order, key_groups, key_numbers
from headrace.ops.panes.firing import windows_of_keys
from headrace.ops.panes.operator import PANES, derived, oldest_kept
from headrace.ops.panes.sliding_values import RUNNING, FiredWindows, Merge, SlidingValues
from headrace.ops.tables import with_bounds
from headrace.ops.window.aligned import Window
from headrace.rows import collector_paused
from headrace.state.table import KeyedTable, TableSpec

_PANE = "__w"


class PaneFoldOperator(Operator):
    def __init__(
        self,
        window: Window,
        fold: Folder,
        functions: tuple[Merge, Merge | None],
        keys: Sequence[str],
        input: pa.Schema,
        output: pa.Schema,
        keep: int = 0,
    ) -> None:
        self._window, self._fold, self._keys = window, fold, list(keys)
        self._input, self._schema, self._keep = input, output, keep
        self._merge, inverse = functions
        self._slides = None
        if inverse is not None:
            self._slides = SlidingValues(window, fold, (self._merge, inverse), keys)

    def tables(self) -> tuple[TableSpec, ...]:
        key = pa.schema([self._input.field(k) for k in self._keys])
        panes = TableSpec(PANES, key, self._fold.value, timed=True)
        return (panes,) if self._slides is None else (panes, self._slides.table(key))

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        if watermark == MIN_TIME:
            return None
        return self._window.is_late(rows.column(TIME).to_numpy(), watermark)

    def step(self, step: EpochStep) -> None:
        table, arrived = step.tables[PANES], step.arrived
        if arrived is not None:
            keys = self._absorb(table, arrived, step)
            if self._slides is not None:
                self._slides.spoil(step.tables[RUNNING], keys, step.before)
        if step.after > step.before:
            self._fire(table, step)
        oldest = self._window.oldest_needed_pane(step.after)
        kept = oldest_kept(self._window, self._keep, oldest, step)
        table.expire(kept if self._slides is None else self._slides.oldest_needed(kept))
        first = table.first_time(oldest)
        live = np.array([] if first is None else [first], dtype=np.int64)
        due = self._window.next_end(step.after, live)
        step.next = MAX_TIME if due is None else due

    def _absorb(self, table: KeyedTable, arrived: pa.Table, step: EpochStep) -> pa.Table:
        """Fold each row into its pane; the panes and keys that rows came for."""
        rows = in_order(arrived)
        panes = self._window.panes_of(rows.column(TIME).to_numpy())
        groups = key_groups(rows.append_column(_PANE, pa.array(panes)), [_PANE, HASH, *self._keys])
        keys = groups.keys.rename_columns([TIME, HASH, *self._keys])
        self._fold.apply(table, keys, groups, self._input.names, step)
        return keys

    @collector_paused()
    def _fire(self, table: KeyedTable, step: EpochStep) -> None:
        if self._slides is not None:
            fired = self._slides.fire(table, step.tables[RUNNING], step.before, step.after)
        else:
            low, high = self._window.panes_between(step.before, step.after)
            fired = self._merged(table.scan(low, high), step.before, step.after)
        if len(fired.numbers):
            step.out.append(derived(self._results(fired), self._schema))

    def _merged(self, panes: pa.Table, before: int, after: int) -> FiredWindows:
        number, _ = key_numbers(panes.select([HASH, *self._keys]))
        order = np.argsort(number, kind="stable")
        panes, number = panes.take(pa.array(order)), number[order]
        first, last = self._window.end_range(before, after, panes.column(TIME).to_numpy())
        heads = np.flatnonzero(np.diff(number, prepend=-1))
        low, high, numbers = windows_of_keys(first, last, heads)
        values = merged_stretches(self._fold, self._merge, self._fold.loaded(panes), low, high)
        return FiredWindows(panes, low, numbers, self._fold.columns(values))

    def _results(self, fired: FiredWindows) -> pa.Table:
        """The windows that fired, by their end and then by key."""
        order = np.argsort(fired.numbers, kind="stable")
        owner, place = pa.array(fired.owners[order]), pa.array(order)
        columns = {n: fired.rows.column(n).take(owner) for n in (HASH, *self._keys)}
        columns |= {n: fired.values.column(n).take(place) for n in fired.values.column_names}
        ends = self._window.end_of(fired.numbers[order])
        bounds = {"window_start": ends - self._window.size, "window_end": ends}
        return pa.table(columns | {n: timestamps(times) for n, times in bounds.items()})

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """What each pane and key was folded into; of a stretch of time, each key over it."""
        panes, size = tables[PANES].scan(since, until), self._window.pane_size
        starts = panes.column(TIME).to_numpy()
        if (since, until) == (MIN_TIME, MAX_TIME):
            values = panes.select(self._fold.value.names)
            return with_bounds(panes.select(self._keys), starts, starts + size, values)
        panes = panes.filter(pa.array(starts + size <= until))
        number, first_row = key_numbers(panes.select([HASH, *self._keys]))
        order = np.argsort(number, kind="stable")
        whole, starts = panes.take(pa.array(order)), panes.column(TIME).to_numpy()
        heads = np.searchsorted(number[order], np.arange(len(first_row)))
        ends = np.append(heads, len(order))[1:].astype(np.int64)
        merged = merged_stretches(self._fold, self._merge, self._fold.loaded(whole), heads, ends)
        begin, end = (starts.min(), starts.max() + size) if len(starts) else (0, 0)
        begins, stops = (np.full(len(heads), at, np.int64) for at in (begin, end))
        keys = panes.select(self._keys).take(pa.array(first_row))
        return with_bounds(keys, begins, stops, self._fold.columns(merged))


def merged_stretches(
    fold: Folder, merge: Merge, values: Sequence[Any], low: Index, high: Index
) -> list[Any]:
    """The values of each stretch [low, high) merged in order; neither bound falls within a key.

    A stretch is the end of one run of values, merged from behind, and the beginning of the
    next: when the first is used up, what there is of the second takes its place. So about three
    calls per value, whatever the overlap.
    """
    own, out = fold.own, []

    def merged(a: Any, b: Any) -> Any:
        """It is `merge`'s own object no longer: it may return the same for other stretches."""
        return own(merge(a, b))

    tails: list[Any] = []  # what the values from each place to `top` make
    origin = top = stop = 0
    ahead: Any = NOTHING
    for begin, end in zip(low.tolist(), high.tolist(), strict=True):
        if begin >= top:  # so it is for another key
            tails, origin, top = _tails(own, merged, values[begin:end]), begin, end
            ahead = NOTHING
        else:
            for value in values[stop:end]:
                ahead = own(value) if ahead is NOTHING else merged(ahead, own(value))
        stop, tail = end, tails[begin - origin]
        out.append(own(tail) if ahead is NOTHING else merged(own(tail), own(ahead)))
    return out


def _tails(own: Callable[[Any], Any], merge: Merge, values: Sequence[Any]) -> list[Any]:
    tails = [own(values[-1])]
    for value in values[-2::-1]:
        tails.append(merge(own(value), own(tails[-1])))
    return tails[::-1]
