"""SQL text to the one tree: Spark's dialect, reduced to the nodes of `tree`.

Invariant: what this module returns is canonical; whatever is not a plain expression (a
subquery, a window) is refused with HR-EXPR-004. It knows no schema and no types; `lower` does.
Aggregates are calls like others here: `count(*)` is `count()`, and FILTER a condition on what is
aggregated. Where they may stand is for the plan to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.errors import PlanError
from headrace.expr.dialect import Dialect, ShiftUnsigned
from headrace.expr.tree import (
    Node,
    call,
    cast,
    column,
    field,
    interval,
    number,
    unreadable,
)
from headrace.hints import aggregate

Make = Callable[[Node, str], Node]


@dataclass(frozen=True, slots=True)
class _Rule:
    """How a node is made canonical, and the arguments that are read in doing so."""

    make: Make
    reads: frozenset[str]


_DEEPEST = 200  # operations within each other: each takes some of Python's stack


@lru_cache(maxsize=1024)
def parse(text: str) -> Node:
    """The canonical tree of one SQL expression; it may carry a name (`a + b AS c`)."""
    try:
        trees = Dialect().parse(text)
        if len(trees) != 1 or trees[0] is None or isinstance(trees[0], exp.Block):
            raise unreadable(text, "it is not exactly one expression")
        tree = _named_or_not(trees[0], text)
    except SqlglotError as error:
        raise unreadable(text, _first_line(error, text)) from None
    except RecursionError:
        raise _too_deep(text) from None
    if _depth(tree) > _DEEPEST:
        raise _too_deep(text)
    return tree


def _depth(node: Node) -> int:
    depth, level = 0, [node]
    while level:
        depth, level = depth + 1, [child for one in level for child in one.iter_expressions()]
    return depth


def _too_deep(text: str) -> PlanError:
    return unreadable(f"{text[:40]}...", "it is too long, or nested too deep; IN may be shorter")


_PLACE = re.compile(r"\.? *Line (\d+), Col: (\d+)\.?")
_WORDS = (  # what the parser says, and what it means
    (r"^Required keyword.*", "an operand is missing"),
    (r"^Invalid expression / Unexpected token.*", "unexpected {word}"),
    (r"^Expecting (\S+).*", r"\1 is missing"),
    (r"^Expected TYPE after CAST.*", "CAST needs the name of a type"),
    (r"^Expected END after CASE.*", "CASE has no END"),
    (r"^Error tokenizing.*", "a quote is not closed, or a sign is none of SQL's"),
)


def _first_line(error: SqlglotError, text: str) -> str:
    """What the parser found, in words of ours, and at which character."""
    line = str(error).splitlines()[0].rstrip(". ")
    place = _PLACE.search(line)
    line, at = _PLACE.sub("", line), ""
    details = (getattr(error, "errors", None) or [{}])[0]
    if place is not None:
        row = f"line {place[1]}, " if "\n" in text else ""
        at = f", {row}character {place[2]}"
    word = repr(details["highlight"]) if details.get("highlight") else "end of the text"
    for pattern, words in _WORDS:
        line = re.sub(pattern, words, line, flags=re.DOTALL)
    line = line.replace("{word}", word)
    return (line if line[:2].isupper() else line[:1].lower() + line[1:]) + at


def canonical(node: Node | None, text: str = "") -> Node:
    """The same meaning in the canonical nodes; HR-EXPR-004 for what is not an expression.

    Every argument of a node is one that its rule reads: an argument that no rule knows is
    part of what the user wrote, so leaving it out would be another expression.
    """
    if node is None:
        raise unreadable(text, "an operand is missing")
    text = text or node.sql(dialect=Dialect)
    rule = _RULES.get(type(node))
    if rule is None:
        raise unreadable(text, f"{_described(node)} is not supported here")
    _check_read(node, rule.reads, text)
    return rule.make(node, text)


def _check_read(node: Node, reads: frozenset[str], text: str) -> None:
    unread = [key for key, value in node.args.items() if key not in reads and _is_set(value)]
    if unread:
        raise unreadable(text, f"{unread[0].upper()} is not supported for {_described(node)}")


def _is_set(value: object) -> bool:
    return not (value is None or value is False or value == [])


def _copied(node: Node, text: str) -> Node:
    """An operator over its operands."""
    copy = type(node)()
    for key in _OPERANDS:
        value = node.args.get(key)
        if value is not None:
            copy.set(key, canonical(value, text) if isinstance(value, Node) else value)
    return copy


_DESCRIBED: dict[type[Any], str] = {
    exp.Subquery: "a subquery", exp.Select: "a query", exp.Window: "a window (OVER)", exp.Star: "*",
    exp.Lambda: "an arrow function", exp.TryCast: "try_cast", exp.In: "IN",
    exp.Distinct: "DISTINCT", exp.Alias: "a name (AS)", exp.Exists: "EXISTS",
    exp.WithinGroup: "WITHIN GROUP",
    exp.IgnoreNulls: "IGNORE NULLS", exp.RespectNulls: "RESPECT NULLS",
    exp.Placeholder: "a placeholder", exp.Parameter: "a parameter (@)",
    exp.AtTimeZone: "AT TIME ZONE",
    exp.HexString: "a literal x'...'",
    exp.Tuple: "a list in parentheses", exp.JSONExtract: "->", exp.JSONExtractScalar: "->>",
    exp.Kwarg: "an argument by name (=>)", exp.StrToDate: "FORMAT", exp.StrToTime: "FORMAT",
    exp.Values: "VALUES", exp.Order: "ORDER BY", exp.Limit: "LIMIT", exp.Having: "HAVING",
}  # fmt: skip


def _described(node: Node) -> str:
    if type(node) in _DESCRIBED:
        return _DESCRIBED[type(node)]
    known = type(node) in _RULES
    return type(node).__name__.upper() if known else f"{node.sql(dialect=Dialect)!r}"


def _column(node: Node, text: str) -> Node:
    if isinstance(node.this, exp.Star):
        raise unreadable(text, "* is not an expression")
    written = (node.args.get(k) for k in ("catalog", "db", "table", "this"))
    parts = [_name(part, text) for part in written if part]
    if parts == [node.name] and node.name.lower() == "current_date" and not node.this.quoted:
        return call("current_date")
    tree = column(parts[0])
    for part in parts[1:]:
        tree = field(tree, part)
    return tree


def _name(node: object, text: str) -> str:
    """A name, which is nothing else that sqlglot may put in its place."""
    if not isinstance(node, exp.Identifier):
        raise unreadable(text, f"expected a name, not {node}")
    _check_read(node, frozenset(("this", "quoted")), text)
    return str(node.name)


def _dot(node: Node, text: str) -> Node:
    return field(canonical(node.this, text), _name(node.expression, text))


def _bracket(node: Node, text: str) -> Node:
    if len(node.expressions) != 1:
        raise unreadable(text, "[] takes one position or one name")
    (index,) = node.expressions
    base = canonical(node.this, text)
    if isinstance(index, exp.Literal) and index.is_string:
        return field(base, index.this)
    return exp.Bracket(this=base, expressions=[canonical(index, text)])


def _literal(node: Node, text: str) -> Node:
    if node.args["is_string"]:
        return exp.Literal.string(node.this)
    return number(node.this)


_TYPE = re.compile(
    r"boolean|tinyint|byte|smallint|short|int|integer|bigint|long|float|real|double|date|timestamp"
    r"|string|binary|(decimal|dec|numeric)\s*(\([\s\d,]*\))?|(char|character|varchar)\s*\([\s\d]*\)"
    r"|(array|map|struct)\s*<.*",
    re.IGNORECASE | re.DOTALL,
)


def _check_type(kind: Node, text: str) -> None:
    """Each type is one of Spark's, as it was written: sqlglot reads TIME as a timestamp."""
    for inner in kind.find_all(exp.DataType):
        written = inner.meta.get("written", "").strip()
        if written and not _TYPE.fullmatch(written):
            raise unreadable(text, f"there is no type {written!r}")


