"""Lowering of conditions: comparison, and, or, not, null, lists, CASE.

Invariant: null is unknown, as in SQL; NaN equals NaN and is larger than every number; what may
fail is not looked at once the answer is certain.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as pt
from sqlglot import exp

from headrace.expr.expression import Expr
from headrace.expr.tree import Node, refused
from headrace.expr.types import Term, is_nested, spoken
from headrace.expr.walk import Walk

SIGNS: dict[type[Node], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
}  # fmt: skip


def condition(low: Walk, expr: Expr) -> Term:
    return truth(low, expr.node.this if isinstance(expr.node, exp.Alias) else expr.node)


def truth(low: Walk, node: Node) -> Term:
    made = low.term(node)
    if pt.is_null(made.type):
        return Term("CAST(NULL AS BOOLEAN)", pa.bool_())
    if made.type != pa.bool_():
        raise refused(node, f"it is {spoken(made.type)}, not a condition", "Compare it.")
    return made


def and_or(low: Walk, node: Node) -> Term:
    """From left to right: what may fail is not looked at once the answer is certain."""
    word, certain = ("AND", "FALSE") if isinstance(node, exp.And) else ("OR", "TRUE")
    before, made = low.risks, ""
    for part in reversed(parts_of(node)):
        risky = low.risks > before  # what stands to the right of this part
        sql = truth(low, part).sql
        if made and risky:
            made = f"(CASE WHEN {sql} IS {certain} THEN {certain} ELSE {sql} {word} {made} END)"
        else:
            made = f"({sql} {word} {made})" if made else sql
    return Term(made, pa.bool_())


def parts_of(node: Node) -> list[Node]:
    """The operands of a chain of ANDs, or of ORs, from left to right."""
    parts: list[Node] = []
    inner = node
    while type(inner) is type(node):
        parts.append(inner.expression)
        inner = inner.this
    return [inner, *reversed(parts)]


def negation(low: Walk, node: Node) -> Term:
    return Term(f"(NOT {truth(low, node.this).sql})", pa.bool_())


def state(low: Walk, node: Node) -> Term:
    if isinstance(node.expression, exp.Null):
        return Term(f"({low.term(node.this).sql} IS NULL)", pa.bool_())
    if not isinstance(node.expression, exp.Boolean):
        raise refused(node, "IS takes null, true or false", "Use = or <=>.")
    word = "TRUE" if node.expression.this else "FALSE"
    return Term(f"({truth(low, node.this).sql} IS {word})", pa.bool_())


def comparison(low: Walk, node: Node) -> Term:
    a, b = low.same([node.this, node.expression], node)
    _comparable(a, node)
    return Term(f"({a.sql} {SIGNS[type(node)]} {b.sql})", pa.bool_())


def _comparable(term: Term, where: Node) -> None:
    if is_nested(term.type):
        raise refused(where, f"{spoken(term.type)} cannot be compared", "Compare its parts.")


def between(low: Walk, node: Node) -> Term:
    x, least, most = low.same([node.this, node.args["low"], node.args["high"]], node)
    _comparable(x, node)
    return Term(f"({x.sql} BETWEEN {least.sql} AND {most.sql})", pa.bool_())


def membership(low: Walk, node: Node) -> Term:
    if not node.expressions:
        return Term("FALSE", pa.bool_())
    x, *values = low.same([node.this, *node.expressions], node)
    _comparable(x, node)
    return Term(f"({x.sql} IN ({', '.join(v.sql for v in values)}))", pa.bool_())


def choice(low: Walk, node: Node) -> Term:
    tests = [truth(low, i.this) for i in node.args["ifs"]]
    values = [i.args["true"] for i in node.args["ifs"]]
    default = node.args.get("default") or exp.Null()
    *results, last = low.same([*values, default], node)
    arms = " ".join(f"WHEN {t.sql} THEN {r.sql}" for t, r in zip(tests, results, strict=True))
    return Term(f"(CASE {arms} ELSE {last.sql} END)", last.type)
