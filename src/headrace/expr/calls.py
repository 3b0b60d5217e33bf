"""Lowering of function calls: arguments against a signature of the catalogue.

Invariant: an argument that reaches a template has exactly the type its kind promises.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types as pt
from sqlglot import exp

from headrace.errors import PlanError
from headrace.expr.catalog import Function
from headrace.expr.tree import Node, refused
from headrace.expr.types import Term, is_int, is_number, spoken
from headrace.expr.walk import Walk
from headrace.schema import TIMESTAMP

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


def lower_call(low: Walk, fn: Function, args: Sequence[Node | Term], node: Node) -> Term:
    """The call as SQL with its type; HR-EXPR-003 for wrong arguments."""
    _count(fn, len(args), node)
    if fn.lambdas is not None:
        return fn.lambdas(low, args, node)
    terms = [a if isinstance(a, Term) else _argument(low, a) for a in args]
    terms = [_accept(low, fn, i, t, node) for i, t in enumerate(terms)]
    first = terms[0] if terms else None
    terms, together = _agree(low, fn, terms, node)
    if fn.gives == "0" and first is not None:
        terms = [*terms, terms[0] if pt.is_null(first.type) else first]
    low.risks += fn.may_fail
    try:
        gives = _result(fn, terms, together)
        return Term(fn.lowered(terms), gives)
    except PlanError as error:  # a function's own complaint does not know where it stands
        raise refused(node, error.message, error.hint or "") from None


def _argument(low: Walk, node: Node) -> Term:
    if not isinstance(node, exp.Alias):
        return low.term(node)
    made = low.term(node.this)
    return Term(made.sql, made.type, f"alias:{node.alias}")


def _count(fn: Function, given: int, node: Node) -> None:
    if given < fn.least or (fn.most is not None and given > fn.most):
        many = f"{fn.least}" if fn.most == fn.least else f"{fn.least} to {fn.most or 'any number'}"
        raise refused(node, f"{fn.name} takes {many} arguments, not {given}", f"It is {usage(fn)}.")


def usage(fn: Function) -> str:
    return f"{fn.name}({', '.join(fn.takes)})"


def _accept(low: Walk, fn: Function, i: int, term: Term, node: Node) -> Term:
    kind = fn.kind(i)
    if kind in ("T", "any"):
        return term
    if kind == "word":
        if isinstance(term.literal, str):
            return term
        raise refused(
            node, f"argument {i + 1} of {fn.name} is a text literal", f"It is {usage(fn)}."
        )
    made = _fit(low, kind, term, node)
    if made is None:
        raise refused(
            node,
            f"{fn.name} takes {kind}, not {spoken(term.type)}",
            f"It is {usage(fn)}; use cast if that is meant.",
        )
    return made


def _fit(low: Walk, kind: str, term: Term, node: Node) -> Term | None:
    """`term` as an argument of `kind`, or None."""
    if pt.is_null(term.type) and kind in ("[T]", "map"):
        return None  # of which type it would be is not known
    if pt.is_null(term.type):
        return low.widened(term, _KINDS.get(kind, pa.float64()))
    if kind == "number":
        return term if is_number(term.type) else None
    if kind == "[T]":
        return term if pt.is_list(term.type) else None
    if kind == "map":
        return term if pt.is_map(term.type) else None
    to = _KINDS[kind]
    if pt.is_temporal(to):
        term = low.as_time(term, to, node)
    fits = (
        term.type == to
        or (kind == "int" and term.type in (pa.int8(), pa.int16()))
        or (kind == "int" and is_int(term.type) and _is_short(term.literal))
        or (kind == "long" and is_int(term.type))
        or (kind == "double" and is_number(term.type))
        or (kind == "timestamp" and term.type == pa.date32())
    )
    return low.cast(term, to) if fits else None


def _is_short(literal: object) -> bool:
    return isinstance(literal, int) and -(2**31) <= literal < 2**31


def _agree(
    low: Walk, fn: Function, terms: list[Term], node: Node
) -> tuple[list[Term], pa.DataType | None]:
    """The arguments of kind T in their common type, and the lists of kind [T] in lists of it."""
    singles = [i for i in range(len(terms)) if fn.kind(i) == "T"]
    lists = [i for i in range(len(terms)) if fn.kind(i) == "[T]"]
    if not singles and not lists:
        return terms, None
    inner = [Term("NULL", terms[i].type.value_type) for i in lists]
    made = low.unified([*inner, *(terms[i] for i in singles)], node)
    together = made[0].type
    out = list(terms)
    for i in lists:
        out[i] = low.widened(terms[i], pa.list_(together))
    for i, term in zip(singles, made[len(lists) :], strict=True):
        out[i] = term
    return out, together


def _result(fn: Function, terms: Sequence[Term], together: pa.DataType | None) -> pa.DataType:
    if callable(fn.gives):
        return fn.gives(terms)
    if fn.gives == "T":
        return together
    if fn.gives == "[T]":
        return pa.list_(together)
    if fn.gives == "0":
        return terms[-1].type
    if fn.gives == "1":
        return terms[0].type
    if fn.gives.startswith("["):
        return pa.list_(_KINDS[fn.gives[1:-1]])
    return _KINDS[fn.gives]
