"""Figures of the user's own: counters, gauges and histograms of a step.

They are of a call, then of the calls of a task, then of the step: what a call that fails has said
is left out, and what comes to the manifest is there once, also after a crash.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isfinite
from typing import Any

from headrace.buckets import bucket_of


class UserMetrics:
    """What calls have said so far."""

    __slots__ = ("counters", "gauges", "histograms")

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}
        self.histograms: dict[str, Counter[int]] = {}

    def __bool__(self) -> bool:
        return bool(self.counters or self.gauges or self.histograms)

    def copy(self) -> UserMetrics:
        copied = UserMetrics()
        copied.update(self)
        return copied

    def update(self, later: UserMetrics) -> None:
        """Add what later calls have said."""
        self.counters.update(later.counters)
        self.gauges.update(later.gauges)
        for name, counts in later.histograms.items():
            self.histograms.setdefault(name, Counter()).update(counts)

    def clear(self) -> None:
        self.counters.clear()
        self.gauges.clear()
        self.histograms.clear()


@dataclass(frozen=True, slots=True)
class UserCounter:
    """A number that grows: `ctx.counter("seen").add()`."""

    name: str
    metrics: UserMetrics

    def add(self, n: int = 1) -> None:
        """Count `n` more."""
        if n < 0:
            raise ValueError(f"counter {self.name!r} cannot be made smaller, by {n}: take a gauge")
        self.metrics.counters[self.name] += int(n)


@dataclass(frozen=True, slots=True)
class UserGauge:
    """A number that goes up and down: `ctx.gauge("waiting").set(3)`."""

    name: str
    metrics: UserMetrics

    def set(self, value: float) -> None:
        """From now on it is this."""
        self.metrics.gauges[self.name] = _number("gauge", self.name, value)


@dataclass(frozen=True, slots=True)
class UserHistogram:
    """How numbers are distributed: `ctx.histogram("price").record(9.99)`."""

    name: str
    metrics: UserMetrics

    def record(self, value: float) -> None:
        """One more number."""
        bucket = bucket_of(_number("histogram", self.name, value))
        counts = self.metrics.histograms.get(self.name)
        if counts is None:
            counts = self.metrics.histograms[self.name] = Counter()
        counts[bucket] += 1


def _number(what: str, name: str, value: Any) -> float:
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"{what} {name!r} cannot be {number}")
    return number


class WithMetrics:
    """The part of a `ctx` by which the user's code says figures of its own."""

    __slots__ = ()
    metrics: UserMetrics

    def counter(self, name: str) -> UserCounter:
        """A counter of the step: it adds up over keys, tasks, batches and restarts."""
        return UserCounter(name, self.metrics)

    def gauge(self, name: str) -> UserGauge:
        """A gauge of the step: the last value that a task sets in a batch, of several tasks' the
        largest."""
        return UserGauge(name, self.metrics)

    def histogram(self, name: str) -> UserHistogram:
        """A histogram of the step, of which the run shows quantiles."""
        return UserHistogram(name, self.metrics)
