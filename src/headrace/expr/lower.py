"""Lowering: an expression over a schema becomes SQL of DuckDB, with its type.

One rule per node; every implicit cast is written out, so DuckDB's own coercion never decides.
Invariant: what passes here runs; whatever does not (unknown column, unknown function, types
that do not meet) is a PlanError in the user's words. It runs nothing itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types as pt
from sqlglot import exp

from headrace.errors import PlanError
from headrace.expr import (
    arith,
    array_functions,
    json_functions,
    lambda_functions,
    logic,
    number_functions,
    pattern_functions,
    text_functions,
    time_functions,
    time_text_functions,
)
from headrace.expr.calls import lower_call
from headrace.expr.cast import explicit_cast
from headrace.expr.catalog import find
from headrace.expr.expression import Expr
from headrace.expr.tree import Node, refused
from headrace.expr.types import (
    Term,
    computed,
    quote,
    spoken,
    text_literal,
    zoneless,
)
from headrace.expr.walk import Walk
from headrace.schema import type_of

# importing them puts their functions into the catalogue
FUNCTIONS = (
    text_functions, pattern_functions, number_functions, array_functions, lambda_functions,
    json_functions, time_functions, time_text_functions,
)  # fmt: skip


class Lowering(Walk):
    """The walk with a rule for every node of the tree."""

    def top(self, expr: Expr) -> Term:
        """A whole expression; a bare column keeps the exact type it has in the schema."""
        node = expr.node.this if isinstance(expr.node, exp.Alias) else expr.node
        if isinstance(node, exp.Column):
            return self.raw_column(node)
        made = self.rules[type(node)](self, node)
        if pt.is_null(made.type):
            raise refused(node, "it is always null, so it has no type", "Write cast(null as ...).")
        return made

    def as_time(self, term: Term, to: pa.DataType, where: Node) -> Term:
        if not isinstance(term.literal, str):
            return term
        return explicit_cast(self, term, to, where=where)

    def call(self, name: str, args: Sequence[Node | Term], node: Node) -> Term:
        return lower_call(self, find(name), args, node)

    def raw_column(self, node: Node) -> Term:
        name = node.name
        if name not in self.schema.names:
            raise unknown_column(name, self.schema)
        return Term(self.column(name), self.schema.field(name).type)

    def _column(self, node: Node) -> Term:
        raw = self.raw_column(node)
        to = computed(raw.type)
        if zoneless(raw.type) == zoneless(to):
            return Term(raw.sql, to)
        try:
            return self.cast(raw, to)
        except TypeError:
            raise refused(node, f"no expression can hold {raw.type}", "Cast the input.") from None

    def _variable(self, node: Node) -> Term:
        if node.name in self.scope:
            return self.scope[node.name]
        raise refused(node, f"there is no variable {node.name!r} here", "Write x -> x + 1.")

    def _literal(self, node: Node) -> Term:
        if node.args["is_string"]:
            return Term(text_literal(node.this), pa.string(), node.this)
        return arith.number(node.this, node)

    def _null(self, node: Node) -> Term:
        return Term("NULL", pa.null())

    def _boolean(self, node: Node) -> Term:
        return Term("TRUE" if node.this else "FALSE", pa.bool_(), bool(node.this))

    def _interval(self, node: Node) -> Term:
        raise refused(node, "an interval is no value of its own", "Write at + interval 5 minutes.")

    def _cast(self, node: Node) -> Term:
        value = self.term(node.this)
        return explicit_cast(
            self, value, self.target_type(node), safe=isinstance(node, exp.TryCast), where=node
        )

    @staticmethod
    def target_type(node: Node) -> pa.DataType:
        """The type that a cast names."""
        return type_of(node.args["to"].sql(dialect="spark"))

    def _dot(self, node: Node) -> Term:
        of, name = self.term(node.this), node.expression.name
        if pt.is_map(of.type) and of.type.key_type == pa.string():
            return self.call("element_at", [of, self._text(name)], node)
        if not pt.is_struct(of.type):
            raise refused(node, f"{spoken(of.type)} has no fields", "Only a struct or a map has.")
        position = of.type.get_field_index(name)
        if position < 0:
            raise unknown_column(name, pa.schema(list(of.type)), "field")
        return Term(f"({of.sql}).{quote(name)}", of.type.field(position).type)

    def _text(self, value: str) -> Term:
        return Term(text_literal(value), pa.string(), value)

    def _bracket(self, node: Node) -> Term:
        args = [self.term(node.this), self.term(node.expressions[0])]
        name = "element_at" if pt.is_map(args[0].type) else "get"
        return self.call(name, args, node)

    def _lambda(self, node: Node) -> Term:
        raise refused(node, "a lambda is no value of its own", "Write transform(xs, x -> x + 1).")

    def _call(self, node: Node) -> Term:
        if node.this == "current_date" and "current_date" in self.schema.names:
            raise refused(node, "there is a column of that name", "Put it in `backticks`.")
        return self.call(node.this, node.expressions, node)


def unknown_column(name: str, schema: pa.Schema, what: str = "column") -> PlanError:
    near = difflib.get_close_matches(name, schema.names, n=2, cutoff=0.5)
    near = near or [n for n in schema.names if n.lower() == name.lower()]
    known = [n for n in schema.names if not n.startswith("__")]
    guess = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
    return PlanError(
        "HR-EXPR-001",
        f"there is no {what} {name!r}",
        f"{guess}The {what}s here are {', '.join(known)}.",
    )


Lowering.rules = {
    exp.Column: Lowering._column,
    exp.Literal: Lowering._literal,
    exp.Null: Lowering._null,
    exp.Boolean: Lowering._boolean,
    exp.Interval: Lowering._interval,
    exp.And: logic.and_or,
    exp.Or: logic.and_or,
    exp.Not: logic.negation,
    exp.Is: logic.state,
    exp.Between: logic.between,
    exp.In: logic.membership,
    exp.Case: logic.choice,
    exp.Cast: Lowering._cast,
    exp.TryCast: Lowering._cast,
    exp.Dot: Lowering._dot,
    exp.Bracket: Lowering._bracket,
    exp.Anonymous: Lowering._call,
    **dict.fromkeys(logic.SIGNS, logic.comparison),
    exp.Add: arith.add,
    exp.Sub: arith.add,
    exp.Mul: arith.multiply,
    exp.Div: arith.divide,
    **dict.fromkeys(arith.BITWISE, arith.combine),
    exp.BitwiseNot: arith.complement,
    exp.Identifier: Lowering._variable,
    exp.Lambda: Lowering._lambda,
    exp.Mod: arith.remainder,
    exp.IntDiv: arith.quotient,
    exp.Neg: arith.negate,
}


def bare(expr: Expr) -> str | None:
    """The column that an expression merely is."""
    node = expr.node.this if isinstance(expr.node, exp.Alias) else expr.node
    return str(node.name) if isinstance(node, exp.Column) else None


def check_condition(expr: Expr, schema: pa.Schema) -> None:
    """HR-EXPR-003 if `expr` is not a condition over `schema`."""
    logic.condition(Lowering(schema), expr)


def check(expr: Expr, schema: pa.Schema) -> pa.DataType:
    """The type of `expr` over `schema`; a PlanError says what is wrong with it."""
    return Lowering(schema).top(expr).type


def fields_of(expr: Expr, schema: pa.Schema) -> list[str]:
    """The names of the fields, if it is a struct."""
    made = check(expr, schema)
    return [f.name for f in made] if pt.is_struct(made) else []


def to_duckdb_sql(expr: Expr, schema: pa.Schema) -> str:
    return Lowering(schema).top(expr).sql
