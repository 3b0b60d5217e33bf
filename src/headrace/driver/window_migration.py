"""Stored windows brought to other windows, or another trigger, before a run.

What may be another is judged in `plan/window_changes.py`. Rows of several runs may become one
here, so each stretch of slots is read as it stands and written as one run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, Times, flat, integers
from headrace.chunk import HASH, TIME
from headrace.clock import MIN_TIME, utc_text
from headrace.driver.rewritten_runs import State, gathered
from headrace.driver.setting_migration import due_at_once
from headrace.errors import StateError
from headrace.ops.agg.named import merge, part_names
from headrace.ops.general_windows.firing import MARKS, TIMERS, WINDOWS
from headrace.ops.general_windows.open_windows import ENDS as OPEN_ENDS
from headrace.ops.general_windows.open_windows import OPEN
from headrace.ops.general_windows.operator import GeneralWindowOperator
from headrace.ops.general_windows.window_state import END, START, unreset
from headrace.ops.panes.carried import CARRIED
from headrace.ops.panes.operator import BLOCKS, PANES, CoarsePanes, panes_per_block
from headrace.ops.tables import with_column
from headrace.ops.window.aligned import Window, floor_of
from headrace.ops.window.assigners import AlignedAssigner, Session, expanded
from headrace.ops.window.firing_spec import GeneralWindows
from headrace.ops.window.spec import FoldWindows, PaneFolds, PaneWindows
from headrace.plan.nodes import Stateful
from headrace.plan.shapes import shape
from headrace.plan.window_changes import (
    CUT,
    ENDS,
    FIRES,
    GAP,
    as_windows_now,
    gap_of,
    longer_lateness,
    watches_anew,
    window_change,
    window_of,
)
from headrace.state.manifest import StepFacts, table_key
from headrace.state.runs import RunCache, RunWriter
from headrace.state.sorted_run import sorted_run
from headrace.state.spec import GONE
from headrace.state.store import SlotState

Change = Callable[[pa.Table], pa.Table]


def migrated_windows(
    node: Stateful, old: StepFacts, state: State, writer: RunWriter, cache: RunCache, clock: int
) -> tuple[StepFacts, State]:
    """What is known of the step, and the tables of all steps, with its windows as they are now."""
    facts = {"kind": old.kind, "shape": old.shape}
    change = window_change(node, facts)
    if change is None:
        return old, state
    work = _WindowMigration(node, old, writer, cache, clock)
    kinds = {CUT: work.cut, GAP: work.gap, FIRES: work.fires, ENDS: work.ends}
    state = kinds.get(change.how, work.watches)(state)
    now = as_windows_now(node, facts)
    return replace(due_at_once(old), kind=now["kind"], shape=now["shape"]), state


def lateness_kept(node: Stateful, old: StepFacts) -> StepFacts:
    """With the end before which windows are over, whatever a longer lateness says."""
    found = longer_lateness(node, {"kind": old.kind, "shape": old.shape})
    if found is None or old.watermark <= MIN_TIME:
        return old
    return replace(old, over=max(floor_of(old.watermark, found[0]), old.over or MIN_TIME))


@dataclass(frozen=True, slots=True)
class _WindowMigration:
    node: Stateful
    old: StepFacts
    writer: RunWriter
    cache: RunCache
    clock: int

    # windows of time

    def cut(self, state: State) -> State:
        what, state = self.node.what, self._without_carried(state)
        if isinstance(what, PaneWindows):
            return self._blocks(self._panes(what.window, state), what.window)
        assert isinstance(what, FoldWindows)
        return state if isinstance(what, PaneFolds) else self._some_windows(what.window, state)

    def _panes(self, window: Window, state: State) -> State:
        """Each pane merged of those that it was."""
        assert self.old.shape is not None
        if window_of(self.old.shape["window"]).pane_size == window.pane_size:
            return state
        return self._changed(state, PANES, lambda panes: self._placed(panes, window.panes_of))

    def _blocks(self, state: State, window: Window) -> State:
        what = self.node.what
        state = {t: runs for t, runs in state.items() if t != self._table(BLOCKS)}
        count = panes_per_block(window)
        if count is None or self._table(PANES) not in state:
            return state
        coarse = CoarsePanes(window, count, dict(what.aggregates), self._keys)

        def blocks(panes: pa.Table) -> pa.Table:
            return self._placed(panes, coarse.blocks_of)

        made = self._made(state[self._table(PANES)], self._keys, blocks, BLOCKS)
        return state | {self._table(BLOCKS): made}

    def _placed(self, panes: pa.Table, place: Callable[[Times], Times]) -> pa.Table:
        """Panes at other places, those at one place as one."""
        panes = with_column(panes, TIME, pa.array(place(integers(panes.column(TIME)))))
        group = [TIME, HASH, *self._keys]
        return merge(panes, group, dict(self.node.what.aggregates))

    def _some_windows(self, window: Window, state: State) -> State:
        """Of windows that are stored one by one: those that there still are."""

        def some(windows: pa.Table) -> pa.Table:
            starts = integers(windows.column(TIME))
            return windows.filter(pa.array((starts - window.offset) % window.slide == 0))

        return self._changed(state, WINDOWS, some)

    # sessions

    def gap(self, state: State) -> State:
        """All that is open ends so much sooner, but not before now."""
        what = self.node.what
        assert isinstance(what, GeneralWindows) and self.old.shape is not None
        session = what.windowing.assigner
        before = gap_of(self.old.shape["window"]["assigner"])
        assert isinstance(session, Session) and before is not None
        earlier, now = before - session.gap, self.old.watermark + 1

        def ends(times: Times) -> Times:
            sooner: Times = np.maximum(times - earlier, np.minimum(times, now))
            return sooner

        def moved(name: str) -> Change:
            return lambda rows: with_column(rows, name, pa.array(ends(integers(rows[name]))))

        def lists(rows: pa.Table) -> pa.Table:
            column = flat(rows.column(OPEN_ENDS))
            moved = pa.array(ends(column.values.to_numpy()))
            return with_column(rows, OPEN_ENDS, pa.ListArray.from_arrays(column.offsets, moved))

        changes = {WINDOWS: moved(TIME), MARKS: moved(END), TIMERS: moved(END), OPEN: lists}
        for table, change in changes.items():
            state = self._changed(state, table, change)
        return state

    # triggers

    def fires(self, state: State) -> State:
        """Panes become windows, each of which has one row that it has not shown."""
        what, operator = self.node.what, self.node.operator()
        assert isinstance(what, GeneralWindows) and isinstance(operator, GeneralWindowOperator)
        assigner = what.windowing.assigner
        assert isinstance(assigner, AlignedAssigner)

        def opened(panes: pa.Table) -> pa.Table:
            return operator.begun(self._of_panes(panes, assigner.window), self.clock)

        state = self._without_carried(state)
        found = {t: runs for t, runs in state.items() if t not in self._tables(PANES, BLOCKS)}
        if (panes := self._table(PANES)) in state:
            made = self._made(state[panes], self._keys, opened, WINDOWS)
            found[self._table(WINDOWS)] = made
        return self._woken(found) if what.windowing.trigger.paced else found

    def _of_panes(self, panes: pa.Table, window: Window) -> pa.Table:
        """The open windows that panes are in, with their partials."""
        times = integers(panes.column(TIME))
        first = (times - window.offset - window.size) // window.slide + 1
        last = (times - window.offset) // window.slide
        row, number = expanded(first, last - first + 1)
        ends = window.end_of(number)
        is_open = ends > self.old.watermark
        rows = with_column(panes.take(pa.array(row[is_open])), TIME, pa.array(ends[is_open]))
        rows = rows.append_column(START, pa.array(ends[is_open] - window.size))
        group = [TIME, HASH, *self._keys, START]
        return merge(rows, group, dict(self.node.what.aggregates))

    def ends(self, state: State) -> State:
        """Windows that are open become panes; those that share panes stay until they are over."""
        what, gone = self.node.what, self._tables(WINDOWS, MARKS, TIMERS)
        assert isinstance(what, PaneWindows)
        found = {t: runs for t, runs in state.items() if t not in gone}
        if (windows := self._table(WINDOWS)) in state:
            table = PANES if what.window.tumbles else CARRIED
            keys = [*self._keys, START]
            found[self._table(table)] = self._made(state[windows], keys, self._as_once, table)
        return found

    def _as_once(self, windows: pa.Table) -> pa.Table:
        ends = integers(windows.column(TIME))
        over: Mask = ends <= self.old.watermark
        if (over & unreset(windows)).any():
            raise StateError(
                "HR-EVOLVE-006",
                f"windows of {self.node.name!r} that are over have got late rows that they have "
                "not shown yet",
                "Take away lateness= and late= first, and run the job until more rows have come: "
                "those are shown then. After that the trigger may go.",
            )
        parts = [p for n, a in self.node.what.aggregates for p in part_names(n, a)]
        what, windows = self.node.what, windows.filter(pa.array(~over))
        if isinstance(what, PaneWindows) and what.window.tumbles:
            windows = with_column(windows, TIME, windows.column(START))
        return windows.select([TIME, HASH, *self._keys, *parts])

    def _without_carried(self, state: State) -> State:
        """Refused while windows are open that are stored one by one, since their trigger went."""
        table = self._table(CARRIED)
        if table not in state:
            return state
        segments = SlotState.from_json(dict(state[table])).segments
        last = [
            integers(self.cache.raw(ref).column(TIME)).max() for s in segments for ref in s.refs
        ]
        if last and max(last) > self.old.watermark:
            raise StateError(
                "HR-EVOLVE-010",
                f"windows of {self.node.name!r} are open that had a trigger or lateness, which it "
                "has lost since: they are stored whole",
                "Run the job as it was until they are over, when the watermark is at "
                f"{utc_text(int(max(last)))}; after that its windows may be others.",
            )
        return {t: runs for t, runs in state.items() if t != table}

    def watches(self, state: State) -> State:
        """What another trigger counts begins anew; and it is asked of all windows once."""
        what, operator = self.node.what, self.node.operator()
        assert isinstance(what, GeneralWindows) and isinstance(operator, GeneralWindowOperator)
        if watches_anew(self.old.shape or {}, shape(self.node)):
            state = self._changed(state, WINDOWS, operator.watching)
        state = {t: runs for t, runs in state.items() if t != self._table(TIMERS)}
        return self._woken(state) if what.windowing.trigger.clocked else state

    def _woken(self, state: State) -> State:
        """A timer for each window, by which its trigger is asked at once."""
        what = self.node.what
        assert isinstance(what, GeneralWindows)
        if self._table(WINDOWS) not in state:
            return state
        table = TIMERS if what.windowing.trigger.clocked else MARKS
        when = self.clock if table == TIMERS else self.old.watermark

        def timers(windows: pa.Table) -> pa.Table:
            timers = windows.select([HASH, *self._keys, START])
            timers = timers.append_column(END, windows.column(TIME))
            return timers.append_column(TIME, pa.array(np.full(windows.num_rows, when)))

        windows = state[self._table(WINDOWS)]
        return state | {
            self._table(table): self._made(windows, [*self._keys, START], timers, table)
        }

    # any table

    @property
    def _keys(self) -> list[str]:
        return list(self.node.keys[0])

    def _table(self, name: str) -> str:
        return table_key(self.node.name, name)

    def _tables(self, *names: str) -> set[str]:
        return {*map(self._table, names)}

    def _changed(self, state: State, name: str, change: Change) -> State:
        """The state with the rows of a table changed."""
        table = self._table(name)
        if table not in state:
            return state
        spec = next(s for s in self.node.operator().tables() if s.name == name)
        return state | {table: self._made(state[table], spec.key.names, change, name)}

    def _made(self, runs: Any, key: Sequence[str], change: Change, name: str) -> Any:
        """The table `name`, made of the rows of another, or of itself."""
        spec = next(s for s in self.node.operator().tables() if s.name == name)

        def run(rows: pa.Table) -> pa.Table:
            rows = change(rows)
            rows = rows.append_column(GONE, pa.repeat(False, rows.num_rows))
            return sorted_run(spec, rows.select(spec.run.names).cast(spec.run)).table

        return gathered(runs, key, run, self.writer, self.cache)
