"""A left row and a right row that may be a result: what they were before an epoch and are now.

For many at once, as numbers of rows. Nothing here is kept from epoch to epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.clock import MIN_TIME
from headrace.ops.agg.groups import Index, Mask
from headrace.ops.contract import Step
from headrace.ops.join.changes import when
from headrace.ops.window.aligned import Times


@dataclass(frozen=True, slots=True)
class Changed:
    """Rows of one side, and for each thing that may change its row before and after; or -1."""

    rows: pa.Table
    old: Index
    new: Index
    at: Times  # when it changed, MIN_TIME if it did not

    @property
    def moved(self) -> Mask:
        return (self.at > MIN_TIME) & ((self.old >= 0) | (self.new >= 0))


def left_of(rows: pa.Table, number: list[Index], count: int, step: Step) -> Changed:
    """The left row of each number, before and after; held rows are the same, unless changed."""
    held, minus, plus = number[:3]
    old, new, at = (np.full(count, v) for v in (-1, -1, MIN_TIME))
    at[number[1]] = when(rows.slice(len(held), len(minus)), step)
    moved = when(rows.slice(len(held) + len(minus)), step)
    at[plus] = np.maximum(at[plus], moved)
    old[held] = new[held] = np.arange(len(held))
    old[minus], new[minus] = len(held) + np.arange(len(minus)), -1
    new[plus] = len(held) + len(minus) + np.arange(len(plus))
    return Changed(rows, old, new, at)


def shown(how: str, left: Mask, right: Mask) -> Mask:
    """Whether there is a result for these."""
    match how:
        case "inner" | "semi":
            return left & right
        case "left":
            return left
        case "right":
            return right
        case "anti":
            return left & ~right
    return left | right


def earlier(left: Times, right: Times) -> Times:
    """When a result was no longer true: at the first change of its two rows.

    A left row that points elsewhere now is given by another task, which knows nothing of what
    changed here: so it must not be taken back later than when it moved.
    """
    return np.where((left > MIN_TIME) & (right > MIN_TIME), np.minimum(left, right),
                    np.maximum(left, right))  # fmt: skip
