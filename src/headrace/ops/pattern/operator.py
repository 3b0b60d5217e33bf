"""Patterns over the rows of each key: what is due is matched, what is not waits.

An epoch: rows that the watermark has passed are arranged by key and time; conditions that are
expressions are known by column; keys and rows on which nothing can begin or go on are left out
by column, too; the others go through the matcher one by one. Matches leave by column.
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
from headrace.ops.contract import EpochStep, Fault, Operator
from headrace.ops.keys import HIDDEN_KEY, key_numbers, key_schema
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
        known: Sequence[PatternRule] | None,
        exprs: tuple[str, ...],
        selection: Selection,
        keys: Sequence[str],
        input: pa.Schema,
        *,
        timeouts: bool,
        unbounded: bool,
    ) -> None:
        """`known`: the patterns, or None if they come on a control stream."""
        self._known, self._input, self._timeouts = known, input, timeouts
        self._exprs = exprs
        key = pa.schema([input.field(k) for k in keys])
        self._key = key
        self._words = [] if known is None else self._word_names()
        fields = [*input, *(pa.field(n, pa.int64()) for n in self._words)]
        self._buffer = RowBuffer(key, pa.schema(fields))
        self._store = MatchStore(key, input)
        self._match_output = MatchOutput(selection, input, key)
        self._rules = PatternRules(input, unbounded) if known is None else None
        self._blind = known is not None and all(r.automaton.blind for r in known)

    def _word_names(self) -> list[str]:
        return [f"__b{i}" for i in range(conditions(self._exprs, self._input).words)]

    def tables(self) -> tuple[TableSpec, ...]:
        rules = (self._rules.spec,) if self._rules is not None else ()
        return (self._buffer.spec, *self._store.tables(), *rules)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """Partial matches, and rows that wait: computed from the state, when someone looks."""
        rules = self._known
        if self._rules is not None:
            rules = self._rules.known(tables[RULES].scan())
        runs, held = tables[RUNS].scan(), tables[ROWS].scan()
        return matches_view(
            self._key,
            self._input,
            (runs, self._store.matches_of(runs)),
            held,
            self._store.ids(held),
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
        if self._blind:
            some = np.logical_or.reduce([word != 0 for word in words])
            table = table if some.all() else table.filter(pa.array(some))
        return table

    @collector_paused()
    def step(self, step: EpochStep) -> None:
        rules, ending = self._turn(step)
        rows = self._buffer.turn(self._good(step), step)
        others = [self._store.due(step)]
        if ending:
            others.append(self._store.everyone(step, ending))
        if step.after >= MAX_TIME:
            others.append(self._store.everyone(step))
        due = due_rows(rows, self._key, others, self._store)
        if due.keys.num_rows:
            self._match(due, rules, step)
        waiting = self._buffer.next(step)
        step.next = min(self._store.next(step), MAX_TIME if waiting is None else waiting)

    def _turn(self, step: EpochStep) -> tuple[Sequence[PatternRule], set[str]]:
        if self._rules is not None:
            return self._rules.turn(step.inputs[1], step)
        assert self._known is not None
        return self._known, set()

    def _good(self, step: EpochStep) -> pa.Table | None:
        """What came, without the rows on which a condition fails."""
        arrived = step.inputs[0]
        if arrived is None or not arrived.num_rows or not self._words:
            return arrived
        bad = arrived.column(self._words[0]).to_numpy() == BAD
        if not bad.any():
            return arrived
        for i in np.flatnonzero(bad):
            self._fail(arrived.slice(int(i), 1), self._exprs, step)
        return arrived.filter(pa.array(~bad))

    def _fail(self, row: pa.Table, exprs: tuple[str, ...], step: EpochStep) -> None:
        why = conditions(exprs, self._input).reason(row)
        names = [n for n in row.column_names if n not in (HASH, *self._words)]
        step.faults.append(Fault(row.select(names), why))

    def _match(self, due: DueRows, rules: Sequence[PatternRule], step: EpochStep) -> None:
        found = MatchRound(self._store, due, self._key, self._input, step)
        for rule, words in zip(rules, self._bits(due, rules, step), strict=True):
            found.plan(rule, words)
        found.run()
        matches = [(m, *one) for m in found.machines for one in m.matches.rows]
        timeouts = [(m, *one) for m in found.machines for one in m.timeouts.rows]
        if matches:
            gathered = self._gather(matches, found, step)
            step.out.append(self._match_output.rows(gathered, step))
        if timeouts and self._timeouts:
            gathered = self._gather(timeouts, found, step)
            step.sides.setdefault(TIMEOUTS, []).append(self._match_output.whole(gathered))
        found.save()

    def _gather(
        self, emitted: Sequence[EmittedMatch], found: MatchRound, step: EpochStep
    ) -> GatheredMatches:
        due = found.due
        return self._match_output.gather(emitted, due.keys, due.rows, found.base, self._store, step)

    def _bits(
        self, due: DueRows, rules: Sequence[PatternRule], step: EpochStep
    ) -> list[list[Bits]]:
        """For each rule the bits of each due row: made when the rows came, or now."""
        if self._rules is None:
            words = [due.rows.column(n).to_numpy() for n in self._words]
            return [words for _ in rules]
        found = [conditions(rule.exprs, self._input).of(due.rows) for rule in rules]
        failed = set[int]()
        for rule, words in zip(rules, found, strict=True):
            counts = (due.times >= rule.since) & (due.times < rule.until)
            for i in np.flatnonzero((words[0] == BAD) & counts):
                if int(i) not in failed:
                    failed.add(int(i))
                    self._fail(due.rows.slice(int(i), 1), rule.exprs, step)
        return found


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
        place = [
            pa.field("$source", pa.int32()),
            pa.field("$offset", pa.int64()),
            pa.field(_EPOCH, pa.int64()),
            pa.field(_NUMBER, pa.int64()),
        ]
        values = [f for f in rows if f.name not in key.names]
        self.spec = TableSpec(WAITING, pa.schema([*key, *place]), pa.schema(values), timed=True)
        hidden = [(HASH, pa.uint64()), (TIME, pa.int64()), (SOURCE, pa.int32())]
        self.schema = pa.schema([*rows, *hidden, (OFFSET, pa.int64())])

    def turn(self, arrived: pa.Table | None, step: EpochStep) -> pa.Table:
        """Keep what is not due yet; the rows that are, those that come first in each tie first."""
        table = step.tables[WAITING]
        due = self._known(table.scan(hi=step.after))
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

    def _known(self, found: pa.Table) -> pa.Table:
        order = np.lexsort((integers(found[_NUMBER]), integers(found[_EPOCH])))
        found = found.take(pa.array(order))
        names = [_PLACE.get(n, n) for n in found.column_names]
        return found.rename_columns(names).select(self.schema.names).cast(self.schema)


def _placed(rows: pa.Table) -> pa.Table:
    """With a place in their source, known or not."""
    for name, blank in ((SOURCE, np.int32(-1)), (OFFSET, np.int64(0))):
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.array(np.full(rows.num_rows, blank)))
    return rows


# The state of a match step as people see it: partial matches, and rows that wait.
#
# A row per partial match: its pattern, the row it waits for, the rows it has, when the first of
# them was and when time ends it. A match that the skip policy holds back is shown as well, and
# a row that waits for the watermark is shown as a partial match that has not begun.


PARTIAL, MATCH, ROW = "partial", "match", "row"  # what is held


@dataclass(frozen=True, slots=True)
class _HeldMatch:
    """One thing that is held."""

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
    held: pa.Table,
    ids: Sequence[int],
    waiting: pa.Table,
    rules: Sequence[PatternRule],
    since: int,
    until: int,
) -> pa.Table:
    """What began in [since, until); `held` are the rows of partial matches, numbered by `ids`."""
    keys, stored = runs
    identity = [HASH, *key.names]
    both = pa.concat_tables([keys.select(identity), held.select(identity)])
    whose, _ = key_numbers(both)
    count = keys.num_rows
    place = {at: i for i, at in enumerate(zip(whose[count:].tolist(), ids, strict=True))}
    machines = {(r.name, r.since): Machine(r.name, r.automaton, _no_row) for r in rules}
    found = [
        _partial(i, machines[name, known], run, {n: place[int(whose[i]), n] for n in run[1]})
        for i, one in enumerate(stored)
        for name, known, run in one.runs
        if (name, known) in machines
    ]
    times = integers(waiting.column(TIME)).tolist()
    found += [
        _HeldMatch(count + i, ROW, None, None, at, None, ((None, held.num_rows + i),))
        for i, at in enumerate(times)
    ]
    found = [one for one in found if since <= one.since < until]
    every = pa.concat_tables([keys.select(key.names), waiting.select(key.names)])
    pool = pa.concat_tables([t.select(columns.names).cast(columns) for t in (held, waiting)])
    return _table(found, key, columns, every, pool)


def waits_for(automaton: Automaton, run: Run) -> str:
    """The rows that would carry a partial match on: "b or c", "no d", "no d next"."""
    alive, place = run[0], automaton.places[run[2][-1]]
    ways = [e.target for i, e in enumerate(place.edges) if alive >> i & 1 and e.target != ACCEPT]
    names = [automaton.places[target].name for target in ways]
    if alive & place.waiting and automaton.absent is not None:
        names.append(f"no {automaton.absent}")
    if alive & place.fresh:
        alive_edges = (e for i, e in enumerate(place.edges) if alive >> i & 1)
        names += [f"no {guard.name} next" for e in alive_edges if e.accepts for guard in e.guards]
    return " or ".join(dict.fromkeys(names))


def _partial(key: int, machine: Machine, run: Run, place: Mapping[int, int]) -> _HeldMatch:
    automaton = machine.automaton
    names = [automaton.places[p].name for p in run[2]]
    rows = tuple((name, place[n]) for name, n in zip(names, run[1], strict=True))
    if run[0] == HELD:
        return _HeldMatch(key, MATCH, machine.name, None, run[3], None, rows)
    ends = machine.deadline(run)
    deadline = None if ends >= MAX_TIME else ends
    return _HeldMatch(key, PARTIAL, machine.name, waits_for(automaton, run), run[3], deadline, rows)


def _table(
    found: Sequence[_HeldMatch], key: pa.Schema, columns: pa.Schema, keys: pa.Table, pool: pa.Table
) -> pa.Table:
    hidden = key_schema(key.names, key, HIDDEN_KEY)
    owner = np.repeat(np.arange(len(found)), [len(one.rows) for one in found]).astype(np.int64)
    names = np.array([name for one in found for name, _ in one.rows], object)
    rows = pool.take(pa.array([at for one in found for _, at in one.rows], pa.int64()))
    own = keys.rename_columns(hidden.names).take(pa.array([one.key for one in found], pa.int64()))
    arranged = MatchRows(owner, names, rows, own, [one.pattern for one in found])
    whole = whole_rows(arranged, whole_schema(hidden, columns, None, named=True), columns)
    own_columns = {
        "held": pa.array([one.held for one in found], pa.string()),
        "pattern": whole.column("pattern"),
        "waits_for": pa.array([one.waits_for for one in found], pa.string()),
        "rows": whole.column("rows"),
        "since": _moments([one.since for one in found]),
        "deadline": _moments([one.deadline for one in found]),
    }
    taken = {f.name: f.type for f in key}
    words = [*whole.select(hidden.names).columns, *own_columns.values()]
    return pa.table(words, names=[*key.names, *(free_name(name, taken) for name in own_columns)])


def _moments(millis: Sequence[int | None]) -> pa.Array:
    present = np.array([ms is not None for ms in millis], np.bool_)
    return timestamps(np.array([ms or 0 for ms in millis], np.int64), present)


def _no_row(key: int, number: int) -> Any:
    raise AssertionError("a look calls no function of the user's")
