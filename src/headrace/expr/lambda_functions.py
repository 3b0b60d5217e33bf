"""SQL functions of arrays that take a lambda: `transform(xs, x -> x + 1)`.

Invariant: as in Spark, a position counts from 0, null elements reach the lambda, and a condition
that is null keeps no element; `exists` and `forall` are null if a null leaves them undecided.
The array comes first, so that its elements give the lambda's variables their types. A Python
lambda is called once, with expressions in place of elements: `transform("xs", lambda x: x + 1)`
is the tree of "transform(xs, x -> x + 1)".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types as pt
from sqlglot import exp

from headrace.expr.catalog import lambda_function
from headrace.expr.expression import Column, Expr, call, column_of, lambda_of
from headrace.expr.tree import Node, refused
from headrace.expr.types import Term, type_text
from headrace.expr.walk import Walk

_Lower = Callable[[Walk, Sequence[Node], Node], Term]


def array_argument(walk: Walk, node: Node, where: Node) -> Term:
    array = walk.term(node)
    if not pt.is_list(array.type):
        raise refused(
            where, f"the first argument is an array, not {type_text(array.type)}", "Use array."
        )
    return array


def bind_lambda(
    walk: Walk, function: Node, variables: Sequence[Term], where: Node, least: int = 0
) -> tuple[list[str], Term]:
    """The names of a lambda's variables in the engine, and its body."""
    if not isinstance(function, exp.Lambda):
        raise refused(where, "a lambda is expected", "Write it as in transform(xs, x -> x + 1).")
    names = [e.name for e in function.expressions]
    if not (least or len(variables)) <= len(names) <= len(variables):
        most = len(variables)
        many = f"{least} or {most}" if least else f"{most}"
        raise refused(
            where,
            f"the lambda has {len(names)} variables, not {many}",
            "Write it as in zip_with(xs, ys, (x, y) -> x + y).",
        )
    around, walk.depth = walk.scope, walk.depth + 1
    inner = [f"v{walk.depth}_{i}" for i in range(len(names))]
    bound = {
        n: Term(v.sql.format(i), v.type) for n, v, i in zip(names, variables, inner, strict=False)
    }
    walk.scope = {**around, **bound}
    try:
        body = walk.term(function.this)
    finally:
        walk.scope, walk.depth = around, walk.depth - 1
    return inner, body


def element_of(array: Term) -> Term:
    return Term("{}", array.type.value_type)


_INDEX = Term("CAST({} - 1 AS INTEGER)", pa.int32())


def _arrow(names: Sequence[str], body: str) -> str:
    return f"lambda {', '.join(names)}: {body}"


def _typed(body: Term, where: Node) -> pa.DataType:
    if pt.is_null(body.type):
        raise refused(where, "the lambda is always null, so it has no type", "Use cast.")
    return body.type


def _condition(body: Term, where: Node) -> Term:
    if body.type != pa.bool_():
        raise refused(
            where, f"the lambda gives {type_text(body.type)}, not a condition", "Compare it."
        )
    return body


def _transform(walk: Walk, args: Sequence[Node], node: Node) -> Term:
    array = array_argument(walk, args[0], node)
    names, body = bind_lambda(walk, args[1], [element_of(array), _INDEX], node, least=1)
    kind = pa.list_(_typed(body, node))
    return Term(f"list_transform({array.sql}, {_arrow(names, body.sql)})", kind)


@lambda_function("[T] lambda", _transform)
def transform(column: Column, fn: Callable[..., Any]) -> Expr:
    """What the lambda makes of each element; it may take the position, from 0, as well."""
    return call("transform", column_of(column), lambda_of(fn, 1, 2))


def _filter(walk: Walk, args: Sequence[Node], node: Node) -> Term:
    array = array_argument(walk, args[0], node)
    names, body = bind_lambda(walk, args[1], [element_of(array), _INDEX], node, least=1)
    test = _arrow(names, _condition(body, node).sql)
    return Term(f"list_filter({array.sql}, {test})", array.type)


@lambda_function("[T] lambda", _filter)
def filter(column: Column, fn: Callable[..., Any]) -> Expr:
    """The elements for which the lambda holds; it may take the position, from 0, as well."""
    return call("filter", column_of(column), lambda_of(fn, 1, 2))


