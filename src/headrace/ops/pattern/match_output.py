"""From the matches of an epoch to rows: gathered once, then by column or by the user's function.

The rows of matches are this epoch's, or were stored; either way they are looked up for all
matches at once. If the function or a column fails on a match, its last row is a dead letter.
The view of the state shows partial matches in the same form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import integers, timestamps
from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME
from headrace.errors import StepError
from headrace.isolate import one_by_one
from headrace.ops.contract import EpochStep, Fault
from headrace.ops.keys import HIDDEN_KEY, key_numbers, key_schema, key_values
from headrace.ops.pattern.automaton import ACCEPT, Automaton
from headrace.ops.pattern.machine import HELD, Machine, Run
from headrace.ops.pattern.matches import (
    PATTERN,
    Match,
    MatchRows,
    Selection,
    kernel_of,
    whole_rows,
    whole_schema,
)
from headrace.ops.pattern.partial_matches import KeyMatches, MatchStore
from headrace.ops.pattern.rules import PatternRule
from headrace.ops.tables import free_name
from headrace.rows import as_rows, row_copier, rows_of, table_of

EmittedMatch = tuple[Machine, int, Run, int]  # machine, key id, rows, time


@dataclass(frozen=True, slots=True)
class GatheredMatches:
    """Matches with their rows, hidden columns included, and when they were emitted."""

    matches: MatchRows
    emitted: Sequence[EmittedMatch]
    ends: np.ndarray  # where the rows of each match end

    def fault(self, number: int, error: BaseException) -> Fault:
        last = self.matches.rows.slice(int(self.ends[number]) - 1, 1)
        return Fault(last.select([n for n in last.column_names if n != HASH]), error)


class MatchOutput:
    def __init__(self, selection: Selection, columns: pa.Schema, key: pa.Schema) -> None:
        self._selection, self._columns, self._key = selection, columns, key

    def gather(
        self,
        emitted: Sequence[EmittedMatch],
        keys: pa.Table,
        fresh: pa.Table,
        base: int,
        store: MatchStore,
        step: EpochStep,
    ) -> GatheredMatches:
        """`fresh` are the rows of this epoch, numbered from `base` on."""
        sizes = np.array([len(run[1]) for _, _, run, _ in emitted], np.int64)
        owner = np.repeat(np.arange(len(emitted)), sizes)
        ids = np.array([n for _, _, run, _ in emitted for n in run[1]], np.int64)
        key_ids = np.array([key for _, key, _, _ in emitted], np.int64)[owner]
        old = np.flatnonzero(ids < base)
        column_names = [*self._columns.names, HASH, TIME, SOURCE, OFFSET]
        stored = store.rows(keys.take(pa.array(key_ids[old])), ids[old].tolist(), step)
        pool = pa.concat_tables([fresh.select(column_names), stored.select(column_names)])
        at = ids - base
        at[old] = fresh.num_rows + np.arange(len(old))
        rows = pool.take(pa.array(at))
        names = np.array(
            [machine.automaton.states[p].name for machine, _, run, _ in emitted for p in run[2]],
            object,
        )
        match_keys = keys.take(pa.array([key for _, key, _, _ in emitted], pa.int64()))
        patterns = [machine.name for machine, _, _, _ in emitted]
        matches = MatchRows(owner, names, rows, match_keys, patterns)
        return GatheredMatches(matches, emitted, np.cumsum(sizes))

    def whole(self, gathered: GatheredMatches) -> pa.Table:
        """Each match as a row, with hidden columns."""
        rows = whole_rows(gathered.matches, self._selection.whole, self._columns)
        return self._hidden(rows, gathered, np.arange(len(gathered.emitted)))

    def rows(self, gathered: GatheredMatches, step: EpochStep) -> pa.Table:
        """What is emitted of the matches."""
        if self._selection.function is not None:
            return self._called(gathered, step)
        rows = whole_rows(gathered.matches, self._selection.whole, self._columns)
        of = np.arange(rows.num_rows)
        if self._selection.columns is not None:
            texts = tuple((name, expr.sql()) for name, expr in self._selection.columns)
            rows, bad = kernel_of(texts, self._selection.whole).run(rows)
            for number, why in bad:
                step.faults.append(gathered.fault(number, StepError("HR-STEP-002", why)))
            of = np.delete(of, [number for number, _ in bad])
        return self._hidden(rows.cast(self._selection.output), gathered, of)

    def _called(self, gathered: GatheredMatches, step: EpochStep) -> pa.Table:
        matches = self._matches(gathered)
        returned, of, faults = self._call(matches, gathered, careful=False)
        try:
            rows = table_of(returned, self._selection.function_schema)
        except ValueError:  # something does not fit: find out which, one match at a time
            matches = self._matches(gathered)  # as they were, whatever the function did to them
            returned, of, faults = self._call(matches, gathered, careful=True)
            rows = table_of(returned, self._selection.function_schema)
        step.faults += faults
        if self._selection.named:
            names = [matches[i].pattern for i in of]
            rows = rows.add_column(0, PATTERN, pa.array(names, pa.string()))
        rows = rows.select(self._selection.output.names).cast(self._selection.output)
        return self._hidden(rows, gathered, np.array(of, np.int64))

    def _call(
        self, matches: list[Match], gathered: GatheredMatches, careful: bool
    ) -> tuple[list[Any], list[int], list[Fault]]:
        """What the function returns for each match; where it raises, the match is a dead letter."""
        returned: list[Any] = []
        of: list[int] = []
        faults: list[Fault] = []
        function, copier = self._selection.function, row_copier(self._selection.function_schema)
        assert function is not None

        def call(match: Match) -> list[Any]:
            rows = copier.all(as_rows(function(match)))
            if careful:
                table_of(rows, self._selection.function_schema)
            return rows

        def failed(number: int, error: Exception) -> None:
            faults.append(gathered.fault(number, error))

        for number, rows in one_by_one(matches, call, failed):
            returned += rows
            of += [number] * len(rows)
        return returned, of, faults

    def _matches(self, gathered: GatheredMatches) -> list[Match]:
        rows = rows_of(gathered.matches.rows.select(self._columns.names))
        keys = key_values(gathered.matches.keys, self._key.names)
        matches, start = [], 0
        for i, (machine, _, _, _) in enumerate(gathered.emitted):
            stop = int(gathered.ends[i])
            own = zip(gathered.matches.names[start:stop], rows[start:stop], strict=True)
            matches.append(Match(machine.name, keys[i], machine.automaton.names, [*own]))
            start = stop
        return matches

    def _hidden(self, rows: pa.Table, gathered: GatheredMatches, of: np.ndarray) -> pa.Table:
        times = np.array([time for _, _, _, time in gathered.emitted], np.int64)[of]
        hashes = gathered.matches.keys.column(HASH).to_numpy()[of]
        rows = rows.append_column(TIME, pa.array(times))
        rows = rows.append_column(SOURCE, pa.array(np.full(len(of), -1, np.int32)))
        return rows.append_column(OFFSET, pa.array(hashes.view(np.int64)))


# The state of a match step as people see it: partial matches, and rows that wait.
#
# A row per partial match: its pattern, the row it waits for, the rows it has, when the first of
# them was and when time ends it. A match that the skip policy holds back is shown as well, and
# a row that waits for the watermark is shown as a partial match that has not begun.


PARTIAL, MATCH, ROW = "partial", "match", "row"  # in the column "held"


@dataclass(frozen=True, slots=True)
class _ViewRow:
    """A partial match, a match that is held back, or a row that waits."""

    key: int  # its place among the keys
    held: str
    pattern: str | None
    waits_for: str | None
    since: int
    deadline: int | None
    rows: tuple[tuple[str | None, int], ...]  # the name of each, and its place in the pool


def matches_view(
    key: pa.Schema,
    columns: pa.Schema,
    runs: tuple[pa.Table, Sequence[KeyMatches]],
    stored_rows: pa.Table,
    ids: Sequence[int],
    waiting: pa.Table,
    rules: Sequence[PatternRule],
    since: int,
    until: int,
) -> pa.Table:
    """What began in [since, until); `stored_rows`: those of partial matches, numbered by `ids`."""
    keys, matches = runs
    identity = [HASH, *key.names]
    both = pa.concat_tables([keys.select(identity), stored_rows.select(identity)])
    key_ids, _ = key_numbers(both)
    count = keys.num_rows
    row_places = {at: i for i, at in enumerate(zip(key_ids[count:].tolist(), ids, strict=True))}
    machines = {(r.name, r.since): Machine(r.name, r.automaton, _no_row) for r in rules}
    shown = [
        _partial(
            i,
            machines[name, rule_since],
            run,
            {n: row_places[int(key_ids[i]), n] for n in run[1]},
        )
        for i, one in enumerate(matches)
        for name, rule_since, run in one.runs
        if (name, rule_since) in machines
    ]
    times = integers(waiting.column(TIME)).tolist()
    shown += [
        _ViewRow(count + i, ROW, None, None, at, None, ((None, stored_rows.num_rows + i),))
        for i, at in enumerate(times)
    ]
    shown = [one for one in shown if since <= one.since < until]
    every = pa.concat_tables([keys.select(key.names), waiting.select(key.names)])
    pool = pa.concat_tables([t.select(columns.names).cast(columns) for t in (stored_rows, waiting)])
    return _table(shown, key, columns, every, pool)


def waits_for(automaton: Automaton, run: Run) -> str:
    """The rows that would carry a partial match on: "b or c", "no d", "no d next"."""
    alive, state = run[0], automaton.states[run[2][-1]]
    ways = [e.target for i, e in enumerate(state.edges) if alive >> i & 1 and e.target != ACCEPT]
    names = [automaton.states[target].name for target in ways]
    if alive & state.waiting and automaton.absent is not None:
        names.append(f"no {automaton.absent}")
    if alive & state.fresh:
        alive_edges = (e for i, e in enumerate(state.edges) if alive >> i & 1)
        names += [f"no {guard.name} next" for e in alive_edges if e.accepts for guard in e.guards]
    return " or ".join(dict.fromkeys(names))


def _partial(key: int, machine: Machine, run: Run, row_places: Mapping[int, int]) -> _ViewRow:
    automaton = machine.automaton
    names = [automaton.states[p].name for p in run[2]]
    rows = tuple((name, row_places[n]) for name, n in zip(names, run[1], strict=True))
    if run[0] == HELD:
        return _ViewRow(key, MATCH, machine.name, None, run[3], None, rows)
    ends = machine.deadline(run)
    deadline = None if ends >= MAX_TIME else ends
    return _ViewRow(key, PARTIAL, machine.name, waits_for(automaton, run), run[3], deadline, rows)


def _table(
    shown: Sequence[_ViewRow], key: pa.Schema, columns: pa.Schema, keys: pa.Table, pool: pa.Table
) -> pa.Table:
    hidden = key_schema(key.names, key, HIDDEN_KEY)
    owner = np.repeat(np.arange(len(shown)), [len(one.rows) for one in shown]).astype(np.int64)
    names = np.array([name for one in shown for name, _ in one.rows], object)
    rows = pool.take(pa.array([at for one in shown for _, at in one.rows], pa.int64()))
    keys = keys.rename_columns(hidden.names).take(pa.array([one.key for one in shown], pa.int64()))
    matches = MatchRows(owner, names, rows, keys, [one.pattern for one in shown])
    whole = whole_rows(matches, whole_schema(hidden, columns, None, named=True), columns)
    own_columns = {
        "held": pa.array([one.held for one in shown], pa.string()),
        "pattern": whole.column("pattern"),
        "waits_for": pa.array([one.waits_for for one in shown], pa.string()),
        "rows": whole.column("rows"),
        "since": _moments([one.since for one in shown]),
        "deadline": _moments([one.deadline for one in shown]),
    }
    arrays = [*whole.select(hidden.names).columns, *own_columns.values()]
    return pa.table(arrays, [*key.names, *(free_name(name, key.names) for name in own_columns)])


def _moments(millis: Sequence[int | None]) -> pa.Array:
    present = np.array([ms is not None for ms in millis], np.bool_)
    return timestamps(np.array([ms or 0 for ms in millis], np.int64), present)


def _no_row(key: int, number: int) -> Any:
    raise AssertionError("a look calls no function of the user's")