def _cast(node: Node, text: str) -> Node:
    _check_type(node.args["to"], text)
    to = node.args["to"].sql(dialect="spark")
    tried = isinstance(node, exp.TryCast) and bool(node.args.get("safe"))
    return cast(canonical(node.this, text), to, safe=tried)


def _call(node: Node, text: str) -> Node:
    if not isinstance(node.this, str):
        raise unreadable(text, "a function is called by its name")
    name = node.this.lower()
    if name == "count" and len(node.expressions) == 1:
        return _count(node.expressions[0], text)
    read = _named_or_not if name == "struct" else canonical
    return call(node.this, *(read(a, text) for a in node.expressions))


def _count(what: Node, text: str) -> Node:
    if isinstance(what, exp.Star):
        return call("count")
    if isinstance(what, exp.Distinct):
        _check_read(what, frozenset(("expressions",)), text)
        return call("count_distinct", *(canonical(e, text) for e in what.expressions))
    return call("count", canonical(what, text))


def _filtered(node: Node, text: str) -> Node:
    """An aggregate over the rows that meet a condition: the others count as null."""
    inner, where = canonical(node.this, text), node.expression
    named = isinstance(inner, exp.Anonymous) and aggregate(inner.this)
    if not named or not isinstance(where, exp.Where):
        raise unreadable(text, "FILTER belongs to an aggregate")
    arguments = [e.copy() for e in inner.expressions] or [number("1")]
    decides = 1 if inner.this in ("min_by", "max_by") and len(arguments) > 1 else 0
    chosen = exp.If(this=canonical(where.this, text), true=arguments[decides])
    arguments[decides] = exp.Case(ifs=[chosen])
    return call(inner.this, *arguments)


