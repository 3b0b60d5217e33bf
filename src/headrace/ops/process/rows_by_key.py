"""The rows of an epoch by key, for a process function: in order, with the timers that are due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, OFFSET, SOURCE, TIME, visible
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.hashing import hash_keys
from headrace.ops.agg.order import order_keys, sorted_by
from headrace.ops.contract import EpochStep
from headrace.ops.keys import key_numbers
from headrace.ops.process.key_state import DOMAIN
from headrace.reads import columns_read
from headrace.rows import pylist, rows_from, rows_of

_PLACES = {TIME: (pa.int64(), MIN_TIME), SOURCE: (pa.int32(), -1), OFFSET: (pa.int64(), 0)}


@dataclass(slots=True)
class RowOrigins:
    """Where emitted rows came from: the number of a row, or -1 minus that of a firing."""

    of: list[int]
    firings: list[tuple[int, int | None]]  # key id, and the time of a timer


@dataclass(frozen=True, slots=True)
class RowsByKey:
    """Rows key by key, each key's in order, and each key's timers."""

    keys: pa.Table  # "__h" and k0, k1, ...
    hidden: pa.Table  # the hidden columns of the rows, in the order of their calls
    starts: list[int]  # where each key's rows start, and the end of all
    ports: np.ndarray  # the input of each row
    indexes: np.ndarray  # the place of each row in its input
    no_time: bool  # some rows have no time
    timers: list[list[tuple[int, int]]]  # (time, domain) of each key
    by: Sequence[Sequence[str]]  # what each input calls the key

    def __len__(self) -> int:
        return int(self.keys.num_rows)

    def times(self) -> list[Any]:
        """The time of each row; None where it has none."""
        return _times(self.hidden, self.no_time)

    def blocks(self, size: int) -> Iterator[tuple[int, RowsByKey]]:
        """Keys with about `size` rows at a time, and the number of the first of them."""
        ends = np.array(self.starts) + np.arange(len(self.starts))  # a key counts as a row
        cuts = np.searchsorted(ends, np.arange(0, ends[-1], size))
        for lo, hi in pairwise(dict.fromkeys([*cuts.tolist(), len(self)])):
            yield lo, self._slice(lo, hi)

    def _slice(self, lo: int, hi: int) -> RowsByKey:
        first, end = self.starts[lo], self.starts[hi]
        return RowsByKey(
            self.keys.slice(lo, hi - lo),
            self.hidden.slice(first, end - first),
            [start - first for start in self.starts[lo : hi + 1]],
            self.ports[first:end],
            self.indexes[first:end],
            self.no_time,
            self.timers[lo:hi],
            self.by,
        )

    def rows(self, seen: Sequence[pa.Table | None]) -> list[Any]:
        """The rows as user functions see them, in the order of their calls."""
        used = [port for port, rows in enumerate(seen) if rows is not None and rows.num_rows]
        if len(used) == 1:
            return self._only_rows(seen[used[0]], self.by[used[0]])
        every: list[Any] = [None] * len(self.ports)
        for port, table in enumerate(seen):
            own = np.flatnonzero(self.ports == port)
            if table is not None and len(own):
                rows = rows_of(visible(table).take(pa.array(self.indexes[own])))
                for place, row in zip(own.tolist(), rows, strict=True):
                    every[place] = row
        return every

    def rows_of_key(
        self, key_id: int, indexes: range, seen: Sequence[pa.Table | None], size: int
    ) -> Iterator[Any]:
        """These rows of a key, of which `size` are Python objects at a time."""
        for lo in range(indexes.start, indexes.stop, size):
            hi = min(lo + size, indexes.stop)
            piece = RowsByKey(
                self.keys.slice(key_id, 1),
                self.hidden.slice(lo, hi - lo),
                [0, hi - lo],
                self.ports[lo:hi],
                self.indexes[lo:hi],
                self.no_time,
                [[]],
                self.by,
            )
            yield from piece.rows(seen)

    def _only_rows(self, rows: pa.Table, by: Sequence[str]) -> list[Any]:
        """The rows of the only input: a key's text becomes an object once, not in every row."""
        keys = {n: k for n, k in zip(by, self.keys.columns[1:], strict=True) if _repeats(k.type)}
        others = self.table(rows.drop_columns([n for n in keys if n in rows.column_names]))
        counts = np.diff(self.starts).tolist()
        columns = (
            chain.from_iterable(map(repeat, pylist(keys[name]), counts))
            if name in keys
            else pylist(others.column(name))
            for name in rows.column_names
        )
        return rows_from(rows.column_names, columns)

    def table(self, rows: pa.Table) -> pa.Table:
        """The rows of the only input that has any, in the order of their calls."""
        shown, count = visible(rows), len(self.indexes)
        first = int(self.indexes[0]) if count else 0
        if np.array_equal(self.indexes, np.arange(first, first + count)):
            return shown.slice(first, count)
        return shown.take(pa.array(self.indexes))

    def arrived(self, inputs: Sequence[pa.Table | None], number: int) -> pa.Table:
        """A row as it arrived."""
        rows = inputs[int(self.ports[number])]
        assert rows is not None
        return rows.slice(int(self.indexes[number]), 1)

    def blamed(self, key_id: int, time: int | None) -> pa.Table:
        """The record of a call without a row that failed: its key, and the time of a timer."""
        key = self.keys.slice(key_id, 1).drop_columns([HASH]).rename_columns(list(self.by[0]))
        return key if time is None else key.append_column("timer", pa.array([time], pa.int64()))

    def placed(self, rows: pa.Table, places: RowOrigins, step: EpochStep, timed: bool) -> pa.Table:
        """Rows with the hidden columns of those they came from; a timer's have its time."""
        at = np.array(places.of, np.int64)
        from_row, firing = at >= 0, -1 - at[at < 0]
        of_firings = self._firings(places, step)
        for name in (TIME, SOURCE, OFFSET):
            if name not in self.hidden.column_names or (name == TIME and not timed):
                continue
            hidden = self.hidden.column(name).to_numpy()
            values = np.empty(len(at), hidden.dtype)
            values[from_row] = hidden[at[from_row]]
            values[~from_row] = of_firings[name][firing]
            rows = rows.append_column(name, pa.array(values, _PLACES[name][0]))
        return rows

    def _firings(self, places: RowOrigins, step: EpochStep) -> dict[str, np.ndarray]:
        now = step.after if MIN_TIME < step.after < MAX_TIME else step.clock
        times = [now if t is None else t for _, t in places.firings]
        hashes = self.keys.column(HASH).to_numpy().view(np.int64)
        return {
            TIME: np.array(times, np.int64),
            SOURCE: np.full(len(times), -1, np.int32),
            OFFSET: hashes[np.array([n for n, _ in places.firings], np.int64)],
        }


