"""Values that slide: a window is the one before, less the panes that left, plus those that came.

For folds with an `inverse`. The value of the window that fired last is stored by key, with the
number of panes in it: a call for each pane that leaves and one for each that enters, and those
in between are not looked at. A row that comes for a pane which is part of the value makes it
stale: it is then merged from its panes again. A window without panes ends a value, so that the
next begins without what subtracting may have left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Times
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.order import run_starts
from headrace.ops.fold import NOTHING, Folder
from headrace.ops.keys import key_numbers
from headrace.ops.window.aligned import Window
from headrace.state.table import KeyedTable, TableSpec

RUNNING = "running"
_WINDOW, _COUNT = "$window", "$panes"  # the value's window, and how many panes it is made of
_STALE = -1  # instead of a count: to be merged again

Merge = Callable[[Any, Any], Any]


class FiredWindows(NamedTuple):
    """Windows that fire: where the key of each is among the rows, its number, its value."""

    rows: pa.Table
    owners: Index
    numbers: Times
    values: pa.Table


class SlidingValues:
    def __init__(
        self, window: Window, fold: Folder, functions: tuple[Merge, Merge], keys: Sequence[str]
    ) -> None:
        self._window, self._fold, self._identity = window, fold, [HASH, *keys]
        self._functions = functions  # merge and inverse

    def table(self, key: pa.Schema) -> TableSpec:
        facts = [pa.field(name, pa.int64()) for name in (_WINDOW, _COUNT)]
        return TableSpec(RUNNING, key, pa.schema([*self._fold.value, *facts]))

    def oldest_needed(self, pane: int) -> int:
        """Panes of the window that fired last have still to be taken out of its value."""
        return pane if abs(pane) >= MAX_TIME else pane - self._window.slide

    def spoil(self, table: KeyedTable, came: pa.Table, before: int) -> None:
        """Mark the values of keys that got rows for panes of a window that has fired."""
        if before == MIN_TIME:
            return
        end = self._start(self._last_over(before)) + self._window.size
        behind = came.filter(pa.array(came.column(TIME).to_numpy() < end))
        if behind.num_rows:
            keys = behind.select(self._identity)
            keys = keys.take(pa.array(key_numbers(keys)[1]))
            nulls = [pa.nulls(keys.num_rows, f.type) for f in self._fold.value]
            values = pa.table(nulls, schema=self._fold.value)
            self._put(table, keys, values, 0, np.full(keys.num_rows, _STALE))

    def fire(self, panes: KeyedTable, table: KeyedTable, before: int, after: int) -> FiredWindows:
        """All windows that end in (before, after]."""
        stored = table.scan()
        valid = stored.column(_COUNT).to_numpy() != _STALE
        running, stale = (stored.filter(pa.array(mask)) for mask in (valid, ~valid))
        emitted = over = self._last_over(before) if before > MIN_TIME else MIN_TIME
        if running.num_rows:  # all of them are of one window; those since then had no panes
            over = int(running.column(_WINDOW).to_numpy()[0])
        last = self._last_over(after)
        if last <= emitted:
            return self._fired(running, [], [], [])
        read = self._read(panes, running, stale, over, last, before)
        identity = pa.concat_tables([t.select(self._identity) for t in (running, read)])
        slides = self._slides(running, read, key_numbers(identity)[0], over, emitted)
        owners, numbers, values = list[int](), list[int](), list[Any]()
        lasting = list[Slide]()
        for slide in slides:
            begin = over if slide.count else emitted
            for number, value in slide.windows(begin + 1, last):
                owners.append(slide.place)
                numbers.append(number)
                values.append(value)
            if slide.count:  # its last result is that of the last window
                lasting.append(slide)
                slide.result = len(values) - 1
        fired = self._fired(identity, owners, numbers, values)
        table.delete(stored.select(self._identity))
        self._keep(table, fired, lasting, last)
        return fired

    def _fired(
        self, rows: pa.Table, owners: list[int], numbers: list[int], values: list[Any]
    ) -> FiredWindows:
        places, ends = (np.array(n, np.int64) for n in (owners, numbers))
        return FiredWindows(rows, places, ends, self._fold.columns(values))

    def _keep(
        self, table: KeyedTable, fired: FiredWindows, lasting: list[Slide], last: int
    ) -> None:
        keys = fired.rows.take(pa.array([s.place for s in lasting], pa.int64()))
        values = fired.values.take(pa.array([s.result for s in lasting], pa.int64()))
        self._put(table, keys, values, last, np.array([s.count for s in lasting], np.int64))

    def _put(
        self, table: KeyedTable, keys: pa.Table, values: pa.Table, number: int, counts: Index
    ) -> None:
        for kind in self._fold.value:
            keys = keys.append_column(kind, values.column(kind.name))
        facts = {_WINDOW: np.full(len(counts), number), _COUNT: counts}
        for name, fact in facts.items():
            keys = keys.append_column(name, pa.array(fact, pa.int64()))
        table.put(keys)

    def _read(
        self,
        panes: KeyedTable,
        running: pa.Table,
        stale: pa.Table,
        over: int,
        last: int,
        before: int,
    ) -> pa.Table:
        """The panes that leave or enter a value; for stale ones, those in between as well."""
        end = min(self._start(last) + self._window.size, MAX_TIME)
        if not running.num_rows:
            return panes.scan(self._window.oldest_needed_pane(before), end)
        low, entering = self._start(over), self._start(over) + self._window.size
        leaving = min(self._start(last), entering)
        parts = [panes.scan(low, leaving), panes.scan(entering, end)]
        if stale.num_rows:
            between = panes.scan(leaving, entering)
            known = np.isin(between.column(HASH).to_numpy(), stale.column(HASH).to_numpy())
            parts.append(between.filter(pa.array(known)))
        return pa.concat_tables(parts)

    def _slides(
        self, running: pa.Table, read: pa.Table, number: Index, over: int, emitted: int
    ) -> Iterator[Slide]:
        """The value of each key, and its panes in order of time."""
        counts = running.column(_COUNT).to_numpy().tolist()
        begun = dict(zip(number[: len(counts)].tolist(), range(len(counts)), strict=True))
        values = self._fold.loaded(running)
        owner, times = number[len(counts) :], read.column(TIME).to_numpy()
        order = np.lexsort((times, owner))
        first, last = self._window.end_range(MIN_TIME, MAX_TIME, times[order])
        loaded = self._fold.loaded(read)
        panes = [
            Pane(*pane)
            for pane in zip(
                first.tolist(), last.tolist(), [loaded[i] for i in order.tolist()], strict=True
            )
        ]
        heads = run_starts(owner[order])
        stops = np.append(heads, len(order))[1:]
        for head, stop in zip(heads.tolist(), stops.tolist(), strict=True):
            at = begun.pop(int(owner[order[head]]), None)
            held = panes[head:stop]
            if at is None:
                place = len(counts) + int(order[head])
                live = [pane for pane in held if pane.last > emitted]
                yield Slide(self._fold.own, self._functions, live, place)
            else:
                yield self._begun(values, counts, at, held, over)
        for at in begun.values():  # no pane of theirs leaves or enters
            yield self._begun(values, counts, at, [], over)

    def _begun(
        self, values: list[Any], counts: list[int], at: int, panes: list[Pane], over: int
    ) -> Slide:
        entered = sum(pane.first <= over for pane in panes)
        slide = Slide(self._fold.own, self._functions, panes, at, entered)
        slide.value, slide.count = values[at], counts[at]
        return slide

    def _last_over(self, time: int) -> int:
        """The last window that ends at or before this time."""
        return (time - self._window.offset - self._window.size) // self._window.slide

    def _start(self, number: int) -> int:
        return number * self._window.slide + self._window.offset


class Pane(NamedTuple):
    first: int  # window that holds it
    last: int
    value: Any


@dataclass(slots=True)
class Slide:
    """The value of one key, from window to window."""

    own: Callable[[Any], Any]
    functions: tuple[Merge, Merge]
    panes: list[Pane]  # in order of time
    place: int  # of the key
    entered: int = 0  # how many of the panes are in the value
    value: Any = field(default=NOTHING)
    count: int = 0
    result: int = -1

    def windows(self, number: int, last: int) -> Iterator[tuple[int, Any]]:
        """The number and the value of each window from `number` on that holds a pane."""
        left = 0
        while number <= last:
            while left < self.entered and self.panes[left].last < number:
                self._take_out(self.panes[left].value)
                left += 1
            while self.entered < len(self.panes) and self.panes[self.entered].first <= number:
                self._put_in(self.panes[self.entered].value)
                self.entered += 1
            if self.count:
                yield number, self.own(self.value)
                number += 1
            elif self.entered < len(self.panes):
                number = self.panes[self.entered].first
            else:
                return

    def _put_in(self, pane: Any) -> None:
        merge, value = self.functions[0], self.own(pane)
        self.value = merge(self.value, value) if self.count else value
        self.count += 1

    def _take_out(self, pane: Any) -> None:
        self.count -= 1
        self.value = self.functions[1](self.value, self.own(pane)) if self.count else NOTHING
