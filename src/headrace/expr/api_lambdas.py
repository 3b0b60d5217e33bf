"""Functions of arrays that take a Python lambda, for `headrace.functions`.

The lambda is called once, with expressions in place of elements, as a traced one is:
`transform("xs", lambda x: x + 1)` is the tree of "transform(xs, x -> x + 1)".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.expr.expression import Column, Expr, call, column_of, lambda_of


def transform(column: Column, fn: Callable[..., Any]) -> Expr:
    """What the lambda makes of each element; it may take the position, from 0, as well."""
    return call("transform", column_of(column), lambda_of(fn, 1, 2))


def filter(column: Column, fn: Callable[..., Any]) -> Expr:
    """The elements for which the lambda holds; it may take the position, from 0, as well."""
    return call("filter", column_of(column), lambda_of(fn, 1, 2))


def exists(column: Column, fn: Callable[..., Any]) -> Expr:
    """Whether the lambda holds for an element."""
    return call("exists", column_of(column), lambda_of(fn, 1))


def forall(column: Column, fn: Callable[..., Any]) -> Expr:
    """Whether the lambda holds for every element."""
    return call("forall", column_of(column), lambda_of(fn, 1))


def aggregate(
    column: Column, start: Any, fn: Callable[..., Any], finish: Callable[..., Any] | None = None
) -> Expr:
    """From `start` on, what the lambda makes of the result so far and the next element."""
    last = () if finish is None else (lambda_of(finish, 1),)
    return call("aggregate", column_of(column), start, lambda_of(fn, 2), *last)


def zip_with(column: Column, other: Column, fn: Callable[..., Any]) -> Expr:
    """What the lambda makes of the elements of two arrays, pair by pair; a short one has nulls."""
    return call("zip_with", column_of(column), column_of(other), lambda_of(fn, 2))