class RowArranger:
    def __init__(self, key: pa.Schema, keys: Sequence[Sequence[str]]) -> None:
        self._key, self._keys = key, keys

    def arrange(
        self, inputs: Sequence[pa.Table | None], due: pa.Table, others: pa.Table | None = None
    ) -> RowsByKey:
        """`due` has "__h", the key columns, "__t" and "domain" of the timers that are due;
        `others` "__h" and the key columns of keys that are called without either."""
        rows = input_rows(inputs)
        identities = [self._identity(port, part) for port, part in rows.parts]
        called = [due.select([HASH, *self._key.names]), *([] if others is None else [others])]
        keys = pa.concat_tables([*identities, *called])
        key_ids, first = key_numbers(keys)
        row_keys = key_ids[: len(rows.ports)]
        timer_keys = key_ids[len(rows.ports) : len(rows.ports) + len(due)].tolist()
        order = sorted_by([row_keys, *rows.order()])
        timers: list[list[tuple[int, int]]] = [[] for _ in first]
        times, domains = due.column(TIME).to_pylist(), due.column(DOMAIN).to_pylist()
        for key_id, at, domain in zip(timer_keys, times, domains, strict=True):
            timers[key_id].append((at, domain))
        return RowsByKey(
            keys.take(pa.array(first)),
            rows.hidden.take(pa.array(order)).combine_chunks(),
            np.searchsorted(row_keys[order], np.arange(len(first) + 1)).tolist(),
            rows.ports[order],
            rows.indexes[order],
            rows.no_time,
            timers,
            self._keys,
        )

    def arrange_unkeyed(self, inputs: Sequence[pa.Table | None], size: int) -> RowsByKey:
        """All rows of the task in order, whatever they are: `size` at a time as those of a key."""
        rows = input_rows(inputs)
        order, count = _in_order(rows), len(rows.ports)
        starts = [*range(0, count, size), count] if count else [0]
        return RowsByKey(
            pa.table([pa.array(np.zeros(len(starts) - 1, np.uint64))], names=[HASH]),
            rows.hidden.take(pa.array(order)).combine_chunks(),
            starts,
            rows.ports[order],
            rows.indexes[order],
            rows.no_time,
            [[] for _ in starts[1:]],
            self._keys,
        )

    def _identity(self, port: int, rows: pa.Table) -> pa.Table:
        """The hash and the key, by the names that all inputs share."""
        columns = [rows.column(name) for name in self._keys[port]]
        keys = [c.cast(field.type) for c, field in zip(columns, self._key, strict=True)]
        return pa.table([rows.column(HASH), *keys], names=[HASH, *self._key.names])


