"""Rules of operators: arithmetic, bits, times with intervals, conditions.

Invariant: both operands are in one type, which is the type of the result; an integer that
overflows is an error and a division by zero is null. In conditions null is unknown, as in SQL;
NaN equals NaN and is larger than every number; what may fail is not evaluated once the answer is
certain.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types as pt
from sqlglot import exp

from headrace.expr.expression import Expr
from headrace.expr.tree import Node, refused
from headrace.expr.types import (
    Term,
    as_decimal,
    cast,
    int_literal,
    is_int,
    is_nested,
    is_number,
    type_name,
    type_text,
)
from headrace.expr.walk import Walk
from headrace.schema import TIMESTAMP


def number(spelling: str, node: Node) -> Term:
    """A number literal: an integer of 32 or 64 bits, or a double."""
    if not spelling.lstrip("-").isdigit():
        value = float(spelling)
        # as text: a decimal has no negative zero, and becomes another double by a bit
        return Term(f"CAST('{value!r}' AS DOUBLE)", pa.float64(), value)
    return _int(int(spelling), node)


def _int(value: int, node: Node) -> Term:
    for kind, limit in ((pa.int32(), 2**31), (pa.int64(), 2**63)):
        if -limit <= value < limit:
            return int_literal(value, kind)
    raise refused(node, "the number needs more than 64 bits", "Write it as a double: 1e20.")


def negate(walk: Walk, node: Node) -> Term:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.args["is_string"]:
        return number("-" + inner.this, node)
    x = number_argument(walk.term(inner), node)
    walk.risks += is_int(x.type)
    zero = walk.cast(Term("0", pa.int32(), 0), x.type)
    # DuckDB widens a negated integer instead of failing, so subtract
    return Term(f"({zero.sql} - {x.sql})" if is_int(x.type) else f"(- {x.sql})", x.type)


def number_argument(term: Term, node: Node) -> Term:
    if pt.is_null(term.type):
        return Term("CAST(NULL AS DOUBLE)", pa.float64())
    if not is_number(term.type):
        raise refused(node, f"{type_text(term.type)} is not a number", "Use cast to make it one.")
    return term


def number_pair(terms: Sequence[Term], node: Node) -> list[Term]:
    """Two numbers, of which a null without a type takes that of the other."""
    nulls = [pt.is_null(t.type) for t in terms]
    if nulls.count(True) == 1:
        return [
            t if null else number_argument(t, node) for t, null in zip(terms, nulls, strict=True)
        ]
    return [number_argument(t, node) for t in terms]


def _numbers(walk: Walk, node: Node) -> tuple[Term, Term]:
    return _alike(walk, node, [walk.term(n) for n in (node.this, node.expression)])


def _alike(walk: Walk, node: Node, terms: Sequence[Term]) -> tuple[Term, Term]:
    a, b = walk.unified(number_pair(terms, node), node)
    walk.risks += a.type != pa.float64()
    return a, b


def add(walk: Walk, node: Node) -> Term:
    if any(isinstance(n, exp.Interval) for n in (node.this, node.expression)):
        return _shift(walk, node)
    sign = "+" if isinstance(node, exp.Add) else "-"
    terms = [walk.term(n) for n in (node.this, node.expression)]  # once: chains may be long
    kinds = {t.type for t in terms}
    if sign == "+" and kinds == {pa.string()}:
        return walk.term(exp.Anonymous(this="concat", expressions=_added(node)))
    if pa.date32() in kinds and (date := _days(walk, node, terms)):
        return date
    if any(pt.is_temporal(k) for k in kinds):
        raise refused(
            node,
            "times are added to by intervals and functions",
            "Use interval 5 minutes, date_add, date_diff or timestamp_diff.",
        )
    a, b = _alike(walk, node, terms)
    if not pt.is_decimal(a.type):
        return Term(f"({a.sql} {sign} {b.sql})", a.type)
    to = pa.decimal128(min(38, a.type.precision + 1), a.type.scale)
    return _decimal(f"({a.sql} {sign} {b.sql})", to)


def _days(walk: Walk, node: Node, terms: list[Term]) -> Term | None:
    """A date minus a date is a number of days; a date and an integer are a date."""
    a, b = terms
    if isinstance(node, exp.Sub) and a.type == b.type:
        return walk.call("date_diff", [a, b], node)
    if isinstance(node, exp.Add) and is_int(a.type):
        a, b = b, a
    if a.type != pa.date32() or not is_int(b.type) or b.type == pa.int64():
        return None
    return walk.call("date_add" if isinstance(node, exp.Add) else "date_sub", [a, b], node)


def _added(node: Node) -> list[Node]:
    """What a chain of additions adds."""
    rest: list[Node] = []
    while isinstance(node, exp.Add):
        rest, node = [node.expression, *rest], node.this
    return [node, *rest]


def _decimal(sql: str, to: pa.DataType) -> Term:
    return Term(f"CAST({sql} AS {type_name(to)})", to)


def multiply(walk: Walk, node: Node) -> Term:
    a, b = number_pair([walk.term(n) for n in (node.this, node.expression)], node)
    if pt.is_null(a.type) or pt.is_null(b.type):
        a, b = walk.unified([a, b], node)
    if not (pt.is_decimal(a.type) or pt.is_decimal(b.type)) or pa.float64() in (a.type, b.type):
        a, b = walk.unified([a, b], node)
        walk.risks += is_int(a.type)
        return Term(f"({a.sql} * {b.sql})", a.type)
    kinds = [as_decimal(t.type) for t in (a, b)]
    digits, scale = sum(k.precision for k in kinds), sum(k.scale for k in kinds)
    if digits > 37:  # beyond it Spark rounds and DuckDB refuses
        raise refused(
            node,
            f"the product may have {digits} digits, more than a decimal holds",
            "Cast an operand to a smaller decimal or to double.",
        )
    if digits > 18:  # DuckDB multiplies in 64 bits unless an operand is wider
        kinds[0] = pa.decimal128(digits, kinds[0].scale)
    a, b = (walk.cast(t, k) for t, k in zip((a, b), kinds, strict=True))
    return _decimal(f"({a.sql} * {b.sql})", pa.decimal128(digits + 1, scale))


def divide(walk: Walk, node: Node) -> Term:
    """`/` is always a double, and null when the divisor is zero."""
    a, b = (number_argument(walk.term(n), node) for n in (node.this, node.expression))
    a, b = walk.cast(a, pa.float64()), walk.cast(b, pa.float64())
    return Term(f"({a.sql} / {nonzero(b)})", pa.float64())


def nonzero(b: Term) -> str:
    if b.literal is not None and b.literal != 0:
        return b.sql
    return f"NULLIF({b.sql}, {cast(Term('0', pa.int32(), 0), b.type).sql})"


def remainder(walk: Walk, node: Node) -> Term:
    """SQL's `%`: the sign of the left side, null when the right side is zero."""
    terms = [walk.term(n) for n in (node.this, node.expression)]
    a, b = _alike(walk, node, terms)
    sql = truncated(a, b)
    if not pt.is_decimal(a.type) or any(pt.is_null(t.type) for t in terms):
        return Term(sql, a.type)
    kinds = [as_decimal(t.type) for t in terms]
    digits = min(k.precision - k.scale for k in kinds) + a.type.scale
    return _decimal(sql, pa.decimal128(max(digits, 1), a.type.scale))


