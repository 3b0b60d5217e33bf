"""What `agg` computes: plain aggregates, which have state, and expressions over their results.

    agg(n=hr.count(), mean="sum(v) / count(*)")

is three aggregates, `n`, `$sum(v)` and `$count()`, and a projection after them. The name of a
derived aggregate says what it computes and nothing else, so it stays the same whatever is computed
beside it; and what is needed twice is computed once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import pyarrow as pa

from headrace.errors import PlanError, Site
from headrace.expr import Expr, col, parsed
from headrace.expr.aggregate_calls import (
    AggregateCall,
    inner_aggregate,
    number_of,
    only_call,
    unknown_function,
    without_aggregates,
)
from headrace.expr.catalog import CATALOGUE
from headrace.hints import AGGREGATES, aggregate, nearest
from headrace.ops.agg.named import Aggregate, bare_sql
from headrace.ops.sketch.functions import CALLED_ONLY, IN_TEXT
from headrace.plan.columns import Aggs, plain_agg, typed_aggs
from headrace.plan.draft import Draft

_IN_SQL = {
    "avg": "mean", "stddev_samp": "stddev", "var_samp": "variance", "collect_list": "collect",
    "array_agg": "collect",
}  # fmt: skip
_TWO = (2, 2)
_ARGUMENTS = {
    "count": (0, 1), "min_by": _TWO, "max_by": _TWO, "percentile": _TWO,
    "approx_count_distinct": (1, 2), "approx_quantile": (2, 3),
    "approx_quantiles": _TWO, "approx_top_k": _TWO, "count_min": _TWO,
    "histogram": (2, 4), "sample": (1, 3),
}  # fmt: skip  # else one
_MANY = {
    (0, 1): "at most one argument", (1, 1): "one argument", (1, 2): "one or two arguments",
    (2, 3): "two or three arguments", (2, 4): "two to four arguments",
}  # fmt: skip
NAMES = 'Name it: "sum(v) / count(*) as mean", or by a keyword: mean=...'


def named_specs(
    draft: Draft, unnamed: Sequence[object], named: Mapping[str, object], site: Site | None
) -> dict[str, object]:
    """All that `agg` is to compute, by name; text and expressions may carry theirs.

    None is what was wrong, and is reported.
    """
    specs: dict[str, object] = {}
    for spec in unnamed:
        name, text = None, spec if isinstance(spec, str) else str(spec)
        with draft.attempt(site):
            expr = parsed(spec) if isinstance(spec, str) else spec
            name = expr.name if isinstance(expr, Expr) else None
            if name is None:
                raise PlanError("HR-PLAN-015", f"the column {text!r} has no name", NAMES)
            if name in specs or name in named:
                hint = "Give each column its own name."
                raise PlanError("HR-PLAN-015", f"the column {name!r} would be there twice", hint)
        specs[name or text] = None if name is None else spec
    return {**specs, **named}


@dataclass
class Aggregation:
    """Plain aggregates and the columns of their results, and what is computed of these."""

    aggs: Aggs = ()
    fields: list[pa.Field] = field(default_factory=list)
    columns: dict[str, Expr | None] = field(default_factory=dict)  # None: wrong, and reported
    derived: dict[str, tuple[str, bool]] = field(default_factory=dict)  # their texts

    @property
    def computed(self) -> list[pa.Field]:
        """The columns that are expressions over aggregates, of a type that is not known yet."""
        plain = {name for name, _ in self.aggs}
        return [pa.field(n, pa.null()) for n in self.columns if n not in plain]

    @property
    def projects(self) -> bool:
        """Whether something is computed of the aggregates' results."""
        plain = {f.name for f in self.fields}
        return bool(self.derived) or not plain.issuperset(self.columns)


def aggregation(
    draft: Draft,
    specs: Mapping[str, object],
    schema: pa.Schema,
    site: Site | None,
    around: Collection[str],
) -> Aggregation:
    """The aggregates of `specs` over rows of `schema`.

    `around` are the columns of the result that an expression may use beside aggregates.
    """
    found, plain, written = Aggregation(), dict[str, object](), list[_Reading]()
    for name, spec in specs.items():
        found.columns[name] = None
        if spec is None:  # reported already
            continue
        with draft.attempt(site):
            reading = _Reading(draft, schema, site, name, spec) if _is_written(spec) else None
            single = reading.single() if reading is not None else spec
            if single is not None:
                found.columns[name], plain[name] = col(name), single
            elif reading is not None:
                written.append(reading)
    replaced = [n for n in around if n in plain]
    if written and (odd := [n for n in (*specs, *schema.names) if n.startswith("$")]):
        fact = f"the column {odd[0]!r} begins with $, as the names of derived aggregates do"
        draft.report(PlanError("HR-AGG-017", fact, "Rename it: rename(...), or another keyword."))
        written = []
    for reading in written:
        with draft.attempt(site):
            found.columns[reading.name] = reading.over(found, plain, around, replaced)
    found.aggs, found.fields = typed_aggs(draft, plain, schema, site) if plain else ((), [])
    if not specs:
        typed_aggs(draft, {}, schema, site)  # reports that there is nothing to compute
    return found