@dataclass(frozen=True, slots=True)
class InputRows:
    """The rows of all inputs, one after the other: what places them in time, and where they are."""

    parts: list[tuple[int, pa.Table]]
    hidden: pa.Table
    ports: np.ndarray
    indexes: np.ndarray
    no_time: bool  # some have no time

    def order(self) -> list[np.ndarray]:
        """By what they are in order: event time, then split, then offset."""
        names = [n for n in _PLACES if n in self.hidden.column_names]
        return order_keys([self.hidden.column(n) for n in names]) if names else []


def input_rows(inputs: Sequence[pa.Table | None]) -> InputRows:
    parts = [(port, rows) for port, rows in enumerate(inputs) if rows is not None and len(rows)]
    counts = [len(rows) for _, rows in parts]
    ports = np.repeat(np.array([port for port, _ in parts], np.int64), counts)
    indexes = np.concatenate([np.arange(n) for n in counts] or [np.zeros(0, np.int64)])
    chosen = [rows.select([n for n in _PLACES if n in rows.column_names]) for _, rows in parts]
    empty = pa.schema([(name, kind) for name, (kind, _) in _PLACES.items()]).empty_table()
    hidden = pa.concat_tables(chosen, promote_options="default") if chosen else empty
    no_time = TIME in hidden.column_names and hidden.column(TIME).null_count > 0
    for place, name in enumerate(hidden.column_names):
        if hidden.column(name).null_count:
            filled = hidden.column(name).fill_null(_PLACES[name][1])
            hidden = hidden.set_column(place, name, filled)
    return InputRows(parts, hidden, ports, indexes, no_time)


def in_turn(inputs: Sequence[pa.Table | None]) -> list[tuple[int, int, Any]]:
    """The rows of all inputs in order, whatever their key: input, place there, and time."""
    rows = input_rows(inputs)
    order = _in_order(rows)
    times = _times(rows.hidden.take(pa.array(order)), rows.no_time)
    places = rows.ports[order].tolist(), rows.indexes[order].tolist()
    return list(zip(*places, times, strict=True))


def _in_order(rows: InputRows) -> np.ndarray:
    return sorted_by([np.zeros(len(rows.ports), np.int64), *rows.order()])


PLACE = (SOURCE, OFFSET)  # what identifies a row of an input


def spread_hashes(rows: pa.Table, by: Sequence[str] = PLACE) -> pa.Table:
    """Rows that have no key, with hashes by which they go to all tasks evenly: by what identifies
    a row, so that it goes to the same task however rows are cut into batches."""
    places = [rows.column(n) for n in by if n in rows.column_names]
    return rows.append_column(HASH, pa.array(hash_keys(places, rows.num_rows)))


def seen(inputs: Sequence[pa.Table | None], handlers: Sequence[Any]) -> list[pa.Table | None]:
    """Of each input, only the columns that its function surely looks at."""
    pairs = zip(inputs, handlers, strict=True)
    return [None if rows is None else _seen(visible(rows), handler) for rows, handler in pairs]


def _seen(rows: pa.Table, handler: Any) -> pa.Table:
    names = columns_read(handler, rows.column_names, place=1, count=3)
    return rows.select(names).combine_chunks()  # from which rows are taken in no time


def _repeats(kind: pa.DataType) -> bool:
    """Whether keys that are equal look the same to the user: 0.0 and -0.0 do not."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind))


def _times(ordered: pa.Table, no_time: bool) -> list[Any]:
    if TIME not in ordered.column_names:
        return [None] * ordered.num_rows
    times: list[Any] = ordered.column(TIME).to_pylist()
    return [None if t == MIN_TIME else t for t in times] if no_time else times
