"""Windows of time with any assigner, trigger, lateness and function.

State is a table of windows, timed by their *end*: what the watermark passes is a range of it,
and what has expired is dropped whole. A row of it holds the window's partials and the facts
that its trigger needs. Within an epoch arrivals are folded in first, then every window that
got rows or whose time has come is judged once. A batch pays for those windows only.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.arrays import Times
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.hashing import hash_keys
from headrace.ops.agg.named import Aggregate, count, max, merge, min, partial
from headrace.ops.agg.order import places_in_group, run_starts, sorted_by
from headrace.ops.contract import EpochStep, Operator
from headrace.ops.general_windows.firing import MARKS, TIMERS, WINDOWS, WindowFiring, timer_clocks
from headrace.ops.general_windows.open_windows import OPEN, OpenWindows
from headrace.ops.general_windows.stored_rows import StoredRows
from headrace.ops.general_windows.window_state import (
    EARLIEST,
    END,
    LATEST,
    START,
    WindowState,
)
from headrace.ops.keys import in_order, key_groups, key_numbers
from headrace.ops.tables import side_by_side, with_bounds
from headrace.ops.window.aligned import floor_of
from headrace.ops.window.assigners import GAP, Assigner, Everything, Session, no_gap, why_no_gap
from headrace.ops.window.evictors import Evictor
from headrace.ops.window.function import WindowFunction
from headrace.ops.window.triggers import Windowing, watched
from headrace.state.table import KeyedTable, TableSpec

_ROUNDS = 1 << 32  # an epoch in which each row is judged by itself has fewer rows of a key


class GeneralWindowOperator(Operator):
    def __init__(
        self,
        windowing: Windowing,
        aggs: Mapping[str, Aggregate],
        work: tuple[WindowFunction, Evictor | None] | None,
        keys: Sequence[str],
        input: pa.Schema,
        output: pa.Schema,
    ) -> None:
        self._windowing, self._keys, self._input = windowing, list(keys), input
        self._assigner = windowing.assigner
        self._differs = isinstance(self._assigner, Session) and self._assigner.differs
        since, ever, times = watched(windowing.trigger)
        timing = _result_times(windowing)
        self._state = WindowState(
            main=dict(aggs),
            since={"$new": count(), **since},
            ever={"$rows": count(), **timing, **ever},
            times=times,
            mode=windowing.mode,
        )
        self._groups = WindowGroups(self._assigner, self._keys, self._state.all)
        self._stored_rows = None
        if work and not aggs:  # else it is called with aggregates
            self._stored_rows = StoredRows(self._keys, input, self._assigner, windowing.floor)
        self._open = OpenWindows(self._keys, windowing)
        self._firing = WindowFiring(
            windowing, self._state, self._stored_rows, work, self._keys, output
        )

    # state

    def tables(self) -> tuple[TableSpec, ...]:
        keys = [self._input.field(k) for k in self._keys]
        identity = pa.schema([*keys, pa.field(START, pa.int64())])
        timer = pa.schema([*identity, pa.field(END, pa.int64())])
        value = pa.schema([*self._state.fields(self._input), *self._firing.was_fields()])
        specs = [TableSpec(WINDOWS, identity, value, timed=True)]
        if self._assigner.merges:
            specs.append(self._open.spec(pa.schema(keys)))
        if self._windowing.trigger.clocked:
            specs.append(TableSpec(TIMERS, timer, pa.schema([]), timed=True))
        specs.append(TableSpec(MARKS, timer, pa.schema([]), timed=True))
        if self._stored_rows is not None:
            specs.append(self._stored_rows.spec())
        values = self._firing.memory.spec(pa.schema(keys))
        specs += [values] if values is not None else []
        return tuple(specs)

    def begun(self, windows: pa.Table, clock: int) -> pa.Table:
        """Windows of which only the partials are known, as they are stored."""
        return self._firing.opened(self._state.begun(windows, self._input, clock))

    def watching(self, windows: pa.Table) -> pa.Table:
        """Windows that another trigger has watched, as they are stored."""
        return self._state.watching(windows, self._input)

    # where the rows are

    def unfit(self, port: int, rows: pa.Table) -> tuple[np.ndarray, list[str]] | None:
        """Which rows have no gap that makes a session, and why; None if all have."""
        wrong = no_gap(rows) if self._differs else None
        if wrong is None:
            return None
        gaps = rows.column(GAP).filter(pa.array(wrong)).to_pylist()
        return wrong, [why_no_gap(gap) for gap in gaps]

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        begun = watermark > MIN_TIME or not self._assigner.by_time
        if not rows.num_rows or not (begun or self._differs):  # a gap may be wrong at any time
            return None
        reach = self._assigner.reach(rows.column(TIME).to_numpy(), rows)
        floor = self._windowing.floor(watermark)
        late: np.ndarray = (reach == MIN_TIME) | (reach < floor)
        return late

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        if not self._takes_rows:
            return self._groups.of_rows(rows)
        if any(agg.own is not None for agg in self._state.main.values()):
            self._groups.of_rows(rows)  # a row on which it fails fails here, alone
        return rows

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        return prepared if self._takes_rows else self._groups.merged(prepared)

    @property
    def _takes_rows(self) -> bool:
        """Whether rows travel to it as they are."""
        return self._stored_rows is not None or self._windowing.per_row

    # one epoch

    def step(self, step: EpochStep) -> None:
        for part in row_rounds(step, self._keys) if self._windowing.per_row else [step]:
            fresh = self._arrived(part)
            if fresh is not None:
                fresh = self._with_stored(fresh, part)
            windows, touched = self._candidates(fresh, part)
            if windows is not None:
                self._firing.judge(windows, touched, part)
                self._forget(windows, touched, part)
        step.tables[WINDOWS].expire(self._windowing.floor(step.after))
        self._look_ahead(step)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The stored windows, and what each would emit now."""
        windows = tables[WINDOWS].scan()
        start, end = (windows.column(n).to_numpy() for n in (START, TIME))
        end = end - self._assigner.slack  # as results show it
        inside = (start >= since) & (end <= until)
        windows, start, end = windows.filter(pa.array(inside)), start[inside], end[inside]
        shown = self._state.main or {"$rows": self._state.ever["$rows"]}
        values = self._state.results(windows, shown)
        named = values.rename_columns([n.removeprefix("$") for n in values.column_names])
        return with_bounds(windows.select(self._keys), start, end, named)

    def _arrived(self, step: EpochStep) -> pa.Table | None:
        arrived = step.arrived
        if arrived is None:
            return None
        if self._stored_rows is not None:
            self._stored_rows.add(arrived, step)
        if self._takes_rows:
            arrived = self._groups.of_rows(arrived)
        is_open = arrived.column(END).to_numpy() >= self._windowing.floor(step.before)
        if not is_open.all():  # a row may be too late for one of its windows, not for another
            arrived = arrived.filter(pa.array(is_open))
        arrived = self._groups.merged(arrived)
        arrived = arrived.rename_columns([TIME if n == END else n for n in arrived.column_names])
        return self._firing.opened(self._state.opened(arrived, step.clock))

    def _with_stored(self, fresh: pa.Table, step: EpochStep) -> pa.Table:
        """What arrived, merged with the stored windows that are the same or that it meets."""
        table = step.tables[WINDOWS]
        identity = [TIME, HASH, *self._keys, START]
        if not self._assigner.merges:
            values, present = table.get(fresh.select(identity))
            if not present.any():
                return fresh
            at = np.flatnonzero(present)
            stored = side_by_side(fresh.select(identity), values).take(pa.array(at))
            group = np.concatenate([at, np.arange(fresh.num_rows)])
            return self._state.fold(stored, fresh, group, fresh.select(identity))
        stored, group, merged = self._open.meet(fresh, step.tables[OPEN], table, step.before)
        if not stored.num_rows:
            return fresh
        folded = self._state.fold(stored, fresh, group, merged)
        self._firing.absorbed(stored, merged, group, step)
        if self._stored_rows is not None:
            self._stored_rows.renew(stored, folded, group, step)
        table.delete(stored.select(identity))
        return folded

    def _candidates(
        self, fresh: pa.Table | None, step: EpochStep
    ) -> tuple[pa.Table | None, np.ndarray]:
        """Every window to be judged, and whether it got rows."""
        parts = [] if fresh is None else [fresh]
        due = self._due(step)
        parts += [d.select(fresh.column_names) if fresh is not None else d for d in due]
        parts = [p for p in parts if p.num_rows]
        if not parts:
            return None, np.zeros(0, np.bool_)
        windows = pa.concat_tables(parts, promote_options="permissive")
        touched = np.arange(windows.num_rows) < (0 if fresh is None else fresh.num_rows)
        if len(parts) == 1:
            return windows.combine_chunks(), touched
        first = first_of_each(windows, self._keys)
        if len(first) < windows.num_rows:
            windows, touched = windows.take(pa.array(first)), touched[first]
        return windows.combine_chunks(), touched

    def _due(self, step: EpochStep) -> list[pa.Table]:
        """The windows whose time has come; of an epoch row by row, when all rows are there."""
        if self._windowing.per_row and step.arrived is not None:
            return []
        table = step.tables[WINDOWS]
        due = [table.scan(lo, hi) for lo, hi in self._passed(step)]
        return due + [self._woken(step, name, now) for name, now in timer_clocks(step)]

    def _passed(self, step: EpochStep) -> list[tuple[int, int]]:
        """The ends of windows that are over now, and of those that are about to be forgotten.

        What was forgotten before is not there any more; but what is there may be older than the
        lateness says, if the program has been given a shorter one.
        """
        over, forgotten = step.before + 1, self._windowing.floor(step.after)
        ends = floor_of(step.after, 0)
        return [(MIN_TIME, ends)] if forgotten >= over else [(MIN_TIME, forgotten), (over, ends)]

    def _woken(self, step: EpochStep, name: str, now: int) -> pa.Table:
        """The windows with a timer that is due; whether it still matters is judged later."""
        timers = step.tables[name]
        due = timers.scan(MIN_TIME, now + 1)
        timers.expire(now + 1)
        identity = due.select([END, HASH, *self._keys, START])
        identity = identity.rename_columns([TIME, HASH, *self._keys, START])
        identity = identity.take(pa.array(first_of_each(identity, self._keys)))
        values, present = step.tables[WINDOWS].get(identity)
        return side_by_side(identity, values).filter(pa.array(present))

    def _forget(self, windows: pa.Table, touched: np.ndarray, step: EpochStep) -> None:
        expired = windows.column(TIME).to_numpy() < self._windowing.floor(step.after)
        if self._assigner.merges:
            self._open.update(windows, touched, expired, step.tables[OPEN], step.after)
        if self._stored_rows is not None and expired.any():
            self._stored_rows.forget(windows.filter(pa.array(expired)), step)

    def _look_ahead(self, step: EpochStep) -> None:
        """When something is due even if nothing comes."""
        if step.after >= MAX_TIME:  # the input has ended, and so has every window
            return
        table, lateness = step.tables[WINDOWS], self._windowing.lateness
        times = [table.first_time(step.after + 1), step.tables[MARKS].first_time()]
        if lateness and (oldest := table.first_time()) is not None:
            times.append(oldest + lateness)
        step.next = builtins.min((t for t in times if t is not None), default=MAX_TIME)
        if TIMERS in step.tables:
            first = step.tables[TIMERS].first_time()
            step.wake = MAX_TIME if first is None else first


