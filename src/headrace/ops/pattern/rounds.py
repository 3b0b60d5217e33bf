"""One epoch of patterns: which due rows matter, and one pass with them over the keys.

Only keys with rows that matter, with a time that is over or with a rule that ends are processed,
and only their partial matches are read. What has not changed is not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, integers
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME
from headrace.ops.contract import EpochStep, Fault
from headrace.ops.keys import key_values
from headrace.ops.pattern.machine import HELD, Machine, Track
from headrace.ops.pattern.partial_matches import KeyMatches, MatchStore, StoredRun
from headrace.ops.pattern.rules import BAD, WORD, Bits, PatternRule, whole
from headrace.ops.row_windows.store import ordered
from headrace.rows import rows_of


class MatchRound:
    def __init__(
        self, store: MatchStore, due: DueRows, key: pa.Schema, columns: pa.Schema, step: EpochStep
    ) -> None:
        self._store, self.due, self._key, self._columns = store, due, key, columns
        self._step = step
        self.base = step.epoch << 32  # the number of this epoch's first row
        self._stored, self._has_matches = store.load(due.keys, step)
        self.machines: list[Machine] = []
        self._plans: list[tuple[PatternRule, Index, list[Bits]]] = []

    def plan(self, rule: PatternRule, words: Sequence[Bits]) -> None:
        """Add a pattern; which rows matter to it is computed by column."""
        rows = relevant(rule, self.due, words, self._has_matches)
        self.machines.append(Machine(rule.name, rule.automaton, self._row))
        self._plans.append((rule, rows, [word[rows] for word in words]))

    def run(self) -> None:
        with_rows = [self.due.key_ids[rows] for _, rows, _ in self._plans]
        timed = np.arange(int(self.due.key_ids.max(initial=-1)) + 1, self.due.keys.num_rows)
        keys = [*with_rows, timed, self._keys_over()]
        self._key_ids = np.unique(np.concatenate(keys))
        stored = self._stored.take(pa.array(self._key_ids))
        self._before = self._store.matches_of(stored)
        self._failed: dict[int, BaseException] = {}
        self._look_up()
        self._tracks = [self._run_pattern(i) for i in range(len(self._plans))]
        for row, error in sorted(self._failed.items()):
            self._step.faults.append(Fault(self._arrived(row), error))

    def _keys_over(self) -> Index:
        """Keys with rows whose partial matches time ends, though no row of theirs matters."""
        ends = self._stored.column("$due").fill_null(MAX_TIME).to_numpy()
        last = self._step.after >= MAX_TIME
        over = self._has_matches & ((ends <= self._step.after) | last)
        ended = [r for r, _, _ in self._plans if r.until <= self._step.after]
        return np.flatnonzero(self._has_matches if ended else over)

    # rows as users see them

    def _look_up(self) -> None:
        """Make rows for functions, if there are any."""
        has_functions = any(_has_functions(rule) for rule, _, _ in self._plans)
        self._fresh: dict[int, Any] = {}
        self._old: dict[tuple[int, int], Any] = {}
        self._key_values: list[Any] = []
        if not has_functions:
            return
        self._key_values = key_values(self.due.keys, self._key.names)
        rows = np.unique(np.concatenate([rows for _, rows, _ in self._plans]))
        table = self.due.rows.select(self._columns.names).take(pa.array(rows))
        self._fresh = dict(zip(rows.tolist(), rows_of(table), strict=True))
        pairs = [
            (int(k), i)
            for k, matches in zip(self._key_ids, self._before, strict=True)
            for i in sorted(matches.ids())
        ]
        keys = self.due.keys.take(pa.array([k for k, _ in pairs], pa.int64()))
        stored = self._store.rows(keys, [i for _, i in pairs], self._step)
        self._old = dict(zip(pairs, rows_of(stored.select(self._columns.names)), strict=True))

    def _row(self, key: int, number: int) -> Any:
        if number >= self.base:
            return self._fresh[number - self.base]
        return self._old[key, number]

    # matching

    def _run_pattern(self, plan: int) -> list[Track]:
        """Run one pattern over all keys; the partial matches of each afterwards."""
        rule, rows, words = self._plans[plan]
        machine, has_functions = self.machines[plan], _has_functions(rule)
        seen = [*zip(rows.tolist(), self.due.times[rows].tolist(), whole(words), strict=True)]
        starts = np.searchsorted(self.due.key_ids[rows], self._key_ids).tolist()
        stops = np.searchsorted(self.due.key_ids[rows], self._key_ids, side="right").tolist()
        tracks = []
        for i, (key, matches) in enumerate(zip(self._key_ids.tolist(), self._before, strict=True)):
            track = _track(rule, matches)
            machine.key = key
            machine.key_value = self._key_values[key] if has_functions else None
            own = seen[starts[i] : stops[i]]
            if has_functions:
                self._run_with_functions(machine, track, own)
            else:
                for row, time, bits in own:
                    machine.row(track, self.base + row, time, bits, None)
            self._end(machine, rule, track)
            tracks.append(track)
        return tracks

    def _run_with_functions(
        self, machine: Machine, track: Track, rows: list[tuple[int, int, int]]
    ) -> None:
        """Where the user's functions look at rows: a row on which one raises is a dead letter."""
        for row, time, bits in rows:
            try:
                machine.row(track, self.base + row, time, bits, self._fresh[row])
            except Exception as error:
                self._failed.setdefault(row, error)

    def _end(self, machine: Machine, rule: PatternRule, track: Track) -> None:
        """Advance to the watermark, or to the end of the rule."""
        if not track.runs and not track.held:
            return
        after = self._step.after
        if after >= MAX_TIME and rule.until >= MAX_TIME:
            machine.finish(track, self._step.before)
            return
        until = min(after, rule.until)
        if track.due <= until:
            machine.pass_time(track, until)
        if rule.until <= after:
            machine.drop(track)

    def _arrived(self, row: int) -> pa.Table:
        names = [n for n in self.due.rows.column_names if n != HASH and not n.startswith("__b")]
        return self.due.rows.slice(row, 1).select(names)

    # state

    def save(self) -> None:
        changed: list[int] = []
        after: list[KeyMatches] = []
        wakes: list[tuple[int, int]] = []
        fresh: list[tuple[int, int]] = []
        unused: list[tuple[int, int]] = []
        rules = [rule for rule, _, _ in self._plans]
        for i, (key, before) in enumerate(zip(self._key_ids.tolist(), self._before, strict=True)):
            now = _after_round(rules, [tracks[i] for tracks in self._tracks], self.machines)
            if now.due < MAX_TIME and now.due != before.due:
                wakes.append((key, now.due))
            if now == before:
                continue
            changed.append(key)
            after.append(now)
            old_ids, new_ids = before.ids(), now.ids()
            fresh += [(key, n) for n in new_ids - old_ids]
            unused += [(key, n) for n in old_ids - new_ids]
        self._write(changed, after, wakes, fresh, unused)

    def _write(
        self,
        changed: list[int],
        after: list[KeyMatches],
        wakes: list[tuple[int, int]],
        fresh: list[tuple[int, int]],
        unused: list[tuple[int, int]],
    ) -> None:
        store, step = self._store, self._step
        if changed:
            store.save(self._keys(changed), after, step)
        if wakes:
            store.wake(self._keys([k for k, _ in wakes]), [t for _, t in wakes], step)
        if fresh:
            rows = self.due.rows.take(pa.array([n - self.base for _, n in fresh], pa.int64()))
            store.add_rows(self._keys([k for k, _ in fresh]), [n for _, n in fresh], rows, step)
        if unused:
            store.forget_rows(self._keys([k for k, _ in unused]), [n for _, n in unused], step)

    def _keys(self, key_ids: Sequence[int]) -> pa.Table:
        return self.due.keys.take(pa.array(key_ids, pa.int64()))


