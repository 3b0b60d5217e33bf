"""Judging windows at the end of an epoch: which fire, what they show, what stays of them.

Judged are windows that got rows, whose end the watermark passed, or whose timer is due.
What has not been shown when a window is forgotten is shown then, unless its trigger was
chosen to lose it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, Times, flat, timestamps
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.order import group_numbers
from headrace.ops.contract import EpochStep, Fault
from headrace.ops.general_windows.stored_rows import ARRIVED, StoredRows
from headrace.ops.general_windows.window_state import (
    END,
    EPOCH,
    FIRED,
    FIRST,
    PANES,
    START,
    Retraction,
    WindowState,
)
from headrace.ops.keys import key_numbers
from headrace.ops.tables import derived_rows, side_by_side, with_column
from headrace.ops.window.aligned import floor_of
from headrace.ops.window.assigners import FOREVER
from headrace.ops.window.evictors import Evictor, kept_by
from headrace.ops.window.function import StoredValues, WindowedRows, WindowFunction, WindowResults
from headrace.ops.window.process import ProcessRows
from headrace.ops.window.trigger_base import Facts
from headrace.ops.window.triggers import Windowing
from headrace.state.table import TableSpec

WINDOWS, TIMERS, MARKS = "windows", "timers", "marks"
INFO = {"pane": pa.int32(), "timing": pa.string(), "final": pa.bool_()}
CHANGE = "change"
TIMINGS = ["early", "on time", "late"]


class WindowFiring:
    def __init__(
        self,
        windowing: Windowing,
        book: WindowState,
        kept: StoredRows | None,
        work: tuple[WindowFunction, Evictor | None] | None,
        keys: Sequence[str],
        output: pa.Schema,
    ) -> None:
        self._windowing, self._book, self._kept, self._work = windowing, book, kept, work
        self._keys, self._output = list(keys), output
        self.memory = ValueStore(work[0] if work else None, keys)
        names = work[0].schema.names if work else list(book.main)
        self._values = [output.field(name) for name in names]
        self._taken = Retraction(self._values) if windowing.mode == "retract" else None

    # what was shown, for those who take it back

    def was_fields(self) -> list[pa.Field]:
        """The columns in which a window remembers what it last showed, and its function's."""
        return self._taken.fields() if self._taken else self.memory.fields()

    def unshown(self, windows: pa.Table) -> pa.Table:
        for field in self.was_fields():
            windows = windows.append_column(field, pa.nulls(windows.num_rows, field.type))
        return windows

    def absorbed(self, known: pa.Table, merged: pa.Table, group: Times, step: EpochStep) -> None:
        """Take back what windows showed that are part of another now, and their timers."""
        if self._windowing.trigger.paced:
            for table, timers in self._timers(known, step):
                step.tables[table].delete(timers)
        if self._taken is None:
            return
        mine = group[: known.num_rows]
        same = np.ones(known.num_rows, np.bool_)
        for bound in (TIME, START):
            same &= known.column(bound).to_numpy() == merged.column(bound).to_numpy()[mine]
        self._take_back(known.filter(pa.array(~same)), step)

    def _take_back(self, windows: pa.Table, step: EpochStep) -> None:
        if self._taken is not None:
            old = windows.filter(pa.array(self._taken.there(windows)))
            final = np.zeros(old.num_rows, np.bool_)  # what was final is not there any more
            told = (self._taken.timing(old), final)
            self._emit(old, self._taken.values(old), step, told, sign="-")

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
        windows = self._show(windows, fire, facts, step) if fire.any() else windows
        changed = ~facts.expires & (touched | fire)
        if changed.any():
            step.tables[WINDOWS].put(windows.filter(pa.array(changed)))
        if self._windowing.trigger.paced and not facts.expires.all():
            for table, timers in self._timers(windows.filter(pa.array(~facts.expires)), step):
                step.tables[table].put(timers)

    def _facts(self, windows: pa.Table, touched: Mask, step: EpochStep) -> Facts:
        names = (START, TIME, PANES, FIRST, FIRED, *self._book.times)
        known = {n: windows.column(n).to_numpy() for n in names}
        watched = {**self._book.since, **self._book.ever, **self._book.base}
        found = self._book.results(windows, watched)
        values = {n: _floats(found.column(n)) for n in watched if n != "$latest"}
        for base, agg in self._book.base.items():
            first = values[f"{agg.column}.first"]
            values[base] = np.where(np.isnan(values[base]), first, values[base])
        counts = {n: np.nan_to_num(values[n]).astype(np.int64) for n in ("$new", "$rows")}
        floor = floor_of(step.after, self._windowing.lateness)
        return Facts(
            start=known[START],
            end=known[TIME],
            rows=counts["$rows"],
            new=counts["$new"],
            touched=touched,
            expires=known[TIME] < floor,
            panes=known[PANES],
            first=known[FIRST],
            fired=known[FIRED],
            before=step.before,
            after=step.after,
            clock=step.clock,
            slack=self._windowing.assigner.slack,
            values=values,
            times={n: known[n] for n in self._book.times},
        )

    def _show(self, windows: pa.Table, fire: Mask, facts: Facts, step: EpochStep) -> pa.Table:
        fired = windows.filter(pa.array(fire))
        timing, final = _timing(facts.end, step), facts.expires
        fired, given = self._results(fired, final[fire], step)
        if self.memory.used:
            windows = _put_back(windows, fired, fire)
        step.faults.extend(given.faults)
        self._take_back(fired, step)
        gave = len(np.unique(given.windows))
        step.windows.update(fired=fired.num_rows, mute=fired.num_rows - gave)
        shown = np.flatnonzero(fire)[given.windows]
        told = (timing[shown], final[shown])
        self._emit(windows.take(pa.array(shown)), given.values, step, told, sign="+")
        counts = self._windowing.trigger.counts(facts)
        windows = self._book.reset(windows, fire, counts, step.clock, step.epoch)
        return self._taken.remember(windows, fire, given, timing) if self._taken else windows

    def _results(
        self, fired: pa.Table, final: Mask, step: EpochStep
    ) -> tuple[pa.Table, WindowResults]:
        """What the windows give, and the windows with what their function remembers now."""
        if self._work is None:
            values = self._book.results(fired, self._book.main)
            schema = pa.schema(self._values)
            given = WindowResults(
                values.select(schema.names).cast(schema), np.arange(fired.num_rows)
            )
            return fired, given
        function, evictor = self._work
        assert self._kept is not None
        rows, starts, epochs = self._kept.of(fired, step)
        keep, faults = self._visible(fired, rows, starts, epochs, evictor)
        numbers = group_numbers(starts, rows.num_rows)[keep]
        some, starts = np.unique(numbers, return_index=True)  # a window may have none left
        rows = rows.filter(pa.array(keep))
        laid = WindowedRows(
            rows=rows,
            starts=starts,
            keys=fired.select([HASH, *self._keys]).take(pa.array(some)),
            begins=fired.column(START).to_numpy()[some],
            ends=fired.column(TIME).to_numpy()[some] - self._windowing.assigner.slack,
            panes=fired.column(PANES).to_numpy()[some],
            timings=[TIMINGS[i] for i in _timing(fired.column(TIME).to_numpy()[some], step)],
            finals=final[some].tolist(),
            watermark=step.after,
            clock=step.clock,
            arrival=rows.column(ARRIVED).to_numpy(),
        )
        mine = fired.take(pa.array(some))
        memory = self.memory.recall(mine, step)
        given = function.over(replace(laid, memory=memory))
        step.counts.update(given.counts)
        if memory is not None:
            self.memory.store_keys(memory, mine, step)
            fired = self.memory.store_own(memory, fired, some)
        faults = self._kept.blamed([*faults, *given.faults], step)
        return fired, WindowResults(given.values, some[given.windows], faults)

    def _visible(
        self,
        fired: pa.Table,
        rows: pa.Table,
        starts: Index,
        epochs: Times,
        evictor: Evictor | None,
    ) -> tuple[Mask, list[Fault]]:
        """Which rows the function sees: not those shown before in "delta", nor the evicted."""
        numbers = group_numbers(starts, rows.num_rows)
        last = fired.column(EPOCH).to_numpy()[numbers]
        keep = epochs > last if self._windowing.mode == "delta" else np.ones(len(last), np.bool_)
        if evictor is None or not keep.any():
            return keep, []
        judged = keep & (epochs <= last) if evictor.after else keep
        if not judged.any():
            return keep, []
        some, heads = np.unique(numbers[judged], return_index=True)
        stays, faults = kept_by(evictor, rows.filter(pa.array(judged)), heads)
        keep = keep & ~np.isin(numbers, some[list(faults)])  # of a window that fails, nothing
        keep[judged] &= stays
        return keep, list(faults.values())

    def _emit(
        self,
        windows: pa.Table,
        values: pa.Table,
        step: EpochStep,
        told: tuple[Index, Mask],
        sign: str,
    ) -> None:
        if not windows.num_rows:
            return
        timing, final = told
        start, end = (windows.column(n).to_numpy() for n in (START, TIME))
        shown_end = end - self._windowing.assigner.slack
        columns = {"window_start": _bounds(start), "window_end": _bounds(shown_end)}
        taken_back = 1 if sign == "-" else 0
        columns["pane"] = pa.array(windows.column(PANES).to_numpy() - taken_back)
        columns["timing"] = pa.array(TIMINGS).take(pa.array(timing))
        columns["final"] = pa.array(final)
        columns[CHANGE] = pa.repeat(sign, windows.num_rows)
        columns |= {k: windows.column(k) for k in self._keys}  # one may be called "pane"
        columns |= {n: values.column(n) for n in values.column_names}
        chunk = pa.table({n: columns[n] for n in self._output.names}).cast(self._output)
        hashes = windows.column(HASH).to_numpy()
        step.out.append(derived_rows(chunk, hashes.view(np.int64), self._times(windows, end)))

    def _times(self, windows: pa.Table, end: Times) -> Times:
        """A result's time is its window's last millisecond; without an end, its latest row's.

        That is the last in which the window is open, beyond the end that it shows if it has
        slack: what it gives when it closes must not be late for the next window.
        """
        if "$latest" not in self._book.ever:
            return end - 1
        latest = self._book.results(windows, {"$latest": self._book.ever["$latest"]})
        times: Times = latest.column("$latest").to_numpy()
        return times

    def _timers(self, windows: pa.Table, step: EpochStep) -> Iterator[tuple[str, pa.Table]]:
        """When to judge windows again, by table: their trigger may be ready without another row."""
        trigger = self._windowing.trigger
        facts = self._facts(windows, np.zeros(windows.num_rows, np.bool_), step)
        dues = {TIMERS: trigger.due(facts), MARKS: trigger.mark(facts)}
        for table, due in dues.items():
            wanted = due < MAX_TIME
            if wanted.any():
                mine = windows.filter(pa.array(wanted))
                timer = mine.select([HASH, *self._keys, START])
                timer = timer.append_column(END, mine.column(TIME))
                yield table, timer.append_column(TIME, pa.array(due[wanted]))


