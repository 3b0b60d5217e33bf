"""Windows whose rows are kept: for a function, or where windows overlap.

A key that has no window to show only adds its rows to those that are kept. A key that has
one is read whole, and what no later window can hold is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.clock import MAX_TIME
from headrace.ops.agg_groups import Index, Mask
from headrace.ops.contract import Step
from headrace.ops.row_book import Book, book_fields
from headrace.ops.row_ends import Ends, ends_of
from headrace.ops.row_order import Ordered, ordered
from headrace.ops.row_results import Fired
from headrace.ops.row_sequence import RowSequence
from headrace.ops.row_specs import RowWindow
from headrace.ops.row_store import PackedRows
from headrace.ops.row_work import Work
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
        quiet = np.flatnonzero(ends.count == 0)
        self._add(step, rows, quiet, book)
        self._write(step, rows.keys, book.after(ends, rows.sizes))
        yield from self._fire(step, rows, ends, book, np.zeros(len(ends.key), np.bool_))

    def _add(self, step: Step, rows: Ordered, which: Index, book: Book) -> None:
        """Keep the new rows of some keys without a look at those that are kept."""
        from headrace.ops.agg_span import stretches
        from headrace.ops.row_store import fitted

        sizes = rows.sizes[which]
        new = rows.order[stretches(rows.starts[which], sizes)]
        taken = fitted(rows.rows, self._store.rows).take(pa.array(new))
        owners = rows.keys.take(pa.array(which))
        self._store.add(step.tables[ROWS], owners, book.rows[which], taken, sizes)

    def _fire(
        self, step: Step, rows: Ordered, ends: Ends, book: Book, at_end: Mask
    ) -> Iterator[Fired]:
        which = np.flatnonzero(ends.count)
        if not len(which):
            return
        keys = rows.keys.take(pa.array(which))
        kept = self._store.gather(step.tables[ROWS], keys)
        sequence = RowSequence.of(kept.rows, kept.rows_of(len(which)), rows, which, self._store.rows)
        ...
