"""Windows whose rows are stored: for a function, or because windows overlap.

A key that has no window to emit adds its rows to those that are stored, without reading them. A
key that has one is read whole, and what no later window can hold is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask
from headrace.clock import MAX_TIME
from headrace.ops.agg.span import stretches
from headrace.ops.contract import EpochStep
from headrace.ops.row_windows.ends import Ends, ends_of
from headrace.ops.row_windows.sequence import KeyCounters, RowSequence, counter_fields
from headrace.ops.row_windows.store import FEW, Ordered, PackedRows, StoredParcels, fitted, ordered
from headrace.ops.row_windows.work import Ended, Fired, WindowWork
from headrace.ops.window.by_rows import RowWindow
from headrace.state.table import TableSpec

KEYS, ROWS = "keys", "rows"


class StoredWindows:
    def __init__(
        self, spec: RowWindow, work: WindowWork, key: pa.Schema, rows: pa.Schema, input: pa.Schema
    ) -> None:
        """`rows` are the columns that are stored."""
        self._spec, self._work, self._key = spec, work, key
        counters = pa.schema(counter_fields(spec, input, with_rows=True))
        self._counters_spec = TableSpec(KEYS, key, counters)
        self._store = PackedRows(ROWS, key, rows)

    def tables(self) -> tuple[TableSpec, ...]:
        return (self._counters_spec, self._store.spec)

    def step(self, step: EpochStep) -> Iterator[Fired]:
        arrived = step.arrived
        if arrived is not None:
            yield from self._apply(step, ordered(arrived, self._key))
        if step.after >= MAX_TIME:
            yield from self._finish(step)

    def _apply(self, step: EpochStep, rows: Ordered) -> Iterator[Fired]:
        counters = self._counters(step, rows.keys)
        ends = ends_of(self._spec, rows, counters.since, counters.reference)
        self._add(step, rows, np.flatnonzero(ends.count == 0), counters.next)
        yield from self._fire(step, rows, ends, counters, np.zeros(len(ends.key), np.bool_))

    def _counters(self, step: EpochStep, keys: pa.Table) -> KeyCounters:
        return KeyCounters.of(step.tables[KEYS].get(keys)[0])

    def _write(self, step: EpochStep, keys: pa.Table, counters: KeyCounters) -> None:
        identity = {name: keys[name] for name in keys.column_names}
        step.tables[KEYS].put(pa.table(identity | counters.columns()))

    def _add(self, step: EpochStep, rows: Ordered, which: Index, parcel: Index) -> None:
        """Store the new rows of some keys."""
        if not len(which):
            return
        sizes = rows.sizes[which]
        places = rows.order[stretches(rows.starts[which], sizes)]
        new = fitted(rows.rows, self._store.rows).take(pa.array(places))
        owners = rows.keys.take(pa.array(which))
        self._store.add(step.tables[ROWS], owners, parcel[which], new, sizes)

    def _fire(
        self, step: EpochStep, rows: Ordered, ends: Ends, counters: KeyCounters, at_end: Mask
    ) -> Iterator[Fired]:
        """Emit the windows that end, if any, and write the counters of all keys."""
        which, first = np.flatnonzero(ends.count), counters.first.copy()
        if len(which):
            keys, own = rows.keys.take(pa.array(which)), counters.only(which)
            ending = ends.only(which)
            stored = self._store.gather(step.tables[ROWS], keys, own.first, own.next)
            counts = stored.rows_of(len(which))
            sequence = RowSequence.of(stored.rows, counts, rows, which, self._store.rows)
            yield self._emitted(step, keys, sequence, ending, own.number, at_end)
            first[which] = self._forget(step, keys, stored, sequence, ending, own.next)
        self._write(step, rows.keys, counters.after(ends).starting_at(first))

    def _finish(self, step: EpochStep) -> Iterator[Fired]:
        """The input has ended: so do the windows of all keys that got rows since their last."""
        open_keys = step.tables[KEYS].scan()
        open_keys = open_keys.filter(pa.array(KeyCounters.of(open_keys).since > 0))
        count = open_keys.num_rows
        if not count:
            return
        keys = open_keys.select(self._counters_spec.identity.names)
        counters = KeyCounters.of(open_keys)
        stored = self._store.gather(step.tables[ROWS], keys, counters.first, counters.next)
        sequence = RowSequence.of_stored(stored.rows, stored.rows_of(count), self._store.rows)
        ends = Ends(np.arange(count), np.zeros(count, np.int64), np.zeros(count, np.int64))
        yield self._emitted(step, keys, sequence, ends, counters.number, np.ones(count, np.bool_))
        first = self._forget(step, keys, stored, sequence, ends, counters.next)
        self._write(step, keys, counters.ended().starting_at(first))

    def _emitted(
        self,
        step: EpochStep,
        keys: pa.Table,
        rows: RowSequence,
        ends: Ends,
        number: Index,
        at_end: Mask,
    ) -> Fired:
        windows = rows.windows(self._spec, ends.key, ends.after)
        owners = keys.take(pa.array(ends.key))
        ended = Ended(owners, number[ends.key] + ends.number, at_end)
        return self._work.over(windows, ended, step)

    def _forget(
        self,
        step: EpochStep,
        keys: pa.Table,
        stored: StoredParcels,
        rows: RowSequence,
        ends: Ends,
        next: Index,
    ) -> Index:
        """Store what later windows may hold; return each key's first parcel that does.

        Parcels without such a row are deleted, and many become one.
        """
        table, first = step.tables[ROWS], rows.needed(self._spec, ends, step.after)
        living = stored.reaching(first - rows.starts)
        many = np.bincount(stored.key[living], minlength=keys.num_rows) >= FEW
        stay = living & ~many[stored.key]
        table.delete(stored.parcels.filter(pa.array(~stay)))
        low = np.where(many, first, np.maximum(first, rows.starts + rows.stored))
        self._store.add(table, keys, next, rows.between(low, rows.stops), rows.stops - low)
        parcels = next.copy()
        parcels[stored.key[stay][::-1]] = stored.numbers[stay][::-1]  # the first is written last
        return parcels
