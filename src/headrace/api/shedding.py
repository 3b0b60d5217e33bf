"""The argument `shed` of `read`: its priority over the columns, and the column of weights."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headrace.errors import PlanError, Site
from headrace.expr import Expr
from headrace.ops.shedding import Shedding
from headrace.plan import columns as cols
from headrace.plan.draft import Draft
from headrace.schema import ddl_type


def shedding(
    draft: Draft, shed: object, uri: object, schema: pa.Schema, site: Site | None
) -> tuple[Shedding | None, pa.Schema]:
    """What the input drops, checked, and the columns of its rows; None if it drops nothing."""
    if shed is None:
        return None, schema
    if not isinstance(shed, Shedding):
        hint = (
            'Write shed=hr.shedding.random(lag="30s"), hr.shedding.oldest(lag="30s") or '
            'hr.shedding.lowest("priority", lag="30s").'
        )
        draft.report(PlanError("HR-SHED-002", f"shed is {shed!r}", hint), site)
        return None, schema
    if not isinstance(uri, str) and getattr(uri, "bounded", False) is True:
        problem = PlanError(
            "HR-SHED-003",
            "an input that has an end is asked to shed: it waits for nobody",
            "Leave shed= out: whatever is there is read to the end.",
        )
        draft.report(problem, site)
        return None, schema
    if shed.priority is not None:
        shed = replace(shed, priority=_priority(draft, shed.priority, schema, site))
    if shed.weight is None or len(schema) == 0:
        return shed, schema
    if shed.weight in schema.names:
        problem = PlanError(
            "HR-SHED-004",
            f"the weight {shed.weight!r} is a column of the input already",
            "Give the weight another name.",
        )
        draft.report(problem, site)
        return replace(shed, weight=None), schema
    return shed, schema.append(pa.field(shed.weight, pa.float64()))


def _priority(draft: Draft, priority: object, schema: pa.Schema, site: Site | None) -> Expr | None:
    """The priority as an expression over the columns; where it is wrong, that is reported."""
    expr = cols.expression(draft, priority, schema, site)
    kind = None if expr is None else cols.type_of(draft, expr, schema, site)
    number = kind is None or (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
    )
    if expr is not None and kind is not None and not number:
        problem = PlanError(
            "HR-SHED-005",
            f"the priority {expr.sql()!r} is of type {ddl_type(kind)}",
            "A priority is a number or a condition: lowest(\"case when kind = 'order' then 2 "
            'else 1 end", lag="30s").',
        )
        draft.report(problem, site)
    return expr
