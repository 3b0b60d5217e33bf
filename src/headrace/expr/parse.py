"""SQL text to the one tree: Spark's dialect, reduced to the nodes of `tree`.

Invariant: what this module returns is canonical; whatever is not a plain expression (a
subquery, a window, an aggregate's DISTINCT) is refused with HR-EXPR-004. It knows no schema
and no types; `lower` does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.errors import PlanError
from headrace.expr.tree import (
    Dialect,
    Node,
    call,
    cast,
    column,
    field,
    interval,
    number,
    unreadable,
)

Rule = Callable[[Node, str], Node]
_DEEPEST = 200  # operations within each other: each takes some of Python's stack


@lru_cache(maxsize=1024)
def parse(text: str) -> Node:
    """The canonical tree of one SQL expression; it may carry a name (`a + b AS c`)."""
    try:
        trees = Dialect().parse(text)
        if len(trees) != 1 or trees[0] is None or isinstance(trees[0], exp.Block):
            raise unreadable(text, "it is not exactly one expression")
        made = canonical(trees[0], text)
    except SqlglotError as error:
        raise unreadable(text, _first_line(error)) from None
    except RecursionError:
        raise _too_deep(text) from None
    if _depth(made) > _DEEPEST:
        raise _too_deep(text)
    return made


def _depth(node: Node) -> int:
    depth, level = 0, [node]
    while level:
        depth, level = depth + 1, [child for one in level for child in one.iter_expressions()]
    return depth


def _too_deep(text: str) -> PlanError:
    return unreadable(f"{text[:40]}...", "it is too long, or nested too deep; IN may be shorter")


def _first_line(error: SqlglotError) -> str:
    line = str(error).splitlines()[0].rstrip(". ")
    return line[:1].lower() + line[1:]


def canonical(node: Node, text: str = "") -> Node:
    """The same meaning in the canonical nodes; HR-EXPR-004 for what is not an expression."""
    rule = _RULES.get(type(node))
    if rule is not None:
        return rule(node, text)
    if type(node) not in _KEPT:
        raise unreadable(text or node.sql(), f"{_spoken(node)} is not offered here")
    made = type(node)()
    for key, value in node.args.items():
        if isinstance(value, Node):
            made.set(key, canonical(value, text))
        elif isinstance(value, list):
            made.set(key, [canonical(v, text) for v in value])
        elif isinstance(value, str | bool) and key in ("this", "is_string"):
            made.set(key, value)
    return made


def _spoken(node: Node) -> str:
    names = {exp.Subquery: "a subquery", exp.Select: "a query", exp.Window: "a window (OVER)",
             exp.Star: "*", exp.Lambda: "an arrow function"}  # fmt: skip
    return names.get(type(node), f"{type(node).__name__.lower()}")


def _column(node: Node, text: str) -> Node:
    parts = [p.name for p in (node.args.get(k) for k in ("catalog", "db", "table", "this")) if p]
    if isinstance(node.this, exp.Star):
        raise unreadable(text, "* is not an expression")
    made = column(parts[0])
    for part in parts[1:]:
        made = field(made, part)
    return made


def _dot(node: Node, text: str) -> Node:
    if not isinstance(node.expression, exp.Identifier):
        raise unreadable(text, "after a dot there must be the name of a field")
    return field(canonical(node.this, text), node.expression.name)


def _bracket(node: Node, text: str) -> Node:
    if len(node.expressions) != 1:
        raise unreadable(text, "[] takes one position or one name")
    (index,) = node.expressions
    of = canonical(node.this, text)
    if isinstance(index, exp.Literal) and index.is_string:
        return field(of, index.this)
    return exp.Bracket(this=of, expressions=[canonical(index, text)])


def _literal(node: Node, text: str) -> Node:
    if node.args["is_string"]:
        return exp.Literal.string(node.this)
    return number(node.this)


def _cast(node: Node, text: str) -> Node:
    to = node.args["to"].sql(dialect="spark")
    tried = isinstance(node, exp.TryCast) and bool(node.args.get("safe"))
    return cast(canonical(node.this, text), to, safe=tried)


def _call(node: Node, text: str) -> Node:
    if not isinstance(node.this, str):
        raise unreadable(text, "a function is called by its name")
    args = [canonical(a, text) for a in node.expressions]
    return call(node.this, *args)


def _interval(node: Node, text: str) -> Node:
    amount, unit = node.this, node.args.get("unit")
    if not isinstance(amount, exp.Literal) or not isinstance(unit, exp.Var):
        raise unreadable(text, "an interval is a number and a unit, as in INTERVAL 5 MINUTES")
    return interval(amount.this, unit.name, text)


def _alias(node: Node, text: str) -> Node:
    return exp.Alias(this=canonical(node.this, text),
                     alias=exp.Identifier(this=node.alias, quoted=True))  # fmt: skip


def _in(node: Node, text: str) -> Node:
    if node.args.get("query") is not None or not node.expressions:
        raise unreadable(text, "IN takes a list of values")
    return exp.In(this=canonical(node.this, text),
                  expressions=[canonical(e, text) for e in node.expressions])  # fmt: skip


def _array(node: Node, text: str) -> Node:
    return call("array", *(canonical(e, text) for e in node.expressions))


def _case(node: Node, text: str) -> Node:
    subject = node.args.get("this")
    made = exp.Case(ifs=[_branch(i, subject, text) for i in node.args["ifs"]])
    if node.args.get("default") is not None:
        made.set("default", canonical(node.args["default"], text))
    return made


def _branch(node: Node, subject: Node | None, text: str) -> Node:
    test = canonical(node.this, text)
    if subject is not None:
        test = exp.EQ(this=canonical(subject, text), expression=test)
    return exp.If(this=test, true=canonical(node.args["true"], text))


def _unwrap(node: Node, text: str) -> Node:
    return canonical(node.this, text)


def _unequal(node: Node, text: str) -> Node:
    same = exp.NullSafeEQ(this=node.this, expression=node.expression)
    return exp.Not(this=canonical(same, text))


def _named(name: str, *keys: str) -> Rule:
    def rule(node: Node, text: str) -> Node:
        return call(name, *(canonical(node.args[k], text) for k in keys if node.args.get(k)))

    return rule


_RULES: dict[type[Node], Rule] = {
    exp.Column: _column, exp.Dot: _dot, exp.Bracket: _bracket, exp.Literal: _literal,
    exp.Cast: _cast, exp.TryCast: _cast, exp.Anonymous: _call, exp.Interval: _interval,
    exp.Array: _array, exp.Case: _case, exp.Alias: _alias, exp.In: _in, exp.Paren: _unwrap,
    exp.NullSafeNEQ: _unequal,
    exp.DPipe: _named("concat", "this", "expression"),
    exp.RegexpLike: _named("rlike", "this", "expression"),
    exp.Like: _named("like", "this", "expression"),
    exp.ILike: _named("ilike", "this", "expression"),
}  # fmt: skip

_KEPT: frozenset[type[Node]] = frozenset((
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Neg, exp.And, exp.Or, exp.Not,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.Is, exp.Between,
    exp.Null, exp.Boolean,
))  # fmt: skip
