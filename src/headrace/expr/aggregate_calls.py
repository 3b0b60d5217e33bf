"""Calls of aggregates in an expression: which there are, and the expression without them.

In `sum(v) / count()` a call takes the rows of a group, all around it takes what the calls gave:
so an expression is its outermost calls, and an expression over their results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from headrace.expr.catalog import CATALOGUE
from headrace.expr.expression import Expr
from headrace.expr.tree import Node, column, show, undecided

Names = Callable[[str], bool]  # whether a function of that name is an aggregate


@dataclass(frozen=True, slots=True)
class AggregateCall:
    name: str
    arguments: tuple[str | Expr, ...]  # a text is a column's name, or SQL

    def __str__(self) -> str:
        inner = (a if isinstance(a, str) else show(a.node) for a in self.arguments)
        return f"{self.name}({', '.join(inner)})".replace("`", "")


def without_aggregates(expr: Expr, names: Names, column_of: Callable[[AggregateCall], str]) -> Expr:
    """The expression, without its name, with a column for each outermost call of an aggregate."""

    def one(node: Node) -> Node:
        return column(column_of(_call(node))) if _is_one(node, names) else node

    return Expr(_unnamed(expr).copy().transform(one))


def only_call(expr: Expr, names: Names) -> AggregateCall | None:
    """The call of an aggregate that the expression is, if it is nothing else."""
    node = _unnamed(expr)
    return _call(node) if _is_one(node, names) else None


def inner_aggregate(call: AggregateCall, names: Names) -> AggregateCall | None:
    """An aggregate within an aggregate's arguments, if there is one."""
    arguments = (a.node for a in call.arguments if isinstance(a, Expr))
    inner = (n for a in arguments for n in a.find_all(exp.Anonymous) if _is_one(n, names))
    return next(map(_call, inner), None)


def number_of(argument: str | Expr) -> float | None:
    """The number that an argument is, if it is written as one."""
    node = argument.node if isinstance(argument, Expr) else None
    sign, number = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if not isinstance(number, exp.Literal) or number.args["is_string"]:
        return None
    return sign * float(number.this)


def unknown_function(expr: Expr, names: Names) -> str | None:
    """A function that is neither an aggregate nor in the catalogue, if there is one."""
    called = (str(node.this) for node in expr.node.find_all(exp.Anonymous))
    return next((n for n in called if n not in CATALOGUE and not names(n)), None)


def _unnamed(expr: Expr) -> Node:
    node: Node = expr.node.this if isinstance(expr.node, exp.Alias) else expr.node
    return node


def _is_one(node: Node, names: Names) -> bool:
    return isinstance(node, exp.Anonymous) and names(str(node.this))


def _call(node: Node) -> AggregateCall:
    arguments = (undecided(a) or Expr(a.copy()) for a in node.expressions)
    return AggregateCall(str(node.this), tuple(arguments))
