"""`with_columns`: expressions, and Python functions that compute a column of the row.

A lambda that can be traced is an expression, as everywhere. The others are called with the row as
it came: so are expressions computed, and nothing depends on the order in which columns are named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import pyarrow as pa

from headrace.api.handles import StepBuilder
from headrace.callables import is_lambda
from headrace.errors import PlanError, did_you_mean
from headrace.expr import Expr, Untraceable, as_expr, col
from headrace.ops.sketch.set_functions import SketchFunction
from headrace.ops.stream.python_columns import PythonColumns
from headrace.plan import columns as cols
from headrace.plan.lineage import lifted
from headrace.plan.nodes import Chunks, Edge, Stateful
from headrace.plan.signature import check_takes, column_type
from headrace.schema import ddl_type, type_of

METHOD = "with_columns"


def is_types(types: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether `types=` states types of columns, and is not a column that is called so."""
    return isinstance(types, Mapping)


def with_python_columns(
    step: StepBuilder, specs: Mapping[str, object], types: Mapping[str, Any]
) -> Edge:
    """All columns, and these; types are those of what functions return, or casts."""
    for name in types:
        if name not in specs:
            step.report(
                PlanError(
                    "HR-PLAN-064",
                    f"types= states a type for {name!r}, which with_columns does not compute",
                    f"{did_you_mean(name, specs)}It computes {', '.join(specs) or 'nothing'}.",
                )
            )
    types = {**types, **_sketch_types(step, specs)}
    functions: dict[str, Callable[[Any], Any]] = {
        n: s for n, s in specs.items() if _runs_as_python(s, step, n, types)
    }
    exprs = {n: _cast(step, s, types.get(n)) for n, s in specs.items() if n not in functions}
    columns = {**{n: col(n) for n in step.schema.names}, **exprs}
    if not functions or not len(step.schema):
        return step.columns(METHOD, columns)
    names = {n: f"${n}" if exprs and n in step.schema.names else n for n in functions}
    fields = {n: pa.field(names[n], _type(step, n, fn, types)) for n, fn in functions.items()}
    replaced = [fields[f.name] if names.get(f.name) == f.name else f for f in step.schema]
    added = [f for f in fields.values() if f.name not in step.schema.names]
    what = PythonColumns(tuple(names.values()), tuple(functions.values()))
    node = Chunks(what=what, schema=pa.schema([*replaced, *added]), **step.common())
    edge = step.add(node, METHOD)
    if not exprs:
        return edge
    typed = cols.typed(step.draft, columns, step.schema, step.site)  # over the row as it came
    made = {n: (n, e, f) for (n, e), f in zip(typed.columns, typed.schema, strict=True)}
    made |= {n: (n, col(names[n]), fields[n].with_name(n)) for n in functions}
    order = [*step.schema.names, *(n for n in specs if n not in step.schema.names)]
    pairs = tuple((n, made[n][1]) for n in order)
    return step.draft.finish(edge, pairs, pa.schema([made[n][2] for n in order]))


def _sketch_types(step: StepBuilder, specs: Mapping[str, object]) -> dict[str, pa.DataType]:
    """The types of what is computed of sketches, whose columns are checked."""
    found = {n: s for n, s in specs.items() if isinstance(s, SketchFunction)}
    for made in found.values() if len(step.schema) else ():
        step.require_columns(made.columns)
        for name in made.columns:
            kind = step.schema.field(name).type if name in step.schema.names else pa.binary()
            if not (pa.types.is_binary(kind) or pa.types.is_null(kind)):  # null: wrong, reported
                fact = f"{made} takes {name!r}, which is {ddl_type(kind)} and no sketch"
                step.report(PlanError("HR-APPROX-005", fact, 'Aggregate it first: hr.theta("x").'))
        kinds = {n: of for n in made.columns for of in sketched_values(step.edge, n)}
        if len(set(kinds.values())) > 1:
            each = " and ".join(f"{n!r} is of {of}" for n, of in kinds.items())
            hint = "Cast the columns to one type before hr.theta: equal values of others differ."
            step.report(PlanError("HR-APPROX-006", f"{made} combines sketches: {each}", hint))
    return {n: s.type for n, s in found.items()}


def sketched_values(edge: Edge, column: str) -> set[str]:
    """The families of types whose values the sketches of a column are of, as far as known."""
    found: set[str] = set()
    for base, expr in lifted(edge, col(column)):
        node, names = base.node, sorted(expr.columns)
        if len(names) != 1 or expr.sql() != col(names[0]).sql():
            continue
        (name,) = names
        if isinstance(node, Chunks) and isinstance(node.what, PythonColumns):
            made = dict(zip(node.what.names, node.what.computed, strict=True)).get(name)
            above = made.columns if isinstance(made, SketchFunction) else []
            found.update(*(sketched_values(node.inputs[0], n) for n in above))
        elif isinstance(node, Stateful):
            agg = dict(node.what.aggregates).get(name)
            sides = [e for e in node.inputs if name in e.schema.names]
            if agg is not None:
                found |= {cols.hashed(name, agg, node.place.input) or ""} - {""}
            elif len(node.inputs) > 1 and len(sides) == 1:  # the side of a join that has it
                found |= sketched_values(sides[0], name)
    return found


def _runs_as_python(
    spec: object, step: StepBuilder, name: str, types: Mapping[str, Any]
) -> TypeGuard[Callable[[Any], Any]]:
    if not callable(spec) or isinstance(spec, Expr):
        return False
    if not is_lambda(spec):
        return not isinstance(spec, type) or name in types
    try:
        as_expr(spec, step.schema)
    except Untraceable:
        return name in types  # otherwise it is reported, with the reason
    except PlanError:
        return False
    return False


def _cast(step: StepBuilder, spec: object, kind: object) -> object:
    if kind is None:
        return spec
    with step.draft.attempt(step.site):
        expr = cols.expression(step.draft, spec, step.schema, step.site)
        return cols.WRONG if expr is None else expr.cast(type_of(kind))
    return cols.WRONG


def _type(step: StepBuilder, name: str, fn: Any, types: Mapping[str, Any]) -> pa.DataType:
    with step.draft.attempt(step.site):
        check_takes(fn, 1, METHOD)
        return column_type(fn, name, types.get(name), METHOD)
    return pa.null()
