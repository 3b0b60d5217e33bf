"""What steps emit, in plain Python; shares no code with the product.

A life is the rows a step has seen, start by start. Times are whole seconds, they grow from row
to row of an input, and lengths end in half a second where two times of rows are compared: there
no result depends on a boundary. A watermark is half a second behind a row, and so may be exactly
at the end of something: then the model leaves it open.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evolution.spec import Step

DELAY = 500
NOW, END = float("-inf"), float("inf")  # due with the rows; due at the end of the input
Row = Mapping[str, Any]
Emitted = tuple[str, int, int, int]  # key, a, b, c
Due = list[tuple[float, Emitted]]  # what comes when the watermark has reached a time


@dataclass(frozen=True, slots=True)
class Segment:
    """What a step has seen under one start: the rows of each of its inputs, in order."""

    number: int
    step: Step
    place: str
    sides: tuple[tuple[Row, ...], ...]
    times: tuple[str, ...]  # the column of event time of each side
    marks: tuple[float, ...]  # where each side's watermark stands after it
    inputs: tuple[tuple[str, int], ...]  # place and life of each side
    ended: bool  # the inputs were at their end: no row can come
    crashed: bool

    @property
    def of(self) -> tuple[object, ...]:
        """What besides the step itself its state is of."""
        return self.times if self.step.timed else ()

    def rows(self, side: int = 0) -> list[Row]:
        return [r for r in self.sides[side] if holds(self.step.where, r)]


Life = Sequence[Segment]


@dataclass(frozen=True, slots=True)
class Seen:
    """A row as a step has seen it."""

    row: Row
    time: int
    key: str
    start: int  # the index of the segment


def holds(where: str, row: Row) -> bool:
    if where == "true":
        return True
    column, sign, bound = where.split()
    return bool(row[column] > int(bound) if sign == ">" else row[column] <= int(bound))


def key_of(row: Row, step: Step) -> str:
    return "/".join(str(row[k]) for k in step.keys)


def seen(life: Life, side: int = 0) -> list[Seen]:
    """In order of event time: partitions are not read in step. Equals are in order of arrival."""
    found = [
        Seen(row, row[s.times[side]], key_of(row, s.step), n)
        for n, s in enumerate(life)
        for row in s.rows(side)
    ]
    return sorted(found, key=lambda one: one.time)


def by_key(rows: Sequence[Seen]) -> dict[str, list[Seen]]:
    found: dict[str, list[Seen]] = {}
    for one in rows:
        found.setdefault(one.key, []).append(one)
    return found


def watermarks(life: Life, *, closed: bool) -> tuple[float, float]:
    """Where the watermark is for certain, and at most: a start that crashed may have moved it."""
    quiet = max((i for i, s in enumerate(life) if not s.crashed), default=-1)
    sure, most = _watermark(life[: quiet + 1]), _watermark(life)
    return (END, END) if closed else (sure, most)


def _watermark(life: Life) -> float:
    if any(s.ended for s in life):
        return END
    return min(life[-1].marks) if life else NOW


def over(life: Life, start: int, last: int) -> float:
    """When what began with a row of this start, and its last one at `last`, is over: a length
    after it, by the length of then; where that has got shorter, not before now."""
    lengths = [s.step.length * 1000 + 501 for s in life]
    found: float = last + lengths[start]
    for n in range(start + 1, len(life)):
        if lengths[n] < lengths[n - 1]:
            found = max(last + lengths[n], min(found, min(life[n - 1].marks) + 1))
    return found


def bounds(due: Due, sure: float, most: float) -> tuple[Counter[Emitted], Counter[Emitted]]:
    """What has come for certain, and at most."""
    least = Counter(e for when, e in due if when < sure or when == NOW or sure == END)
    return least, Counter(e for when, e in due if when <= most)


def aggregated(rows: Sequence[Seen], step: Step) -> tuple[int, int]:
    """The aggregates of rows in order of event time, each of those since it has been there."""
    begins = step.begins or (0,) * len(step.aggs)
    found = [
        _aggregate(agg, [one.row for one in rows if one.start >= begin], step.column)
        for agg, begin in zip(step.aggs, begins, strict=True)
    ]
    return found[0], found[1] if len(found) > 1 else 0


NONE = -1  # no value
COUNTS = ("count", "count_distinct", "approx_count_distinct")


def _aggregate(agg: str, rows: Sequence[Row], column: str) -> int:
    if not rows:
        return 0 if agg in COUNTS else NONE
    values = [r[column] for r in rows]
    if agg == "mean":
        return int(sum(values) / len(values) * 1000)
    if agg == "percentile":
        return int(statistics.median(values) * 2)
    if agg == "approx_quantile":
        return sorted(values)[(len(values) + 1) // 2 - 1]
    if agg in ("max_by", "min_by"):
        best = (max if agg == "max_by" else min)(values)
        return int(next(r["id"] for r in rows if r[column] == best))
    kinds: dict[str, Callable[[list[int]], int]] = {
        "sum": sum, "count": len, "min": min, "max": max, "first": lambda v: v[0],
        "last": lambda v: v[-1], "count_distinct": lambda v: len({*v}),
        "approx_count_distinct": lambda v: len({*v}),
        "collect": lambda v: len(v) * 1000 + v[0],
    }  # fmt: skip
    return kinds[agg](values)
