"""The n best rows of each group and period, emitted once, when the watermark has passed it.

Two uses: the best results of each window, where the period is the window itself; and a sample
of n rows of each period, where the best are those with the smallest hash of their place: so
the sample is uniform, and the same however the rows are cut into batches. Rows wait in a
timed table, at most n of a group and batch; where a result may come again, all of them, and
the newer replaces the older.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, integers
from headrace.chunk import OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME, MIN_TIME, pretty
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.keys import KeyColumns
from headrace.ops.stream.chunk_steps import place_hashes
from headrace.ops.stream.key_groups import key_ids, place_in_group
from headrace.ops.stream.rank_order import RANK, best_first, order_of
from headrace.ops.tables import TIES, RowLayout
from headrace.state.table import KeyedTable, TableSpec

WAITING = "waiting"
_WORTH, _TURN = "worth", "turn"


@dataclass(frozen=True)
class Best(Spec):
    rows: int
    by: str | None  # None: by the hash of a row's place, which is a sample
    largest: bool = True
    period: int | None = None  # None: rows of one event time belong together
    each: tuple[str, ...] = ()  # what distinguishes the results of a window
    again: bool = False  # a result may come again
    seed: int = 0
    step: str = ""  # of a sample
    types: tuple[tuple[str, str], ...] = ()

    needs_time = True
    has_late = True
    widens_keys = True

    @property
    def kind(self) -> str:
        return "sample" if self.by is None else "top"

    def __str__(self) -> str:
        if self.by is None:
            return f"{self.rows} of each {pretty(self.period or 0)}"
        return f"the {self.rows} {'largest' if self.largest else 'smallest'} by {self.by}"

    def shape(self) -> dict[str, Any]:
        shape: dict[str, Any] = {
            "rows": self.rows,
            "by": self.by,
            "largest": self.largest,
            "period": self.period,
        }
        shape |= {"each": [*self.each], "again": self.again, "seed": self.seed}
        return {**shape, "columns": [list(pair) for pair in self.types]}

    def for_step(self, name: str) -> Best:
        return replace(self, step=name) if self.by is None else self

    @property
    def compares(self) -> tuple[str, ...]:
        return () if self.by is None else (self.by, *self.each)

    def operator(self, place: Place) -> Operator:
        return _BestOperator(self, KeyColumns(place.key, place.input), place.input, place.output)


class _BestOperator(Operator):
    def __init__(self, spec: Best, keys: KeyColumns, input: pa.Schema, output: pa.Schema) -> None:
        self._spec, self._keys, self._output = spec, keys, output
        self._stored = RowLayout(keys, input)
        self._each = [self._stored.column(c) for c in spec.each]

    def tables(self) -> tuple[TableSpec, ...]:
        """The identity ends with what distinguishes rows of a group."""
        distinct = [self._stored.value.field(c) for c in self._each]
        turn = [] if self._spec.again else [pa.field(_TURN, pa.int64())]
        value = [f for f in self._stored.value if not (self._spec.again and f.name in self._each)]
        identity = [*self._keys.schema, *(distinct if self._spec.again else turn)]
        worth = pa.field(_WORTH, pa.uint64())
        return (TableSpec(WAITING, pa.schema(identity), pa.schema([*value, worth]), timed=True),)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        return None if watermark == MIN_TIME else self._marks(rows) <= watermark

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """Of rows that cannot be replaced, only the best travel."""
        rows = self._keys.hashed(rows)
        if self._spec.by is None:
            worth = place_hashes(rows, self._spec.seed, self._spec.step, keyed=True)
            rows = rows.append_column(_WORTH, pa.array(worth))
        if self._spec.again:
            return rows
        return self._cut(rows, self._marks(rows), self._keys.of(rows), self._by(rows))

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        if self._spec.again:
            return prepared
        keys = self._keys.of(prepared)
        return self._cut(prepared, self._marks(prepared), keys, self._by(prepared))

    def step(self, step: EpochStep) -> None:
        arrived, table = step.arrived, step.tables[WAITING]
        if arrived is not None:
            table.put(self._waiting(arrived, step.epoch))
        if step.after > step.before:
            due = table.scan(MIN_TIME, _past(step.after))
            table.expire(_past(step.after))
            if due.num_rows:
                step.out.append(self._emitted(due))
        first = table.first_time()
        step.next = MAX_TIME if first is None else first

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows that wait."""
        return self._stored.whole(tables[WAITING].scan(since, until))

    def _marks(self, rows: pa.Table) -> Index:
        """The watermark at which a row's group is emitted."""
        times, period = integers(rows.column(TIME)), self._spec.period
        return times + 1 if period is None else times - times % period + period

    def _by(self, rows: pa.Table) -> Any:
        return rows.column(_WORTH if self._spec.by is None else self._spec.by)

    def _waiting(self, rows: pa.Table, epoch: int) -> pa.Table:
        waiting = self._stored.of(rows).append_column(TIME, pa.array(self._marks(rows)))
        if not self._spec.again:
            turn = (epoch << 32) + np.arange(rows.num_rows)
            waiting = waiting.append_column(_TURN, pa.array(turn))
        if self._spec.by is None:
            return waiting.append_column(_WORTH, rows.column(_WORTH))
        return waiting.append_column(_WORTH, pa.nulls(rows.num_rows, pa.uint64()))

    def _cut(self, rows: pa.Table, marks: Index, keys: pa.Table, by: Any) -> pa.Table:
        """The best of each group, in no order."""
        places = [rows.column(n) for n in (SOURCE, OFFSET) if n in rows.column_names]
        ties = [*(rows.column(c) for c in self._spec.each), *places]
        order, place = self._ranked(marks, keys, by, order_of(ties))
        return rows.take(pa.array(order[place < self._spec.rows]))

    def _ranked(
        self, marks: Index, keys: pa.Table, by: Any, ties: Sequence[Index]
    ) -> tuple[Index, Index]:
        """The rows by group, the best first, and each one's place in its group."""
        ids = key_ids(keys)
        largest = self._spec.largest and self._spec.by is not None
        order = best_first([marks, ids], by, largest, ties)
        new = np.zeros(len(order), np.int64)
        for column in (marks[order], ids[order]):
            new[1:] |= column[1:] != column[:-1]
        return order, place_in_group(np.cumsum(new))

    def _emitted(self, due: pa.Table) -> pa.Table:
        marks, keys = integers(due.column(TIME)), due.select(self._keys.identity)
        by = due.column(_WORTH if self._spec.by is None else self._stored.column(self._spec.by))
        ties = order_of([due.column(n) for n in (*self._each, *TIES)])
        order, place = self._ranked(marks, keys, by, ties)
        best = place < self._spec.rows
        emitted, marks = due.take(pa.array(order[best])), marks[order[best]]
        names = [n for n in self._output.names if self._spec.by is None or n != RANK.name]
        output = self._stored.rows(emitted, names)
        if self._spec.by is not None:
            output = output.append_column(RANK, pa.array((place[best] + 1).astype(np.int32)))
        output = output.append_column(TIME, pa.array(marks - 1))
        output = output.append_column(SOURCE, emitted.column("s").cast(pa.int32()))
        return output.append_column(OFFSET, emitted.column("o"))


def _past(watermark: int) -> int:
    """The first mark that is not emitted yet."""
    return min(watermark + 1, MAX_TIME)
