"""Bits of integers: the operators & | ^ ~ and the shifts.

Invariant: as in Spark and Java. A shift is of an int or a long (smaller ones become an int),
by the lowest five or six bits of the amount; what is shifted out is lost, never an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import types as pt
from sqlglot import exp

from headrace.errors import PlanError
from headrace.expr.catalog import offer
from headrace.expr.tree import Node, refused
from headrace.expr.types import DUCKDB, Term, cast, is_int, spoken
from headrace.expr.walk import Walk

BITS = "bits"
SIGNS: dict[type[Node], str] = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^"}


def combine(low: Walk, node: Node) -> Term:
    """`&`, `|` and `^` of two integers in their common type."""
    a, b = low.same([node.this, node.expression], node)
    a, b = _integer(a, node), _integer(b, node)
    sign = SIGNS[type(node)]
    if sign == "^" and low.dialect == DUCKDB:
        return Term(f"xor({a.sql}, {b.sql})", a.type)
    return Term(f"({a.sql} {sign} {b.sql})", a.type)


def complement(low: Walk, node: Node) -> Term:
    x = _integer(low.term(node.this), node)
    return Term(f"(~ {x.sql})", x.type)


def _integer(term: Term, node: Node) -> Term:
    if pt.is_null(term.type):
        return Term("CAST(NULL AS INT)", pa.int32())
    if not is_int(term.type):
        raise refused(node, f"{spoken(term.type)} has no bits", "Cast it to int or bigint.")
    return term


_WIDE = {32: "BIGINT", 64: "HUGEINT"}
_NARROW = {32: "INTEGER", 64: "BIGINT"}


def _shifted_type(args: Sequence[Term]) -> pa.DataType:
    if not is_int(args[0].type):
        raise PlanError(
            "HR-EXPR-003", f"{spoken(args[0].type)} has no bits", "Cast it to int or bigint."
        )
    return pa.int64() if args[0].type == pa.int64() else pa.int32()


def _shift(template: str) -> Callable[[Sequence[Term]], str]:
    """{x} in twice as many bits, {u} without a sign, {n} the amount, {one} a wide 1."""

    def sql(args: Sequence[Term]) -> str:
        bits = 64 if _shifted_type(args) == pa.int64() else 32
        wide = _WIDE[bits]
        mask, half = f"CAST({2**bits - 1} AS {wide})", f"CAST({2 ** (bits - 1)} AS {wide})"
        x = f"CAST({args[0].sql} AS {wide})"
        made = template.format(
            x=x, u=f"({x} & {mask})", n=f"({args[1].sql} & {bits - 1})", one=f"CAST(1 AS {wide})"
        )
        return f"CAST(xor({made} & {mask}, {half}) - {half} AS {_NARROW[bits]})"

    return sql


def _spark(name: str) -> Callable[[Sequence[Term]], str]:
    return lambda args: f"{name}({cast(args[0], _shifted_type(args), 'spark').sql}, {args[1].sql})"


for _name, _template in (
    ("shiftleft", "({x} * ({one} << {n}))"),
    ("shiftright", "({x} >> {n})"),
    ("shiftrightunsigned", "({u} >> {n})"),
):
    offer(BITS, _name, "any int ->", _shift(_template), _spark(_name), gives=_shifted_type)
