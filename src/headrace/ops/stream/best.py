"""The n best rows of each group and stretch of time, told once, when the watermark has passed.

Two uses: the best results of each window, where a stretch is the window itself; and a sample
of n rows of each period, where the best are those with the smallest hash of their place: so
the sample is uniform, and the same however the rows are cut into batches. Rows wait in a
timed table, at most n of a group and batch; where a result may come again, all of them, and
the newer replaces the older.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.at_rest import described
from headrace.chunk import OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME, MIN_TIME, pretty
from headrace.ops.agg.groups import Index, integers
from headrace.ops.contract import Operator, Place, Spec, Step
from headrace.ops.stream.alike import numbered, place_in_group
from headrace.ops.stream.base import Keys
from headrace.ops.stream.places import place_hashes
from headrace.ops.stream.ranking import best_first, order_of
from headrace.ops.stream.stored import TIES, Stored
from headrace.ops.stream.top import RANK
from headrace.state.table import KeyedTable, TableSpec

WAITING = "waiting"
_WORTH, _TURN = "worth", "turn"


@dataclass(frozen=True)
class Best(Spec):
    rows: int
    by: str | None  # None: by the hash of a row's place, which is a sample
    largest: bool = True
    period: int | None = None  # None: rows of one event time belong together
    each: tuple[str, ...] = ()  # what tells a result from another of its window
    again: bool = False  # a result may come again
    seed: int = 0
    types: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> str:
        return "sample" if self.by is None else "top"

    @property
    def needs_time(self) -> bool:
        return True

    @property
    def has_late(self) -> bool:
        return True

    def __str__(self) -> str:
        if self.by is None:
            return f"{self.rows} of each {pretty(self.period or 0)}"
        return f"the {self.rows} {'largest' if self.largest else 'smallest'} by {self.by}"

    def shape(self) -> dict[str, Any]:
        said: dict[str, Any] = {
            "rows": self.rows,
            "by": self.by,
            "largest": self.largest,
            "period": self.period,
        }
        said |= {"each": [*self.each], "again": self.again, "seed": self.seed}
        return {**said, "columns": [list(pair) for pair in self.types]}

    @property
    def compares(self) -> tuple[str, ...]:
        return () if self.by is None else (self.by, *self.each)

    def operator(self, place: Place) -> Operator:
        return _Best(self, Keys(place.key, place.input), place.input, place.output)


def types_of(input: pa.Schema) -> tuple[tuple[str, str], ...]:
    return tuple((name, kind) for name, kind in described(input))


class _Best(Operator):
    def __init__(self, what: Best, keys: Keys, input: pa.Schema, output: pa.Schema) -> None:
        self._what, self._keys, self._output = what, keys, output
        self._stored = Stored(keys, input)
        self._each = [self._stored.column(c) for c in what.each]

    def tables(self) -> tuple[TableSpec, ...]:
        """The identity ends with what tells rows of a group apart."""
        apart = [self._stored.value.field(c) for c in self._each]
        turn = [] if self._what.again else [pa.field(_TURN, pa.int64())]
        value = [f for f in self._stored.value if not (self._what.again and f.name in self._each)]
        identity = [*self._keys.schema, *(apart if self._what.again else turn)]
        worth = pa.field(_WORTH, pa.uint64())
        return (TableSpec(WAITING, pa.schema(identity), pa.schema([*value, worth]), timed=True),)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        return None if watermark == MIN_TIME else self._marks(rows) <= watermark

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """Of rows that cannot be replaced, only the best travel."""
        rows = self._keys.hashed(rows)
        if self._what.by is None:
            rows = rows.append_column(_WORTH, pa.array(place_hashes(rows, self._what.seed)))
        if self._what.again:
            return rows
        return self._cut(rows, self._marks(rows), self._keys.of(rows), self._by(rows))

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        if self._what.again:
            return prepared
        keys = self._keys.of(prepared)
        return self._cut(prepared, self._marks(prepared), keys, self._by(prepared))

    def step(self, step: Step) -> None:
        arrived, table = step.inputs[0], step.tables[WAITING]
        if arrived is not None and arrived.num_rows:
            table.put(self._put(arrived, step.epoch))
        if step.after > step.before:
            due = table.scan(MIN_TIME, _past(step.after))
            table.expire(_past(step.after))
            if due.num_rows:
                step.out.append(self._told(due))
        first = table.first_time()
        step.next = MAX_TIME if first is None else first

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows that wait."""
        return self._stored.whole(tables[WAITING].scan(since, until))

    def _marks(self, rows: pa.Table) -> Index:
        """The watermark at which a row's group is told."""
        times, period = integers(rows.column(TIME)), self._what.period
        return times + 1 if period is None else times - times % period + period

    def _by(self, rows: pa.Table) -> Any:
        return rows.column(_WORTH if self._what.by is None else self._what.by)

    def _put(self, rows: pa.Table, epoch: int) -> pa.Table:
        put = self._stored.of(rows).append_column(TIME, pa.array(self._marks(rows)))
        if not self._what.again:
            turn = (epoch << 32) + np.arange(rows.num_rows)
            put = put.append_column(_TURN, pa.array(turn))
        if self._what.by is None:
            return put.append_column(_WORTH, rows.column(_WORTH))
        return put.append_column(_WORTH, pa.nulls(rows.num_rows, pa.uint64()))

    def _cut(self, rows: pa.Table, marks: Index, keys: pa.Table, by: Any) -> pa.Table:
        """The best of each group, in no order."""
        places = [rows.column(n) for n in (SOURCE, OFFSET) if n in rows.column_names]
        ties = [*(rows.column(c) for c in self._what.each), *places]
        order, place = self._ranked(marks, keys, by, order_of(ties))
        return rows.take(pa.array(order[place < self._what.rows]))

    def _ranked(
        self, marks: Index, keys: pa.Table, by: Any, ties: Sequence[Index]
    ) -> tuple[Index, Index]:
        """The rows by group, the best first, and each one's place in its group."""
        numbers = numbered(keys)
        largest = self._what.largest and self._what.by is not None
        order = best_first([marks, numbers], by, largest, ties)
        new = np.zeros(len(order), np.int64)
        for column in (marks[order], numbers[order]):
            new[1:] |= column[1:] != column[:-1]
        return order, place_in_group(np.cumsum(new))

    def _told(self, due: pa.Table) -> pa.Table:
        marks, keys = integers(due.column(TIME)), due.select(self._keys.identity)
        by = due.column(_WORTH if self._what.by is None else self._stored.column(self._what.by))
        ties = order_of([due.column(n) for n in (*self._each, *TIES)])
        order, place = self._ranked(marks, keys, by, ties)
        best = place < self._what.rows
        told, marks = due.take(pa.array(order[best])), marks[order[best]]
        names = [n for n in self._output.names if self._what.by is None or n != RANK.name]
        found = self._stored.rows(told, names)
        if self._what.by is not None:
            found = found.append_column(RANK, pa.array((place[best] + 1).astype(np.int32)))
        found = found.append_column(TIME, pa.array(marks - 1))
        found = found.append_column(SOURCE, told.column("s").cast(pa.int32()))
        return found.append_column(OFFSET, told.column("o"))


def _past(watermark: int) -> int:
    """The first mark that is not told yet."""
    return min(watermark + 1, MAX_TIME)
