"""Rows of the two sides of a table join: what each was before an epoch, and is after it.

For many rows at once, as indexes. Only the reference counts are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, Times, numbers
from headrace.clock import MIN_TIME
from headrace.ops.contract import EpochStep
from headrace.ops.join.pairs import last_of_each
from headrace.ops.join.sides import JoinSide
from headrace.ops.join.table_changes import inserts, when
from headrace.ops.keys import key_numbers
from headrace.state.table import TableSpec


@dataclass(frozen=True, slots=True)
class ChangeSpans:
    """Keys that changed, and for each the times of its first change and of its last."""

    keys: pa.Table
    since: Times
    at: Times


def spans(changes: pa.Table, identity: list[str], step: EpochStep) -> ChangeSpans:
    """The spans of changes that are in order."""
    keys, times = changes.select(identity), when(changes, step)
    if not changes.num_rows:
        return ChangeSpans(keys, times, times)
    _, first = key_numbers(keys)
    return ChangeSpans(
        keys.take(pa.array(first)), times[first], times[last_of_each(changes, identity)]
    )


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows of one side, and for each result that may change its row before and after; or -1."""

    rows: pa.Table
    old: Index
    new: Index
    since: Times  # when it first changed, MIN_TIME if it did not
    at: Times  # when it last did

    @property
    def moved(self) -> Mask:
        return (self.at > MIN_TIME) & ((self.old >= 0) | (self.new >= 0))


def left_of(
    rows: pa.Table, ids: list[Index], count: int, changes: tuple[Index, ChangeSpans]
) -> ChangedRows:
    """The left row of each key id, before and after; stored rows are the same, unless changed."""
    stored, minus, plus = ids
    old, new, since, at = (np.full(count, v) for v in (-1, -1, MIN_TIME, MIN_TIME))
    changed_ids, spans = changes
    since[changed_ids], at[changed_ids] = spans.since, spans.at
    old[stored] = new[stored] = np.arange(len(stored))
    old[minus], new[minus] = len(stored) + np.arange(len(minus)), -1
    new[plus] = len(stored) + len(minus) + np.arange(len(plus))
    return ChangedRows(rows, old, new, since, at)


def has_result(how: str, left: Mask, right: Mask) -> Mask:
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

    A left row that refers to another key now is emitted by another task, which knows nothing of
    what changed here: so it must not be retracted later than when it moved.
    """
    return np.where(
        (left > MIN_TIME) & (right > MIN_TIME), np.minimum(left, right), np.maximum(left, right)
    )


# How many left rows refer to each right row: one that no row refers to is a result by itself.
#
# The count is stored by foreign key, so a changed left row costs the same however many others
# refer to the same key.


_COUNT = "$many"


class ReferencedKeys(NamedTuple):
    """Foreign keys, and whether a left row referred to each before, and does now."""

    keys: pa.Table
    before: Mask
    now: Mask
    at: Times  # when that changed, MIN_TIME if it did not


class ReferenceCounts:
    def __init__(self, side: JoinSide) -> None:
        self._side = side
        self.spec = TableSpec("pointed", side.key, pa.schema([(_COUNT, pa.int64())]))

    def count(self, changes: pa.Table, others: pa.Table, step: EpochStep) -> ReferencedKeys:
        """Count changes of left rows, in order; returns their keys and those of `others`."""
        keys = pa.concat_tables([p.select(self._side.identity) for p in (changes, others)])
        if not keys.num_rows:
            none = np.zeros(0, np.bool_)
            return ReferencedKeys(keys, none, none, np.zeros(0, np.int64))
        ids, first = key_numbers(keys)
        keys, changed_ids = keys.take(pa.array(first)), ids[: changes.num_rows]
        stored, _ = step.tables[self.spec.name].get(keys)
        before = numbers(stored[_COUNT].fill_null(0))
        after = before.copy()
        np.add.at(after, changed_ids, np.where(inserts(changes), 1, -1))
        self._store(keys.append_column(_COUNT, pa.array(after)), after != before, step)
        was, now, times = before > 0, after > 0, when(changes, step)
        began, ended = (np.full(len(first), MIN_TIME) for _ in range(2))
        began[changed_ids[::-1]] = times[::-1]  # the last to be written stays
        ended[changed_ids] = times
        at = np.where(now, began, ended)  # the first one came then, or the last one went
        return ReferencedKeys(keys, was, now, np.where(was == now, MIN_TIME, at))

    def _store(self, counts: pa.Table, changed: Mask, step: EpochStep) -> None:
        table, count = step.tables[self.spec.name], numbers(counts[_COUNT])
        table.put(counts.filter(pa.array(changed & (count > 0))))
        table.delete(counts.filter(pa.array(changed & (count == 0))))
