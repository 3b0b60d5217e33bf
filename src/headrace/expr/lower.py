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
    array_functions,
    lambda_functions,
    number_functions,
    operator_rules,
    pattern_functions,
    rounding_functions,
    text_functions,
    time_functions,
    time_text_functions,
)
from headrace.expr.catalog import Function, find
from headrace.expr.expression import Expr
from headrace.expr.tree import Node, refused
from headrace.expr.types import (
    Term,
    computed,
    is_int,
    is_number,
    quote,
    text_literal,
    type_text,
    zoneless,
)
from headrace.expr.walk import Walk, explicit_cast
from headrace.schema import TIMESTAMP, type_of

# importing them puts their functions into the catalogue
FUNCTIONS = (
    text_functions, pattern_functions, number_functions, rounding_functions, array_functions,
    lambda_functions, time_functions, time_text_functions,
)  # fmt: skip


class Lowering(Walk):
    """The walk with a rule for every node of the tree."""

    def top(self, expr: Expr) -> Term:
        """A whole expression; a bare column keeps the exact type it has in the schema."""
        node = expr.node.this if isinstance(expr.node, exp.Alias) else expr.node
        if isinstance(node, exp.Column):
            return self.raw_column(node)
        term = self.rules[type(node)](self, node)
        if pt.is_null(term.type):
            raise refused(node, "it is always null, so it has no type", "Write cast(null as ...).")
        return term

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
        return operator_rules.number(node.this, node)

    def _null(self, node: Node) -> Term:
        return Term("NULL", pa.null())

    def _boolean(self, node: Node) -> Term:
        return Term("TRUE" if node.this else "FALSE", pa.bool_(), bool(node.this))

    def _interval(self, node: Node) -> Term:
        raise refused(
            node, "an interval is not a value of its own", "Write at + interval 5 minutes."
        )

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
        parent, name = self.term(node.this), node.expression.name
        if pt.is_map(parent.type) and parent.type.key_type == pa.string():
            return self.call("element_at", [parent, self._text(name)], node)
        if not pt.is_struct(parent.type):
            raise refused(
                node, f"{type_text(parent.type)} has no fields", "Only a struct or a map has."
            )
        position = parent.type.get_field_index(name)
        if position < 0:
            raise unknown_column(name, pa.schema(list(parent.type)), "field")
        return Term(f"({parent.sql}).{quote(name)}", parent.type.field(position).type)

    def _text(self, value: str) -> Term:
        return Term(text_literal(value), pa.string(), value)

    def _bracket(self, node: Node) -> Term:
        args = [self.term(node.this), self.term(node.expressions[0])]
        name = "element_at" if pt.is_map(args[0].type) else "get"
        return self.call(name, args, node)

    def _lambda(self, node: Node) -> Term:
        raise refused(
            node, "a lambda is not a value of its own", "Write transform(xs, x -> x + 1)."
        )

    def _call(self, node: Node) -> Term:
        if node.this == "current_date" and "current_date" in self.schema.names:
            raise refused(node, "there is a column of that name", "Put it in `backticks`.")
        return self.call(node.this, node.expressions, node)


def unknown_column(name: str, schema: pa.Schema, what: str = "column") -> PlanError:
    near = difflib.get_close_matches(name, schema.names, n=2, cutoff=0.5)
    near = near or [n for n in schema.names if n.lower() == name.lower()]
    names = [n for n in schema.names if not n.startswith("__")]
    guess = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
    text = f" If it is a text: hr.lit({name!r}), in SQL text in quotes."
    return PlanError(
        "HR-EXPR-001",
        f"there is no {what} {name!r}",
        f"{guess}The {what}s here are {', '.join(names)}."
        f"{text if what == 'column' and not near else ''}",
    )


Lowering.rules = {
    exp.Column: Lowering._column,
    exp.Literal: Lowering._literal,
    exp.Null: Lowering._null,
    exp.Boolean: Lowering._boolean,
    exp.Interval: Lowering._interval,
    exp.And: operator_rules.and_or,
    exp.Or: operator_rules.and_or,
    exp.Not: operator_rules.negation,
    exp.Is: operator_rules.state,
    exp.Between: operator_rules.between,
    exp.In: operator_rules.membership,
    exp.Case: operator_rules.choice,
    exp.Cast: Lowering._cast,
    exp.TryCast: Lowering._cast,
    exp.Dot: Lowering._dot,
    exp.Bracket: Lowering._bracket,
    exp.Anonymous: Lowering._call,
    **dict.fromkeys(operator_rules.SIGNS, operator_rules.comparison),
    exp.Add: operator_rules.add,
    exp.Sub: operator_rules.add,
    exp.Mul: operator_rules.multiply,
    exp.Div: operator_rules.divide,
    **dict.fromkeys(operator_rules.BITWISE, operator_rules.combine),
    exp.BitwiseNot: operator_rules.complement,
    exp.Identifier: Lowering._variable,
    exp.Lambda: Lowering._lambda,
    exp.Mod: operator_rules.remainder,
    exp.IntDiv: operator_rules.quotient,
    exp.Neg: operator_rules.negate,
}


def bare(expr: Expr) -> str | None:
    """The column that an expression merely is."""
    node = expr.node.this if isinstance(expr.node, exp.Alias) else expr.node
    return str(node.name) if isinstance(node, exp.Column) else None


def check_condition(expr: Expr, schema: pa.Schema) -> None:
    """HR-EXPR-003 if `expr` is not a condition over `schema`."""
    operator_rules.condition(Lowering(schema), expr)


