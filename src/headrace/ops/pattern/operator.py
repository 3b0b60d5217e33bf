"""Patterns over the rows of each key: what is due is matched, what is not waits.

An epoch: rows that the watermark has passed are arranged by key and time; conditions that are
expressions are known by column; keys and rows on which nothing can begin or go on are left out
by column, too; the others go through the matcher one by one. Matches leave by column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import Fault, Step
from headrace.ops.pattern.buffer import WAITING, Buffer
from headrace.ops.pattern.conditions import BAD, Bits, conditions
from headrace.ops.pattern.rounds import Round
from headrace.ops.pattern.rules import NAME, RULES, TEXT, Rule, Rules
from headrace.ops.pattern.selection import Selection
from headrace.ops.pattern.store import ROWS, RUNS, Store
from headrace.ops.pattern.telling import Gathered, Teller, Told
from headrace.ops.pattern.view import matches_view
from headrace.ops.pattern.work import Due, arranged
from headrace.rows import collector_paused
from headrace.state.table import KeyedTable, TableSpec

TIMEOUTS = "timeouts"
_HIDDEN = (TIME, SOURCE, OFFSET, HASH)


class MatchOperator:
    version = 2  # 1: a loop could begin with a row that its `until` excludes

    def __init__(
        self,
        known: Sequence[Rule] | None,
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
        self._buffer = Buffer(key, pa.schema(fields))
        self._store = Store(key, input)
        self._teller = Teller(selection, input, key)
        self._rules = Rules(input, unbounded) if known is None else None
        self._blind = known is not None and all(r.automaton.blind for r in known)

    def _word_names(self) -> list[str]:
        return [f"__b{i}" for i in range(conditions(self._exprs, self._input).words)]

    def tables(self) -> tuple[TableSpec, ...]:
        rules = (self._rules.spec,) if self._rules is not None else ()
        return (self._buffer.spec, *self._store.tables(), *rules)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """Partial matches, and rows that wait: made of what is kept, when somebody looks."""
        rules = self._known
        if self._rules is not None:
            rules = self._rules.known(tables[RULES].scan())
        runs, held = tables[RUNS].scan(), tables[ROWS].scan()
        return matches_view(
            self._key, self._input, (runs, self._store.kept(runs)), held,
            self._store.ids(held), tables[WAITING].scan(), rules or (), since, until,
        )  # fmt: skip

    def beside(self) -> Mapping[str, Sequence[str]]:
        return {} if self._rules is None else {RULES: (NAME,)}

    def beside_view(self, name: str, tables: Mapping[str, KeyedTable]) -> pa.Table:
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

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        return prepared

    @collector_paused()
    def step(self, step: Step) -> None:
        rules, ending = self._turn(step)
        rows = self._buffer.turn(self._good(step), step)
        others = [self._store.due(step)]
        if ending:
            others.append(self._store.everyone(step, ending))
        if step.after >= MAX_TIME:
            others.append(self._store.everyone(step))
        due = arranged(rows, self._key, others, self._store)
        if due.keys.num_rows:
            self._match(due, rules, step)
        waiting = self._buffer.next(step)
        step.next = min(self._store.next(step), MAX_TIME if waiting is None else waiting)

    def _turn(self, step: Step) -> tuple[Sequence[Rule], set[str]]:
        if self._rules is not None:
            return self._rules.turn(step.inputs[1], step)
        assert self._known is not None
        return self._known, set()

    def _good(self, step: Step) -> pa.Table | None:
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

    def _fail(self, row: pa.Table, exprs: tuple[str, ...], step: Step) -> None:
        why = conditions(exprs, self._input).reason(row)
        names = [n for n in row.column_names if n not in (HASH, *self._words)]
        step.faults.append(Fault(row.select(names), why))

    def _match(self, due: Due, rules: Sequence[Rule], step: Step) -> None:
        found = Round(self._store, due, self._key, self._input, step)
        for rule, words in zip(rules, self._bits(due, rules, step), strict=True):
            found.plan(rule, words)
        found.run()
        matches = [(m, *one) for m in found.machines for one in m.matches.rows]
        timeouts = [(m, *one) for m in found.machines for one in m.timeouts.rows]
        if matches:
            gathered = self._gather(matches, found, step)
            step.out.append(self._teller.rows(gathered, step))
        if timeouts and self._timeouts:
            gathered = self._gather(timeouts, found, step)
            step.sides.setdefault(TIMEOUTS, []).append(self._teller.whole(gathered))
        found.save()

    def _gather(self, told: Sequence[Told], found: Round, step: Step) -> Gathered:
        due = found.due
        return self._teller.gather(told, due.keys, due.rows, found.base, self._store, step)

    def _bits(self, due: Due, rules: Sequence[Rule], step: Step) -> list[list[Bits]]:
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
