"""Lookups: rows completed from an outside table that is loaded now and then.

A row whose key is missing there is emitted with nulls, becomes a dead letter, or waits: it is
looked up again after each refresh, until its time is up. A row that has waited is emitted with
an event time that is not behind the watermark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, numbers
from headrace.chunk import HASH, HIDDEN, OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME, MIN_TIME, pretty
from headrace.ops.contract import EpochStep, Fault, Operator, Place, Spec
from headrace.ops.join.lookup_tables import (
    FunctionTable,
    LookupSource,
    SparkTable,
    SparkTableFile,
    SqlTable,
    copy_of,
)
from headrace.ops.join.sides import first_time, null_keys
from headrace.ops.keys import HIDDEN_KEY, key_schema
from headrace.state.table import KeyedTable, TableSpec

MISSING = ("null", "dead", "wait")
WAITING = "waiting"
_SINCE = "$since"
_PLACES = {TIME: "$time", SOURCE: "$source", OFFSET: "$offset"}


@dataclass(frozen=True, eq=False)
class Lookup(Spec):
    source: LookupSource
    token: str  # which table it is, among those that a process holds
    theirs: tuple[str, ...]  # its key columns
    value: pa.Schema  # its other columns
    refresh: int | None
    on_missing: str
    patience: int
    rows: tuple[str, ...] = ()

    kind = "lookup"
    passes = True

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        match self.source:
            case FunctionTable(function):
                return (function,)
            case SqlTable(connect, _):
                return (connect,)
        return ()

    @property
    def stateless(self) -> bool:
        return self.on_missing != "wait"

    def __str__(self) -> str:
        often = "once" if self.refresh is None else f"every {pretty(self.refresh)}"
        origin = "made by Spark" if isinstance(self.source, SparkTable) else "loaded"
        return f"{origin} {often}; what is missing: {self.on_missing}"

    def shape(self) -> dict[str, Any]:
        rows = {} if self.stateless else {"rows": list(self.rows)}
        return {"waits": not self.stateless, **rows}

    def operator(self, place: Place) -> LookupOperator:
        return LookupOperator(self, place)


class LookupOperator(Operator):
    def __init__(self, spec: Lookup, place: Place) -> None:
        self._spec, self._keys = spec, list(place.key)
        self._input, self._schema = place.input, place.output
        key = key_schema(place.key, place.input, HIDDEN_KEY)
        self._table = TableSpec("table", key, spec.value)
        places = [(name, HIDDEN[hidden]) for hidden, name in _PLACES.items()]
        stored = pa.schema([*place.input, *places, (_SINCE, pa.int64())])
        self._waiting = TableSpec(WAITING, pa.schema([]), stored, timed=True, once=True)

    def tables(self) -> tuple[TableSpec, ...]:
        return (self._waiting,) if self._spec.on_missing == "wait" else ()

    def step(self, step: EpochStep) -> None:
        new = step.inputs[0]
        if new is not None and new.num_rows:
            self._look_up(new, np.full(new.num_rows, step.clock), step)
        if self._spec.on_missing == "wait":
            self._again(step)

    def _look_up(self, rows: pa.Table, since: np.ndarray, step: EpochStep) -> None:
        identity = rows.select([HASH, *self._keys]).rename_columns([HASH, *self._table.key.names])
        values, present = self._copy(step).get(identity)
        nulls = null_keys(identity, self._table.key.names)
        present = present if nulls is None else present & ~nulls
        if self._spec.on_missing == "null":
            self._emit(rows, values, step)
            return
        self._emit(rows.filter(pa.array(present)), values.filter(pa.array(present)), step)
        missing, since = rows.filter(pa.array(~present)), since[~present]
        if self._spec.on_missing == "wait":
            over = self._over(since, step)
            self._wait(missing.filter(pa.array(~over)), since[~over], step)
            missing = missing.filter(pa.array(over))
        self._dead_letters(missing, step)

    def _copy(self, step: EpochStep) -> KeyedTable:
        spec, version = self._spec, self._version(step.clock)
        run = copy_of(spec.token, spec.source, self._table, list(spec.theirs), version)
        return KeyedTable(self._table, [] if run is None else [run])

    def _version(self, clock: int) -> int:
        """The version that is needed: that of the file, or else the `refresh` period."""
        if isinstance(self._spec.source, SparkTableFile):
            return self._spec.source.version()
        return 0 if self._spec.refresh is None else clock // self._spec.refresh

    def _emit(self, rows: pa.Table, values: pa.Table, step: EpochStep) -> None:
        if not rows.num_rows:
            return
        columns = [*rows.select(self._input.names).columns, *values.columns]
        table = pa.Table.from_arrays(columns, self._schema.names).cast(self._schema)
        for hidden in (h for h in _PLACES if h in rows.column_names):
            table = table.append_column(hidden, rows.column(hidden))
        step.out.append(table)

    def _dead_letters(self, missing: pa.Table, step: EpochStep) -> None:
        """One dead letter for each row: there should be few."""
        names = [n for n in missing.column_names if n != HASH]
        for at in range(missing.num_rows):
            row = missing.slice(at, 1).select(names)
            key = ", ".join(str(row.column(k)[0].as_py()) for k in self._keys)
            step.faults.append(Fault(row, LookupError(f"no row for {key}"), 0))

    # rows that wait

    def _wait(self, rows: pa.Table, since: np.ndarray, step: EpochStep) -> None:
        assert self._spec.refresh is not None
        if not rows.num_rows:
            return
        count = rows.num_rows
        stored = rows.select([HASH, *self._input.names]).append_column(_SINCE, pa.array(since))
        for hidden, name in _PLACES.items():
            present = hidden in rows.column_names
            stored = stored.append_column(
                name, rows.column(hidden) if present else pa.nulls(count, HIDDEN[hidden])
            )
        again = (step.clock // self._spec.refresh + 1) * self._spec.refresh
        step.tables[WAITING].put(stored.append_column(TIME, pa.array(np.full(count, again))))

    def _over(self, since: np.ndarray, step: EpochStep) -> Mask:
        """Which rows have waited long enough; none waits beyond the end of the input."""
        over: Mask = step.clock - since >= self._spec.patience
        return over | (step.after >= MAX_TIME)

    def _again(self, step: EpochStep) -> None:
        table, ends = step.tables[WAITING], step.after >= MAX_TIME
        until = MAX_TIME if ends else step.clock + 1
        due = table.scan(MIN_TIME, until)
        table.expire(until)
        if due.num_rows:
            self._look_up(self._restored(due, step), numbers(due[_SINCE]), step)
        step.wake = first_time(table)

    def _restored(self, stored: pa.Table, step: EpochStep) -> pa.Table:
        """Rows that have waited, as they arrived; a time that has been passed is moved on."""
        rows = stored.select([HASH, *self._input.names])
        for hidden, name in _PLACES.items():
            column = stored.column(name)
            if column.null_count == 0:
                if hidden == TIME:
                    column = pa.array(np.maximum(numbers(column), step.before))
                rows = rows.append_column(hidden, column)
        return rows