def _interval(node: Node, text: str) -> Node:
    amount, unit = node.this, node.args.get("unit")
    if not isinstance(amount, exp.Literal) or not isinstance(unit, exp.Var):
        raise unreadable(text, "an interval is a number and a unit, as in INTERVAL 5 MINUTES")
    return interval(amount.this, unit.name, text)


def _named_or_not(node: Node, text: str) -> Node:
    """An expression where it may be given a name: a whole one, and each of a struct."""
    if not isinstance(node, exp.Alias):
        return canonical(node, text)
    _check_read(node, frozenset(("this", "alias")), text)
    name = exp.Identifier(this=_name(node.args["alias"], text), quoted=True)
    return exp.Alias(this=canonical(node.this, text), alias=name)


def _in(node: Node, text: str) -> Node:
    if not node.expressions:
        raise unreadable(text, "IN takes a list of values")
    return exp.In(
        this=canonical(node.this, text), expressions=[canonical(e, text) for e in node.expressions]
    )


def _array(node: Node, text: str) -> Node:
    return call("array", *(canonical(e, text) for e in node.expressions))


def _case(node: Node, text: str) -> Node:
    subject = node.args.get("this")
    case = exp.Case(ifs=[_branch(i, subject, text) for i in node.args["ifs"]])
    if node.args.get("default") is not None:
        case.set("default", canonical(node.args["default"], text))
    return case


def _branch(node: Node, subject: Node | None, text: str) -> Node:
    _check_read(node, frozenset(("this", "true")), text)
    test = canonical(node.this, text)
    if subject is not None:
        test = exp.EQ(this=canonical(subject, text), expression=test)
    return exp.If(this=test, true=canonical(node.args["true"], text))


def _unwrap(node: Node, text: str) -> Node:
    return canonical(node.this, text)


def _named(name: str, *keys: str) -> Make:
    def make(node: Node, text: str) -> Node:
        return call(name, *(canonical(node.args[k], text) for k in keys))

    return make


def _like(name: str) -> Make:
    """One pattern, or ANY or ALL of several; NOT is about each of them."""

    def make(node: Node, text: str) -> Node:
        operand = node.expression
        several = isinstance(operand, exp.Any | exp.All)
        patterns = _listed(operand.this, text) if several else [operand]
        parts: list[Node] = []
        for pattern in patterns:
            part = call(name, canonical(node.this, text), canonical(pattern, text))
            parts.append(exp.Not(this=part) if node.args.get("negate") else part)
        join = exp.And if isinstance(operand, exp.All) else exp.Or
        return reduce(lambda a, b: join(this=a, expression=b), parts)

    return make


def _listed(node: Node, text: str) -> list[Node]:
    patterns = node.expressions if isinstance(node, exp.Tuple) else [node.unnest()]
    if isinstance(node, exp.Tuple | exp.Paren) and patterns:
        return list(patterns)
    raise unreadable(text, "LIKE ANY and LIKE ALL take a list of patterns")


