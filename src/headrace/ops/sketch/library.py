"""The door to Apache DataSketches: estimates, their bounds, and the error that a size allows.

Sketches are made and merged elsewhere, all groups at once, in the library's portable format: what
is read here is its bytes. Bounds are for two standard deviations, which hold for 95 of 100
streams. Nothing is imported before a program has an approximate aggregate.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import PlanError, call_site

Estimates = npt.NDArray[np.float64]  # a row each: the estimate, the lower and the upper bound
DEVIATIONS = 2  # standard deviations that a bound is away


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
        low, high = sketch.get_lower_bound(DEVIATIONS), sketch.get_upper_bound(DEVIATIONS)
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
