"""How many left rows point to each right row: one to which none does is a result by itself.

A number is kept for each foreign key, so a left row that changes pays for itself, however many
others point to the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.clock import MIN_TIME
from headrace.ops.agg.groups import Mask
from headrace.ops.agg.keys import key_numbers
from headrace.ops.contract import Step
from headrace.ops.join.changes import given, when
from headrace.ops.join.columns import numbers
from headrace.ops.join.side import Side
from headrace.ops.window.aligned import Times
from headrace.state.table import TableSpec

_MANY = "$many"


class Touched(NamedTuple):
    """Foreign keys, and whether somebody pointed to each before, and does now."""

    keys: pa.Table
    before: Mask
    now: Mask
    at: Times  # when that changed, MIN_TIME if it did not


class Pointed:
    def __init__(self, side: Side) -> None:
        self._side = side
        self.spec = TableSpec("pointed", side.key, pa.schema([(_MANY, pa.int64())]))

    def count(self, changes: pa.Table, theirs: pa.Table, step: Step) -> Touched:
        """Count changes of left rows, in order. Tells of their keys, and of those of `theirs`."""
        keys = pa.concat_tables([p.select(self._side.identity) for p in (changes, theirs)])
        if not keys.num_rows:
            none = np.zeros(0, np.bool_)
            return Touched(keys, none, none, np.zeros(0, np.int64))
        number, first = key_numbers(keys)
        keys, mine = keys.take(pa.array(first)), number[: changes.num_rows]
        known, _ = step.tables[self.spec.name].get(keys)
        before = numbers(known[_MANY].fill_null(0))
        after = before.copy()
        np.add.at(after, mine, np.where(given(changes), 1, -1))
        self._keep(keys.append_column(_MANY, pa.array(after)), after != before, step)
        pointed, points, times = before > 0, after > 0, when(changes, step)
        began, ended = (np.full(len(first), MIN_TIME) for _ in range(2))
        began[mine[::-1]], ended[mine] = times[::-1], times  # the last to be written stays
        at = np.where(points, began, ended)  # the first one came then, or the last one went
        return Touched(keys, pointed, points, np.where(pointed == points, MIN_TIME, at))

    def _keep(self, counted: pa.Table, changed: Mask, step: Step) -> None:
        table, many = step.tables[self.spec.name], numbers(counted[_MANY])
        table.put(counted.filter(pa.array(changed & (many > 0))))
        table.delete(counted.filter(pa.array(changed & (many == 0))))