def check(expr: Expr, schema: pa.Schema) -> pa.DataType:
    """The type of `expr` over `schema`; a PlanError says what is wrong with it."""
    return Lowering(schema).top(expr).type


def fields_of(expr: Expr, schema: pa.Schema) -> list[str]:
    """The names of the fields, if it is a struct."""
    kind = check(expr, schema)
    return [f.name for f in kind] if pt.is_struct(kind) else []


# calls: an argument that reaches a template has exactly the type that its kind promises

_KINDS = {
    "bool": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "text": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
}


def lower_call(walk: Walk, fn: Function, args: Sequence[Node | Term], node: Node) -> Term:
    """The call as SQL with its type; HR-EXPR-003 for wrong arguments."""
    _count(fn, len(args), node)
    if fn.lambdas is not None:
        return fn.lambdas(walk, args, node)
    terms = [a if isinstance(a, Term) else _argument(walk, a) for a in args]
    terms = [_accept(walk, fn, i, t, node) for i, t in enumerate(terms)]
    first = terms[0] if terms else None
    terms, common_type = _agree(walk, fn, terms, node)
    if fn.returns == "0" and first is not None:
        terms = [*terms, terms[0] if pt.is_null(first.type) else first]
    walk.risks += fn.may_fail
    try:
        kind = _result(fn, terms, common_type)
        return Term(fn.lowered(terms), kind)
    except PlanError as error:  # the function's own error does not know the expression around it
        raise refused(node, error.message, error.hint or "") from None


def _argument(walk: Walk, node: Node) -> Term:
    if not isinstance(node, exp.Alias):
        return walk.term(node)
    term = walk.term(node.this)
    return Term(term.sql, term.type, f"alias:{node.alias}")


def _count(fn: Function, count: int, node: Node) -> None:
    if count < fn.least or (fn.most is not None and count > fn.most):
        many = f"{fn.least}" if fn.most == fn.least else f"{fn.least} to {fn.most or 'any number'}"
        raise refused(node, f"{fn.name} takes {many} arguments, not {count}", f"It is {usage(fn)}.")


def usage(fn: Function) -> str:
    return f"{fn.name}({', '.join(fn.takes)})"


def _accept(walk: Walk, fn: Function, i: int, term: Term, node: Node) -> Term:
    kind = fn.kind(i)
    if kind in ("T", "any"):
        return term
    if kind == "word":
        if isinstance(term.literal, str):
            return term
        raise refused(
            node, f"argument {i + 1} of {fn.name} is a text literal", f"It is {usage(fn)}."
        )
    fitted = _fit(walk, kind, term, node)
    if fitted is None:
        raise refused(
            node,
            f"{fn.name} takes {kind}, not {type_text(term.type)}",
            f"It is {usage(fn)}; use cast if that is meant.",
        )
    return fitted


def _fit(walk: Walk, kind: str, term: Term, node: Node) -> Term | None:
    """`term` as an argument of `kind`, or None."""
    if pt.is_null(term.type) and kind in ("[T]", "map"):
        return None  # of which type it would be is not known
    if pt.is_null(term.type):
        return walk.widened(term, _KINDS.get(kind, pa.float64()))
    if kind == "number":
        return term if is_number(term.type) else None
    if kind == "[T]":
        return term if pt.is_list(term.type) else None
    if kind == "map":
        return term if pt.is_map(term.type) else None
    to = _KINDS[kind]
    if pt.is_temporal(to):
        term = walk.as_time(term, to, node)
    fits = (
        term.type == to
        or (kind == "int" and term.type in (pa.int8(), pa.int16()))
        or (kind == "int" and is_int(term.type) and _is_short(term.literal))
        or (kind == "long" and is_int(term.type))
        or (kind == "double" and is_number(term.type))
        or (kind == "timestamp" and term.type == pa.date32())
    )
    return walk.cast(term, to) if fits else None


def _is_short(literal: object) -> bool:
    return isinstance(literal, int) and -(2**31) <= literal < 2**31


def _agree(
    walk: Walk, fn: Function, terms: list[Term], node: Node
) -> tuple[list[Term], pa.DataType | None]:
    """The arguments of kind T in their common type, and the lists of kind [T] in lists of it."""
    singles = [i for i in range(len(terms)) if fn.kind(i) == "T"]
    lists = [i for i in range(len(terms)) if fn.kind(i) == "[T]"]
    if not singles and not lists:
        return terms, None
    inner = [Term("NULL", terms[i].type.value_type) for i in lists]
    unified = walk.unified([*inner, *(terms[i] for i in singles)], node)
    common_type = unified[0].type
    out = list(terms)
    for i in lists:
        out[i] = walk.widened(terms[i], pa.list_(common_type))
    for i, term in zip(singles, unified[len(lists) :], strict=True):
        out[i] = term
    return out, common_type


def _result(fn: Function, terms: Sequence[Term], common_type: pa.DataType | None) -> pa.DataType:
    if callable(fn.returns):
        return fn.returns(terms)
    if fn.returns == "T":
        return common_type
    if fn.returns == "[T]":
        return pa.list_(common_type)
    if fn.returns == "0":
        return terms[-1].type
    if fn.returns == "1":
        return terms[0].type
    if fn.returns.startswith("["):
        return pa.list_(_KINDS[fn.returns[1:-1]])
    return _KINDS[fn.returns]
