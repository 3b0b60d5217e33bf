"""What changes in a table: the old row of a key is taken back, then the new one is given.

Every change is told. By event time one counts when the watermark has passed it, so that they
are told in the order of their times, however they came; by processing time at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.groups import Index, Mask
from headrace.ops.agg.keys import key_numbers
from headrace.ops.contract import Operator, Place, Spec, Step
from headrace.ops.join.columns import numbers
from headrace.ops.join.layout import placed
from headrace.ops.join.side import AT, Side
from headrace.ops.join.versions import Versions, one_before
from headrace.ops.join.view import Held, held_view
from headrace.ops.window.aligned import Times
from headrace.state.table import KeyedTable, TableSpec

CHANGE = "change"
TAKEN, GIVEN = "-", "+"


@dataclass(frozen=True)
class Changes(Spec):
    """The changes of one table."""

    processing: bool
    timed: bool
    gone: str | None  # the column that says which rows delete
    rows: tuple[str, ...] = ()

    kind = "changes"
    endless = True

    @property
    def needs_time(self) -> bool:
        return not self.processing

    @property
    def has_late(self) -> bool:
        return not self.processing

    def __str__(self) -> str:
        return f"by {'processing' if self.processing else 'event'} time"

    @property
    def bound(self) -> str:
        return "table(..., unbounded=True)."

    def shape(self) -> dict[str, Any]:
        deletes = self.gone is not None
        return {"processing": self.processing, "deletes": deletes, "rows": list(self.rows)}

    def operator(self, place: Place) -> ChangesOperator:
        return ChangesOperator(self, place.key, place.input, place.output)


class ChangesOperator(Operator):
    def __init__(
        self, spec: Changes, keys: Sequence[str], input: pa.Schema, output: pa.Schema
    ) -> None:
        self._spec, self._schema = spec, output
        self._side = Side(keys, input)
        self._versions = Versions(self._side, spec.gone)
        named = dict(zip(keys, self._side.key.names, strict=True))
        self._columns = [named.get(n, n) for n in output.names[:-1]]

    def tables(self) -> tuple[TableSpec, ...]:
        return self._versions.tables()

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows of the table."""
        held = Held(None, self._side, self._versions.rows(tables))
        return held_view([held], since, until, self._spec.timed)

    def late(self, port: int, rows: pa.Table, watermark: int) -> Mask | None:
        return behind(rows, watermark, self._spec.processing)

    def step(self, step: Step) -> None:
        floor = MAX_TIME if self._spec.processing else step.after
        arrived = self._side.arrived(self._side.keyed(step.inputs[0], step), step.epoch)
        passed = self._versions.passing(arrived, floor, step)
        if passed.num_rows:
            known = self._versions.known(passed, step)
            self._tell(pa.concat_tables([known, passed]).combine_chunks(), known.num_rows, step)
        self._versions.settle(passed, floor, step)
        step.next = after(self._versions.next(step))

    def _tell(self, rows: pa.Table, known: int, step: Step) -> None:
        """Every version after the `known` ones takes back the one before it, and is given."""
        dead, new = self._versions.deletes(rows), np.arange(known, rows.num_rows)
        before = one_before(key_numbers(rows.select(self._side.identity))[0])[new]
        taken = new[(before >= 0) & ~dead[before]]
        given = new[~dead[new]]
        cause = np.concatenate([taken, given])
        shown = np.concatenate([before[taken - known], given])
        signs = np.arange(len(cause)) >= len(taken)
        order = np.lexsort((signs, cause))
        self._give(rows, shown[order], signs[order], when(rows, step)[cause[order]], step)

    def _give(self, rows: pa.Table, shown: Index, signs: Mask, at: Times, step: Step) -> None:
        if not len(shown):
            return
        rows = rows.take(pa.array(shown))
        change = pa.array(np.where(signs, GIVEN, TAKEN))
        columns = [*rows.select(self._columns).columns, change]
        table = pa.Table.from_arrays(columns, self._schema.names).cast(self._schema)
        times = at if self._spec.timed else None
        step.out.append(placed(table, times, numbers(rows[HASH])))


def given(changes: pa.Table) -> Mask:
    """Which changes give a row; the others take one back."""
    plus: Mask = numbers(pc.equal(changes[CHANGE], GIVEN))
    return plus


def when(rows: pa.Table, step: Step) -> Times:
    """The event time of changes: their own, but never behind the watermark."""
    times: Times = np.maximum(numbers(rows[AT]), step.before)
    return times


def behind(rows: pa.Table, watermark: int, processing: bool) -> Mask | None:
    """Which rows come after the watermark has passed them; None where that does not matter."""
    if processing or watermark == MIN_TIME:
        return None
    return numbers(rows[TIME]) < watermark


def after(first: int) -> int:
    """The watermark that passes the first thing to come."""
    return first if first == MAX_TIME else first + 1
