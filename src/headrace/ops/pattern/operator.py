"""Patterns over the rows of each key: what is due is matched, what is not waits.

An epoch: rows that the watermark has passed are sorted by key and time; conditions that are
expressions are computed by column; keys and rows on which nothing can begin or go on are left out
by column, too; the others go through the matcher one by one. Matches are emitted by column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import integers, timestamps
from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.keys import key_numbers
from headrace.ops.contract import EpochStep, Fault, Operator
from headrace.ops.keys import HIDDEN_KEY, key_schema
from headrace.ops.pattern.automaton import ACCEPT, Automaton
from headrace.ops.pattern.machine import HELD, Machine, Run
from headrace.ops.pattern.match_output import EmittedMatch, GatheredMatches, MatchOutput
from headrace.ops.pattern.matches import MatchRows, Selection, whole_rows, whole_schema
from headrace.ops.pattern.partial_matches import ROWS, RUNS, KeyMatches, MatchStore
from headrace.ops.pattern.rounds import DueRows, MatchRound, due_rows
from headrace.ops.pattern.rules import (
    BAD,
    NAME,
    RULES,
    TEXT,
    Bits,
    PatternRule,
    PatternRules,
    conditions,
)
from headrace.ops.tables import free_name
from headrace.rows import collector_paused
from headrace.state.table import KeyedTable, TableSpec

TIMEOUTS = "timeouts"
_HIDDEN = (TIME, SOURCE, OFFSET, HASH)


class MatchOperator(Operator):
    version = 2  # 1: a loop could begin with a row that its `until` excludes

    def __init__(
        self,
        rules: Sequence[PatternRule] | None,
        exprs: tuple[str, ...],
        selection: Selection,
        keys: Sequence[str],
        input: pa.Schema,
        *,
        timeouts: bool,
        unbounded: bool,
    ) -> None:
        """`rules`: the patterns, or None if they come on a control stream."""
        self._fixed_rules, self._input, self._timeouts = rules, input, timeouts
        self._exprs = exprs
        key = pa.schema([input.field(k) for k in keys])
        self._key = key
        self._words = [] if rules is None else self._word_names()
        fields = [*input, *(pa.field(n, pa.int64()) for n in self._words)]
        self._buffer = RowBuffer(key, pa.schema(fields))
        self._store = MatchStore(key, input)
        self._match_output = MatchOutput(selection, input, key)
        self._rules = PatternRules(input, unbounded) if rules is None else None
        self._ignores_unmatched = rules is not None and all(
            r.automaton.ignores_unmatched for r in rules
        )

    def _word_names(self) -> list[str]:
        return [f"__b{i}" for i in range(conditions(self._exprs, self._input).words)]

    def tables(self) -> tuple[TableSpec, ...]:
        rules = (self._rules.spec,) if self._rules is not None else ()
        return (self._buffer.spec, *self._store.tables(), *rules)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """Partial matches, and rows that wait."""
        rules = self._fixed_rules
        if self._rules is not None:
            rules = self._rules.stored_rules(tables[RULES].scan())
        runs, stored = tables[RUNS].scan(), tables[ROWS].scan()
        return matches_view(
            self._key,
            self._input,
            (runs, self._store.matches_of(runs)),
            stored,
            self._store.ids(stored),
            tables[WAITING].scan(),
            rules or (),
            since,
            until,
        )

    def side_views(self) -> Mapping[str, Sequence[str]]:
        return {} if self._rules is None else {RULES: (NAME,)}

    def side_view(self, name: str, tables: Mapping[str, KeyedTable]) -> pa.Table:
        assert self._rules is not None
        return self._rules.view(tables[RULES].scan())

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        if port or watermark <= MIN_TIME:
            return None
        return np.asarray(rows.column(TIME).to_numpy() < watermark)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """Rows with the bits of their conditions; those that cannot matter stay where they are."""
        hidden = [n for n in _HIDDEN if n in rows.column_names]
        if port:
            return rows.select([NAME, TEXT, *hidden])
        table = rows.select([*self._input.names, *hidden])
        if not self._words:
            return table
        words = conditions(self._exprs, self._input).of(table)
        for name, word in zip(self._words, words, strict=True):
            table = table.append_column(name, pa.array(word))
        if self._ignores_unmatched:
            some = np.logical_or.reduce([word != 0 for word in words])
            table = table if some.all() else table.filter(pa.array(some))
        return table

    @collector_paused()
    def step(self, step: EpochStep) -> None:
        rules, ending = self._current_rules(step)
        rows = self._buffer.advance(self._without_failed(step), step)
        others = [self._store.due(step)]
        if ending:
            others.append(self._store.keys_with_matches(step, ending))
        if step.after >= MAX_TIME:
            others.append(self._store.keys_with_matches(step))
        due = due_rows(rows, self._key, others, self._store)
        if due.keys.num_rows:
            self._match(due, rules, step)
        waiting = self._buffer.next(step)
        step.next = min(self._store.next(step), MAX_TIME if waiting is None else waiting)

    def _current_rules(self, step: EpochStep) -> tuple[Sequence[PatternRule], set[str]]:
        if self._rules is not None:
            return self._rules.advance(step.inputs[1], step)
        assert self._fixed_rules is not None
        return self._fixed_rules, set()

    def _without_failed(self, step: EpochStep) -> pa.Table | None:
        """The rows that arrived, without those on which a condition fails."""
        arrived = step.inputs[0]
        if arrived is None or not arrived.num_rows or not self._words:
            return arrived
        bad = arrived.column(self._words[0]).to_numpy() == BAD
        if not bad.any():
            return arrived
        for i in np.flatnonzero(bad):
            self._dead_letter(arrived.slice(int(i), 1), self._exprs, step)
        return arrived.filter(pa.array(~bad))

    def _dead_letter(self, row: pa.Table, exprs: tuple[str, ...], step: EpochStep) -> None:
        why = conditions(exprs, self._input).reason(row)
        names = [n for n in row.column_names if n not in (HASH, *self._words)]
        step.faults.append(Fault(row.select(names), why))

    def _match(self, due: DueRows, rules: Sequence[PatternRule], step: EpochStep) -> None:
        match_round = MatchRound(self._store, due, self._key, self._input, step)
        for rule, words in zip(rules, self._bits(due, rules, step), strict=True):
            match_round.plan(rule, words)
        match_round.run()
        matches = [(m, *one) for m in match_round.machines for one in m.matches.rows]
        timeouts = [(m, *one) for m in match_round.machines for one in m.timeouts.rows]
        if matches:
            gathered = self._gather(matches, match_round, step)
            step.out.append(self._match_output.rows(gathered, step))
        if timeouts and self._timeouts:
            gathered = self._gather(timeouts, match_round, step)
            step.sides.setdefault(TIMEOUTS, []).append(self._match_output.whole(gathered))
        match_round.save()

    def _gather(
        self, emitted: Sequence[EmittedMatch], match_round: MatchRound, step: EpochStep
    ) -> GatheredMatches:
        due = match_round.due
        return self._match_output.gather(
            emitted, due.keys, due.rows, match_round.base, self._store, step
        )

    def _bits(
        self, due: DueRows, rules: Sequence[PatternRule], step: EpochStep
    ) -> list[list[Bits]]:
        """For each rule the bits of each due row: computed when the rows arrived, or now."""
        if self._rules is None:
            words = [due.rows.column(n).to_numpy() for n in self._words]
            return [words for _ in rules]
        bits = [conditions(rule.exprs, self._input).of(due.rows) for rule in rules]
        failed = set[int]()
        for rule, words in zip(rules, bits, strict=True):
            counts = (due.times >= rule.since) & (due.times < rule.until)
            for i in np.flatnonzero((words[0] == BAD) & counts):
                if int(i) not in failed:
                    failed.add(int(i))
                    self._dead_letter(due.rows.slice(int(i), 1), rule.exprs, step)
        return bits


# Rows that wait for the watermark: a pattern sees rows in the order of their time.
#
# A row is due when the watermark has passed its time. One that is due in the epoch in which it
# comes never touches the table; what has been matched expires for free.


WAITING = "waiting"
_PLACE = {"$source": SOURCE, "$offset": OFFSET}
_EPOCH, _NUMBER = "$epoch", "$number"


class RowBuffer:
    def __init__(self, key: pa.Schema, rows: pa.Schema) -> None:
        """`rows` are the columns that are stored, the key's included, hidden ones not."""
        self._key, self._rows = key, rows
        place_fields = [
            pa.field("$source", pa.int32()),
            pa.field("$offset", pa.int64()),
            pa.field(_EPOCH, pa.int64()),
            pa.field(_NUMBER, pa.int64()),
        ]
        values = [f for f in rows if f.name not in key.names]
        self.spec = TableSpec(
            WAITING, pa.schema([*key, *place_fields]), pa.schema(values), timed=True
        )
        hidden = [(HASH, pa.uint64()), (TIME, pa.int64()), (SOURCE, pa.int32())]
        self.schema = pa.schema([*rows, *hidden, (OFFSET, pa.int64())])

    def advance(self, arrived: pa.Table | None, step: EpochStep) -> pa.Table:
        """Store the rows that are not due yet; those that are, the first of each tie first."""
        table = step.tables[WAITING]
        due = self._restored(table.scan(hi=step.after))
        table.expire(step.after)
        if arrived is None or not arrived.num_rows:
            return due
        rows = _placed(arrived).select(self.schema.names).cast(self.schema)
        ready = rows.column(TIME).to_numpy() < step.after
        self._store(rows.filter(pa.array(~ready)), step)
        return pa.concat_tables([due, rows.filter(pa.array(ready))])

    def next(self, step: EpochStep) -> int | None:
        """The watermark at which a row is due."""
        first = step.tables[WAITING].first_time()
        return None if first is None else first + 1

    def _store(self, rows: pa.Table, step: EpochStep) -> None:
        count = rows.num_rows
        names = [{v: k for k, v in _PLACE.items()}.get(n, n) for n in rows.column_names]
        stored = rows.rename_columns(names)
        stored = stored.append_column(_EPOCH, pa.array(np.full(count, step.epoch, np.int64)))
        step.tables[WAITING].put(stored.append_column(_NUMBER, pa.array(np.arange(count))))

    def _restored(self, stored: pa.Table) -> pa.Table:
        order = np.lexsort((integers(stored[_NUMBER]), integers(stored[_EPOCH])))
        stored = stored.take(pa.array(order))
        names = [_PLACE.get(n, n) for n in stored.column_names]
        return stored.rename_columns(names).select(self.schema.names).cast(self.schema)


def _placed(rows: pa.Table) -> pa.Table:
    """Rows with a place in their source; a neutral one for those that have none."""
    for name, blank in ((SOURCE, np.int32(-1)), (OFFSET, np.int64(0))):
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.array(np.full(rows.num_rows, blank)))
    return rows


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
