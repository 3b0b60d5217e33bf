"""Patterns that come on a control stream: which there are, and from when to when.

A control row names a pattern and holds it as JSON, or nothing to remove it. It counts from its
own event time on: rows before it do not know it, whichever came first. One that comes late counts
from now on. Every slot keeps the same rules; a task reads one copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.errors import HeadraceError, refusal
from headrace.expr import parsed
from headrace.expr.lower import check_condition
from headrace.ops.broadcast import Broadcast
from headrace.ops.contract import Fault, Step
from headrace.ops.grouping import in_order
from headrace.ops.pattern.automaton import Automaton, Tests, compiled
from headrace.ops.pattern.conditions import conditions
from headrace.ops.pattern.parts import Condition
from headrace.ops.pattern.pattern import Pattern
from headrace.ops.view import timestamps

RULES = "rules"
NAME, TEXT, SINCE = "name", "pattern", "$since"


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A pattern that counts for rows from `since` to before `until`."""

    name: str
    automaton: Automaton
    exprs: tuple[str, ...]  # the texts of its conditions, by number
    since: int = MIN_TIME
    until: int = MAX_TIME


class Rules:
    def __init__(self, schema: pa.Schema, unbounded: bool) -> None:
        self._schema, self._unbounded = schema, unbounded
        identity = pa.schema([(NAME, pa.string()), (SINCE, pa.int64())])
        self._kept = Broadcast(RULES, identity, pa.schema([(TEXT, pa.string())]))

    @property
    def spec(self) -> Any:
        return self._kept.spec

    def turn(self, arrived: pa.Table | None, step: Step) -> tuple[list[Rule], set[str]]:
        """The rules that count somewhere up to `after`, and the names of those that end there."""
        if arrived is not None and arrived.num_rows:
            self._learn(in_order(arrived), step)
        rows = _in_turn(self._kept.rows(step))
        versions = _versions(rows)
        over = _over(versions, step.after)
        self._forget(rows, over, step)
        return self._rules(versions), {versions[i][0] for i in over}

    def known(self, rows: pa.Table) -> list[Rule]:
        """The rules that are kept, for those who only look."""
        return self._rules(_versions(_in_turn(rows)))

    def view(self, rows: pa.Table) -> pa.Table:
        """Each rule, its text, and since when it counts; one without text ends there."""
        rows = _in_turn(rows)
        since = timestamps(rows.column(SINCE).to_numpy())
        return rows.select([NAME, TEXT]).append_column("since", since)

    def _rules(self, versions: list[tuple[str, int, str]]) -> list[Rule]:
        return [self._rule(versions, i) for i in range(len(versions)) if versions[i][2]]

    def _learn(self, arrived: pa.Table, step: Step) -> None:
        """Keep what came; a row that is no rule is a dead letter, told by one task only."""
        good = []
        for i, text in enumerate(arrived.column(TEXT).to_pylist()):
            try:
                if arrived.column(NAME)[i].as_py() is None:
                    raise refusal("HR-PATTERN-018", "a rule has no name", "Fill the column 'name'.")
                if text:
                    compiled_rule(text, self._schema, self._unbounded)
                good.append(i)
            except HeadraceError as error:
                error.site = None  # the rule came as data: no line of the program is at fault
                if 0 in step.homes:
                    step.faults.append(Fault(arrived.slice(i, 1), error))
        rows = arrived.take(pa.array(good, pa.int64()))
        since = np.maximum(rows.column(TIME).to_numpy(), step.before)
        put = rows.select([NAME]).append_column(SINCE, pa.array(since))
        texts = pa.array([t or "" for t in rows.column(TEXT).to_pylist()], pa.string())
        for i in range(put.num_rows):  # of two at one time the last counts
            self._kept.put(put.append_column(TEXT, texts).slice(i, 1), step)

    def _forget(self, rows: pa.Table, over: Sequence[int], step: Step) -> None:
        if over:
            identity = rows.take(pa.array(over)).select([NAME, SINCE])
            self._kept.delete(identity, step)

    def _rule(self, versions: list[tuple[str, int, str]], i: int) -> Rule:
        name, since, text = versions[i]
        automaton, exprs = compiled_rule(text, self._schema, self._unbounded)
        more = i + 1 < len(versions) and versions[i + 1][0] == name
        return Rule(name, automaton, exprs, since, versions[i + 1][1] if more else MAX_TIME)


def _in_turn(known: pa.Table) -> pa.Table:
    order = np.lexsort((known[SINCE].to_numpy(), known[NAME].to_numpy(zero_copy_only=False)))
    return known.take(pa.array(order))


def _versions(rows: pa.Table) -> list[tuple[str, int, str]]:
    return [*zip(*(rows[n].to_pylist() for n in (NAME, SINCE, TEXT)), strict=True)]


def _over(versions: list[tuple[str, int, str]], after: int) -> list[int]:
    """Those that no row will ask for again: replaced, or a removal that has been done."""
    found = []
    for i, (name, since, text) in enumerate(versions):
        later = versions[i + 1] if i + 1 < len(versions) else None
        replaced = later is not None and later[0] == name and later[1] <= after
        if replaced or (not text and since <= after):
            found.append(i)
    return found


@lru_cache(maxsize=1_000)
def compiled_rule(
    text: str, schema: pa.Schema, unbounded: bool
) -> tuple[Automaton, tuple[str, ...]]:
    """A pattern's automaton and conditions; refused if it does not fit the rows."""
    pattern = Pattern.from_json(text)
    if pattern.endless and not unbounded:
        raise refusal(
            "HR-PATTERN-016",
            "the rule has no within, so its partial matches would be kept for ever",
            'Say "within": "10m" in the rule, or unbounded=True in match.',
        )

    def condition(name: str, where: Any) -> Condition:
        exprs = [parsed(one, named=False) for one in where]
        for expr in exprs:
            check_condition(expr, schema)
        if not exprs:
            return Condition()
        whole = exprs[0]
        for expr in exprs[1:]:
            whole = whole & expr
        return Condition(whole)

    tests = Tests()
    automaton, exprs = compiled(pattern.resolved(condition), tests), tuple(tests.exprs)
    conditions(exprs, schema)  # refused now, not when rows come
    return automaton, exprs