def _put_back(windows: pa.Table, fired: pa.Table, fire: Mask) -> pa.Table:
    """All windows, with those that fired as they are now."""
    place = np.arange(windows.num_rows)
    place[fire] = windows.num_rows + np.arange(fired.num_rows)
    return pa.concat_tables([windows, fired]).take(pa.array(place)).combine_chunks()


def _timing(end: Times, step: EpochStep) -> Index:
    late: Index = np.where(end <= step.before, 2, np.where(end <= step.after, 1, 0))
    return late


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    values: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy()
    return values


def _bounds(times: Times) -> pa.Array:
    """Bounds as timestamps; null where there is none."""
    return timestamps(times, (times > MIN_TIME) & (times < FOREVER))


# What process functions over windows remember: per key in a table, per window with it.


VALUES = "values"
_OWN, _SET = "$own.", "$own"


class ValueStore:
    """Loads what a function remembers of some windows, and stores it again."""

    def __init__(self, function: WindowFunction | None, keys: Sequence[str]) -> None:
        self._process = function if isinstance(function, ProcessRows) else None
        self._identity = [HASH, *keys]
        self._key_values, self._own = (
            self._process.kept(per_window) if self._process else pa.schema([])
            for per_window in (False, True)
        )

    @property
    def used(self) -> bool:
        return bool(len(self._key_values) or len(self._own))

    def fields(self) -> list[pa.Field]:
        """The columns that windows have for it."""
        if not len(self._own):
            return []
        return [pa.field(_SET, pa.bool_()), *(f.with_name(f"{_OWN}{f.name}") for f in self._own)]

    def spec(self, keys: pa.Schema) -> TableSpec | None:
        return TableSpec(VALUES, keys, self._key_values) if len(self._key_values) else None

    def recall(self, windows: pa.Table, step: EpochStep) -> StoredValues | None:
        """What is remembered of these windows and their keys."""
        if self._process is None or not self.used:
            return None
        identity = windows.select(self._identity)
        number, first = key_numbers(identity)
        keys: list[dict[str, object]] = [{} for _ in first]
        if len(self._key_values):
            stored, found = step.tables[VALUES].get(identity.take(pa.array(first)))
            keys = self._process.loaded(stored, found, per_window=False)
        own: list[dict[str, object]] = [{} for _ in number]
        if len(self._own):
            found = windows.column(_SET).fill_null(False).to_numpy()
            names = [f"{_OWN}{n}" for n in self._own.names]
            stored = windows.select(names).rename_columns(self._own.names)
            own = self._process.loaded(stored, found, per_window=True)
        return StoredValues(number, keys, own)

    def store_keys(self, memory: StoredValues, windows: pa.Table, step: EpochStep) -> None:
        if self._process is None or not len(self._key_values):
            return
        identity = windows.select(self._identity)
        _, first = key_numbers(identity)
        rows = identity.take(pa.array(first))
        made = self._process.stored(memory.keys, per_window=False)
        step.tables[VALUES].put(side_by_side(rows, made))

    def store_own(self, memory: StoredValues, windows: pa.Table, at: Index) -> pa.Table:
        """The windows, with what is remembered of those `at` these places."""
        if self._process is None or not len(self._own):
            return windows
        made = self._process.stored(memory.windows, per_window=True)
        place = np.arange(windows.num_rows)
        place[at] = windows.num_rows + np.arange(len(at))
        for name in self._own.names:
            column = f"{_OWN}{name}"
            both = [flat(windows.column(column)), flat(made.column(name))]
            new = pa.concat_arrays(both).take(pa.array(place))
            windows = with_column(windows, column, new)
        known: Mask = windows.column(_SET).fill_null(False).to_numpy().copy()
        known[at] = True
        return with_column(windows, _SET, pa.array(known))