def _track(rule: PatternRule, stored: KeyMatches) -> Track:
    own = [run for name, since, run in stored.runs if name == rule.name and since == rule.since]
    if not own:
        return Track()
    held = [run for run in own if run[0] == HELD]
    return Track([run for run in own if run[0] != HELD], held, stored.due)


def _after_round(
    rules: Sequence[PatternRule], tracks: Sequence[Track], machines: Sequence[Machine]
) -> KeyMatches:
    runs: list[StoredRun] = []
    due = MAX_TIME
    for rule, track, machine in zip(rules, tracks, machines, strict=True):
        if track.runs or track.held:
            runs += [(rule.name, rule.since, run) for run in track.runs]
            runs += [(rule.name, rule.since, (HELD, *run[1:])) for run in track.held]
            due = min(due, min(map(machine.deadline, track.runs), default=MAX_TIME))
    return KeyMatches(tuple(runs), due)


def _has_functions(rule: PatternRule) -> bool:
    """Whether a condition is a function of the user's."""
    automaton = rule.automaton
    return any(state.has_functions for state in (automaton.start, *automaton.states))


# Due rows by key in order, and which of them matter.
#
# Everything here is by column. A row matters to a pattern if one of its conditions may hold, or,
# where rows must follow directly, if it comes after such a row; and then only if the key has a
# partial match or the row comes after one that can begin one.


