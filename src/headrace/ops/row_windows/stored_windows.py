"""Windows whose rows are kept: for a function, or because windows overlap.

A key that has no window to show adds its rows to those that are kept, unseen. A key that
has one is read whole, and what no later window can hold is forgotten.
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
from headrace.ops.row_windows.sequence import KeyCounters, RowSequence, book_fields
from headrace.ops.row_windows.store import FEW, Ordered, PackedRows, StoredParcels, fitted, ordered
from headrace.ops.row_windows.work import Ended, Fired, WindowWork
from headrace.ops.window.by_rows import RowWindow
from headrace.state.table import TableSpec

KEYS, ROWS = "keys", "rows"


class StoredWindows:
    def __init__(
        self, spec: RowWindow, work: WindowWork, key: pa.Schema, rows: pa.Schema, input: pa.Schema
    ) -> None:
        """`rows` are the columns that are kept."""
        self._spec, self._work, self._key = spec, work, key
        self._books = TableSpec(KEYS, key, pa.schema(book_fields(spec, input, kept=True)))
        self._store = PackedRows(ROWS, key, rows)

    def tables(self) -> tuple[TableSpec, ...]:
        return (self._books, self._store.spec)

    def step(self, step: EpochStep) -> Iterator[Fired]:
        arrived = step.inputs[0]
        if arrived is not None and arrived.num_rows:
            yield from self._apply(step, ordered(arrived, self._key))
        if step.after >= MAX_TIME:
            yield from self._finish(step)

    def _apply(self, step: EpochStep, rows: Ordered) -> Iterator[Fired]:
        book = self._book(step, rows.keys)
        ends = ends_of(self._spec, rows, book.since, book.reference)
        self._add(step, rows, np.flatnonzero(ends.count == 0), book.next)
        yield from self._fire(step, rows, ends, book, np.zeros(len(ends.key), np.bool_))

    def _book(self, step: EpochStep, keys: pa.Table) -> KeyCounters:
        return KeyCounters.of(step.tables[KEYS].get(keys)[0])

    def _write(self, step: EpochStep, keys: pa.Table, book: KeyCounters) -> None:
        identity = {name: keys[name] for name in keys.column_names}
        step.tables[KEYS].put(pa.table(identity | book.columns()))

    def _add(self, step: EpochStep, rows: Ordered, which: Index, parcel: Index) -> None:
        """Keep the new rows of some keys."""
        if not len(which):
            return
        sizes = rows.sizes[which]
        places = rows.order[stretches(rows.starts[which], sizes)]
        new = fitted(rows.rows, self._store.rows).take(pa.array(places))
        owners = rows.keys.take(pa.array(which))
        self._store.add(step.tables[ROWS], owners, parcel[which], new, sizes)

    def _fire(
        self, step: EpochStep, rows: Ordered, ends: Ends, book: KeyCounters, at_end: Mask
    ) -> Iterator[Fired]:
        """Show the windows that end, if any, and write the book of all keys."""
        which, first = np.flatnonzero(ends.count), book.first.copy()
        if len(which):
            keys, mine, own = rows.keys.take(pa.array(which)), ends.only(which), book.only(which)
            kept = self._store.gather(step.tables[ROWS], keys, own.first, own.next)
            counts = kept.rows_of(len(which))
            sequence = RowSequence.of(kept.rows, counts, rows, which, self._store.rows)
            yield self._show(step, keys, sequence, mine, own.number, at_end)
            first[which] = self._forget(step, keys, kept, sequence, mine, own.next)
        self._write(step, rows.keys, book.after(ends).keeping(first))

    def _finish(self, step: EpochStep) -> Iterator[Fired]:
        """The input has ended: so do the windows of all keys that got rows since their last."""
        whole = step.tables[KEYS].scan()
        whole = whole.filter(pa.array(KeyCounters.of(whole).since > 0))
        count = whole.num_rows
        if not count:
            return
        keys, book = whole.select(self._books.identity.names), KeyCounters.of(whole)
        kept = self._store.gather(step.tables[ROWS], keys, book.first, book.next)
        sequence = RowSequence.of_kept(kept.rows, kept.rows_of(count), self._store.rows)
        ends = Ends(np.arange(count), np.zeros(count, np.int64), np.zeros(count, np.int64))
        yield self._show(step, keys, sequence, ends, book.number, np.ones(count, np.bool_))
        first = self._forget(step, keys, kept, sequence, ends, book.next)
        self._write(step, keys, book.ended().keeping(first))

    def _show(
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
        kept: StoredParcels,
        rows: RowSequence,
        ends: Ends,
        next: Index,
    ) -> Index:
        """Keep what later windows may hold; each key's first parcel that does.

        Parcels without such a row go, and many become one.
        """
        table, first = step.tables[ROWS], rows.needed(self._spec, ends, step.after)
        living = kept.reaching(first - rows.starts)
        many = np.bincount(kept.key[living], minlength=keys.num_rows) >= FEW
        stay = living & ~many[kept.key]
        table.delete(kept.parcels.filter(pa.array(~stay)))
        low = np.where(many, first, np.maximum(first, rows.starts + rows.kept))
        self._store.add(table, keys, next, rows.between(low, rows.stops), rows.stops - low)
        parcels = next.copy()
        parcels[kept.key[stay][::-1]] = kept.numbers[stay][::-1]  # the first is written last
        return parcels
