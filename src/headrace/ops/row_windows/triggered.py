"""Windows that rows end, with a trigger, an evictor, a mode, or a function that stores values.

The parts are those of windows of time: the state of a window, its firings, its stored rows and
values. What differs is which window a row is in and when one is over: `numbering.py` knows
both. A key has one open window; to the watermark it is one without an end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, Times
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.hashing import hash_keys
from headrace.ops.agg.named import Aggregate, count, max, min
from headrace.ops.agg.order import sorted_by
from headrace.ops.contract import EpochStep, Operator
from headrace.ops.general_windows.firing import MARKS, NUMBER, TIMERS, WINDOWS, timer_clocks
from headrace.ops.general_windows.operator import WindowGroups, first_of_each, row_rounds
from headrace.ops.general_windows.stored_rows import FROM
from headrace.ops.general_windows.window_state import EARLIEST, END, LATEST, START, WindowState
from headrace.ops.keys import key_numbers
from headrace.ops.row_windows.numbering import NumberedRows, RowNumbering
from headrace.ops.row_windows.row_firing import FULL, INPUT_ENDED, OPEN, RowWindowFiring
from headrace.ops.row_windows.rows_by_number import RowsByNumber
from headrace.ops.tables import side_by_side
from headrace.ops.window.assigners import FOREVER, Everything
from headrace.ops.window.by_rows import RowWindow, check, needs_time, untimed
from headrace.ops.window.evictors import Evictor
from headrace.ops.window.function import WindowFunction
from headrace.ops.window.triggers import Windowing, watched
from headrace.state.table import KeyedTable, TableSpec


class TriggeredRowOperator(Operator):
    def __init__(
        self,
        window: RowWindow,
        windowing: Windowing,
        aggs: Mapping[str, Aggregate],
        work: tuple[WindowFunction, Evictor | None] | None,
        keys: Sequence[str],
        input: pa.Schema,
        output: pa.Schema,
        timed: bool,
    ) -> None:
        check(window, input)
        self._window, self._windowing = window, windowing
        self._keys, self._input = list(keys), input
        key = pa.schema([input.field(k) for k in keys])
        since, ever, times = watched(windowing.trigger)
        moments = {EARLIEST: min(TIME), LATEST: max(TIME)} if timed else {}
        self._state = WindowState(
            main=dict(aggs),
            since={"$new": count(), **since},
            ever={"$rows": count(), **moments, **ever},
            times=times,
            mode=windowing.mode,
        )
        self._numbering = RowNumbering(window, key, input)
        self._groups = WindowGroups(Everything(), self._keys, self._state.all)
        stores_rows = work is not None and not aggs  # else it is called with aggregates
        self._rows = RowsByNumber(self._keys, input, window) if stores_rows else None
        self._firing = RowWindowFiring(
            windowing,
            self._state,
            self._rows,
            work,
            self._keys,
            output,
            timed=timed,
            looks_back=not window.tumbles,
        )

    # state

    def tables(self) -> tuple[TableSpec, ...]:
        key = pa.schema([self._input.field(k) for k in self._keys])
        identity = pa.schema([*key, pa.field(START, pa.int64())])
        value = pa.schema([*self._state.fields(self._input), *self._firing.was_fields()])
        specs = [TableSpec(WINDOWS, identity, value), self._numbering.table]
        trigger = self._windowing.trigger
        timers = {TIMERS: trigger.clocked, MARKS: trigger.marked}
        nothing = pa.schema([])
        specs += [TableSpec(n, identity, nothing, timed=True) for n, used in timers.items() if used]
        specs += [self._rows.spec()] if self._rows is not None else []
        values = self._firing.memory.spec(key)
        return (*specs, *([values] if values is not None else []))

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The open windows, and what each would emit now; where rows are stored, how many came."""
        windows = tables[WINDOWS].scan()
        shown = self._state.main or {"$rows": self._state.ever["$rows"]}
        values = self._state.results(windows, shown)
        named = values.rename_columns([n.removeprefix("$") for n in values.column_names])
        keys = windows.select(self._keys).append_column(NUMBER, windows.column(START))
        return side_by_side(keys, named)

    # where the rows are

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        if not needs_time(self._window) or watermark <= MIN_TIME:
            return None
        self._refuse_untimed(rows)
        return np.asarray(rows.column(TIME).to_numpy() < watermark)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        self._refuse_untimed(rows)
        if any(agg.own is not None for agg in self._state.main.values()):
            hashes = hash_keys([rows.column(k) for k in self._keys], rows.num_rows)
            one = rows if HASH in rows.column_names else rows.append_column(HASH, pa.array(hashes))
            self._grouped(one, np.zeros(rows.num_rows, np.int64))  # a row fails here, alone
        return rows

    def _refuse_untimed(self, rows: pa.Table) -> None:
        if needs_time(self._window) and TIME not in rows.column_names:
            raise untimed(self._window)

    def _grouped(self, rows: pa.Table, number: Times) -> pa.Table:
        """The windows of these rows, with their partials."""
        return self._groups.of_placed(rows, number, np.full(rows.num_rows, FOREVER))

    # one epoch

    def step(self, step: EpochStep) -> None:
        per_row = self._windowing.per_row
        for part in row_rounds(step, self._keys) if per_row else [step]:
            ends = step.after >= MAX_TIME and not (per_row and part.arrived is not None)
            self._advance(part, ends)
        self._look_ahead(step)

    def _advance(self, step: EpochStep, ends: bool) -> None:
        """Rows come; then, if the input `ends`, all windows are over."""
        arrived = step.arrived
        numbered = None if arrived is None else self._numbering.of(arrived, step)
        windows, touched, stored = self._candidates(numbered, ends, step)
        if windows is not None:
            full = self._numbering.over(windows, step)
            over = np.where(full, FULL, INPUT_ENDED if ends else OPEN)
            windows = self._firing.described(windows, over)
            self._firing.judge(windows, touched, step)
            self._forget(windows, over != OPEN, stored, step)
        if ends:
            self._numbering.finish(step)

    def _candidates(
        self, numbered: NumberedRows | None, ends: bool, step: EpochStep
    ) -> tuple[pa.Table | None, Mask, Mask]:
        """Every window to be judged, whether it got rows, and whether it was stored before."""
        parts, touched, stored = [], list[Mask](), list[Mask]()
        if numbered is not None:
            fresh, present = self._arrived(numbered, step)
            parts, touched, stored = [fresh], [np.ones(fresh.num_rows, np.bool_)], [present]
        due = [] if numbered is None else [self._found(numbered.ended, step)]
        if not (self._windowing.per_row and numbered is not None):
            due += [self._woken(step, name, now) for name, now in timer_clocks(step)]
        if ends:
            due.append(_without_end(step.tables[WINDOWS].scan()))
        for windows in (d for d in due if d.num_rows):
            parts.append(windows.select(parts[0].column_names) if parts else windows)
            touched.append(np.zeros(windows.num_rows, np.bool_))
            stored.append(np.ones(windows.num_rows, np.bool_))
        if not parts:
            nothing = np.zeros(0, np.bool_)
            return None, nothing, nothing
        every = pa.concat_tables(parts, promote_options="permissive")
        first = _in_order(every, first_of_each(every, self._keys), self._keys)
        got, known = np.concatenate(touched)[first], np.concatenate(stored)[first]
        return every.take(pa.array(first)).combine_chunks(), got, known

    def _arrived(self, numbered: NumberedRows, step: EpochStep) -> tuple[pa.Table, Mask]:
        """The windows that got rows, with what is stored of them, and where something is."""
        rows = numbered.rows
        if self._rows is not None:
            self._rows.add(rows.append_column(FROM, pa.array(numbered.window)), step)
        fresh = self._grouped(rows, numbered.window)
        fresh = fresh.rename_columns([TIME if n == END else n for n in fresh.column_names])
        fresh = self._firing.opened(self._state.opened(fresh, step.clock))
        identity = fresh.select([TIME, HASH, *self._keys, START])
        values, present = step.tables[WINDOWS].get(identity)
        if not present.any():
            return fresh, present
        at = np.flatnonzero(present)
        stored = side_by_side(identity, values).take(pa.array(at))
        group = np.concatenate([at, np.arange(fresh.num_rows)])
        return self._state.fold(stored, fresh, group, identity), present

    def _found(self, identity: pa.Table, step: EpochStep) -> pa.Table:
        """Those of the windows that are stored."""
        values, present = step.tables[WINDOWS].get(identity)
        return _without_end(side_by_side(identity, values).filter(pa.array(present)))

    def _woken(self, step: EpochStep, name: str, now: int) -> pa.Table:
        """The windows with a timer that is due; whether it still matters is judged later."""
        timers = step.tables[name]
        due = timers.scan(MIN_TIME, now + 1)
        timers.expire(now + 1)
        return self._found(due.select([HASH, *self._keys, START]), step)

    def _forget(self, windows: pa.Table, over: Mask, stored: Mask, step: EpochStep) -> None:
        if (over & stored).any():
            step.tables[WINDOWS].delete(windows.filter(pa.array(over & stored)))
        if self._rows is not None and over.any():
            self._rows.forget(windows.filter(pa.array(over)), step)

    def _look_ahead(self, step: EpochStep) -> None:
        """When something is due even if nothing comes."""
        if step.after >= MAX_TIME:
            return
        firsts = {n: step.tables[n].first_time() for n, _ in timer_clocks(step)}
        waits: dict[str, int] = {n: MAX_TIME if t is None else t for n, t in firsts.items()}
        step.next, step.wake = waits.get(MARKS, MAX_TIME), waits.get(TIMERS, MAX_TIME)


def _in_order(windows: pa.Table, which: Index, keys: Sequence[str]) -> Index:
    """These windows, those of a key one after the other."""
    some = windows.take(pa.array(which))
    number, _ = key_numbers(some.select([HASH, *keys]))
    return which[sorted_by([number, some.column(START).to_numpy()])]


def _without_end(windows: pa.Table) -> pa.Table:
    """Stored windows, with the end that they have to the watermark."""
    ends: Index = np.full(windows.num_rows, FOREVER)
    return windows.append_column(TIME, pa.array(ends))
