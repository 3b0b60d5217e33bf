"""What a `match` step does, as a value: patterns or rules, and what is emitted of a match."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.ops.contract import Operator, Place, Spec
from headrace.ops.pattern.automaton import RowTests, compiled
from headrace.ops.pattern.matches import Selection
from headrace.ops.pattern.operator import MatchOperator
from headrace.ops.pattern.parts import Condition
from headrace.ops.pattern.pattern import Pattern
from headrace.ops.pattern.rules import PatternRule
from headrace.schema import ddl_type


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
        functions = [
            f for one in self.patterns.values() for c in _conditions(one) for f in c.functions
        ]
        plain = [f.function if isinstance(f, RowFunction) else f for f in functions]
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
        rows = self.selection.rows
        return {
            "patterns": None if self.rules is None else shape,
            "rows": [[f.name, ddl_type(f.type)] for f in rows],
        }

    def operator(self, place: Place) -> Operator:
        return MatchOperator(
            self.rules,
            self.exprs,
            self.selection,
            place.key,
            place.input,
            timeouts=self.timeouts,
            unbounded=self.unbounded,
        )


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
