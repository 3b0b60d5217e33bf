"""Streams on which approximate aggregates must be within their bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]
ROWS = 5_000


def uniform(draw: np.random.Generator) -> Values:
    return draw.integers(0, 2**40, ROWS)


def zipf(draw: np.random.Generator) -> Values:
    return np.minimum(draw.zipf(1.3, ROWS), 2**40)


def in_order(draw: np.random.Generator) -> Values:
    return np.sort(draw.integers(0, 10 * ROWS, ROWS))


def adversarial(draw: np.random.Generator) -> Values:
    """From both ends towards the middle, and a step that is a power of two."""
    step = 2 ** int(draw.integers(0, 30))
    rising = np.arange(ROWS // 2) * step
    return np.stack([rising, rising[::-1] + step * ROWS], axis=1).reshape(-1)


STREAMS: list[Callable[[np.random.Generator], Values]] = [uniform, zipf, in_order, adversarial]
