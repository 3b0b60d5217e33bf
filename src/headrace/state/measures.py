"""What a job measures of itself: a part of the manifest that no result depends on.

It is exactly once as everything in a manifest: an epoch that is done again is measured once. All of
it is since the job's first start, but for what is said to be of the epoch. A manifest of an
older version has none, and every part may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from headrace.buckets import Histogram

Histograms = Mapping[str, Histogram]


@dataclass(frozen=True, slots=True)
class Measures:
    plan: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # kind and level by step
    tasks: int = 0  # of a level, in this epoch
    took: int = 0  # ms from the planning of an epoch to its commit, of all epochs
    retries: int = 0  # tasks that Spark has begun again
    work: Mapping[str, float] = field(default_factory=dict)  # ms at work in all tasks, by step
    longest: Mapping[str, float] = field(default_factory=dict)  # the same in one task, this epoch
    published: Mapping[str, float] = field(default_factory=dict)  # ms by output, earlier epochs
    publishes: Mapping[str, int] = field(default_factory=dict)  # how often, by output
    lags: Mapping[str, int] = field(default_factory=dict)  # rows not admitted, by input, now
    waits: Mapping[str, int] = field(default_factory=dict)  # since when the oldest of them does
    event: Histograms = field(default_factory=dict)  # ms from event time to commit, by input
    ingest: Histograms = field(default_factory=dict)  # ms from arrival to commit, by input
    gauges: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # the user's, by step
    histograms: Mapping[str, Histograms] = field(default_factory=dict)  # the user's, by step

    def to_json(self) -> dict[str, Any]:
        body = {name: getattr(self, name) for name in _PARTS}
        body["plan"] = {step: list(place) for step, place in self.plan.items()}
        return {name: value for name, value in body.items() if value}

    @staticmethod
    def from_json(content: Mapping[str, Any] | None) -> Measures:
        body = {name: content[name] for name in _PARTS if name in content} if content else {}
        body["plan"] = {step: (kind, level) for step, (kind, level) in body.get("plan", {}).items()}
        for name in ("event", "ingest"):
            body[name] = _histograms(body.get(name, {}))
        body["histograms"] = {s: _histograms(h) for s, h in body.get("histograms", {}).items()}
        return Measures(**body)

    def renamed(self, names: Mapping[str, str]) -> Measures:
        """With the names of a changed program, by the old ones."""
        renamed: dict[str, Any] = {
            part: {names.get(name, name): value for name, value in getattr(self, part).items()}
            for part in _PARTS
            if part not in _NUMBERS
        }
        return replace(self, **renamed)


def _histograms(stored: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
    """JSON has texts for keys."""
    return {n: {int(bucket): count for bucket, count in h.items()} for n, h in stored.items()}


_PARTS = tuple(f.name for f in fields(Measures))
_NUMBERS = ("tasks", "took", "retries")
