"""Windows whose rows are kept: for a function, or because windows overlap.

A key that has no window to show adds its rows to those that are kept, unseen. A key that
has one is read whole, and what no later window can hold is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.clock import MAX_TIME
from headrace.ops.agg_groups import Index, Mask
from headrace.ops.agg_span import stretches
from headrace.ops.contract import Step
from headrace.ops.row_book import Book, book_fields
from headrace.ops.row_ends import Ends, ends_of
from headrace.ops.row_order import Ordered, ordered
from headrace.ops.row_results import Ended, Fired
from headrace.ops.row_sequence import RowSequence
from headrace.ops.row_specs import RowWindow
from headrace.ops.row_store import Kept, PackedRows, fitted
from headrace.ops.row_work import Work, bounds
from headrace.state.table import TableSpec

KEYS, ROWS = "keys", "rows"
_MANY = 8  # parcels of a key beyond which they are made one


class KeptWindows:
    def __init__(
        self, spec: RowWindow, work: Work, key: pa.Schema, rows: pa.Schema, input: pa.Schema
    ) -> None:
        """`rows` are the columns that are kept."""
        self._spec, self._work, self._key = spec, work, key
        self._books = TableSpec(KEYS, key, pa.schema(book_fields(spec, input)))
        self._store = PackedRows(ROWS, key, rows)

    def tables(self) -> tuple[TableSpec, ...]:
        return (self._books, self._store.spec)

    def step(self, step: Step) -> Iterator[Fired]:
        arrived = step.inputs[0]
        if arrived is not None and arrived.num_rows:
            yield from self._apply(step, ordered(arrived, self._key))
        if step.after >= MAX_TIME:
            yield from self._finish(step)

    def _apply(self, step: Step, rows: Ordered) -> Iterator[Fired]:
        book = self._book(step, rows.keys)
        ends = ends_of(self._spec, rows, book.since, book.reference)
        self._add(step, rows, np.flatnonzero(ends.count == 0), book.rows)
        self._write(step, rows.keys, book.after(ends, rows.sizes))
        yield from self._fire(step, rows, ends, book, np.zeros(len(ends.key), np.bool_))

    def _book(self, step: Step, keys: pa.Table) -> Book:
        return Book.of(step.tables[KEYS].get(keys)[0])

    def _write(self, step: Step, keys: pa.Table, book: Book) -> None:
        identity = {name: keys[name] for name in keys.column_names}
        step.tables[KEYS].put(pa.table(identity | dict(book.columns())))

    def _add(self, step: Step, rows: Ordered, which: Index, parcel: Index) -> None:
        """Keep the new rows of some keys."""
        if not len(which):
            return
        sizes = rows.sizes[which]
        places = rows.order[stretches(rows.starts[which], sizes)]
        new = fitted(rows.rows, self._store.rows).take(pa.array(places))
        owners = rows.keys.take(pa.array(which))
        self._store.add(step.tables[ROWS], owners, parcel[which], new, sizes)

    def _fire(
        self, step: Step, rows: Ordered, ends: Ends, book: Book, at_end: Mask
    ) -> Iterator[Fired]:
        """Show the windows that end, if any; `book` is of before they did."""
        which = np.flatnonzero(ends.count)
        if not len(which):
            return
        keys = rows.keys.take(pa.array(which))
        kept = self._store.gather(step.tables[ROWS], keys)
        sequence = RowSequence.of(
            kept.rows, kept.rows_of(len(which)), rows, which, self._store.rows
        )
        mine = ends.only(which)
        yield from self._show(step, keys, sequence, mine, book.number[which], at_end)
        self._forget(step, keys, kept, sequence, mine, book.rows[which])

    def _finish(self, step: Step) -> Iterator[Fired]:
        """The input has ended: so do the windows of all keys that got rows since their last."""
        whole = step.tables[KEYS].scan()
        whole = whole.filter(pa.array(Book.of(whole).since > 0))
        count = whole.num_rows
        if not count:
            return
        keys, book = whole.select(self._books.identity.names), Book.of(whole)
        self._write(step, keys, book.ended())
        kept = self._store.gather(step.tables[ROWS], keys)
        sequence = RowSequence.of_kept(kept.rows, kept.rows_of(count), self._store.rows)
        ends = Ends(np.arange(count), np.zeros(count, np.int64), np.zeros(count, np.int64))
        yield from self._show(step, keys, sequence, ends, book.number, np.ones(count, np.bool_))
        self._forget(step, keys, kept, sequence, ends, book.rows)

    def _show(
        self, step: Step, keys: pa.Table, rows: RowSequence, ends: Ends, number: Index, at_end: Mask
    ) -> Iterator[Fired]:
        laid = rows.windows(self._spec, ends.key, ends.after)
        begins, stops = bounds(laid)
        numbers = number[ends.key] + ends.number
        windows = Ended(keys.take(pa.array(ends.key)), numbers, begins, stops, at_end)
        return self._work.over(laid, windows, step)

    def _forget(
        self, step: Step, keys: pa.Table, kept: Kept, rows: RowSequence, ends: Ends, parcel: Index
    ) -> None:
        """Keep what later windows may hold; parcels without such a row go, many become one."""
        table, key = step.tables[ROWS], rows.key
        alive = rows.alive(self._spec, ends, step.after)
        fresh = rows.is_new
        living = kept.alive(alive[~fresh])
        parcels = np.bincount(kept.key[living], minlength=keys.num_rows)
        many = (parcels > _MANY) & (rows.new > 0)
        table.delete(kept.parcels.filter(pa.array(~living | many[kept.key])))
        stay = alive & (fresh | many[key])
        taken = rows.pool.take(pa.array(rows.index[stay]))
        sizes = np.bincount(key[stay], minlength=keys.num_rows)
        self._store.add(table, keys, parcel, taken, sizes)
