"""Patterns over keyed streams: `match` and the columns of its result.

Conditions meet the stream's columns here, and become expressions or stay functions; what is
wrong with a pattern or with what is selected is reported like every other mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.api.handles import Handle, StepBuilder, other_job
from headrace.callables import is_lambda
from headrace.errors import PlanError, refusal
from headrace.expr import Expr, Untraceable, as_expr, col
from headrace.kernel import never_true
from headrace.ops.pattern.checks import all_of, never, takes_match
from headrace.ops.pattern.matches import PATTERN, Selection, parts_of, whole_schema
from headrace.ops.pattern.operator import TIMEOUTS, MatchSpec, RowFunction
from headrace.ops.pattern.parts import Condition, rows_in
from headrace.ops.pattern.pattern import Pattern, either, pattern
from headrace.ops.pattern.rules import NAME, TEXT
from headrace.plan import columns as cols
from headrace.plan.draft import UNKNOWN
from headrace.plan.nodes import Edge
from headrace.plan.signature import any_schema, check_takes
from headrace.schema import SchemaLike

__all__ = ["MatchArguments", "Pattern", "either", "pattern"]

Patterns = Pattern | Mapping[str, Pattern] | None
Select = Callable[[Any], Any] | Mapping[str, Any] | None


@dataclass(frozen=True)
class MatchArguments:
    """The arguments of `match`, as the user wrote them."""

    patterns: Patterns
    select: Select
    output: SchemaLike | None
    rules: Any
    timeouts: bool
    unbounded: bool

    def add(self, step: StepBuilder, keys: tuple[str, ...]) -> Edge:
        """Add the step: patterns, or rules from a control stream, over a stream by key."""
        rules = self.rules
        patterns = _valid_patterns(step, self.patterns, rules)
        resolved = {n: p.resolved(_conditions(step)) for n, p in patterns.items()}
        named = rules is not None or isinstance(self.patterns, Mapping)
        _judge(step, patterns, unbounded=self.unbounded)
        parts = None if rules is not None else parts_of(rows_in(p.group) for p in patterns.values())
        selection = _EmittedColumns(step, keys, parts, named).selection(self.select, self.output)
        more = {"timeouts": self.timeouts, "unbounded": self.unbounded}
        what = MatchSpec({}, None, (), selection, **more)
        with step.draft.attempt(step.site):
            what = MatchSpec.of(resolved, selection, **more) if rules is None else what
            _judge_timeouts(what)
        inputs = (step.edge,) if rules is None else (step.edge, _control(step, rules))
        return step.stateful(
            what,
            (keys,) * len(inputs),
            selection.output,
            "match",
            inputs=inputs,
            unbounded=True,
            sides={TIMEOUTS: selection.whole} if self.timeouts else {},
            broadcast=() if len(inputs) == 1 else (1,),
        )


def _valid_patterns(step: StepBuilder, patterns: Patterns, rules: Any) -> dict[str, Pattern]:
    """The patterns by name, without those that are wrong."""
    if (patterns is None) == (rules is None):
        step.report(_arguments("match needs patterns or rules, one of them"))
    by_name = patterns if isinstance(patterns, Mapping) else {PATTERN: patterns}
    if isinstance(patterns, Mapping) and not patterns:
        step.report(
            refusal(
                "HR-PATTERN-001",
                "match has no pattern",
                'Give one: match({"name": hr.pattern(...)}).',
            )
        )
    valid = {}
    for name, value in by_name.items() if patterns is not None else ():
        if not isinstance(value, Pattern):
            step.report(_arguments(f"{value!r} is not a pattern"))
            continue
        before = len(step.draft.problems)
        with step.draft.attempt(step.site):
            value.check()
        if len(step.draft.problems) == before:
            valid[str(name)] = value
    return valid


def _judge(step: StepBuilder, patterns: Mapping[str, Pattern], *, unbounded: bool) -> None:
    endless = [pattern for pattern in patterns.values() if pattern.endless]
    if endless and not unbounded:
        lacks = "a step without within" if endless[0].timed else "no within"
        step.report(
            refusal(
                "HR-PATTERN-016",
                f"the pattern ({endless[0]}) has {lacks}: its partial matches "
                "would be stored forever",
                'Say within("10m"); or match(..., unbounded=True) if '
                "there are only so many keys and matches.",
            )
        )


def _judge_timeouts(what: MatchSpec) -> None:
    """Refuse timeouts where no pattern has a time that could be over."""
    timed = [pattern.timed for pattern in what.patterns.values()]
    if not what.timeouts or any(timed) or not timed:
        return
    if what.waits:
        raise refusal(
            "HR-PATTERN-024",
            "timeouts=True, but a partial match without within never runs out of time",
            'End the pattern with .within("10m"), or leave timeouts=True out.',
        )
    raise refusal(
        "HR-PATTERN-024",
        "timeouts=True, but no partial match waits for a row: it is a match at once, or when "
        "the time of then_not is over",
        "Leave timeouts=True out.",
    )


def _conditions(step: StepBuilder) -> Callable[[str, Any], Condition]:
    def change(name: str, where: tuple[Any, ...]) -> Condition:
        exprs: list[Expr] = []
        functions: list[Callable[[Any, Any], Any]] = []
        for part in where:
            condition = _condition(step, name, part)
            if isinstance(condition, Expr):
                exprs.append(condition)
            elif condition is not None:
                functions.append(condition)
        whole = all_of(exprs) if exprs else None
        if whole is not None and never_true(whole):  # by a lambda: a text was judged before
            step.report(never(name, whole))
        return Condition(whole, tuple(functions))

    return change


def _condition(step: StepBuilder, name: str, where: Any) -> Expr | Callable[[Any, Any], Any] | None:
    """An expression where it can be one, else a function of the row and the match."""
    if where is True:
        return None
    if callable(where) and not isinstance(where, Expr):
        if takes_match(where):
            return where  # type: ignore[no-any-return]
        if not is_lambda(where):
            return RowFunction(where)
        try:
            as_expr(where, step.schema)
        except Untraceable:
            return RowFunction(where)
        except PlanError:
            pass  # an expression with a mistake, which is reported below
    return step.condition(where, f"the part {name!r}")


class _EmittedColumns:
    """The columns of a match, worked out from what the user selects."""

    def __init__(
        self,
        step: StepBuilder,
        keys: tuple[str, ...],
        parts: Mapping[str, bool] | None,
        named: bool,
    ) -> None:
        self._step, self._keys, self._named, self._parts = step, keys, named, parts
        resolved = all(k in step.schema.names for k in keys) and len(step.schema)
        key = pa.schema([step.schema.field(k) for k in keys]) if resolved else UNKNOWN
        self._own = [*key.names, *([PATTERN] if named else [])]
        self._whole = whole_schema(key, step.schema, parts, named) if resolved else UNKNOWN

    def selection(self, select: Select, output: SchemaLike | None) -> Selection:
        rows, whole = self._step.schema, self._whole
        if callable(select):
            return self._function(select, output)
        if output is not None:
            self._step.report(
                _arguments("output= describes what a function returns, but select is none")
            )
        self._clashes(self._parts or ())
        if select is None:
            return Selection(rows, whole, whole)
        self._clashes(select)
        chosen = cols.typed(self._step.draft, select, whole, self._step.site)
        own = tuple((n, col(n)) for n in self._own)
        fields = [whole.field(n) for n in self._own if n in whole.names]
        schema = pa.schema([*fields, *chosen.schema]) if len(whole) else UNKNOWN
        return Selection(rows, whole, schema, (*own, *chosen.columns))

    def _function(self, fn: Callable[[Any], Any], output: SchemaLike | None) -> Selection:
        def checked() -> pa.Schema:
            check_takes(fn, 1, "match")
            return any_schema(fn, output, "match")

        returned = self._step.attempt(checked)
        adds = self._named and PATTERN not in returned.names and len(returned) > 0
        pattern_column = [pa.field(PATTERN, pa.string())] if adds else []
        schema = pa.schema([*pattern_column, *returned])
        return Selection(self._step.schema, self._whole, schema, function=fn, named=adds)

    def _clashes(self, names: Any) -> None:
        for name in names:
            if name in self._own:
                self._step.report(
                    refusal(
                        "HR-PATTERN-029",
                        f"a match has the column {name!r} by itself",
                        f"Call the part or the column something else than {name!r}.",
                    )
                )


def _control(step: StepBuilder, rules: Any) -> Edge:
    """The control stream's edge; reported if it cannot be one."""
    if not isinstance(rules, Handle):
        step.report(_arguments(f"rules is {rules!r}, which is not a stream"))
        return step.edge
    if rules._draft is not step.draft:
        step.report(other_job())
        return step.edge
    schema = rules._edge.schema
    fits = all(n in schema.names and pa.types.is_string(schema.field(n).type) for n in (NAME, TEXT))
    if len(schema) and not fits:
        step.report(
            refusal(
                "HR-PATTERN-022",
                "rules need the text columns 'name' and 'pattern'",
                'Bring them there: control.select(name="...", pattern="...").',
            )
        )
    return rules._edge


def _arguments(fact: str) -> PlanError:
    return refusal(
        "HR-PATTERN-021",
        fact,
        "Say match(pattern), match({'name': pattern, ...}) or match(rules=control.broadcast()).",
    )
