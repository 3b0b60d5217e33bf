"""Batches as both contenders report them, and what follows from them.

A batch has rows, the moment it was planned and the moment it was committed, in milliseconds
of the same wall clock. The first batches start the JVM's compiler and Python's workers: they
are not the steady state and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Batch:
    rows: int
    began: int
    ended: int


def batches_of(figures: Sequence[Sequence[int]]) -> list[Batch]:
    return [Batch(*values) for values in figures]


def throughput(batches: Sequence[Batch], skip: int) -> float:
    """Rows per second from the end of the last skipped batch to the end of the last batch."""
    before, steady = batches[skip - 1], batches[skip:]
    rows = sum(b.rows for b in steady)
    return rows * 1_000 / max(1, steady[-1].ended - before.ended)


def period(batches: Sequence[Batch], skip: int) -> float:
    """The median time from the start of one batch to the start of the next, in ms."""
    steady = batches[skip:]
    return float(median(b.began - a.began for a, b in pairwise(steady)))


def lasted(batches: Sequence[Batch], skip: int) -> float:
    """The median time from planning to commit, in ms."""
    return float(median(b.ended - b.began for b in batches[skip:]))


def with_rows(figures: dict[str, Any]) -> list[Batch]:
    """The batches of a contender that read something."""
    return [b for b in batches_of(figures["batches"]) if b.rows]