def truncated(a: Term, b: Term) -> str:
    plain = f"({a.sql} % {nonzero(b)})"
    if not is_int(a.type) or b.literal not in (None, -1):
        return plain
    zero = cast(Term("0", pa.int32(), 0), a.type).sql
    return f"(CASE WHEN {b.sql} = -1 THEN {a.sql} & {zero} ELSE {plain} END)"


def quotient(walk: Walk, node: Node) -> Term:
    """`div`: the whole part of a quotient of integers, as a long."""
    a, b = _numbers(walk, node)
    if not is_int(a.type):
        raise refused(node, "div takes integers", "Use / and floor, or cast.")
    a, b = walk.cast(a, pa.int64()), walk.cast(b, pa.int64())
    return Term(f"({a.sql} // {nonzero(b)})", pa.int64())


def _shift(walk: Walk, node: Node) -> Term:
    moment, by = node.this, node.expression
    if isinstance(moment, exp.Interval):
        moment, by = by, moment
    if isinstance(moment, exp.Interval) or (isinstance(node, exp.Sub) and by is node.this):
        raise refused(node, "an interval is added to a timestamp", "Write at + interval 1 day.")
    at = walk.term(moment)
    if at.type == pa.date32() and by.args["unit"].name.lower() in _DAYS:
        return _shift_date(walk, at, by, node)
    if at.type == pa.date32():
        at = walk.cast(at, TIMESTAMP)
    if at.type != TIMESTAMP:
        raise refused(
            node, f"{type_text(at.type)} plus an interval", "The left side is a timestamp."
        )
    walk.risks += 1
    return Term(f"({at.sql} + {_span(by, node)})", TIMESTAMP)


_DAYS = ("day", "week", "month", "year")


def _shift_date(walk: Walk, at: Term, by: Node, node: Node) -> Term:
    """A date plus whole days or months is a date."""
    walk.risks += 1
    return Term(f"CAST({at.sql} + {_span(by, node)} AS DATE)", pa.date32())


def _span(by: Node, node: Node) -> str:
    amount = int(by.this.this) * (-1 if isinstance(node, exp.Sub) else 1)
    return f"INTERVAL '{amount}' {by.args['unit'].name}"