def row_rounds(step: EpochStep, keys: Sequence[str]) -> Iterator[EpochStep]:
    """The epoch a row of each key at a time, in order; then the watermark moves.

    Each is an epoch to what tells rows that a firing has included from those it has not.
    """
    last, number = 0, step.epoch * _ROUNDS
    if step.arrived is not None:
        rows = in_order(step.arrived)
        codes = key_groups(rows, [HASH, *keys]).codes
        turn = places_in_group(codes)
        order = np.argsort(turn, kind="stable")
        for part in np.split(order, run_starts(turn[order])[1:]):
            chunk = rows.take(pa.array(part))
            yield replace(step, inputs=[chunk], after=step.before, epoch=number + last)
            last += 1
    yield replace(step, inputs=[None], epoch=number + last)


def _result_times(windowing: Windowing) -> dict[str, Aggregate]:
    """What the event time of results is made of, where it is not the window's end."""
    if windowing.result_time == "earliest":
        return {EARLIEST: min(TIME)}
    latest = windowing.result_time == "latest" or isinstance(windowing.assigner, Everything)
    return {LATEST: max(TIME)} if latest else {}


def first_of_each(windows: pa.Table, keys: Sequence[str]) -> Times:
    """The first row of each window, in the order of the rows."""
    if windows.num_rows < 2:
        return np.arange(windows.num_rows)
    number, _ = key_numbers(windows.select([HASH, *keys]))
    columns = [number, *(windows.column(n).to_numpy() for n in (TIME, START))]
    order = sorted_by(columns)
    fresh = np.zeros(len(order), np.bool_)
    fresh[0] = True
    for column in columns:
        fresh[1:] |= column[order][1:] != column[order][:-1]
    return np.sort(order[fresh])


