"""The approximate aggregates as users call them, and as SQL text has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.ops.agg.kinds import Aggregate
from headrace.ops.agg.named import aggregate_of
from headrace.ops.sketch.base import Sketch
from headrace.ops.sketch.hll import HyperLogLog
from headrace.ops.sketch.library import check_installed
from headrace.ops.sketch.sizes import bytes_of, check_error

if TYPE_CHECKING:
    from headrace.expr import Expr


def approx_count_distinct(
    column: str | Expr,
    *,
    error: float | None = None,
    size: int | str | None = None,
    bounds: bool = False,
) -> Aggregate:
    """About how many different values there are; nulls do not count.

    Within `error` of the exact number (0.02, two percent, unless said otherwise) for 95 of 100
    streams; or as near as `size` bytes per key allow. With `bounds` the result is a struct of
    value, low and high.
    """
    check_error("approx_count_distinct", error, size)
    sketch = HyperLogLog(error, bytes_of("approx_count_distinct", size), bounds)
    return _approximate("approx_count_distinct", column, sketch)


def _approximate(kind: str, column: str | Expr, sketch: Sketch[Any]) -> Aggregate:
    check_installed(kind)
    sketch.memory()  # refuses what cannot be had
    return replace(aggregate_of(kind, column), sketch=sketch)


# In SQL text: the column, then numbers.
IN_TEXT: dict[str, Callable[..., Aggregate]] = {
    "approx_count_distinct": lambda column, error=None: approx_count_distinct(column, error=error),
}