@dataclass
class _Reading:
    """One column of `agg` that is written as text or as an expression."""

    draft: Draft
    schema: pa.Schema
    site: Site | None
    name: str
    spec: Expr | str

    def __post_init__(self) -> None:
        self.text = self.spec if isinstance(self.spec, str) else bare_sql(self.spec.sql())
        expr = self.spec if isinstance(self.spec, Expr) else parsed(self.spec)
        if expr.name not in (None, self.name):
            raise PlanError(
                "HR-PLAN-015",
                f"{self.name}={self.text!r} has two names",
                "Leave out the one after AS, or the keyword.",
            )
        self.expr = expr
        if (wrong := unknown_function(self.expr, is_aggregate)) is not None:
            raise self._unknown(wrong)

    def single(self) -> Aggregate | None:
        """The one aggregate that it is, if it is no more than that."""
        call = only_call(self.expr, is_aggregate)
        return None if call is None else self._aggregate(call)

    def over(
        self,
        found: Aggregation,
        plain: dict[str, object],
        around: Collection[str],
        replaced: Collection[str],
    ) -> Expr | None:
        """An expression over derived aggregates, which are added to `plain`; None if wrong."""
        derived, wrong = set[str](), False

        def column_of(call: AggregateCall) -> str:
            nonlocal wrong
            agg = plain_agg(self.draft, self.name, self._aggregate(call), self.schema, self.site)
            wrong = wrong or agg is None
            name = "$" if agg is None else _derived(agg, found)
            derived.add(name)
            if agg is not None:
                plain[name] = agg
            return name

        rest = without_aggregates(self.expr, is_aggregate, column_of)
        if not derived:
            raise PlanError(
                "HR-AGG-014",
                f"{self.name}={self.text!r} aggregates nothing",
                f'Write {self.name}="max({_any(self.expr)})", or hr.max(...), hr.count() ...',
            )
        self._check_around(rest.columns - derived, around, replaced)
        return None if wrong else rest

    def _aggregate(self, call: AggregateCall) -> Aggregate:
        if (inner := inner_aggregate(call, is_aggregate)) is not None:
            raise PlanError(
                "HR-AGG-013",
                f"{self._place(inner.name)}{inner} is inside another aggregate, {call}",
                "Compute the inner one in an agg of its own, and the outer one in an agg after it.",
            )
        kind = _IN_SQL.get(call.name, call.name)
        least, most = _ARGUMENTS.get(kind, (1, 1))
        if not least <= len(call.arguments) <= most:
            many = _MANY.get((least, most), "two arguments")
            raise PlanError(
                "HR-AGG-012",
                f"{self._place(call.name)}{call.name} takes {many}, not {len(call.arguments)}",
                "The guide lists the aggregates and what they take.",
            )
        if kind in CALLED_ONLY:
            raise PlanError(
                "HR-AGG-012",
                f"{self._place(call.name)}{kind} cannot be written in text",
                f"Call it in Python, as hr.{kind}(...), under a name.",
            )
        if kind in IN_TEXT:
            return self._approximate(kind, call.arguments)
        if kind in ("median", "percentile"):
            share = number_of(call.arguments[1]) if kind == "percentile" else 0.5
            return self._percentile(call.arguments[0], share)
        column, by = [*call.arguments, None, None][:2]
        return Aggregate(kind, column, by)

    def _approximate(self, kind: str, arguments: Sequence[str | Expr]) -> Aggregate:
        numbers = [number_of(a) for a in arguments[1:]]
        if None in numbers:
            raise PlanError(
                "HR-AGG-012",
                f"{self._place(kind)}what follows the first argument of {kind} is not a number",
                "Write it as a number, or call the function in Python, which takes more.",
            )
        return IN_TEXT[kind](arguments[0], *numbers)

    def _percentile(self, column: str | Expr, share: float | None) -> Aggregate:
        if share is None or not 0 <= share <= 1:
            raise PlanError(
                "HR-AGG-016",
                f"{self._place('percentile')}its share is not a number from 0 to 1",
                "Write it as a number: percentile(v, 0.95).",
            )
        return Aggregate("percentile", column, share=share)

    def _unknown(self, function: str) -> PlanError:
        ours = aggregate(function)
        near = [ours] if ours else nearest(function, [*_IN_SQL, *AGGREGATES, *CATALOGUE])
        return PlanError(
            "HR-AGG-012",
            f"{self._place(function)}there is no function {function!r}",
            (f"Did you mean {' or '.join(near)}? " if near else "")
            + "For what no aggregate does, write a hr.Aggregate of your own, or use fold.",
        )

    def _check_around(
        self, names: Iterable[str], around: Collection[str], replaced: Collection[str]
    ) -> None:
        for name in sorted(names):
            if name in replaced:
                raise PlanError(
                    "HR-AGG-015",
                    f"in {self.text!r}: {name!r} is a column that this agg replaces",
                    f"Give the aggregate {name!r} another name.",
                )
            if name not in around and len(self.schema):
                raise PlanError(
                    "HR-AGG-015",
                    f"in {self.text!r}: {name!r} is in no aggregate, so it has no one value",
                    f"Say which: max({name}), first({name}) ...; outside of aggregates there are "
                    f"{', '.join(around)}.",
                )

    def _place(self, word: str) -> str:
        """Where in the text a function is called."""
        at = re.search(rf"(?<!\w){re.escape(word)}\s*\(", self.text, re.IGNORECASE)
        return f"in {self.text!r}{f', character {at.start() + 1}' if at else ''}: "


def _is_written(spec: object) -> TypeGuard[Expr | str]:
    return isinstance(spec, Expr | str)


def is_aggregate(name: str) -> bool:
    """Whether SQL text calls an aggregate so."""
    return name in AGGREGATES or name in _IN_SQL


def _any(expr: Expr) -> str:
    return min(expr.columns, default="v")


def _derived(agg: Aggregate, found: Aggregation) -> str:
    """The name of an aggregate that the user gave none; the same one for the same aggregate."""
    exact = (str(agg), any(isinstance(a, Expr) for a in agg.arguments))
    name = f"${bare_sql(str(agg)).replace('`', '')}"
    while found.derived.setdefault(name, exact) != exact:  # of a column that is named like SQL
        name += "'"
    return name
