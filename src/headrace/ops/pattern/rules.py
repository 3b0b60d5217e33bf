"""Patterns that come on a control stream: which there are, and from when to when.

A control row names a pattern and holds it as JSON, or nothing to remove it. It counts from its
own event time on: rows before it do not know it, whichever came first. One that comes late counts
from now on. Every slot stores the same rules; a task reads one copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import timestamps
from headrace.chunk import TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.errors import HeadraceError, StepError, refusal
from headrace.expr import Expr, parsed
from headrace.expr.lower import check_condition
from headrace.kernel import SelectStep, compile_chain
from headrace.kernel.arrow import simple_mask
from headrace.ops.contract import EpochStep, Fault
from headrace.ops.keys import in_order
from headrace.ops.pattern.automaton import Automaton, RowTests, compiled
from headrace.ops.pattern.parts import Condition
from headrace.ops.pattern.pattern import Pattern
from headrace.ops.tables import BroadcastTable

RULES = "rules"
NAME, TEXT, SINCE = "name", "pattern", "$since"


@dataclass(frozen=True, slots=True, eq=False)
class PatternRule:
    """A pattern that counts for rows from `since` to before `until`."""

    name: str
    automaton: Automaton
    exprs: tuple[str, ...]  # the texts of its conditions, by number
    since: int = MIN_TIME
    until: int = MAX_TIME


class PatternRules:
    def __init__(self, schema: pa.Schema, unbounded: bool) -> None:
        self._schema, self._unbounded = schema, unbounded
        identity = pa.schema([(NAME, pa.string()), (SINCE, pa.int64())])
        self._table = BroadcastTable(RULES, identity, pa.schema([(TEXT, pa.string())]))

    @property
    def spec(self) -> Any:
        return self._table.spec

    def advance(
        self, arrived: pa.Table | None, step: EpochStep
    ) -> tuple[list[PatternRule], set[str]]:
        """The rules that count somewhere up to `after`, and the names of those that end there."""
        if arrived is not None and arrived.num_rows:
            self._add(in_order(arrived), step)
        rows = _in_turn(self._table.rows(step))
        versions = _versions(rows)
        over = _over(versions, step.after)
        self._delete(rows, over, step)
        return self._rules(versions), {versions[i][0] for i in over}

    def stored_rules(self, rows: pa.Table) -> list[PatternRule]:
        """The rules in a table, as they are stored."""
        return self._rules(_versions(_in_turn(rows)))

    def view(self, rows: pa.Table) -> pa.Table:
        """Each rule, its text, and since when it counts; one without text ends there."""
        rows = _in_turn(rows)
        since = timestamps(rows.column(SINCE).to_numpy())
        return rows.select([NAME, TEXT]).append_column("since", since)

    def _rules(self, versions: list[tuple[str, int, str]]) -> list[PatternRule]:
        return [self._rule(versions, i) for i in range(len(versions)) if versions[i][2]]

    def _add(self, arrived: pa.Table, step: EpochStep) -> None:
        """Store new rules; a row that is no rule is a dead letter, reported by one task only."""
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
                    step.faults.append(Fault(arrived.slice(i, 1), error, 1))
        rows = arrived.take(pa.array(good, pa.int64()))
        since = np.maximum(rows.column(TIME).to_numpy(), step.before)
        versions = rows.select([NAME]).append_column(SINCE, pa.array(since))
        texts = pa.array([t or "" for t in rows.column(TEXT).to_pylist()], pa.string())
        for i in range(versions.num_rows):  # of two at one time the last counts
            self._table.put(versions.append_column(TEXT, texts).slice(i, 1), step)

    def _delete(self, rows: pa.Table, over: Sequence[int], step: EpochStep) -> None:
        if over:
            identity = rows.take(pa.array(over)).select([NAME, SINCE])
            self._table.delete(identity, step)

    def _rule(self, versions: list[tuple[str, int, str]], i: int) -> PatternRule:
        name, since, text = versions[i]
        automaton, exprs = compiled_rule(text, self._schema, self._unbounded)
        more = i + 1 < len(versions) and versions[i + 1][0] == name
        return PatternRule(name, automaton, exprs, since, versions[i + 1][1] if more else MAX_TIME)


def _in_turn(rows: pa.Table) -> pa.Table:
    order = np.lexsort((rows[SINCE].to_numpy(), rows[NAME].to_numpy(zero_copy_only=False)))
    return rows.take(pa.array(order))


def _versions(rows: pa.Table) -> list[tuple[str, int, str]]:
    return [*zip(*(rows[n].to_pylist() for n in (NAME, SINCE, TEXT)), strict=True)]


def _over(versions: list[tuple[str, int, str]], after: int) -> list[int]:
    """Those that no row will need again: replaced, or a removal that has been done."""
    over = []
    for i, (name, since, text) in enumerate(versions):
        later = versions[i + 1] if i + 1 < len(versions) else None
        replaced = later is not None and later[0] == name and later[1] <= after
        if replaced or (not text and since <= after):
            over.append(i)
    return over


@lru_cache(maxsize=1_000)
def compiled_rule(
    text: str, schema: pa.Schema, unbounded: bool
) -> tuple[Automaton, tuple[str, ...]]:
    """A pattern's automaton and conditions; refused if it does not fit the rows."""
    pattern = Pattern.from_json(text)
    if pattern.endless and not unbounded:
        raise refusal(
            "HR-PATTERN-016",
            "the rule has no within, so its partial matches would be stored forever",
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

    tests = RowTests()
    automaton, exprs = compiled(pattern.resolved(condition), tests), tuple(tests.exprs)
    conditions(exprs, schema)  # refused now, not when rows come
    return automaton, exprs


# The conditions of patterns, by column: for each row one bit per expression.
#
# Simple comparisons go straight to Arrow, all others are one compiled query. A row on which an
# expression fails has the bits `BAD`; why it fails is computed for that row alone.


Bits = npt.NDArray[np.int64]
BAD = -1
WORD = 62  # bits of one number


class Conditions:
    def __init__(self, exprs: Sequence[Expr], schema: pa.Schema) -> None:
        self.words = max(-(-len(exprs) // WORD), 1)
        self._names, self._count = schema.names, len(exprs)
        masks = [simple_mask(expr.node, schema) for expr in exprs]
        self._simple = [(i, mask) for i, mask in enumerate(masks) if mask is not None]
        self._rest = [i for i, mask in enumerate(masks) if mask is None]
        columns = tuple((f"c{i}", exprs[i]) for i in self._rest)
        self._kernel = compile_chain([SelectStep(columns=columns)], schema) if columns else None

    def of(self, rows: pa.Table) -> list[Bits]:
        """The bits of each row, in as many numbers as it takes."""
        bits = [np.zeros(rows.num_rows, np.int64) for _ in range(self.words)]
        table = rows.select(self._names)
        for i, mask in self._simple:
            _set(bits, i, mask(table), slice(None))
        if self._kernel is not None:
            returned, bad = self._kernel.run(table)
            good = np.ones(rows.num_rows, np.bool_)
            good[[row for row, _ in bad]] = False
            for i in self._rest:
                _set(bits, i, returned.column(f"c{i}"), good)
            bits[0][~good] = BAD
        return bits

    def reason(self, row: pa.Table) -> StepError:
        """Why an expression fails on this row."""
        assert self._kernel is not None
        _, bad = self._kernel.run(row.select(self._names))
        return StepError("HR-STEP-002", bad[0][1] if bad else "an expression fails on this row")


def _set(
    bits: list[Bits], number: int, mask: pa.ChunkedArray | pa.Array, where: slice | np.ndarray
) -> None:
    true = np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
    bits[number // WORD][where] |= true.astype(np.int64) << (number % WORD)


@lru_cache(maxsize=256)
def conditions(texts: tuple[str, ...], schema: pa.Schema) -> Conditions:
    """Compiled once per process."""
    return Conditions([parsed(text) for text in texts], schema)


def whole(words: Sequence[Bits]) -> list[int]:
    """The bits of each row as one number of any length."""
    first: list[int] = words[0].tolist()
    for index, word in enumerate(words[1:], 1):
        first = [a | b << (WORD * index) for a, b in zip(first, word.tolist(), strict=True)]
    return first
