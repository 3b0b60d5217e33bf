"""Rows that a join keeps for those that may still come, found by key and about when.

Time is cut into buckets; a row lies under its bucket and its key, so asking pays for the keys
and the stretch of time asked for, and dropping what is over costs nothing. Rows are written
once and never changed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.hashing import Hashes
from headrace.ops.contract import Step
from headrace.ops.join.columns import distinct, numbers
from headrace.ops.join.side import AT, PLACE, Side
from headrace.ops.window.aligned import Times
from headrace.ops.window.assigners import expanded
from headrace.state.table import KeyedTable, TableSpec


class Kept:
    def __init__(self, name: str, side: Side, bucket: int) -> None:
        self._side, self._bucket = side, bucket
        self.spec = TableSpec(
            name, side.key, pa.schema([*side.value, *PLACE]), timed=True, once=True
        )

    def add(self, rows: pa.Table, step: Step) -> None:
        """Keep rows in the form in which their side gives them."""
        buckets = numbers(rows[AT]) // self._bucket * self._bucket
        step.tables[self.spec.name].put(rows.append_column(TIME, pa.array(buckets)))

    def near(self, others: pa.Table, lower: int, upper: int, step: Step) -> pa.Table:
        """The rows that may meet `others`: of their key, from `lower` to `upper` around them.

        Rows a little further away, and some of another key with the same hash, come along.
        """
        if not others.num_rows:
            return self._side.held.empty_table()
        table = step.tables[self.spec.name]
        times, hashes = self._asked(others, lower, upper, table)
        found = table.match_at(times, hashes).select(self._side.held.names)
        return self._side.solid(found)[0]

    def _asked(
        self, others: pa.Table, lower: int, upper: int, table: KeyedTable
    ) -> tuple[Times, Hashes]:
        """Every bucket and hash that may hold such a row, once, in order."""
        oldest, newest, size = table.first_time(), table.last_time(), self._bucket
        if oldest is None or newest is None:
            return np.zeros(0, np.int64), np.zeros(0, np.uint64)
        hashes, buckets = distinct(numbers(others[HASH]), numbers(others[AT]) // size)
        first = np.maximum(buckets + lower // size, oldest // size)
        last = np.minimum(buckets + (size - 1 + upper) // size, newest // size)
        row, bucket = expanded(first, np.maximum(last - first + 1, 0))
        hashes, buckets = distinct(hashes[row], bucket)
        return buckets * size, hashes

    def rows(self, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """All rows that are kept."""
        return tables[self.spec.name].scan().select(self._side.held.names)

    def expire(self, before: int, step: Step) -> None:
        """Forget rows older than this; some of the same bucket stay a while."""
        step.tables[self.spec.name].expire(before // self._bucket * self._bucket)
