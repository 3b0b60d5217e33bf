"""The rows of open windows, for functions that need the rows themselves.

A row is stored once per key, however many windows hold it: a window's rows are those of its
key whose time lies in it. Where a user's assigner puts rows as it likes, a row is stored once
per window, with the bounds that it was given. Rows that no open window holds any more are
deleted when the last window that held them is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, Times
from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.ops.contract import EpochStep, Fault
from headrace.ops.general_windows.window_state import EPOCH, START
from headrace.ops.keys import key_numbers
from headrace.ops.tables import side_by_side, with_column
from headrace.ops.window.assigners import Assigner, expanded
from headrace.state.table import TableSpec

ROWS = "rows"
ARRIVAL = "$epoch", "$number"  # of a row: it came in this epoch, as so manieth
_EPOCH, _NUMBER = ARRIVAL
AT, FROM, _TO = "$at", "$from", "$to"
_SINCE, _BLAMED = "$since", "$blamed"
_PLACE = {AT: pa.int64(), "$source": pa.int32(), "$offset": pa.int64()}
_HIDDEN = dict(zip(_PLACE, (TIME, SOURCE, OFFSET), strict=True))
_MARKS = {_SINCE: pa.int64(), _BLAMED: pa.bool_()}
_OWN = {FROM: pa.int64(), _TO: pa.int64()}  # the window that an assigner gave the row
_HIDDEN |= {name: f"__{name[1:]}" for name in (_EPOCH, _NUMBER, _BLAMED)}
ARRIVED = _HIDDEN[_EPOCH]  # the column of rows that has the epoch in which each arrived


class StoredRows:
    def __init__(
        self,
        keys: Sequence[str],
        input: pa.Schema,
        assigner: Assigner,
        floor: Callable[[int], int],  # the end before which windows are over, by the watermark
    ) -> None:
        self._keys, self._input, self._assigner = list(keys), input, assigner
        self._floor = floor
        self._values = [f for f in input if f.name not in keys]

    def spec(self) -> TableSpec:
        keys = [self._input.field(k) for k in self._keys]
        number = [pa.field(_EPOCH, pa.int64()), pa.field(_NUMBER, pa.int64())]
        place = [pa.field(n, kind) for n, kind in (_PLACE | _MARKS | self._own_columns()).items()]
        return TableSpec(ROWS, pa.schema([*keys, *number]), pa.schema([*self._values, *place]))

    def _own_columns(self) -> dict[str, pa.DataType]:
        """What is stored of the window that each row is in."""
        return {} if self._assigner.by_time else _OWN

    def add(self, rows: pa.Table, step: EpochStep) -> None:
        """Store the rows that arrived."""
        names = [HASH, *self._keys, *(f.name for f in self._values)]
        rows, own = self._placed(rows, step)
        stored = rows.select(names)
        for name, values in own.items():
            stored = stored.append_column(name, pa.array(values))
        count = rows.num_rows
        epoch = pa.array(np.full(count, step.epoch, np.int64))
        stored = stored.append_column(_EPOCH, epoch).append_column(_SINCE, epoch)
        stored = stored.append_column(_NUMBER, pa.array(np.arange(count)))
        stored = stored.append_column(_BLAMED, pa.repeat(False, count))
        for name, kind in _PLACE.items():
            column = _HIDDEN[name]
            present = column in rows.column_names
            stored = stored.append_column(
                name, rows.column(column).cast(kind) if present else _zeros(count, kind)
            )
        step.tables[ROWS].put(stored)

    def _placed(self, rows: pa.Table, step: EpochStep) -> tuple[pa.Table, dict[str, Times]]:
        """The rows once for each of their windows that is open, and its bounds, if it is stored."""
        if self._assigner.by_time:
            return rows, {}
        placed = self._assigner.place(rows.column(TIME).to_numpy(), rows)
        is_open = placed.end >= self._floor(step.before)
        rows = rows.take(pa.array(placed.row[is_open]))
        return rows, {FROM: placed.start[is_open], _TO: placed.end[is_open]}

    def of(self, windows: pa.Table, step: EpochStep) -> tuple[pa.Table, Index, Times]:
        """The rows of each window by event time, concatenated; where each window starts; the
        epoch since which each row is to be emitted."""
        rows, starts = self._rows_of(windows, step)
        return self._as_rows(rows), starts, rows.column(_SINCE).to_numpy()

    def renew(self, absorbed: pa.Table, folded: pa.Table, group: Times, step: EpochStep) -> None:
        """Rows not emitted stay so when their window merges with another that has fired.

        Emitted are the rows whose epoch is not after that of their window's last firing.
        """
        epochs, fired = (w.column(EPOCH).to_numpy() for w in (absorbed, folded))
        behind = epochs < fired[group[: absorbed.num_rows]]
        if not behind.any():
            return
        rows, starts = self._rows_of(absorbed.filter(pa.array(behind)), step)
        emitted = np.repeat(epochs[behind], np.diff(starts, append=rows.num_rows))
        since = rows.column(_SINCE).to_numpy()
        rows = rows.filter(pa.array(since > emitted))
        now = pa.array(np.full(rows.num_rows, step.epoch, np.int64))
        step.tables[ROWS].put(with_column(rows, _SINCE, now))

    def blamed(self, faults: Sequence[Fault], step: EpochStep) -> list[Fault]:
        """Faults over rows of windows, with a row's place only when it is first blamed.

        A window may fail each time it fires, and a row be in several; but a record is dead once.
        """
        return [Fault(self._blamed(fault.row, step), fault.error) for fault in faults]

    def _blamed(self, row: pa.Table, step: EpochStep) -> pa.Table:
        columns = [n for n in row.column_names if not n.startswith("$")]
        if row.column(_HIDDEN[_BLAMED])[0].as_py():
            return row.select([n for n in columns if n not in (SOURCE, OFFSET)])
        names = {HASH: HASH, **{k: k for k in self._keys}}
        names |= {_HIDDEN[n]: n for n in (_EPOCH, _NUMBER)}
        stored = row.select(list(names)).rename_columns(list(names.values()))
        values, _ = step.tables[ROWS].get(stored)
        stored = side_by_side(stored, values)
        step.tables[ROWS].put(with_column(stored, _BLAMED, pa.array([True])))
        return row.select(columns)

    def _matching(self, windows: pa.Table, step: EpochStep) -> tuple[pa.Table, Times, Times]:
        """The stored rows of these windows' keys, and the number of the key of each of both."""
        stored = step.tables[ROWS].match(windows.column(HASH).to_numpy())
        identity = [HASH, *self._keys]
        both = pa.concat_tables([stored.select(identity), windows.select(identity)])
        number, _ = key_numbers(both)
        return stored, number[: stored.num_rows], number[stored.num_rows :]

    def _rows_of(self, windows: pa.Table, step: EpochStep) -> tuple[pa.Table, Index]:
        stored, row_key, window_key = self._matching(windows, step)
        if not self._assigner.by_time:
            return self._rows_by_window(stored, row_key, windows, window_key)
        order = _in_order(stored, row_key)
        row_key, at = row_key[order], stored.column(AT).to_numpy()[order]
        low = count_before(row_key, at, window_key, windows.column(START).to_numpy())
        high = count_before(row_key, at, window_key, windows.column(TIME).to_numpy())
        _, index = expanded(low, high - low)
        rows = stored.take(pa.array(order[index]))
        return rows, np.cumsum(high - low) - (high - low)

    def _rows_by_window(
        self, stored: pa.Table, row_key: Times, windows: pa.Table, window_key: Times
    ) -> tuple[pa.Table, Index]:
        """Rows by the window that each was given: the same, or a part of it where they merge."""
        begins, ends = (stored.column(n).to_numpy() for n in _OWN)
        start, end = (windows.column(n).to_numpy() for n in (START, TIME))
        order = np.lexsort((begins, row_key))
        low = count_before(row_key[order], begins[order], window_key, start)
        until = end if self._assigner.merges else start + 1
        high = count_before(row_key[order], begins[order], window_key, until)
        window, index = expanded(low, high - low)
        row = order[index]
        inside = ends[row] <= end[window] if self._assigner.merges else ends[row] == end[window]
        window, rows = window[inside], stored.take(pa.array(row[inside]))
        counts = np.bincount(window, minlength=windows.num_rows)
        return rows.take(pa.array(_in_order(rows, window))), np.cumsum(counts) - counts

    def _as_rows(self, stored: pa.Table) -> pa.Table:
        rows = stored.select([*self._input.names, HASH])
        for name, hidden in _HIDDEN.items():
            rows = rows.append_column(hidden, stored.column(name))
        return rows

    def forget(self, windows: pa.Table, step: EpochStep) -> None:
        """Delete the rows that were in these expired windows and are in no other."""
        table = step.tables[ROWS]
        stored = table.match(windows.column(HASH).to_numpy())
        if not stored.num_rows:
            return
        if self._assigner.merges:
            dead = self._merged_away(stored, windows)
        else:
            dead = self._reach(stored) < self._floor(step.after)
        table.delete(stored.filter(pa.array(dead)))

    def _reach(self, stored: pa.Table) -> Times:
        if self._assigner.by_time:
            return self._assigner.reach(stored.column(AT).to_numpy(), stored)
        ends: Times = stored.column(_TO).to_numpy()
        return ends

    def _merged_away(self, stored: pa.Table, windows: pa.Table) -> Mask:
        """Of merging windows only the bounds say which rows they hold."""
        identity = [HASH, *self._keys]
        both = pa.concat_tables([stored.select(identity), windows.select(identity)])
        number, _ = key_numbers(both)
        row_key, window_key = number[: stored.num_rows], number[stored.num_rows :]
        at = stored.column(AT if self._assigner.by_time else FROM).to_numpy()
        begun = count_before(window_key, windows.column(START).to_numpy(), row_key, at + 1)
        over = count_before(window_key, windows.column(TIME).to_numpy(), row_key, at + 1)
        dead: Mask = begun > over
        return dead


def _in_order(rows: pa.Table, group: Times) -> Times:
    """The rows by group, and within one by time, split and offset, or else as they came."""
    columns = [rows.column(n).to_numpy() for n in (*_PLACE, _EPOCH, _NUMBER)]
    order: Times = np.lexsort([*columns[::-1], group])
    return order


def count_before(keys: Times, at: Times, queries: Times, until: Times) -> Times:
    """For each (query, until), how many of (keys, at) come before it, by key and then time."""
    key = np.concatenate([keys, queries])
    time = np.concatenate([at, until])
    is_row = np.arange(len(key)) < len(keys)
    order = np.lexsort((is_row, time, key))  # a query comes before a row of its time
    before = np.empty(len(key), np.int64)
    before[order] = np.cumsum(is_row[order])
    return before[len(keys) :]


def _zeros(count: int, kind: pa.DataType) -> pa.Array:
    return pa.array(np.zeros(count, kind.to_pandas_dtype()))
