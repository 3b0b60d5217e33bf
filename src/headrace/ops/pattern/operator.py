"""The `match` step: patterns over the rows of each key, in the order of their event times.

An epoch: rows that the watermark has passed are sorted by key and time; conditions that are
expressions are computed by column; keys and rows on which nothing can begin or go on are left out
by column, too; the others go through the matcher one by one. Matches are emitted by column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.at_rest import described
from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME
from headrace.ops.contract import EpochStep, Fault, Operator, Place, Spec
from headrace.ops.pattern.automaton import RowTests, compiled
from headrace.ops.pattern.match_output import (
    EmittedMatch,
    GatheredMatches,
    MatchOutput,
    matches_view,
)
from headrace.ops.pattern.matches import Selection
from headrace.ops.pattern.partial_matches import ROWS, RUNS, MatchStore
from headrace.ops.pattern.parts import Condition
from headrace.ops.pattern.pattern import Pattern
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
from headrace.ops.row_buffer import WAITING, RowBuffer, passed_by
from headrace.rows import collector_paused
from headrace.state.table import KeyedTable, TableSpec

TIMEOUTS = "timeouts"
_HIDDEN = (TIME, SOURCE, OFFSET, HASH)


class RowFunction:
    """A function of the row alone, called as one of the row and the match."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, row: Any, match: Any) -> Any:
        return self.function(row)


@dataclass(frozen=True, eq=False)
class MatchSpec(Spec):
    """`rules` are the patterns by name, compiled; None if they come on a control stream."""

    patterns: Mapping[str, Pattern]
    rules: tuple[PatternRule, ...] | None
    exprs: tuple[str, ...]
    selection: Selection
    timeouts: bool = False
    unbounded: bool = False

    kind = "match"
    widens_keys = True
    needs_time = True
    has_late = True

    @classmethod
    def of(cls, patterns: Mapping[str, Pattern], selection: Selection, **more: Any) -> MatchSpec:
        """For patterns whose conditions are known."""
        tests = RowTests()
        automata = [(name, compiled(one, tests)) for name, one in patterns.items()]
        exprs = tuple(tests.exprs)
        rules = tuple(PatternRule(name, automaton, exprs) for name, automaton in automata)
        return cls(patterns, rules, exprs, selection, **more)

    @property
    def endless(self) -> bool:
        return any(one.endless for one in self.patterns.values())

    @property
    def waits(self) -> bool:
        """Whether a partial match may wait for a row without which it is no match."""
        states = (state for rule in self.rules or () for state in rule.automaton.states)
        return any(s.steps and not s.accepts and not s.waiting for s in states)

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        used = (f for one in self.patterns.values() for c in _conditions(one) for f in c.functions)
        plain = [f.function if isinstance(f, RowFunction) else f for f in used]
        return (*plain, *([self.selection.function] if self.selection.function else []))

    @property
    def compares(self) -> tuple[str, ...]:
        """The columns that conditions read: what a row fulfils is stored with it."""
        exprs = [c.expr for one in self.patterns.values() for c in _conditions(one)]
        return tuple(sorted({name for expr in exprs if expr is not None for name in expr.columns}))

    def __str__(self) -> str:
        if self.rules is None:
            return "patterns from a control stream"
        if len(self.patterns) == 1:
            return str(next(iter(self.patterns.values())))
        return "; ".join(f"{name}: {one}" for name, one in self.patterns.items())

    def shape(self) -> dict[str, Any]:
        """Partial matches are places in a pattern: they mean something only in the same one.

        Patterns are numbered by their order, and so are the conditions that a row fulfils.
        """
        shape = [
            [name, one.at_rest(), *map(_condition_text, _conditions(one))]
            for name, one in self.patterns.items()
        ]
        patterns = None if self.rules is None else shape
        return {"patterns": patterns, "rows": described(self.selection.rows)}

    def operator(self, place: Place) -> Operator:
        return MatchOperator(self, place)


class MatchOperator(Operator):
    version = 2  # 1: a loop could begin with a row that its `until` excludes

    def __init__(self, spec: MatchSpec, place: Place) -> None:
        rules, input = spec.rules, place.input
        self._fixed_rules, self._input, self._timeouts = rules, input, spec.timeouts
        self._exprs = spec.exprs
        self._key = key = pa.schema([input.field(k) for k in place.key])
        self._words = [] if rules is None else self._word_names()
        fields = [*input, *(pa.field(n, pa.int64()) for n in self._words)]
        self._buffer = RowBuffer(key, pa.schema(fields))
        self._store = MatchStore(key, input)
        self._match_output = MatchOutput(spec.selection, input, key)
        self._rules = PatternRules(input, spec.unbounded) if rules is None else None
        ignores = [r.automaton.ignores_unmatched for r in rules or ()]
        self._ignores_unmatched = rules is not None and all(ignores)

    def _word_names(self) -> list[str]:
        return [f"__b{i}" for i in range(conditions(self._exprs, self._input).words)]

    def tables(self) -> tuple[TableSpec, ...]:
        rules = (self._rules.spec,) if self._rules is not None else ()
        return (self._buffer.spec, *self._store.tables(), *rules)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """Partial matches, and rows that wait."""
        rules: Sequence[PatternRule] | None = self._fixed_rules
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
        return None if port else passed_by(rows, watermark)

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
            self._dead_letter(arrived.slice(int(i), 1), self._exprs, step, port=0)
        return arrived.filter(pa.array(~bad))

    def _dead_letter(
        self, row: pa.Table, exprs: tuple[str, ...], step: EpochStep, port: int = -1
    ) -> None:
        why = conditions(exprs, self._input).reason(row)
        names = [n for n in row.column_names if n not in (HASH, *self._words)]
        step.faults.append(Fault(row.select(names), why, port))

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


def _conditions(pattern: Pattern) -> list[Condition]:
    conditions: list[Condition] = []

    def collect(name: str, where: Any) -> Any:
        if isinstance(where, Condition):
            conditions.append(where)
        return where

    pattern.resolved(collect)
    return conditions


def _condition_text(condition: Condition) -> str:
    text = "" if condition.expr is None else condition.expr.sql()
    return f"{text} and {len(condition.functions)} functions"
