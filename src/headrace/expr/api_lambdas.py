"""Functions of arrays that take a Python lambda, for `headrace.functions`.

The lambda is called once, with expressions in place of elements, as a traced one is:
`transform("xs", lambda x: x + 1)` is the tree of "transform(xs, x -> x + 1)". Invariant: no
variable has the name of a variable around it, or of a column that its lambda reads, so that the
tree means the same when it is written as text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from sqlglot import exp

from headrace.errors import PlanError
from headrace.expr.expression import Column, Expr, call, column_of, lit

_AROUND: ContextVar[frozenset[str]] = ContextVar("variables", default=frozenset())


def transform(column: Column, fn: Callable[..., Any]) -> Expr:
    """What the lambda makes of each element; it may take the position, from 0, as well."""
    return call("transform", column_of(column), _traced(fn, 1, 2))


def filter(column: Column, fn: Callable[..., Any]) -> Expr:
    """The elements for which the lambda holds; it may take the position, from 0, as well."""
    return call("filter", column_of(column), _traced(fn, 1, 2))


def exists(column: Column, fn: Callable[..., Any]) -> Expr:
    """Whether the lambda holds for an element."""
    return call("exists", column_of(column), _traced(fn, 1))


def forall(column: Column, fn: Callable[..., Any]) -> Expr:
    """Whether the lambda holds for every element."""
    return call("forall", column_of(column), _traced(fn, 1))


def aggregate(
    column: Column, start: Any, fn: Callable[..., Any], finish: Callable[..., Any] | None = None
) -> Expr:
    """From `start` on, what the lambda makes of the result so far and the next element."""
    last = () if finish is None else (_traced(finish, 1),)
    return call("aggregate", column_of(column), start, _traced(fn, 2), *last)


def zip_with(column: Column, other: Column, fn: Callable[..., Any]) -> Expr:
    """What the lambda makes of the elements of two arrays, pair by pair; a short one has nulls."""
    return call("zip_with", column_of(column), column_of(other), _traced(fn, 2))


def _traced(fn: Callable[..., Any], least: int, most: int | None = None) -> Expr:
    names = _parameters(fn, least, most or least)
    while True:
        inside = _AROUND.get() | set(names)
        token = _AROUND.set(inside)
        try:
            body = lit(fn(*(Expr(exp.Identifier(this=n, quoted=True)) for n in names)))
        finally:
            _AROUND.reset(token)
        read = {c.casefold() for c in body.columns}
        if not any(n.casefold() in read for n in names):
            return Expr(
                exp.Lambda(
                    this=body.node, expressions=[exp.Identifier(this=n, quoted=True) for n in names]
                )
            )
        names = [f"{n}_" for n in names]


def _parameters(fn: Callable[..., Any], least: int, most: int) -> list[str]:
    """The names of a lambda's parameters, changed where one around has them."""
    try:
        names = [p.name for p in inspect.signature(fn).parameters.values() if p.default is p.empty]
    except (TypeError, ValueError):
        names = []
    if not least <= len(names) <= most:
        many = f"{least}" if least == most else f"{least} or {most}"
        raise PlanError(
            "HR-EXPR-003",
            f"{fn!r} does not take {many} elements",
            'Write a lambda, as in transform("xs", lambda x: x + 1).',
        )
    around = {n.casefold() for n in _AROUND.get()}
    while any(n.casefold() in around for n in names):
        names = [f"{n}_" for n in names]
    return names
