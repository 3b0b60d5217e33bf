"""What users write for columns and aggregates, resolved over a schema: expressions with types.

A mistake is reported in the draft and leaves a column of unknown type; an expression over
unknown columns is unknown itself, silently, because the cause has been reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headrace.errors import PlanError, Site
from headrace.expr import Expr, Untraceable, as_expr, col, parsed, same
from headrace.expr.lower import unknown_column
from headrace.expr.trace import trace_row
from headrace.kernel import infer
from headrace.ops.agg.named import Aggregate, bare_sql
from headrace.ops.agg.own import OwnAggregate, check_own
from headrace.plan.draft import UNKNOWN, Draft, uncertain, unknown_columns
from headrace.plan.signature import record_schema
from headrace.schema import SchemaLike, ddl_type

Columns = tuple[tuple[str, Expr], ...]
WRONG = object()  # stands for an expression that is reported to be wrong


@dataclass(frozen=True, slots=True)
class Typed:
    """Expressions with names, and the columns they give."""

    columns: Columns
    schema: pa.Schema


def typed(draft: Draft, specs: Mapping[str, object], schema: pa.Schema, site: Site | None) -> Typed:
    """The expressions that `specs` stand for, each with its type."""
    exprs = [(name, expression(draft, spec, schema, site)) for name, spec in specs.items()]
    columns = tuple((name, col(name) if expr is None else expr) for name, expr in exprs)
    sure = {n: e for n, e in exprs if e is not None and not uncertain(schema, e.columns)}
    fields = _fields(draft, sure, schema, site)
    return Typed(columns, pa.schema([fields.get(n, pa.field(n, pa.null())) for n, _ in columns]))


def expression(
    draft: Draft, spec: object, schema: pa.Schema, site: Site | None, *, named: bool = False
) -> Expr | None:
    """The expression that `spec` stands for; None if it is wrong, or about unknown columns.

    Text may give itself a name, with AS, only where the name is used: if `named`.
    """
    if len(schema) == 0 or spec is WRONG:
        return None
    try:
        if isinstance(spec, Expr | str):
            return _written(spec, schema, site, named)
        return as_expr(spec, schema)
    except Untraceable as reason:
        if not unknown_columns(schema):
            draft.report(_not_one(reason), site)
    except PlanError as problem:
        if not callable(spec) or isinstance(spec, Expr) or not unknown_columns(schema):
            draft.report(problem, site)
    return None


def _written(spec: Expr | str, schema: pa.Schema, site: Site | None, named: bool) -> Expr:
    """An expression or its text: every column that is not there is a problem of its own."""
    if isinstance(spec, str):
        spec = col(spec) if spec in schema.names else parsed(spec, named=named)
    if problems := unknown(sorted(spec.columns), schema, site):
        raise PlanError.of(problems)
    return spec if uncertain(schema, spec.columns) else as_expr(spec, schema)


def _not_one(reason: Untraceable) -> PlanError:
    return PlanError(
        "HR-EXPR-005",
        f"this function is not an expression: {reason.reason}",
        "Use map, filter, map_batches, or with_columns(..., types=...) for Python code; or write "
        "it with columns.",
    )


def condition(draft: Draft, expr: Expr, schema: pa.Schema, what: str, site: Site | None) -> None:
    """Report an expression that is not a yes or no."""
    kind = type_of(draft, expr, schema, site)
    if kind is not None and not pa.types.is_boolean(kind):
        problem = PlanError(
            "HR-PLAN-012",
            f"{what} needs a condition, but {expr.sql()!r} is of type {ddl_type(kind)}",
            "Compare it with something, as in col('t') > 40.",
        )
        draft.report(problem, site)


def type_of(draft: Draft, expr: Expr, schema: pa.Schema, site: Site | None) -> pa.DataType | None:
    """The type of an expression; None if it is wrong, which is reported, or not known."""
    if uncertain(schema, expr.columns):
        return None
    with draft.attempt(site):
        return infer({"value": expr}, schema).field(0).type
    return None


def unknown(names: Iterable[str], schema: pa.Schema, site: Site | None) -> list[PlanError]:
    """A problem for each of `names` that is not a column."""
    if len(schema) == 0:
        return []
    problems = [unknown_column(n, schema) for n in names if n not in schema.names]
    for problem in problems:
        problem.site = site
    return problems


def _fields(
    draft: Draft, exprs: Mapping[str, Expr], schema: pa.Schema, site: Site | None
) -> dict[str, pa.Field]:
    """The types of all at once; one by one only when there is a mistake among them."""
    if not exprs:
        return {}
    try:
        return {f.name: f for f in infer(exprs, schema)}
    except PlanError:
        fields = {}
        for name, expr in exprs.items():
            with draft.attempt(site):
                fields[name] = infer({name: expr}, schema).field(0)
        return fields


def traced(
    draft: Draft,
    fn: Callable[[Any], Any],
    schema: pa.Schema,
    declared: SchemaLike | None,
    site: Site | None,
) -> Typed:
    """The columns that a lambda over a row makes; raises Untraceable if it cannot be traced."""
    if len(schema) == 0:
        return Typed((), UNKNOWN)
    try:
        columns = typed(draft, trace_row(fn, schema), schema, site)
        return (
            columns
            if declared is None
            else _in_declared_types(columns, record_schema(declared), schema)
        )
    except Untraceable:
        if not unknown_columns(schema):
            raise
    except PlanError as problem:
        draft.report(problem, site)
    return Typed((), UNKNOWN)


def _in_declared_types(traced: Typed, declared: pa.Schema, schema: pa.Schema) -> Typed:
    """The traced columns in the types the user asked for."""
    if traced.schema.names != declared.names:
        raise PlanError(
            "HR-PLAN-026",
            f"map returns the columns {', '.join(traced.schema.names)}, but schema= says "
            f"{', '.join(declared.names)}",
            "Make them agree, in order.",
        )
    pairs = zip(traced.columns, traced.schema, declared, strict=True)
    columns = tuple((n, e if f.type == s.type else e.cast(s.type)) for (n, e), f, s in pairs)
    if not uncertain(traced.schema, frozenset(traced.schema.names)):
        infer(dict(columns), schema)
    return Typed(columns, declared)


def is_column(spec: object, name: str) -> bool:
    """Whether `spec` is nothing but the column `name`."""
    return isinstance(spec, Expr) and same(spec, col(name))


# Aggregates over the rows of a schema: arguments resolved, results typed.
#
# An argument is a column's name where it can be; another expression stays one here, and
# `rewrite.py` projects it into a column, because `ops` sees columns only.


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
    plain = {n: plain_agg(draft, n, a, schema, site) for n, a in aggs.items()}
    fields = [_field(draft, n, a, schema, site) for n, a in plain.items()]
    return tuple((n, a) for n, a in plain.items() if a is not None), fields


def arguments(aggs: Aggs) -> dict[str, Expr]:
    """The arguments that are not columns yet, under the names they will have as columns."""
    exprs: dict[str, Expr] = {}
    for name, agg in aggs:
        for index, argument in enumerate((agg.column, agg.by)):
            if isinstance(argument, Expr):
                exprs[argument_name(name, index)] = argument
    return exprs


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
    names: set[str] = set()
    for _, agg in aggs:
        for argument in agg.arguments:
            names |= argument.columns if isinstance(argument, Expr) else {argument}
    return names


def plain_agg(
    draft: Draft, name: str, agg: object, schema: pa.Schema, site: Site | None
) -> Aggregate | None:
    """The aggregate of result `name` over columns of `schema`; None if it is wrong."""
    if isinstance(agg, OwnAggregate):
        with draft.attempt(site):
            check_own(agg)
            title = f"{type(agg).__module__}.{type(agg).__qualname__}"
            return plain_agg(draft, name, Aggregate(title, agg.column, own=agg), schema, site)
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
        compared = isinstance(agg, bool)
        equal = ' Two aggregates are compared in SQL text: "max(v) = min(v)".'
        draft.report(
            PlanError(
                "HR-PLAN-021",
                f"{name}={agg!r} is not an aggregate",
                f'Write {name}=hr.mean("column"), hr.count(), hr.max("column") ...; '
                f"for your own function use reduce or fold.{equal if compared else ''}",
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
    expr = expression(draft, argument, schema, site)
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
        rows = _projected_to(name, agg, schema)
        try:
            return pa.field(name, projected(name, agg).result_type(rows))
        except PlanError as problem:
            _as_written(problem, name, agg)
            raise
    return field


def _as_written(problem: PlanError, name: str, agg: Aggregate) -> None:
    """Name the arguments as the user wrote them, and not as the columns they become."""
    for index, argument in reversed(list(enumerate((agg.column, agg.by)))):
        if isinstance(argument, Expr):
            column, text = argument_name(name, index), bare_sql(argument.sql())
            problem.message = problem.message.replace(column, text)
            problem.hint = problem.hint and problem.hint.replace(column, text)


def hashed(name: str, agg: Aggregate, schema: pa.Schema) -> str | None:
    """Of which family the values are whose hashes are stored, if they are and it is known."""
    if uncertain(schema, frozenset(columns_read(((name, agg),)))):
        return None
    try:
        return projected(name, agg).hashed(_projected_to(name, agg, schema))
    except PlanError:  # reported where it is aggregated
        return None


def _projected_to(name: str, agg: Aggregate, schema: pa.Schema) -> pa.Schema:
    """The columns of `schema`, and the arguments that have become columns."""
    exprs = arguments(((name, agg),))
    return pa.schema([*schema, *infer(exprs, schema)]) if exprs else schema


def clashes(names: Sequence[str], fields: Sequence[pa.Field], what: str) -> list[PlanError]:
    """A problem for each result column whose name is used already."""
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
