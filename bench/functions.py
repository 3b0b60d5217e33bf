"""The Python functions that all contenders call, for each row or window; nothing else is in here.

Spark's workers and Bytewax import this module by name, so it must not bring anything along.
"""

from __future__ import annotations

from typing import NamedTuple


class Scored(NamedTuple):
    sensor: str
    score: float


def score(sensor: str, celsius: float) -> float:
    """Some arithmetic that no expression says better."""
    odd = ord(sensor[-1]) % 2
    heat = celsius - 40.0 if celsius > 40.0 else 0.0
    return heat * heat + (1.5 if odd else 0.25)


def add(total: float, celsius: float) -> float:
    """A total that never falls below zero."""
    total += celsius
    return total if total > 0.0 else 0.0


def moved(count: int, last: float | None, celsius: float) -> tuple[int, float]:
    """Which reading it is, and by how much it differs from the one before."""
    return count + 1, 0.0 if last is None else celsius - last


def spread(values: list[float]) -> tuple[float, float]:
    """The median and the range."""
    ordered = sorted(values)
    half = len(ordered) // 2
    median = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    return median, ordered[-1] - ordered[0]