# From rows to windows: one row per window and key, with its bounds and its partials.
#
# Done twice for most rows: where they are read, to one partial per window, and where these
# meet those of other tasks. Windows that merge are joined here as far as these rows show.


_GROUP = "__group"
Fold = Callable[[pa.Table, Sequence[str], Mapping[str, Aggregate]], pa.Table]


class WindowGroups:
    def __init__(
        self, assigner: Assigner, keys: Sequence[str], aggs: Mapping[str, Aggregate]
    ) -> None:
        self._assigner, self._identity, self._aggs = assigner, [HASH, *keys], aggs

    def of_rows(self, rows: pa.Table) -> pa.Table:
        """The windows that hold these rows."""
        if HASH not in rows.column_names:
            keys = [rows.column(k) for k in self._identity[1:]]
            rows = _with(rows, HASH, hash_keys(keys, rows.num_rows))
        placed = self._assigner.place(rows.column(TIME).to_numpy(), rows)
        if not np.array_equal(placed.row, np.arange(rows.num_rows)):
            rows = rows.take(pa.array(placed.row))
        return self.of_placed(rows, placed.start, placed.end)

    def of_placed(self, rows: pa.Table, start: Times, end: Times) -> pa.Table:
        """The windows of rows, each of which is in the window with these bounds."""
        rows = _with(_with(rows, START, start), END, end)
        return self._joined(rows, partial) if self._assigner.merges else self._same(rows, partial)

    def merged(self, windows: pa.Table) -> pa.Table:
        """Windows that are the same, or that meet, as one."""
        return self._joined(windows, merge) if self._assigner.merges else self._same(windows, merge)

    def _same(self, rows: pa.Table, fold: Fold) -> pa.Table:
        number, first = key_numbers(rows.select(self._identity))
        length = rows.column(END).to_numpy() - rows.column(START).to_numpy()
        alike = bool(len(length)) and bool((length == length[0]).all())
        bounds = [START] if alike else [START, END]  # of windows alike, one says it all
        folded = fold(_with(rows, _GROUP, number), [_GROUP, *bounds], self._aggs)
        start = folded.column(START).to_numpy()
        end = start + length[0] if alike else folded.column(END).to_numpy()
        owner = first[folded.column(_GROUP).to_numpy()]
        return self._windows(rows, owner, start, end, folded.drop_columns([_GROUP, *bounds]))

    def _joined(self, rows: pa.Table, fold: Fold) -> pa.Table:
        number, first = key_numbers(rows.select(self._identity))
        bounds = (rows.column(n).to_numpy() for n in (START, END))
        joined = self._assigner.join(number, *bounds)
        if fold is merge and len(joined.key) == rows.num_rows:
            return rows
        folded = fold(_with(rows, _GROUP, joined.group), [_GROUP], self._aggs)
        at = folded.column(_GROUP).to_numpy()
        owner = first[joined.key[at]]
        parts = folded.drop_columns([_GROUP])
        return self._windows(rows, owner, joined.start[at], joined.end[at], parts)

    def _windows(
        self, rows: pa.Table, owner: Times, start: Times, end: Times, parts: pa.Table
    ) -> pa.Table:
        """The windows with the keys of the rows `owner`."""
        keys = rows.select(self._identity).take(pa.array(owner))
        columns = [*keys.columns, pa.array(start), pa.array(end), *parts.columns]
        names = [*self._identity, START, END, *parts.column_names]
        return pa.table(columns, names=names)


def _with(rows: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    return rows.append_column(name, pa.array(values))