def _escape(node: Node, text: str) -> Node:
    like = node.this
    if not isinstance(like, exp.Like | exp.ILike) or isinstance(like.expression, exp.Any | exp.All):
        raise unreadable(text, "ESCAPE belongs to LIKE or ILIKE with one pattern")
    tree = canonical(like, text)
    (tree.this if isinstance(tree, exp.Not) else tree).append(
        "expressions", canonical(node.expression, text)
    )
    return tree


def _extract(node: Node, text: str) -> Node:
    if not isinstance(node.this, exp.Var | exp.Identifier | exp.Literal):
        raise unreadable(text, "extract takes the name of a part, as in extract(year from at)")
    return call(
        "date_part", exp.Literal.string(node.this.name.lower()), canonical(node.expression, text)
    )


def _trim(node: Node, text: str) -> Node:
    position = str(node.args.get("position") or "BOTH")
    name = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[position]
    if node.this is None:
        raise unreadable(text, "trim takes a text")
    keys = ("expression", "this")
    return call(name, *(canonical(node.args[k], text) for k in keys if node.args.get(k)))


def _position(node: Node, text: str) -> Node:
    keys = ("substr", "this", "position")
    return call("locate", *(canonical(node.args[k], text) for k in keys if node.args.get(k)))


def _lambda(node: Node, text: str) -> Node:
    """Its variables are identifiers, with the names that they have in the text."""
    names = {e.name for e in node.expressions}
    folded = {n.casefold() for n in names}
    for inner in node.this.find_all(exp.Column):
        if inner.name.casefold() in folded and inner.name not in names:
            raise unreadable(text, f"{inner.name!r} and the variable differ only in their case")
    return exp.Lambda(
        this=canonical(node.this, text), expressions=[_variable(e, text) for e in node.expressions]
    )


def _variable(node: Node, text: str) -> Node:
    return exp.Identifier(this=_name(node, text), quoted=True)


_OPERANDS = ("this", "expression", "low", "high")
_OPERATORS = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Neg, exp.And, exp.Or, exp.Not,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.Is, exp.Between,
    exp.Null, exp.Boolean, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot,
)  # fmt: skip


def _rule(make: Make, reads: str) -> _Rule:
    return _Rule(make, frozenset(reads.split()))


_RULES: dict[type[Node], _Rule] = {
    **dict.fromkeys(_OPERATORS, _rule(_copied, " ".join(_OPERANDS))),
    exp.Column: _rule(_column, "this table db catalog"),
    exp.Dot: _rule(_dot, "this expression"),
    exp.Bracket: _rule(_bracket, "this expressions"),
    exp.Literal: _rule(_literal, "this is_string"),
    exp.Cast: _rule(_cast, "this to"),
    exp.TryCast: _rule(_cast, "this to safe"),
    exp.Anonymous: _rule(_call, "this expressions"),
    exp.Interval: _rule(_interval, "this unit"),
    exp.Array: _rule(_array, "expressions"),
    exp.Case: _rule(_case, "this ifs default"),
    exp.In: _rule(_in, "this expressions"),  # not a query, nor a column that is an array
    exp.Paren: _rule(_unwrap, "this"),
    exp.DPipe: _rule(_named("concat", "this", "expression"), "this expression"),
    exp.RegexpLike: _rule(_named("rlike", "this", "expression"), "this expression"),
    exp.Like: _rule(_like("like"), "this expression negate"),
    exp.ILike: _rule(_like("ilike"), "this expression negate"),
    exp.Escape: _rule(_escape, "this expression"),
    exp.BitwiseLeftShift: _rule(_named("shiftleft", "this", "expression"), "this expression"),
    exp.BitwiseRightShift: _rule(_named("shiftright", "this", "expression"), "this expression"),
    ShiftUnsigned: _rule(_named("shiftrightunsigned", "this", "expression"), "this expression"),
    exp.Extract: _rule(_extract, "this expression"),
    exp.Trim: _rule(_trim, "this expression position"),
    exp.StrPosition: _rule(_position, "this substr position"),
    exp.Lambda: _rule(_lambda, "this expressions"),
    exp.Identifier: _rule(_variable, "this quoted"),
    exp.Filter: _rule(_filtered, "this expression"),
}
