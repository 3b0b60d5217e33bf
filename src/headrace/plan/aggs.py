"""Aggregates against the rows they are of: arguments made plain, results typed.

An argument is a column's name where it can be; another expression stays one here, and
`rewrite.py` projects it into a column, because `ops` sees columns only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.errors import PlanError, Site
from headrace.expr import Expr, col, same
from headrace.kernel import infer
from headrace.ops.agg.named import Aggregate
from headrace.ops.agg.own import OwnAggregate, check_own
from headrace.plan import columns as cols
from headrace.plan.draft import Draft, uncertain

Aggs = tuple[tuple[str, Aggregate], ...]


def typed_aggs(
    draft: Draft, aggs: Mapping[str, object], schema: pa.Schema, site: Site | None
) -> tuple[Aggs, list[pa.Field]]:
    """The aggregates over rows of `schema`, and the columns of their results."""
    if not aggs:
        draft.report(
            PlanError(
                "HR-PLAN-021",
                "agg computes nothing",
                'Name at least one aggregate: agg(average=hr.mean("celsius")).',
            ),
            site,
        )
    plain = {n: _plain(draft, n, a, schema, site) for n, a in aggs.items()}
    fields = [_field(draft, n, a, schema, site) for n, a in plain.items()]
    return tuple((n, a) for n, a in plain.items() if a is not None), fields


def arguments(aggs: Aggs) -> dict[str, Expr]:
    """The arguments that are not columns yet, under the names they will have as columns."""
    found: dict[str, Expr] = {}
    for name, agg in aggs:
        for index, argument in enumerate((agg.column, agg.by)):
            if isinstance(argument, Expr):
                found[argument_name(name, index)] = argument
    return found


def projected(name: str, agg: Aggregate) -> Aggregate:
    """The aggregate once its arguments have become columns."""
    pair = [
        argument_name(name, i) if isinstance(a, Expr) else a
        for i, a in enumerate((agg.column, agg.by))
    ]
    return agg.on(*pair)


def argument_name(name: str, index: int) -> str:
    return f"${name}" if index == 0 else f"${name}.by"


def columns_read(aggs: Aggs) -> set[str]:
    """The columns that the aggregates need."""
    found: set[str] = set()
    for _, agg in aggs:
        for argument in agg.arguments:
            found |= argument.columns if isinstance(argument, Expr) else {argument}
    return found


def partial_schema(aggs: Aggs, schema: pa.Schema) -> pa.Schema:
    """The columns of the partials: the state that the aggregates keep."""
    return pa.schema([f for name, agg in aggs for f in agg.partial_fields(name, schema)])


def _plain(
    draft: Draft, name: str, agg: object, schema: pa.Schema, site: Site | None
) -> Aggregate | None:
    if isinstance(agg, OwnAggregate):
        with draft.attempt(site):
            check_own(agg)
            title = f"{type(agg).__module__}.{type(agg).__qualname__}"
            return _plain(draft, name, Aggregate(title, agg.column, own=agg), schema, site)
        return None
    if isinstance(agg, type) and issubclass(agg, OwnAggregate):
        draft.report(
            PlanError(
                "HR-PLAN-021",
                f"{name}={agg.__name__} is a class, not an aggregate",
                f'Call it: {name}={agg.__name__}("column"), or {agg.__name__}() for none.',
            ),
            site,
        )
        return None
    if not isinstance(agg, Aggregate):
        draft.report(
            PlanError(
                "HR-PLAN-021",
                f"{name}={agg!r} is not an aggregate",
                f'Write {name}=hr.mean("column"), hr.count(), hr.max("column") ...; '
                "for your own function use reduce or fold.",
            ),
            site,
        )
        return None
    pair = [a if a is None else _argument(draft, a, schema, site) for a in (agg.column, agg.by)]
    wrong = len([p for p in pair if p is not None]) < len(agg.arguments)
    return None if wrong else replace(agg, column=pair[0], by=pair[1])


def _argument(
    draft: Draft, argument: object, schema: pa.Schema, site: Site | None
) -> str | Expr | None:
    """A column's name, or an expression that is not just a column; None if it is wrong."""
    expr = cols.expression(draft, argument, schema, site)
    if expr is None or expr.name is None:
        return expr
    bare = expr.name if same(expr, col(expr.name)) else None
    return expr if bare is None else bare


def _field(
    draft: Draft, name: str, agg: Aggregate | None, schema: pa.Schema, site: Site | None
) -> pa.Field:
    field = pa.field(name, pa.null())
    if agg is None or uncertain(schema, frozenset(columns_read(((name, agg),)))):
        return field
    with draft.attempt(site):
        made = arguments(((name, agg),))
        wide = [*schema, *infer(made, schema)] if made else list(schema)
        return pa.field(name, projected(name, agg).result_type(pa.schema(wide)))
    return field


def clashes(names: Sequence[str], fields: Sequence[pa.Field], what: str) -> list[PlanError]:
    """A problem for each result column that takes a name already used beside it."""
    return [
        PlanError(
            "HR-PLAN-015",
            f"the column {f.name!r} would be there twice: it is {what} already",
            "Give the new column another name.",
        )
        for f in fields
        if f.name in names
    ]


def key_clashes(keys: Sequence[str], added: Sequence[pa.Field]) -> list[PlanError]:
    """A problem for each key that is called like a column every result has besides its key."""
    return [
        PlanError(
            "HR-PLAN-015",
            f"the column {f.name!r} would be there twice: it is a key, and part of every "
            "window's result",
            f'Give the key another name: key_by(of_{f.name}="{f.name}").',
        )
        for f in added
        if f.name in keys
    ]