# bits: the operators & | ^ ~

BITWISE: dict[type[Node], str] = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^"}


def combine(walk: Walk, node: Node) -> Term:
    """`&`, `|` and `^` of two integers in their common type."""
    a, b = walk.same([node.this, node.expression], node)
    a, b = _integer(a, node), _integer(b, node)
    if isinstance(node, exp.BitwiseXor):
        return Term(f"xor({a.sql}, {b.sql})", a.type)
    return Term(f"({a.sql} {BITWISE[type(node)]} {b.sql})", a.type)


def complement(walk: Walk, node: Node) -> Term:
    x = _integer(walk.term(node.this), node)
    return Term(f"(~ {x.sql})", x.type)


def _integer(term: Term, node: Node) -> Term:
    if pt.is_null(term.type):
        return Term("CAST(NULL AS INT)", pa.int32())
    if not is_int(term.type):
        raise refused(node, f"{type_text(term.type)} has no bits", "Cast it to int or bigint.")
    return term


# conditions: comparison, and, or, not, null, lists, CASE

SIGNS: dict[type[Node], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
}  # fmt: skip


def condition(walk: Walk, expr: Expr) -> Term:
    return truth(walk, expr.node.this if isinstance(expr.node, exp.Alias) else expr.node)


def truth(walk: Walk, node: Node) -> Term:
    term = walk.term(node)
    if pt.is_null(term.type):
        return Term("CAST(NULL AS BOOLEAN)", pa.bool_())
    if term.type != pa.bool_():
        raise refused(node, f"it is {type_text(term.type)}, not a condition", "Compare it.")
    return term


def and_or(walk: Walk, node: Node) -> Term:
    """From left to right: what may fail is not evaluated once the answer is certain."""
    word, certain = ("AND", "FALSE") if isinstance(node, exp.And) else ("OR", "TRUE")
    before, joined = walk.risks, ""
    for part in reversed(parts_of(node)):
        risky = walk.risks > before  # what is to the right of this part
        sql = truth(walk, part).sql
        if joined and risky:
            joined = f"(CASE WHEN {sql} IS {certain} THEN {certain} ELSE {sql} {word} {joined} END)"
        else:
            joined = f"({sql} {word} {joined})" if joined else sql
    return Term(joined, pa.bool_())


def parts_of(node: Node) -> list[Node]:
    """The operands of a chain of ANDs, or of ORs, from left to right."""
    parts: list[Node] = []
    inner = node
    while type(inner) is type(node):
        parts.append(inner.expression)
        inner = inner.this
    return [inner, *reversed(parts)]


def negation(walk: Walk, node: Node) -> Term:
    return Term(f"(NOT {truth(walk, node.this).sql})", pa.bool_())


def state(walk: Walk, node: Node) -> Term:
    if isinstance(node.expression, exp.Null):
        return Term(f"({walk.term(node.this).sql} IS NULL)", pa.bool_())
    if not isinstance(node.expression, exp.Boolean):
        raise refused(node, "IS takes null, true or false", "Use = or <=>.")
    word = "TRUE" if node.expression.this else "FALSE"
    return Term(f"({truth(walk, node.this).sql} IS {word})", pa.bool_())


def comparison(walk: Walk, node: Node) -> Term:
    a, b = walk.same([node.this, node.expression], node)
    _comparable(a, node)
    return Term(f"({a.sql} {SIGNS[type(node)]} {b.sql})", pa.bool_())


def _comparable(term: Term, where: Node) -> None:
    if is_nested(term.type):
        raise refused(where, f"{type_text(term.type)} cannot be compared", "Compare its parts.")


def between(walk: Walk, node: Node) -> Term:
    x, least, most = walk.same([node.this, node.args["low"], node.args["high"]], node)
    _comparable(x, node)
    return Term(f"({x.sql} BETWEEN {least.sql} AND {most.sql})", pa.bool_())


def membership(walk: Walk, node: Node) -> Term:
    if not node.expressions:
        return Term("FALSE", pa.bool_())
    x, *values = walk.same([node.this, *node.expressions], node)
    _comparable(x, node)
    return Term(f"({x.sql} IN ({', '.join(v.sql for v in values)}))", pa.bool_())


def choice(walk: Walk, node: Node) -> Term:
    tests = [truth(walk, i.this) for i in node.args["ifs"]]
    values = [i.args["true"] for i in node.args["ifs"]]
    default = node.args.get("default") or exp.Null()
    *results, last = walk.same([*values, default], node)
    arms = " ".join(f"WHEN {t.sql} THEN {r.sql}" for t, r in zip(tests, results, strict=True))
    return Term(f"(CASE {arms} ELSE {last.sql} END)", last.type)
