"""The door to Apache DataSketches: estimates, their bounds, and the error that a size allows.

Sketches are made and merged elsewhere, all groups at once, in the library's portable format: what
is read here is its bytes. An error is two standard deviations, which hold for 95 of 100 streams on
average; bounds are three, which hold for 99, and so for 95 of any 100. Nothing is imported before
a program has an approximate aggregate.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import PlanError, call_site

Estimates = npt.NDArray[np.float64]  # a row each: the estimate, the lower and the upper bound
DEVIATIONS = 2  # standard deviations that an error is
BOUND_DEVIATIONS = 3  # standard deviations that a bound is away
_LG_K = 24  # the hashes of a union at most: none is left out


@cache
def _library() -> Any:
    import datasketches

    return datasketches


def check_installed(what: str) -> None:
    """Refuse `what` where the library is missing."""
    try:
        _library()
    except ImportError as error:
        raise PlanError(
            "HR-APPROX-001",
            f"{what} needs the package datasketches, which is not installed",
            "Install it, on every machine of the cluster: pip install 'headrace[approx]'.",
            site=call_site(),
        ) from error


@cache
def hll_error(lg_k: int) -> float:
    """The relative error of a merged HLL sketch with 2**lg_k registers, at most."""
    rel_err = _library().hll_sketch.get_rel_err
    return float(max(abs(rel_err(upper, True, lg_k, DEVIATIONS)) for upper in (False, True)))


def hll_estimates(sketches: Sequence[bytes]) -> Estimates:
    """The number of distinct values in each HLL sketch."""
    read = _library().hll_sketch.deserialize
    out = np.empty((len(sketches), 3))
    for row, sketch in enumerate(map(read, sketches)):
        low, high = (
            sketch.get_lower_bound(BOUND_DEVIATIONS), sketch.get_upper_bound(BOUND_DEVIATIONS)
        )  # fmt: skip
        out[row] = sketch.get_estimate(), low, high
    return out


@cache
def kll_error(k: int) -> float:
    """The error of a rank in a KLL sketch of this size, as a share of all values."""
    return float(_library().kll_doubles_sketch.get_normalized_rank_error(k, False))


def kll_values(
    sketches: Sequence[bytes], ranks: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The value at a rank, from 0 to 1, of each KLL sketch."""
    read = _library().kll_doubles_sketch.deserialize
    pairs = zip(map(read, sketches), ranks.tolist(), strict=True)
    found = (sketch.get_quantile(rank, True) for sketch, rank in pairs)
    return np.fromiter(found, np.float64, len(sketches))


def theta_estimate(sketch: bytes) -> tuple[float, float, float]:
    """The number of values in a theta sketch, and its bounds."""
    found = _library().compact_theta_sketch.deserialize(sketch)
    low, high = found.get_lower_bound(BOUND_DEVIATIONS), found.get_upper_bound(BOUND_DEVIATIONS)
    return found.get_estimate(), low, high


def theta_combined(how: str, sketches: Sequence[bytes]) -> bytes:
    """The union, intersection or difference of theta sketches."""
    sets = [_library().compact_theta_sketch.deserialize(sketch) for sketch in sketches]
    if how == "theta_difference":
        result = sets[0]
        for other in sets[1:]:
            result = _library().theta_a_not_b().compute(result, other)
        return bytes(result.serialize())
    union = how == "theta_union"
    made = _library().theta_union(_LG_K) if union else _library().theta_intersection()
    for one in sets:
        made.update(one)
    return bytes(made.get_result().serialize())