@dataclass(frozen=True, slots=True)
class DueRows:
    """Rows that are due, key by key, and the keys: those with rows first."""

    rows: pa.Table
    key_ids: Index
    times: Index
    keys: pa.Table


def due_rows(
    rows: pa.Table, key: pa.Schema, others: Sequence[pa.Table], store: MatchStore
) -> DueRows:
    """Due rows, and further keys to be processed."""
    identity = pa.schema([pa.field(HASH, pa.uint64()), *key])
    if rows.num_rows:
        sorted_rows = ordered(rows, key)
        rows, keys = rows.take(pa.array(sorted_rows.order)), sorted_rows.keys
        key_ids = np.repeat(np.arange(keys.num_rows), sorted_rows.sizes)
    else:
        keys, key_ids = identity.empty_table(), np.zeros(0, np.int64)
    for more in others:
        new = store.among(keys, more) < 0
        if new.any():
            added = more.filter(pa.array(new)).cast(identity)
            keys = pa.concat_tables([keys, added]).combine_chunks()
    return DueRows(rows, key_ids, integers(rows[TIME]), keys)


def relevant(rule: PatternRule, due: DueRows, words: Sequence[Bits], has_matches: Mask) -> Index:
    """The rows that may change a match; `has_matches`: which keys have partial matches."""
    some: Mask = np.zeros(len(due.key_ids), np.bool_)
    for word in words:
        some |= word != 0
    keep = _in_sight(rule, due, some)
    begins = _begins(rule, words) & keep
    seen = np.cumsum(begins)
    first = np.flatnonzero(np.diff(due.key_ids, prepend=-1))
    before: Index = (seen - begins)[first]  # how many came before each key's first row
    sizes = np.diff(first, append=len(seen))
    keep &= has_matches[due.key_ids] | (seen > np.repeat(before, sizes))
    for word in words:
        keep &= word != BAD
    return np.flatnonzero(keep)


def _in_sight(rule: PatternRule, due: DueRows, some: Mask) -> Mask:
    automaton = rule.automaton
    if automaton.ignores_unmatched:
        in_sight = some.copy()
    elif any(state.always for state in (automaton.start, *automaton.states)):
        in_sight = np.ones(len(some), np.bool_)
    else:  # a row without any condition ends what waits for the next row
        new = np.diff(due.key_ids, prepend=-1) != 0
        in_sight = some | new | np.append(False, some[:-1])[: len(some)]
    in_sight &= (due.times >= rule.since) & (due.times < rule.until)
    return in_sight


def _begins(rule: PatternRule, words: Sequence[Bits]) -> Mask:
    start = rule.automaton.start
    begins: Mask = np.full(len(words[0]), start.always)
    for index, word in enumerate(words):
        mask = start.watch >> (WORD * index) & ((1 << WORD) - 1)
        begins |= (word & mask) != 0
    return begins
