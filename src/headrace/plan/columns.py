"""What users write for columns, against the schema it is about: expressions with types.

A mistake is reported in the draft and leaves a column of unknown type; an expression over
unknown columns is unknown itself, silently, because the cause has been reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import PlanError, Site
from headrace.expr import Expr, Untraceable, as_expr, col, parsed, same
from headrace.expr.lower import unknown_column
from headrace.expr.trace import trace_row
from headrace.kernel import infer
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
    found = [(name, expression(draft, spec, schema, site)) for name, spec in specs.items()]
    columns = tuple((name, col(name) if expr is None else expr) for name, expr in found)
    sure = {n: e for n, e in found if e is not None and not uncertain(schema, e.columns)}
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
    """An expression given as such: every column that is not there is a problem of its own."""
    if isinstance(spec, str):
        spec = col(spec) if spec in schema.names else parsed(spec, named=named)
    if wrong := unknown(sorted(spec.columns), schema, site):
        raise PlanError.of(wrong)
    return spec if uncertain(schema, spec.columns) else as_expr(spec, schema)


def _not_one(reason: Untraceable) -> PlanError:
    return PlanError(
        "HR-EXPR-005",
        f"this function is not an expression: {reason.reason}",
        "Use map, filter or map_batches for Python code, or write it with columns.",
    )


def condition(draft: Draft, expr: Expr, schema: pa.Schema, what: str, site: Site | None) -> None:
    """Report an expression that is not a yes or no."""
    if uncertain(schema, expr.columns):
        return
    with draft.attempt(site):
        kind = infer({"condition": expr}, schema).field(0).type
        if not pa.types.is_boolean(kind):
            raise PlanError(
                "HR-PLAN-012",
                f"{what} needs a condition, but {expr.sql()!r} is of type {ddl_type(kind)}",
                "Compare it with something, as in col('t') > 40.",
            )


def unknown(names: Iterable[str], schema: pa.Schema, site: Site | None) -> list[PlanError]:
    """A problem for each of `names` that is not a column."""
    if len(schema) == 0:
        return []
    wrong = [unknown_column(n, schema) for n in names if n not in schema.names]
    for problem in wrong:
        problem.site = site
    return wrong


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
    said: SchemaLike | None,
    site: Site | None,
) -> Typed:
    """The columns that a lambda over a row makes; raises Untraceable if it cannot be traced."""
    if len(schema) == 0:
        return Typed((), UNKNOWN)
    try:
        found = typed(draft, trace_row(fn, schema), schema, site)
        return found if said is None else _as_said(found, record_schema(said), schema)
    except Untraceable:
        if not unknown_columns(schema):
            raise
    except PlanError as problem:
        draft.report(problem, site)
    return Typed((), UNKNOWN)


def _as_said(found: Typed, said: pa.Schema, schema: pa.Schema) -> Typed:
    """The traced columns in the types the user asked for."""
    if found.schema.names != said.names:
        raise PlanError(
            "HR-PLAN-026",
            f"map gives the columns {', '.join(found.schema.names)}, but schema= says "
            f"{', '.join(said.names)}",
            "Make them agree, in order.",
        )
    pairs = zip(found.columns, found.schema, said, strict=True)
    columns = tuple((n, e if f.type == s.type else e.cast(s.type)) for (n, e), f, s in pairs)
    if not uncertain(found.schema, frozenset(found.schema.names)):
        infer(dict(columns), schema)
    return Typed(columns, said)


def is_column(spec: object, name: str) -> bool:
    """Whether `spec` is nothing but the column `name`."""
    return isinstance(spec, Expr) and same(spec, col(name))