def _decided(fold: str, *, certain: bool) -> _Lower:
    """Of conditions as 2, 1 for null and 0, the largest or the smallest decides."""

    def lower(walk: Walk, args: Sequence[Node], node: Node) -> Term:
        array, risks = array_argument(walk, args[0], node), walk.risks
        names, body = bind_lambda(walk, args[1], [element_of(array)], node)
        test = _condition(body, node).sql
        elements = array.sql
        if walk.risks > risks:
            elements = _until(array.sql, _arrow(names, f"TRY({test})"), certain)
        grade = _arrow(names, f"coalesce(CAST({test} AS INTEGER) * 2, 1)")
        folded = f"{fold}(list_transform({elements}, {grade}))"
        rest = f"CASE WHEN {array.sql} IS NOT NULL THEN {not certain} END"
        cases = f"WHEN {2 * certain} THEN {certain} WHEN 1 THEN NULL"
        return Term(f"(CASE {folded} {cases} ELSE {rest} END)", pa.bool_())

    return lower


def _until(array: str, tried: str, certain: bool) -> str:
    """The elements up to the one that decides: what fails behind it is not looked at."""
    place = f"nullif(list_position(list_transform({array}, {tried}), {certain}), 0)"
    return f"({array})[1:coalesce({place}, len({array}))]"


@lambda_function("[T] lambda", _decided("list_max", certain=True))
def exists(column: Column, fn: Callable[..., Any]) -> Expr:
    """Whether the lambda holds for an element."""
    return call("exists", column_of(column), lambda_of(fn, 1))


@lambda_function("[T] lambda", _decided("list_min", certain=False))
def forall(column: Column, fn: Callable[..., Any]) -> Expr:
    """Whether the lambda holds for every element."""
    return call("forall", column_of(column), lambda_of(fn, 1))


def _aggregate(walk: Walk, args: Sequence[Node], node: Node) -> Term:
    array, start = array_argument(walk, args[0], node), walk.term(args[1])
    state = Term("{}", _typed(start, node))
    names, body = bind_lambda(walk, args[2], [state, element_of(array)], node)
    if body.type != start.type:
        raise refused(
            node,
            f"it starts with {type_text(start.type)} and goes on with {type_text(body.type)}",
            "Cast the second argument.",
        )
    reduced = f"list_reduce({array.sql}, {_arrow(names, body.sql)}, {start.sql})"
    return _finished(walk, args, Term(reduced, start.type), node)


def _finished(walk: Walk, args: Sequence[Node], result: Term, node: Node) -> Term:
    """The last lambda over the result: as an array of one, so that the result is made once."""
    if len(args) < 4:
        return result
    names, body = bind_lambda(walk, args[3], [Term("{}", result.type)], node)
    array = f"CASE WHEN {walk.term(args[0]).sql} IS NOT NULL THEN [{result.sql}] END"
    end = f"list_transform({array}, {_arrow(names, body.sql)})"
    return Term(f"({end})[1]", _typed(body, node))


@lambda_function("[T] any lambda lambda?", _aggregate, aliases="reduce")
def aggregate(
    column: Column, start: Any, fn: Callable[..., Any], finish: Callable[..., Any] | None = None
) -> Expr:
    """From `start` on, what the lambda makes of the result so far and the next element."""
    last = () if finish is None else (lambda_of(finish, 1),)
    return call("aggregate", column_of(column), start, lambda_of(fn, 2), *last)


def _zip_with(walk: Walk, args: Sequence[Node], node: Node) -> Term:
    a, b = (array_argument(walk, n, node) for n in args[:2])
    pair = f"v{walk.depth + 1}_0"
    both = [
        Term(f"struct_extract_at({pair}, {i + 1})", t.type.value_type) for i, t in enumerate((a, b))
    ]
    _, body = bind_lambda(walk, args[2], both, node)
    zipped = f"list_transform(list_zip({a.sql}, {b.sql}), {_arrow([pair], body.sql)})"
    complete = f"{a.sql} IS NOT NULL AND {b.sql} IS NOT NULL"
    return Term(f"(CASE WHEN {complete} THEN {zipped} END)", pa.list_(_typed(body, node)))


@lambda_function("[T] [T] lambda", _zip_with)
def zip_with(column: Column, other: Column, fn: Callable[..., Any]) -> Expr:
    """What the lambda makes of the elements of two arrays, pair by pair; a short one has nulls."""
    return call("zip_with", column_of(column), column_of(other), lambda_of(fn, 2))
