"""Windows at the end of an epoch: which fire, what they emit, and their state after that.

Considered are windows that got rows, whose end the watermark passed, or whose timer is due.
What a window has not emitted when it is forgotten is emitted then, unless its trigger was
chosen to lose it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, Times, timestamps
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.order import group_numbers
from headrace.ops.contract import EpochStep, Fault
from headrace.ops.general_windows.stored_rows import ARRIVED, StoredRows
from headrace.ops.general_windows.stored_values import ValueStore
from headrace.ops.general_windows.window_state import (
    EARLIEST,
    END,
    EPOCH,
    FIRED,
    FIRST,
    LATEST,
    PANES,
    START,
    Retraction,
    WindowState,
    same_bounds,
)
from headrace.ops.tables import derived_rows
from headrace.ops.window.assigners import FOREVER
from headrace.ops.window.evictors import Evictor, kept_by
from headrace.ops.window.function import WindowedRows, WindowFunction, WindowResults
from headrace.ops.window.process import ProcessAggregates
from headrace.ops.window.trigger_base import Facts, WindowExtent
from headrace.ops.window.triggers import Windowing

WINDOWS, TIMERS, MARKS = "windows", "timers", "marks"
CHANGE = "change"
NUMBER = "window_number"  # which of its key's windows a result is of, where rows end them
TIMINGS = ["early", "on time", "late", "end"]  # the last: rows end it, and the input has ended


def timer_clocks(step: EpochStep) -> list[tuple[str, int]]:
    """The timer tables of a step, and how far each has come."""
    clocks = {TIMERS: step.clock, MARKS: step.after}
    return [(n, now) for n, now in clocks.items() if n in step.tables]


class WindowFiring:
    def __init__(
        self,
        windowing: Windowing,
        state: WindowState,
        stored_rows: StoredRows | None,
        work: tuple[WindowFunction, Evictor | None] | None,
        keys: Sequence[str],
        output: pa.Schema,
    ) -> None:
        self._windowing, self._state = windowing, state
        self._stored_rows, self._work = stored_rows, work
        self._keys, self._output = list(keys), output
        self.memory = ValueStore(work[0] if work else None, keys)
        names = work[0].schema.names if work else list(state.main)
        self._values = [output.field(name) for name in names]
        self._retraction = self._retracting() if windowing.mode == "retract" else None

    def _retracting(self) -> Retraction:
        return Retraction(self._values)

    # what was emitted, so that it can be retracted

    def was_fields(self) -> list[pa.Field]:
        """The columns of what a window last emitted, or of its function's values."""
        return self._retraction.fields() if self._retraction else self.memory.fields()

    def opened(self, windows: pa.Table) -> pa.Table:
        for field in self.was_fields():
            windows = windows.append_column(field, pa.nulls(windows.num_rows, field.type))
        return windows

    def absorbed(self, stored: pa.Table, merged: pa.Table, group: Times, step: EpochStep) -> None:
        """Retract what windows emitted that are part of another now, and delete their timers."""
        if self._windowing.trigger.paced:
            for table, timers in self._timers(stored, step):
                step.tables[table].delete(timers)
        if self._retraction is None:
            return
        same = same_bounds(stored, merged, group[: stored.num_rows])
        self._retract(stored.filter(pa.array(~same)), step)

    def _retract(self, windows: pa.Table, step: EpochStep) -> None:
        if self._retraction is not None:
            old = windows.filter(pa.array(self._retraction.emitted(windows)))
            final = np.zeros(old.num_rows, np.bool_)  # a window that was final is no longer stored
            labels = (self._retraction.timing(old), final)
            self._emit(self._as_emitted(old), self._retraction.values(old), step, labels, sign="-")

    def _as_emitted(self, windows: pa.Table) -> pa.Table:
        """The windows as they were when they last fired."""
        return windows

    # one epoch

    def judge(self, windows: pa.Table, touched: Mask, step: EpochStep) -> None:
        facts = self._facts(windows, touched, step)
        fire = self._windowing.trigger.ready(facts)
        if not self._windowing.loses:
            fire = fire | (facts.expires & (facts.new > 0))
        if self._windowing.mode == "delta":
            fire = fire & (facts.new > 0)
        lost = int((facts.expires & (facts.new > 0) & ~fire).sum())
        if lost:
            step.windows["lost"] += lost
        windows = self._fire(windows, fire, facts, step) if fire.any() else windows
        changed = ~facts.expires & (touched | fire)
        if changed.any():
            step.tables[WINDOWS].put(windows.filter(pa.array(changed)))
        if self._windowing.trigger.paced and not facts.expires.all():
            for table, timers in self._timers(windows.filter(pa.array(~facts.expires)), step):
                step.tables[table].put(timers)

    def _facts(self, windows: pa.Table, touched: Mask, step: EpochStep) -> Facts:
        names = (PANES, FIRST, FIRED, *self._state.times)
        columns = {n: windows.column(n).to_numpy() for n in names}
        watched = {**self._state.since, **self._state.ever, **self._state.base}
        results = self._state.results(windows, watched)
        values = {n: _floats(results.column(n)) for n in watched if n not in (EARLIEST, LATEST)}
        for base, agg in self._state.base.items():
            first = values[f"{agg.column}.first"]
            values[base] = np.where(np.isnan(values[base]), first, values[base])
        counts = {n: np.nan_to_num(values[n]).astype(np.int64) for n in ("$new", "$rows")}
        return Facts(
            extent=self._extent(windows, step),
            rows=counts["$rows"],
            new=counts["$new"],
            touched=touched,
            panes=columns[PANES],
            first=columns[FIRST],
            fired=columns[FIRED],
            before=step.before,
            after=step.after,
            clock=step.clock,
            values=values,
            times={n: columns[n] for n in self._state.times},
        )

    def _extent(self, windows: pa.Table, step: EpochStep) -> WindowExtent:
        start, end = (windows.column(n).to_numpy() for n in (START, TIME))
        return WindowExtent(
            start,
            end,
            closes=(end > step.before) & (end <= step.after),
            late=end <= step.before,
            expires=end < self._windowing.floor(step.after),
            shown=(start, end - self._windowing.assigner.slack),
        )

    def _fire(self, windows: pa.Table, fire: Mask, facts: Facts, step: EpochStep) -> pa.Table:
        fired = windows.filter(pa.array(fire))
        timing, final = self._timing(windows, step), facts.expires
        fired, results = self._results(fired, final[fire], step)
        if self._renews:
            windows = _put_back(windows, fired, fire)
        step.faults.extend(results.faults)
        self._retract(fired, step)
        with_result = len(np.unique(results.windows))
        step.windows.update(fired=fired.num_rows, mute=fired.num_rows - with_result)
        owners = np.flatnonzero(fire)[results.windows]
        labels = (timing[owners], final[owners])
        self._emit(windows.take(pa.array(owners)), results.values, step, labels, sign="+")
        counts = self._windowing.trigger.counts(facts)
        windows = self._state.reset(windows, fire, counts, step.clock, step.epoch)
        if self._retraction is None:
            return windows
        return self._retraction.remember(
            windows, fire, self._emitted(windows, owners, results), timing
        )

    @property
    def _renews(self) -> bool:
        """Whether windows have other columns when their results are known."""
        return self.memory.used

    def _emitted(self, windows: pa.Table, owners: Index, results: WindowResults) -> WindowResults:
        """The results with all that is needed to retract them."""
        return results

    def _timing(self, windows: pa.Table, step: EpochStep) -> Index:
        end = windows.column(TIME).to_numpy()
        timing: Index = np.where(end <= step.before, 2, np.where(end <= step.after, 1, 0))
        return timing

    def _results(
        self, fired: pa.Table, final: Mask, step: EpochStep
    ) -> tuple[pa.Table, WindowResults]:
        """The results of the windows, and the windows with the values of their function."""
        if self._work is None:
            values = self._state.results(fired, self._state.main)
            schema = pa.schema(self._values)
            values = values.select(schema.names).cast(schema)
            return fired, WindowResults(values, np.arange(fired.num_rows))
        function, evictor = self._work
        if self._stored_rows is None:
            return self._processed(fired, final, step)
        rows, starts, epochs = self._stored_rows.of(fired, step)
        fired = self._holding(fired, rows, starts)
        keep, faults = self._visible(fired, rows, starts, epochs, evictor)
        numbers = group_numbers(starts, rows.num_rows)[keep]
        with_rows, starts = np.unique(numbers, return_index=True)  # a window may have none left
        rows = rows.filter(pa.array(keep))
        windowed = self._windowed(rows, starts, fired.take(pa.array(with_rows)), step)
        windowed = replace(
            windowed, finals=final[with_rows].tolist(), arrival=rows.column(ARRIVED).to_numpy()
        )
        fired, results = self._called(function.over, windowed, fired, with_rows, step)
        faults = self._stored_rows.blamed([*faults, *results.faults], step)
        return fired, WindowResults(results.values, with_rows[results.windows], faults)

    def _holding(self, windows: pa.Table, rows: pa.Table, starts: Index) -> pa.Table:
        """The windows, when it is known which rows they hold."""
        return windows

    def _processed(
        self, fired: pa.Table, final: Mask, step: EpochStep
    ) -> tuple[pa.Table, WindowResults]:
        """The results of a function that is called with aggregates: no row is stored for it."""
        assert self._work is not None
        function = self._work[0]
        assert isinstance(function, ProcessAggregates)
        schema = function.aggregates.schema
        values = self._state.results(fired, self._state.main).select(schema.names).cast(schema)
        every = np.arange(fired.num_rows)
        windowed = replace(self._windowed(values, every, fired, step), finals=final.tolist())
        call = partial(function.of_values, values)
        return self._called(call, windowed, fired, every, step)

    def _windowed(
        self, rows: pa.Table, starts: Index, windows: pa.Table, step: EpochStep
    ) -> WindowedRows:
        begins, ends = self._bounds(windows)
        return WindowedRows(
            rows=rows,
            starts=starts,
            keys=windows.select([HASH, *self._keys]),
            begins=begins,
            ends=ends,
            panes=self._panes(windows),
            timings=[TIMINGS[i] for i in self._timing(windows, step)],
            finals=[],
            watermark=step.after,
            clock=step.clock,
        )

    def _called(
        self,
        call: Callable[[WindowedRows], WindowResults],
        windowed: WindowedRows,
        fired: pa.Table,
        at: Index,
        step: EpochStep,
    ) -> tuple[pa.Table, WindowResults]:
        """The results of a function over the windows `at` these places, with its values."""
        windows = fired.take(pa.array(at))
        memory = self.memory.recall(windows, step)
        results = call(replace(windowed, memory=memory))
        step.counts.update(results.counts)
        if memory is not None:
            self.memory.store_keys(memory, windows, step)
            fired = self.memory.store_own(memory, fired, at)
        return fired, results

    def _visible(
        self,
        fired: pa.Table,
        rows: pa.Table,
        starts: Index,
        epochs: Times,
        evictor: Evictor | None,
    ) -> tuple[Mask, list[Fault]]:
        """Which rows the function sees: in "delta" only new ones, and none that are evicted."""
        numbers = group_numbers(starts, rows.num_rows)
        last = fired.column(EPOCH).to_numpy()[numbers]
        keep = epochs > last if self._windowing.mode == "delta" else np.ones(len(last), np.bool_)
        if evictor is None or not keep.any():
            return keep, []
        candidates = keep & (epochs <= last) if evictor.after else keep
        if not candidates.any():
            return keep, []
        judged, heads = np.unique(numbers[candidates], return_index=True)
        stays, faults = kept_by(evictor, rows.filter(pa.array(candidates)), heads)
        keep = keep & ~np.isin(numbers, judged[list(faults)])  # of a window that fails, nothing
        keep[candidates] &= stays
        return keep, list(faults.values())

    def _emit(
        self,
        windows: pa.Table,
        values: pa.Table,
        step: EpochStep,
        labels: tuple[Index, Mask],
        sign: str,
    ) -> None:
        if not windows.num_rows:
            return
        timing, final = labels
        start, end = self._bounds(windows)
        columns = {"window_start": _moments(start), "window_end": _moments(end)}
        columns[NUMBER] = windows.column(START)
        retracted = 1 if sign == "-" else 0
        columns["pane"] = pa.array(self._panes(windows) - retracted)
        columns["timing"] = pa.array(TIMINGS).take(pa.array(timing))
        columns["final"] = pa.array(final)
        columns[CHANGE] = pa.repeat(sign, windows.num_rows)
        columns |= {k: windows.column(k) for k in self._keys}  # one may be called "pane"
        columns |= {n: values.column(n) for n in values.column_names}
        chunk = pa.table({n: columns[n] for n in self._output.names}).cast(self._output)
        hashes = windows.column(HASH).to_numpy()
        step.out.append(derived_rows(chunk, hashes.view(np.int64), self._times(windows)))

    def _bounds(self, windows: pa.Table) -> tuple[Times, Times]:
        """The bounds that windows show."""
        start, end = (windows.column(n).to_numpy() for n in (START, TIME))
        return start, end - self._windowing.assigner.slack

    def _panes(self, windows: pa.Table) -> Times:
        """How often windows have fired before."""
        panes: Times = windows.column(PANES).to_numpy()
        return panes

    def _times(self, windows: pa.Table) -> Times | None:
        """A result's time is its window's last millisecond, or that of one of its rows.

        The former is the last in which the window is open, beyond the end that it shows if it has
        slack: what it gives when it closes must not be late for the next window.
        """
        name = next((n for n in (EARLIEST, LATEST) if n in self._state.ever), None)
        if name is None:
            end: Times = windows.column(TIME).to_numpy()
            return end - 1
        found = self._state.results(windows, {name: self._state.ever[name]})
        times: Times = found.column(name).to_numpy()
        return times

    def _timers(self, windows: pa.Table, step: EpochStep) -> Iterator[tuple[str, pa.Table]]:
        """When to judge windows again, by table: their trigger may be ready without another row."""
        trigger = self._windowing.trigger
        facts = self._facts(windows, np.zeros(windows.num_rows, np.bool_), step)
        dues = {TIMERS: trigger.due(facts), MARKS: trigger.mark(facts)}
        for table, due in dues.items():
            pending = due < MAX_TIME
            if pending.any():
                waiting = windows.filter(pa.array(pending))
                timer = waiting.select([HASH, *self._keys, START])
                timer = timer.append_column(END, waiting.column(TIME))
                yield table, timer.append_column(TIME, pa.array(due[pending]))


def _put_back(windows: pa.Table, fired: pa.Table, fire: Mask) -> pa.Table:
    """All windows, with those that fired as they are now."""
    place = np.arange(windows.num_rows)
    place[fire] = windows.num_rows + np.arange(fired.num_rows)
    return pa.concat_tables([windows, fired]).take(pa.array(place)).combine_chunks()


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    values: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy()
    return values


def _moments(times: Times) -> pa.Array:
    """Bounds as timestamps; null where there is none."""
    return timestamps(times, (times > MIN_TIME) & (times < FOREVER))
