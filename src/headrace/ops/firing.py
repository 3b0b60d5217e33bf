"""Judging windows at the end of an epoch: which fire, what they show, what stays of them.

Judged are windows that got rows, whose end the watermark passed, or whose timer is due.
What has not been shown when a window is forgotten is shown then, unless its trigger was
chosen to lose it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg_groups import Index, Mask, flat
from headrace.ops.assigners import FOREVER
from headrace.ops.contract import Step
from headrace.ops.evictors import Evictor
from headrace.ops.kept_rows import KeptRows
from headrace.ops.triggers import Facts
from headrace.ops.window_book import EPOCH, FIRED, FIRST, PANES, SHOWN, START, Book
from headrace.ops.window_function import Given, Laid, WindowFunction
from headrace.ops.window_memory import WindowMemory
from headrace.ops.windowing import Windowing
from headrace.ops.windows import Times, floor_of
from headrace.schema import TIMESTAMP

WINDOWS, TIMERS, MARKS = "windows", "timers", "marks"
END = "$end"
INFO = {"pane": pa.int32(), "timing": pa.string(), "final": pa.bool_()}
CHANGE = "change"
TIMINGS = np.array(["early", "on time", "late"], object)
_WAS, _SHOWN = "$was.", "$was"


class Firing:
    def __init__(
        self,
        windowing: Windowing,
        book: Book,
        kept: KeptRows | None,
        work: tuple[WindowFunction, Evictor | None] | None,
        keys: Sequence[str],
        output: pa.Schema,
    ) -> None:
        self._windowing, self._book, self._kept, self._work = windowing, book, kept, work
        self._keys, self._output = list(keys), output
        self.memory = WindowMemory(work[0] if work else None, keys)
        names = work[0].schema.names if work else list(book.main)
        self._values = [output.field(name) for name in names]

    # what was shown, for those who take it back

    def was_fields(self) -> list[pa.Field]:
        """The columns in which a window remembers what it last showed, and its function's."""
        if self._windowing.mode != "retract":
            return self.memory.fields()
        shown = pa.field(_SHOWN, pa.bool_())  # null before this very window has shown anything
        return [shown, *(pa.field(f"{_WAS}{f.name}", f.type) for f in self._values)]

    def unshown(self, windows: pa.Table) -> pa.Table:
        for field in self.was_fields():
            windows = windows.append_column(field, pa.nulls(windows.num_rows, field.type))
        return windows

    def absorbed(self, known: pa.Table, merged: pa.Table, group: Times, step: Step) -> None:
        """Take back what windows showed that are part of another now."""
        if self._windowing.mode != "retract":
            return
        mine = group[: known.num_rows]
        same = np.ones(known.num_rows, np.bool_)
        for bound in (TIME, START):
            same &= known.column(bound).to_numpy() == merged.column(bound).to_numpy()[mine]
        gone = known.filter(pa.array(~same & _has_shown(known)))
        if gone.num_rows:
            self._emit(
                gone, self._was(gone), step, final=np.zeros(gone.num_rows, np.bool_), sign="-"
            )

    def _was(self, windows: pa.Table) -> pa.Table:
        names = [f"{_WAS}{f.name}" for f in self._values]
        return windows.select(names).rename_columns([f.name for f in self._values])

    # one epoch

    def judge(self, windows: pa.Table, touched: Mask, step: Step) -> None:
        facts = self._facts(windows, touched, step)
        expired = facts.end < floor_of(step.after, self._windowing.lateness)
        fire = self._windowing.trigger.ready(facts)
        if self._windowing.trigger.safe:
            fire = fire | (expired & (facts.new > 0))
        if self._windowing.mode == "delta":
            fire = fire & (facts.new > 0)
        windows = self._show(windows, fire, expired, step) if fire.any() else windows
        stay = ~expired & (touched | fire)
        if stay.any():
            self._keep(windows.filter(pa.array(stay)), touched[stay], step)

    def _facts(self, windows: pa.Table, touched: Mask, step: Step) -> Facts:
        known = {n: windows.column(n).to_numpy() for n in (START, TIME, PANES, FIRST, FIRED, SHOWN)}
        watched = {**self._book.since, **self._book.ever}
        found = self._book.results(windows, watched)
        values = {n: _floats(found.column(n)) for n in watched if not n.startswith("$latest")}
        for base in self._book.bases:
            stored = _floats(windows.column(f"{base}.base"))
            values[f"{base}.base"] = np.where(np.isnan(stored), values[f"{base}.first"], stored)
        counts = {n: np.nan_to_num(values[n]).astype(np.int64) for n in ("$new", "$rows")}
        return Facts(
            start=known[START], end=known[TIME], rows=counts["$rows"], new=counts["$new"],
            touched=touched, panes=known[PANES], first=known[FIRST], fired=known[FIRED],
            shown=known[SHOWN], before=step.before, after=step.after, clock=step.clock,
            values=values,
        )  # fmt: skip

    def _show(self, windows: pa.Table, fire: Mask, expired: Mask, step: Step) -> pa.Table:
        fired = windows.filter(pa.array(fire))
        final = expired[fire]
        fired, given = self._results(fired, final, step)
        if self.memory.used:
            windows = _put_back(windows, fired, fire)
        step.faults.extend(given.faults)
        retract = self._windowing.mode == "retract"
        if retract:
            again = _has_shown(fired)
            old = fired.filter(pa.array(again))
            if old.num_rows:
                self._emit(old, self._was(old), step, final[again], sign="-")
        shown = fired.take(pa.array(given.windows))
        self._emit(shown, given.values, step, final[given.windows], sign="+")
        windows = self._book.reset(windows, fire, step.clock, step.after, step.epoch)
        return self._remembered(windows, fire, given) if retract else windows

    def _remembered(self, windows: pa.Table, fire: Mask, given: Given) -> pa.Table:
        at = np.full(windows.num_rows, -1, np.int64)
        at[np.flatnonzero(fire)[given.windows]] = np.arange(len(given.windows))
        for field in self._values:
            name = f"{_WAS}{field.name}"
            new = flat(given.values.column(field.name)).take(pa.array(at, mask=at < 0))
            column = pc.if_else(pa.array(fire), new, windows.column(name))
            windows = windows.set_column(windows.column_names.index(name), name, column)
        shown = pa.array(fire | _has_shown(windows))
        return windows.set_column(windows.column_names.index(_SHOWN), _SHOWN, shown)

    def _results(self, fired: pa.Table, final: Mask, step: Step) -> tuple[pa.Table, Given]:
        """What the windows give, and the windows with what their function remembers now."""
        if self._work is None:
            values = self._book.results(fired, self._book.main)
            schema = pa.schema(self._values)
            given = Given(values.select(schema.names).cast(schema), np.arange(fired.num_rows))
            return fired, given
        function, evictor = self._work
        assert self._kept is not None
        rows, starts, epochs = self._kept.of(fired, step)
        keep = self._visible(fired, rows, starts, epochs, evictor)
        numbers = np.repeat(np.arange(len(starts)), np.diff(starts, append=rows.num_rows))[keep]
        some, starts = np.unique(numbers, return_index=True)  # a window may have none left
        laid = Laid(
            rows=rows.filter(pa.array(keep)), starts=starts,
            keys=fired.select([HASH, *self._keys]).take(pa.array(some)),
            begins=fired.column(START).to_numpy()[some],
            ends=fired.column(TIME).to_numpy()[some] - self._windowing.assigner.slack,
            panes=fired.column(PANES).to_numpy()[some],
            timings=TIMINGS[_timing(fired.column(TIME).to_numpy()[some], step)].tolist(),
            finals=final[some].tolist(), watermark=step.after, clock=step.clock,
        )  # fmt: skip
        mine = fired.take(pa.array(some))
        memory = self.memory.recall(mine, step)
        given = function.over(replace(laid, memory=memory))
        if memory is not None:
            self.memory.store_keys(memory, mine, step)
            fired = self.memory.store_own(memory, fired, some)
        return fired, Given(given.values, some[given.windows], given.faults)

    def _visible(
        self, fired: pa.Table, rows: pa.Table, starts: Index, epochs: Times,
        evictor: Evictor | None,
    ) -> Mask:  # fmt: skip
        """Which rows the function sees: not those shown before in "delta", nor the evicted."""
        last = np.repeat(fired.column(EPOCH).to_numpy(), np.diff(starts, append=rows.num_rows))
        keep = epochs > last if self._windowing.mode == "delta" else np.ones(len(last), np.bool_)
        if evictor is None or not keep.any():
            return keep
        numbers = np.repeat(np.arange(len(starts)), np.diff(starts, append=rows.num_rows))
        judged = keep & (epochs <= last) if evictor.after else keep
        if not judged.any():
            return keep
        _, heads = np.unique(numbers[judged], return_index=True)
        stays = keep.copy()
        stays[judged] = evictor.keeps(rows.filter(pa.array(judged)), heads)
        return stays

    def _emit(
        self, windows: pa.Table, values: pa.Table, step: Step, final: Mask, sign: str
    ) -> None:
        if not windows.num_rows:
            return
        start, end = (windows.column(n).to_numpy() for n in (START, TIME))
        shown_end = end - self._windowing.assigner.slack
        columns = {k: windows.column(k) for k in self._keys}
        columns |= {"window_start": _stamps(start), "window_end": _stamps(shown_end)}
        taken_back = 1 if sign == "-" else 0
        columns["pane"] = pa.array(windows.column(PANES).to_numpy() - taken_back)
        columns["timing"] = pa.array(TIMINGS[_timing(end, step)], pa.string())
        columns["final"] = pa.array(final)
        columns[CHANGE] = pa.array([sign] * windows.num_rows)
        columns |= {n: values.column(n) for n in values.column_names}
        chunk = pa.table({n: columns[n] for n in self._output.names}).cast(self._output)
        chunk = chunk.append_column(TIME, pa.array(self._times(windows, shown_end)))
        chunk = chunk.append_column(SOURCE, pa.array(np.full(len(end), -1, dtype=np.int32)))
        hashes = windows.column(HASH).to_numpy()
        step.out.append(chunk.append_column(OFFSET, pa.array(hashes.view(np.int64))))

    def _times(self, windows: pa.Table, end: Times) -> Times:
        """A result's time is its window's last millisecond; without an end, its latest row's."""
        if "$latest" not in self._book.ever:
            return end - 1
        latest = self._book.results(windows, {"$latest": self._book.ever["$latest"]})
        times: Times = latest.column("$latest").to_numpy()
        return times

    def _keep(self, windows: pa.Table, touched: Mask, step: Step) -> None:
        step.tables[WINDOWS].put(windows)
        trigger = self._windowing.trigger
        facts = self._facts(windows, np.zeros(len(touched), np.bool_), step)
        if TIMERS in step.tables:
            self._arm(windows, trigger.due(facts), step, TIMERS)
        self._arm(windows, trigger.mark(facts), step, MARKS)

    def _arm(self, windows: pa.Table, due: Times, step: Step, table: str) -> None:
        wanted = due < MAX_TIME
        if not wanted.any():
            return
        mine = windows.filter(pa.array(wanted))
        timer = mine.select([HASH, *self._keys, START]).append_column(END, mine.column(TIME))
        step.tables[table].put(timer.append_column(TIME, pa.array(due[wanted])))


def _put_back(windows: pa.Table, fired: pa.Table, fire: Mask) -> pa.Table:
    """All windows, with those that fired as they are now."""
    place = np.arange(windows.num_rows)
    place[fire] = windows.num_rows + np.arange(fired.num_rows)
    return pa.concat_tables([windows, fired]).take(pa.array(place)).combine_chunks()


def _has_shown(windows: pa.Table) -> Mask:
    shown: Mask = windows.column(_SHOWN).fill_null(False).to_numpy()
    return shown


def _timing(end: Times, step: Step) -> Index:
    late: Index = np.where(end <= step.before, 2, np.where(end <= step.after, 1, 0))
    return late


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    values: np.ndarray = column.cast(pa.float64()).to_numpy()
    return values


def _stamps(times: Times) -> pa.Array:
    """Bounds as timestamps; null where there is none."""
    open_ended = (times <= MIN_TIME) | (times >= FOREVER)
    return pa.array(np.where(open_ended, 0, times) * 1_000, mask=open_ended).cast(TIMESTAMP)
