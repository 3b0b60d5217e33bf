"""Functions of arrays that take a lambda: `transform(xs, x -> x + 1)`.

Invariant: as in Spark, a position counts from 0, null elements reach the lambda, and a condition
that is null keeps no element; `exists` and `forall` are null if a null leaves them undecided.
The array comes first, so that its elements give the lambda's variables their types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import types as pt
from sqlglot import exp

from headrace.expr.catalog import CATALOGUE, Function
from headrace.expr.tree import Node, refused
from headrace.expr.types import DUCKDB, Term, quote, spoken
from headrace.expr.walk import Walk

LAMBDAS = "arrays, with a lambda"
_Lower = Callable[[Walk, Sequence[Node], Node], Term]


def _offer(name: str, takes: str, lower: _Lower) -> None:
    CATALOGUE[name] = Function(
        name=name,
        takes=tuple(takes.split()),
        gives="",
        duckdb="",
        spark="",
        group=LAMBDAS,
        lambdas=lower,
    )


def _array(low: Walk, node: Node, where: Node) -> Term:
    made = low.term(node)
    if not pt.is_list(made.type):
        raise refused(
            where, f"the first argument is an array, not {spoken(made.type)}", "Use array."
        )
    return made


def _inside(
    low: Walk, function: Node, variables: Sequence[Term], where: Node, least: int = 0
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
    around, low.depth = low.scope, low.depth + 1
    inner = [f"v{low.depth}_{i}" for i in range(len(names))]
    bound = {
        n: Term(v.sql.format(i), v.type) for n, v, i in zip(names, variables, inner, strict=False)
    }
    low.scope = {**around, **bound}
    try:
        body = low.term(function.this)
    finally:
        low.scope, low.depth = around, low.depth - 1
    return inner, body


def _element(array: Term) -> Term:
    return Term("{}", array.type.value_type)


def _index(dialect: str) -> Term:
    return Term("CAST({} - 1 AS INTEGER)" if dialect == DUCKDB else "{}", pa.int32())


def _arrow(names: Sequence[str], body: str, dialect: str) -> str:
    if dialect == DUCKDB:
        return f"lambda {', '.join(names)}: {body}"
    return f"({', '.join(quote(n, dialect).strip('`') for n in names)}) -> {body}"


def _typed(body: Term, where: Node) -> pa.DataType:
    if pt.is_null(body.type):
        raise refused(where, "the lambda is always null, so it has no type", "Use cast.")
    return body.type


def _condition(body: Term, where: Node) -> Term:
    if body.type != pa.bool_():
        raise refused(
            where, f"the lambda gives {spoken(body.type)}, not a condition", "Compare it."
        )
    return body


def _transform(low: Walk, args: Sequence[Node], node: Node) -> Term:
    array = _array(low, args[0], node)
    names, body = _inside(low, args[1], [_element(array), _index(low.dialect)], node, least=1)
    word = "list_transform" if low.dialect == DUCKDB else "transform"
    made = pa.list_(_typed(body, node))
    return Term(f"{word}({array.sql}, {_arrow(names, body.sql, low.dialect)})", made)


def _filter(low: Walk, args: Sequence[Node], node: Node) -> Term:
    array = _array(low, args[0], node)
    names, body = _inside(low, args[1], [_element(array), _index(low.dialect)], node, least=1)
    word = "list_filter" if low.dialect == DUCKDB else "filter"
    test = _arrow(names, _condition(body, node).sql, low.dialect)
    return Term(f"{word}({array.sql}, {test})", array.type)


def _decided(word: str, fold: str, certain: bool) -> _Lower:
    """Of conditions as 2, 1 for null and 0, the largest or the smallest decides."""

    def lower(low: Walk, args: Sequence[Node], node: Node) -> Term:
        array, risks = _array(low, args[0], node), low.risks
        names, body = _inside(low, args[1], [_element(array)], node)
        test = _condition(body, node).sql
        if low.dialect != DUCKDB:
            return Term(f"{word}({array.sql}, {_arrow(names, test, low.dialect)})", pa.bool_())
        seen = array.sql
        if low.risks > risks:
            seen = _until(array.sql, _arrow(names, f"TRY({test})", DUCKDB), certain)
        grade = _arrow(names, f"coalesce(CAST({test} AS INTEGER) * 2, 1)", DUCKDB)
        made = f"{fold}(list_transform({seen}, {grade}))"
        rest = f"CASE WHEN {array.sql} IS NOT NULL THEN {not certain} END"
        known = f"WHEN {2 * certain} THEN {certain} WHEN 1 THEN NULL"
        return Term(f"(CASE {made} {known} ELSE {rest} END)", pa.bool_())

    return lower


def _until(array: str, tried: str, certain: bool) -> str:
    """The elements up to the one that decides: what fails behind it is not looked at."""
    place = f"nullif(list_position(list_transform({array}, {tried}), {certain}), 0)"
    return f"({array})[1:coalesce({place}, len({array}))]"


def _aggregate(low: Walk, args: Sequence[Node], node: Node) -> Term:
    array, start = _array(low, args[0], node), low.term(args[1])
    state = Term("{}", _typed(start, node))
    names, body = _inside(low, args[2], [state, _element(array)], node)
    if body.type != start.type:
        raise refused(
            node,
            f"it starts with {spoken(start.type)} and goes on with {spoken(body.type)}",
            "Cast the second argument.",
        )
    step = _arrow(names, body.sql, low.dialect)
    if low.dialect == DUCKDB:
        made = f"list_reduce({array.sql}, {step}, {start.sql})"
        return _finished(low, args, Term(made, start.type), node)
    last = ""
    to = start.type
    if len(args) == 4:
        names, end = _inside(low, args[3], [state], node)
        last, to = f", {_arrow(names, end.sql, low.dialect)}", _typed(end, node)
    return Term(f"aggregate({array.sql}, {start.sql}, {step}{last})", to)


def _finished(low: Walk, args: Sequence[Node], made: Term, node: Node) -> Term:
    """The last lambda over the result: as an array of one, so that the result is made once."""
    if len(args) < 4:
        return made
    names, body = _inside(low, args[3], [Term("{}", made.type)], node)
    array = f"CASE WHEN {low.term(args[0]).sql} IS NOT NULL THEN [{made.sql}] END"
    end = f"list_transform({array}, {_arrow(names, body.sql, DUCKDB)})"
    return Term(f"({end})[1]", _typed(body, node))


def _zip_with(low: Walk, args: Sequence[Node], node: Node) -> Term:
    a, b = (_array(low, n, node) for n in args[:2])
    if low.dialect != DUCKDB:
        names, body = _inside(low, args[2], [_element(a), _element(b)], node)
        step = _arrow(names, body.sql, low.dialect)
        return Term(f"zip_with({a.sql}, {b.sql}, {step})", pa.list_(_typed(body, node)))
    pair = f"v{low.depth + 1}_0"
    both = [
        Term(f"struct_extract_at({pair}, {i + 1})", t.type.value_type) for i, t in enumerate((a, b))
    ]
    _, body = _inside(low, args[2], both, node)
    made = f"list_transform(list_zip({a.sql}, {b.sql}), {_arrow([pair], body.sql, DUCKDB)})"
    known = f"{a.sql} IS NOT NULL AND {b.sql} IS NOT NULL"
    return Term(f"(CASE WHEN {known} THEN {made} END)", pa.list_(_typed(body, node)))


_offer("transform", "[T] lambda", _transform)
_offer("filter", "[T] lambda", _filter)
_offer("exists", "[T] lambda", _decided("exists", "list_max", certain=True))
_offer("forall", "[T] lambda", _decided("forall", "list_min", certain=False))
_offer("aggregate", "[T] any lambda lambda?", _aggregate)
_offer("zip_with", "[T] [T] lambda", _zip_with)
