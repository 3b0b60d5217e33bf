"""Reduce and fold per key: running, with one row out for each row in, and over windows.

The user's function demands a call per row; everything around the call is by column. Rows
are seen in the order of event time, origin and offset.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from sys import getrefcount
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import timestamps
from headrace.at_rest import described
from headrace.callables import PyFunction, title
from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import EpochStep, Fault, Operator, Place, Spec
from headrace.ops.keys import KeyGroups, in_order, key_groups
from headrace.ops.panes.operator import derived
from headrace.ops.window.aligned import Window
from headrace.ops.window.assigners import expanded
from headrace.records import is_record, like, maker
from headrace.rows import collector_paused, row_copier, rows_of, table_of, value_copier
from headrace.state.table import KeyedTable, TableSpec
from headrace.state_copies import OWN, StateOwner, shallow_copy, starting

VALUES, WINDOWS = "values", "windows"


@dataclass(frozen=True, eq=False)
class Folding:
    """The user's functions of a `reduce` (`zero` is None) or a `fold`."""

    function: PyFunction
    zero: PyFunction | None  # makes a fresh start value
    value: pa.Schema  # the accumulator's columns
    merge: PyFunction | None = None  # joins the values of two panes
    inverse: PyFunction | None = None  # takes the value of a pane out again

    @property
    def method(self) -> str:
        return "reduce" if self.zero is None else "fold"

    @property
    def user_code(self) -> list[Callable[..., Any]]:
        own = (self.function, self.zero, self.merge, self.inverse)
        return [one.fn for one in own if one is not None]

    def __str__(self) -> str:
        return f"{self.method} {title(self.function.fn)}"

    def shape(self) -> dict[str, Any]:
        return {"folds": self.method, "values": described(self.value)}

    def start(self) -> pa.Table:
        """The value before any row of a fold, as a row of its columns."""
        assert self.zero is not None
        value = starting(self.zero.fn)()
        row = (value,) if _is_column(value, self.value) else value
        return table_of([row], self.value)

    def folder(self, input: pa.Schema) -> Folder:
        zero = self.zero.fn if self.zero else None
        return Folder(self.function.fn, zero, self.value, input)


class FoldSpec(Spec):
    """What running folds and those over windows have in common."""

    folding: Folding
    keys_by_name = True

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (self.folding.function.fn,)

    @property
    def user_code(self) -> list[Any]:
        return [*self.folding.user_code]

    @property
    def python(self) -> str:
        return str(self.folding.function)


@dataclass(frozen=True, eq=False)
class RunningFold(FoldSpec):
    """What a key's rows fold into so far."""

    folding: Folding

    at_rest = "Fold"
    widens_keys = True
    kind = "fold"
    endless = True
    by_event_time = False

    def __str__(self) -> str:
        return str(self.folding)

    def state_shape(self, place: Place) -> dict[str, Any]:
        return {"kind": self.at_rest, **self.folding.shape()}

    def operator(self, place: Place) -> RunningFoldOperator:
        return RunningFoldOperator(
            self.folding.folder(place.input), place.key, place.input, place.output
        )


class RunningFoldOperator(Operator):
    def __init__(
        self, fold: Folder, keys: Sequence[str], input: pa.Schema, output: pa.Schema
    ) -> None:
        self._fold, self._keys = fold, list(keys)
        self._input, self._schema = input, output

    def tables(self) -> tuple[TableSpec, ...]:
        key = pa.schema([self._input.field(k) for k in self._keys])
        return (TableSpec(VALUES, key, self._fold.value),)

    def step(self, step: EpochStep) -> None:
        arrived = step.arrived
        if arrived is None:
            return
        groups = key_groups(in_order(arrived), [HASH, *self._keys])
        indices, values = self._fold.apply(
            step.tables[VALUES], groups.keys, groups, self._input.names, step
        )
        if indices:
            step.out.append(self._emit(groups.rows, indices, values))

    def _emit(self, rows: pa.Table, indices: list[int], values: pa.Table) -> pa.Table:
        base = rows if len(indices) == rows.num_rows else rows.take(pa.array(indices))
        columns = [
            (values if n in values.column_names else base).column(n) for n in self._schema.names
        ]
        hidden = [n for n in (TIME, SOURCE, OFFSET) if n in base.column_names]
        names = [*self._schema.names, *hidden]
        return pa.table([*columns, *(base.column(n) for n in hidden)], names=names)


class NOTHING:
    """Stands for the value of a key that has none; as a class, a copy of it is itself."""


def _as_it_is(value: Any) -> Any:
    return value


