"""Expressions: one tree, its types, and its SQL for DuckDB.

What the other rooms build with is here: `col`, `lit`, `as_expr` and the `Expr` they make. The
modules inside import one another and take no name from this page, so there is no circle.
Nothing here runs an expression; `headrace.kernel` does.
"""

from headrace.expr.expression import (
    Column,
    Expr,
    Untraceable,
    all_columns,
    call,
    col,
    column_of,
    lit,
    over,
    parsed,
    same,
)
from headrace.expr.trace import as_expr

__all__ = [
    "Column", "Expr", "Untraceable", "all_columns", "as_expr", "call", "col",
    "column_of", "lit", "over", "parsed", "same",
]  # fmt: skip
