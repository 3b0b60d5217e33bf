"""The approximate aggregates as users call them, and as SQL text has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import PlanError, call_site
from headrace.ops.agg.kinds import Aggregate
from headrace.ops.agg.named import aggregate_of
from headrace.ops.sketch.base import Sketch
from headrace.ops.sketch.count_min import MOST_BUCKETS, CountMin
from headrace.ops.sketch.frequent import COUNTER_BYTES, DEFAULT_COUNTERS, Frequent
from headrace.ops.sketch.histogram import EqualWidth
from headrace.ops.sketch.hll import HyperLogLog
from headrace.ops.sketch.kll import Quantiles
from headrace.ops.sketch.library import check_installed
from headrace.ops.sketch.sample import Reservoir
from headrace.ops.sketch.sizes import bytes_of, check_error, out_of_reach
from headrace.ops.sketch.theta import Theta

if TYPE_CHECKING:
    from headrace.expr import Expr

_MOST_BINS = 10_000
_MOST = 1_000_000  # values, or counters, of a key


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


def theta(
    column: str | Expr, *, error: float | None = None, size: int | str | None = None
) -> Aggregate:
    """The different values of a column as a theta sketch, in bytes that DataSketches reads.

    `theta_count` says how many there are; `theta_union`, `theta_intersect` and `theta_difference`
    combine sketches. A count is within `error` of the exact number (0.05 unless said otherwise) for
    95 of 100 streams and more; or as near as `size` bytes per key allow. Nulls do not count.
    """
    check_error("theta", error, size)
    return _approximate("theta", column, Theta(error, bytes_of("theta", size)))


def approx_quantile(
    column: str | Expr,
    share: float,
    *,
    error: float | None = None,
    size: int | str | None = None,
    bounds: bool = False,
) -> Aggregate:
    """A value below which about a `share` of all values lies, as a float; NaN is the largest.

    Its rank is within `error` of the share (0.01, one percent of all values, unless said otherwise)
    for 95 of 100 streams and more; or as near as `size` bytes per key allow. With `bounds` the
    result is a struct of value, low and high: the value of the stream at that rank lies between.
    """
    return _quantiles("approx_quantile", column, [share], "one", error, size, bounds)


def approx_quantiles(
    column: str | Expr,
    shares: Sequence[float],
    *,
    error: float | None = None,
    size: int | str | None = None,
    bounds: bool = False,
) -> Aggregate:
    """The values at several shares, as a list in their order; see `approx_quantile`."""
    return _quantiles("approx_quantiles", column, shares, "list", error, size, bounds)


def _quantiles(
    kind: str, column: str | Expr, shares: Sequence[float], shape: str,
    error: float | None, size: int | str | None, bounds: bool,
) -> Aggregate:  # fmt: skip
    check_error(kind, error, size)
    listed = isinstance(shares, list | tuple) and len(shares) > 0
    if not listed or not all(_is_share(share) for share in shares):
        wrong = shares[0] if shape == "one" and listed else shares
        raise PlanError(
            "HR-AGG-016",
            f"{kind} has the share {wrong!r}",
            'Choose numbers from 0 to 1: hr.approx_quantile("v", 0.95).',
            site=call_site(),
        )
    exact = tuple(float(share) for share in shares)
    return _approximate(kind, column, Quantiles(exact, shape, error, bytes_of(kind, size), bounds))


def _is_share(share: object) -> bool:
    number = isinstance(share, int | float) and not isinstance(share, bool)
    return number and 0 <= share <= 1  # type: ignore[operator]


def histogram(
    column: str | Expr,
    bins: int,
    *,
    low: float | None = None,
    high: float | None = None,
    error: float | None = None,
    size: int | str | None = None,
    bounds: bool = False,
) -> Aggregate:
    """How values are distributed: a list of structs of low, high and count.

    With `low` and `high`, as many intervals of equal width between them, counted exactly, after one
    of what is below and before one of what is above. Without, as many intervals that hold about
    equally many values each, within `error` of all values; see `approx_quantile`. With `bounds` a
    struct has least and most, too: at least so many values are from low to high, both included, and
    at most so many are between them. Of intervals of equal width both are the count.
    """
    whole = isinstance(bins, int) and not isinstance(bins, bool) and 0 < bins <= _MOST_BINS
    if not whole:
        raise _wrong(f"histogram has {bins!r} bins", f"Choose 1 to {_MOST_BINS}.")
    if low is None and high is None:
        check_error("histogram", error, size)
        shares = tuple(i / bins for i in range(bins + 1))
        sketch = Quantiles(shares, "buckets", error, bytes_of("histogram", size), bounds)
        return _approximate("histogram", column, sketch)
    if error is not None or size is not None:
        fact = "histogram has low= and high=, and an error= or a size=, too"
        raise _wrong(fact, "Leave them out: intervals of equal width are counted exactly.")
    if not (_is_number(low) and _is_number(high) and low < high):  # type: ignore[operator]
        fact = f"histogram has low={low!r} and high={high!r}"
        raise _wrong(fact, "Pass both, as finite numbers, low < high; or neither.")
    width = EqualWidth(float(low), float(high), bins, bounds)  # type: ignore[arg-type]
    if not isfinite(width.high - width.low):
        fact = f"histogram has low={low!r} and high={high!r}, further apart than a double can say"
        raise _wrong(fact, "Choose a smaller range: what is outside is counted, too.")
    if (width.low, width.high) != (low, high) or (np.diff(width.edges) <= 0).any():
        fact = f"histogram has {bins} bins between {low!r} and {high!r}, which are doubles"
        raise _wrong(fact, "Subtract what the values have in common, such as the first time.")
    return replace(aggregate_of("histogram", column), sketch=width)


def _wrong(fact: str, hint: str) -> PlanError:
    return PlanError("HR-APPROX-002", fact, hint, site=call_site())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def approx_top_k(
    column: str | Expr,
    k: int,
    *,
    error: float | None = None,
    counters: int | None = None,
    size: int | str | None = None,
    bounds: bool = False,
) -> Aggregate:
    """The `k` values that come most often, as a list of structs of value and count.

    A count is never too low, and too high by at most `error` times the rows: that takes 1 / `error`
    counters; 1,000 unless it, their number or the `size` in bytes (16 for a counter, if values take
    8) is said. With `bounds` a struct has low and high, too: the number of rows lies between them.
    The list is shorter, or empty, where values come about equally often and outnumber counters.
    """
    _check_count("approx_top_k", "k", k)
    if counters is not None and size is not None:
        fact = "approx_top_k has both counters= and size="
        raise _wrong(fact, "Choose one: a counter takes 16 bytes, or more with long values.")
    check_error("approx_top_k", error, counters if size is None else size)
    room = bytes_of("approx_top_k", size)
    if room is not None:
        counters = min(room // COUNTER_BYTES, _MOST)
    elif counters is not None:
        _check_count("approx_top_k", "counters", counters)
    wanted = ceil(min(1 / error, 2 * _MOST)) if error is not None else counters
    wanted = DEFAULT_COUNTERS if wanted is None else wanted
    if not 0 < wanted <= _MOST:
        wish = f"an error of {error:g}" if size is None else f"a size of {size!r}"
        least = f"The least error is {1 / _MOST:g}, the least size {COUNTER_BYTES} bytes."
        raise out_of_reach("approx_top_k", wish, least)
    if counters is not None and counters < k:
        raise _wrong(f"approx_top_k has {counters} counters for {k} values", "Choose more.")
    sketch = Frequent(k, max(wanted, k), bounds)
    return replace(aggregate_of("approx_top_k", column), sketch=sketch)


def count_min(
    column: str | Expr,
    values: Sequence[Any],
    *,
    error: float | None = None,
    size: int | str | None = None,
    bounds: bool = False,
) -> Aggregate:
    """About how many rows have each of `values`, as a list in their order.

    A count is never too low, and for 95 of 100 values too high by at most `error` times the rows
    (0.001 unless said otherwise); or as near as `size` bytes per key allow. With `bounds` each is a
    struct of value, low and high. State is of the same size whatever is asked for, so other
    values may be asked for later.
    """
    check_error("count_min", error, size)
    if not isinstance(values, list | tuple) or not values or None in values:
        raise _wrong(f"count_min has the values {values!r}", "Pass a list of values, without None.")
    sketch = CountMin(tuple(values), error, bytes_of("count_min", size), bounds)
    if not 2 < sketch.buckets <= MOST_BUCKETS:
        wish = f"an error of {error:g}" if size is None else f"a size of {size!r}"
        least = f"The least error is {3 / MOST_BUCKETS:g}, the least size 108 bytes."
        raise out_of_reach("count_min", wish, least)
    return replace(aggregate_of("count_min", column), sketch=sketch)


def sample(
    column: str | Expr, k: int, *, weight: str | Expr | None = None, seed: int = 0
) -> Aggregate:
    """The values of `k` rows drawn at random, or of all rows if there are fewer, as a list.

    Each row has the same chance, or with `weight`, rows are drawn one after the other with chances
    in proportion to it; nulls, and rows without a positive weight, are not drawn. The same rows
    are drawn again when a job replays its input; another `seed`, step, key or job draws others.
    """
    _check_count("sample", "k", k)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise _wrong(f"sample has the seed {seed!r}", "Choose a whole number from 0 on.")
    return replace(aggregate_of("sample", column, weight), sketch=Reservoir(k, seed))


def _check_count(what: str, name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= _MOST:
        raise _wrong(f"{what} has {name}={count!r}", f"Choose a whole number from 1 to {_MOST}.")


def _approximate(kind: str, column: str | Expr, sketch: Sketch[Any]) -> Aggregate:
    check_installed(kind)
    sketch.memory()  # refuses what cannot be had
    return replace(aggregate_of(kind, column), sketch=sketch)


# In SQL text: the column, then numbers.
IN_TEXT: dict[str, Callable[..., Aggregate]] = {
    "approx_count_distinct": lambda column, error=None: approx_count_distinct(column, error=error),
    "approx_quantile": lambda column, share, error=None: approx_quantile(
        column, share, error=error
    ),
    "approx_top_k": lambda column, k: approx_top_k(column, int(k) if k == int(k) else k),
    "histogram": lambda column, bins, low=None, high=None: histogram(
        column, int(bins) if bins == int(bins) else bins, low=low, high=high
    ),
}
CALLED_ONLY = ("approx_quantiles", "count_min", "sample", "theta")  # what text has no literals for