class Folder:
    """The user's reduce or fold function, wrapped once for the loop.

    A reduce sees whole rows on both sides; only the columns that are not the key are kept. A
    fold sees its own value, of any one column or record.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        zero: Callable[[], Any] | None,
        value: pa.Schema,
        row: pa.Schema,
    ) -> None:
        self._fn, self._zero, self.value = fn, zero and starting(zero), value
        self._scalar = zero is not None and _is_column(zero(), value)
        self._shape = tuple(row.names if zero is None else value.names)
        self._make = None if zero is None else self._maker(zero())
        self._copier = value_copier(value.field(0).type) if self._scalar else row_copier(value)
        self._owner = StateOwner(value, self._scalar)

    def _maker(self, start: Any) -> Callable[[Any], Any] | None:
        """How a stored value becomes what the function knows: the same as its start."""
        names = self._shape
        if self._scalar:
            return like(start)
        if type(start) is dict:
            return lambda row: dict(zip(names, row, strict=True))
        make = maker(type(start))
        return make and (lambda row: make(dict(zip(names, row, strict=True))))

    def _table(self, values: list[Any], made_of: tuple[list[Any], pa.Table] | None) -> pa.Table:
        """Values as columns; one that is a column by itself is no row, though it be a dict."""
        rows = [(value,) for value in values] if self._scalar else values
        return table_of(rows, self.value, made_of)

    @collector_paused()
    def apply(
        self,
        table: KeyedTable,
        keys: pa.Table,
        groups: KeyGroups,
        names: list[str],
        step: EpochStep,
    ) -> tuple[list[int], pa.Table]:
        """Fold the rows into the table; which rows have a result, and the results.

        Only if a call fails or a value does not fit its columns are the rows gone through
        again, each value checked by itself, so that the row that spoils it is set aside alone.
        """
        seen = groups.rows.select(names)
        rows = rows_of(seen)
        try:
            folded = self._load(table, keys)
            outs = self._run(groups, folded, rows)
            values = self._table(outs, (rows, seen))
            self._store(table, keys, folded)
            return list(range(len(rows))), values
        except Exception:
            folded, rows = self._load(table, keys), rows_of(seen)  # the function may change them
            indices, outs = self._run_checked(groups, folded, rows, step.faults)
            values = self._table(outs, None)
            self._store(table, keys, folded)
            return indices, values

    def _load(self, table: KeyedTable, keys: pa.Table) -> list[Any]:
        """The accumulator of each key, as far as it has one."""
        stored, present = table.get(keys)
        if not present.any():
            return [NOTHING] * keys.num_rows
        make, pairs = self._make or _as_it_is, zip(self._stored(stored, keys), present, strict=True)
        return [make(value) if is_present else NOTHING for value, is_present in pairs]

    def _stored(self, values: pa.Table, keys: pa.Table) -> list[Any]:
        columns = [(values if n in values.column_names else keys).column(n) for n in self._shape]
        rows = rows_of(pa.table(columns, names=list(self._shape)))
        return [row[0] for row in rows] if self._scalar else rows

    def loaded(self, stored: pa.Table) -> list[Any]:
        """The accumulators of stored rows, which have keys and values."""
        return list(map(self._make or _as_it_is, self._stored(stored, stored)))

    def columns(self, values: list[Any]) -> pa.Table:
        """Accumulators as they are stored."""
        return self._table(values, None)

    def own(self, value: Any) -> Any:
        """An accumulator that a function may change: another one does not change with it."""
        return value if isinstance(value, self._copier.plain) else copy.deepcopy(value)

    def _run(self, groups: KeyGroups, values: list[Any], rows: list[Any]) -> list[Any]:
        """Fold each row into its key's value; what came after each.

        What can be changed in place and is not what the function was called with is copied, so
        that it belongs to this key alone; unless nothing else refers to it.
        """
        if self._owner.has_parts:
            return self._run_with_parts(groups, values, rows)
        fn, zero = self._fn, self._zero
        plain, take = self._copier.plain, self._copier.take
        outs: list[Any] = []
        add = outs.append
        for code, row in zip(groups.codes.tolist(), rows, strict=True):
            before = values[code]
            if before is not NOTHING:
                value = fn(before, row)
            else:
                value = row if zero is None else fn(zero(), row)
            if isinstance(value, plain):
                add(value)
            else:
                if value is not before and getrefcount(value) > OWN:
                    value = shallow_copy(value)
                add(take(value))
            values[code] = value
        return outs

    def _run_with_parts(self, groups: KeyGroups, values: list[Any], rows: list[Any]) -> list[Any]:
        """The same, of values that have parts which can be changed in place."""
        fn, zero, owner, take = self._fn, self._zero, self._owner, self._copier.take
        outs: list[Any] = []
        for code, row in zip(groups.codes.tolist(), rows, strict=True):
            before = values[code]
            if before is NOTHING:
                before = row if zero is None else zero()
            parts = owner.parts(before)
            first = zero is None and values[code] is NOTHING
            value = row if first else fn(before, row)
            value = owner.own(value, before, parts, getrefcount(value) <= OWN)
            values[code] = value
            outs.append(take(value))
        return outs

    def _run_checked(
        self, groups: KeyGroups, values: list[Any], rows: list[Any], faults: list[Fault]
    ) -> tuple[list[int], list[Any]]:
        """The same, a row at a time; which rows gave something."""
        indices: list[int] = []
        outs: list[Any] = []
        for i, code in enumerate(groups.codes.tolist()):
            before = copy.deepcopy(values[code])
            one = KeyGroups(groups.rows.slice(i, 1), groups.codes[i : i + 1], groups.keys)
            try:
                (value,) = self._run(one, values, rows[i : i + 1])
                self._table([value], None)
            except Exception as error:
                values[code] = before  # the key stays as it was before this row
                faults.append(Fault(one.rows, error, 0))
                continue
            indices.append(i)
            outs.append(value)
        return indices, outs

    def _store(self, table: KeyedTable, keys: pa.Table, values: list[Any]) -> None:
        """Write back the accumulators of the keys that have one."""
        live = [i for i, value in enumerate(values) if value is not NOTHING]
        rows = self._table([values[i] for i in live], None)
        stored = keys.take(pa.array(live, pa.int64()))
        for field in self.value:
            stored = stored.append_column(field, rows.column(field.name))
        table.put(stored)


def _is_column(start: Any, value: pa.Schema) -> bool:
    """Whether what is folded is a column by itself, whatever its name, and not a row of one."""
    row = start is None or isinstance(start, tuple | Mapping) or is_record(type(start))
    return value.names == ["value"] or (len(value) == 1 and not row)


# Windows folded by the user's own function.
#
# A row is folded into every window that holds it when it arrives, those of an epoch in order
# of event time, so nothing is shared between windows: the price of a function that cannot be
# merged (for one that can, see `panes/folds.py`). State is a timed table of accumulators by
# (window start, key).


class FoldWindowOperator(Operator):
    def __init__(
        self,
        window: Window,
        fold: Folder,
        keys: Sequence[str],
        input: pa.Schema,
        output: pa.Schema,
    ) -> None:
        self._window, self._fold, self._keys = window, fold, list(keys)
        self._input, self._schema = input, output

    def tables(self) -> tuple[TableSpec, ...]:
        key = pa.schema([self._input.field(k) for k in self._keys])
        return (TableSpec(WINDOWS, key, self._fold.value, timed=True),)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        if watermark == MIN_TIME:
            return None
        return self._window.is_late(rows.column(TIME).to_numpy(), watermark)

    def step(self, step: EpochStep) -> None:
        table, arrived = step.tables[WINDOWS], step.arrived
        if arrived is not None:
            self._absorb(table, arrived, step)
        size = self._window.size
        if step.after > step.before:
            due = table.scan(MIN_TIME, _shift(step.after, 1 - size))
            if due.num_rows:
                step.out.append(self._results(due))
        table.expire(_shift(step.after, 1 - size))
        first = table.first_time()
        step.next = MAX_TIME if first is None else first + size

    def _absorb(self, table: KeyedTable, arrived: pa.Table, step: EpochStep) -> None:
        spread = self._spread(in_order(arrived), step.before)
        groups = key_groups(spread, ["__w", HASH, *self._keys])
        keys = groups.keys.rename_columns([TIME, HASH, *self._keys])
        self._fold.apply(table, keys, groups, self._input.names, step)

    def _spread(self, rows: pa.Table, watermark: int) -> pa.Table:
        """Each row once for every open window that holds it, with the window's start."""
        window = self._window
        times = rows.column(TIME).to_numpy()
        last = (times - window.offset) // window.slide
        first = (times - window.offset - window.size) // window.slide + 1
        if watermark > MIN_TIME:
            closed = (watermark - window.offset - window.size) // window.slide
            first = np.maximum(first, closed + 1)
        row, number = expanded(first, np.maximum(last - first + 1, 0))
        starts = number * window.slide + window.offset
        return rows.take(pa.array(row)).append_column("__w", pa.array(starts))

    def _results(self, due: pa.Table) -> pa.Table:
        starts = due.column(TIME).to_numpy()
        bounds = {"window_start": starts, "window_end": starts + self._window.size}
        rows = due.drop_columns([n for n in bounds if n in due.column_names])  # those of its rows
        for name, times in bounds.items():
            rows = rows.append_column(name, timestamps(times))
        return derived(rows, self._schema)


def _shift(time: int, by: int) -> int:
    return time if abs(time) >= MAX_TIME else time + by
