"""A left row and a right row that may be a result: what they were before an epoch and are now.

For many at once, as numbers of rows. Nothing here is kept from epoch to epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.clock import MIN_TIME
from headrace.ops.agg.groups import Index, Mask
from headrace.ops.agg.keys import key_numbers
from headrace.ops.contract import Step
from headrace.ops.join.changes import when
from headrace.ops.join.versions import last_of_each
from headrace.ops.window.aligned import Times


@dataclass(frozen=True, slots=True)
class Spans:
    """Keys that changed, and for each the times of its first change and of its last."""

    keys: pa.Table
    since: Times
    at: Times


def spans(changes: pa.Table, identity: list[str], step: Step) -> Spans:
    """The spans of changes that are in order."""
    keys, times = changes.select(identity), when(changes, step)
    if not changes.num_rows:
        return Spans(keys, times, times)
    _, first = key_numbers(keys)
    return Spans(keys.take(pa.array(first)), times[first], times[last_of_each(changes, identity)])


@dataclass(frozen=True, slots=True)
class Changed:
    """Rows of one side, and for each thing that may change its row before and after; or -1."""

    rows: pa.Table
    old: Index
    new: Index
    since: Times  # when it first changed, MIN_TIME if it did not
    at: Times  # when it last did

    @property
    def moved(self) -> Mask:
        return (self.at > MIN_TIME) & ((self.old >= 0) | (self.new >= 0))


def left_of(rows: pa.Table, number: list[Index], count: int, when: tuple[Index, Spans]) -> Changed:
    """The left row of each number, before and after; held rows are the same, unless changed."""
    held, minus, plus = number
    old, new, since, at = (np.full(count, v) for v in (-1, -1, MIN_TIME, MIN_TIME))
    changed, spans = when
    since[changed], at[changed] = spans.since, spans.at
    old[held] = new[held] = np.arange(len(held))
    old[minus], new[minus] = len(held) + np.arange(len(minus)), -1
    new[plus] = len(held) + len(minus) + np.arange(len(plus))
    return Changed(rows, old, new, since, at)


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
    return np.where(
        (left > MIN_TIME) & (right > MIN_TIME), np.minimum(left, right), np.maximum(left, right)
    )
