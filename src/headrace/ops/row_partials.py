"""Windows that follow each other, with named aggregates: a partial per key is all that is kept.

An epoch's rows are cut where windows end, the pieces are aggregated in one pass, and a key's
first piece is merged with what is held of its open window. Rows are never kept, and never
gone through one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.clock import MAX_TIME
from headrace.ops.agg_groups import Column, Index, Mask, array, flat, integers, take
from headrace.ops.aggregates import Aggregate, part_names, partial, result
from headrace.ops.contract import Step
from headrace.ops.partials import with_held
from headrace.ops.row_book import Book, book_fields
from headrace.ops.row_ends import Ends, ends_of
from headrace.ops.row_order import Ordered, ordered
from headrace.ops.row_results import Ended, Fired
from headrace.ops.row_specs import RowWindow
from headrace.state.table import KeyedTable, TableSpec

WINDOWS = "windows"
_PIECE, _LOW, _HIGH = "__piece", "__low", "__high"


@dataclass(frozen=True, slots=True)
class Pieces:
    """New rows cut where windows end. A key's first piece goes on from what is held of it."""

    piece: Index  # of each row, in order
    key: Index  # of each piece; they rise
    size: Index  # rows in each: none in a window that ended before all of them
    first: Index  # each key's first piece
    last: Index

    @classmethod
    def cut(cls, rows: Ordered, ends: Ends) -> Pieces:
        marks = np.zeros(len(rows.order), np.int64)
        marks[rows.starts] = 1
        inner = ends.after < rows.sizes[ends.key]
        marks[rows.starts[ends.key[inner]] + ends.after[inner]] += 1
        piece = np.cumsum(marks) - 1
        count = np.add.reduceat(marks, rows.starts)
        last = np.cumsum(count) - 1
        key = np.repeat(np.arange(len(count)), count)
        return cls(piece, key, np.bincount(piece, minlength=len(key)), last - count + 1, last)


class PartialWindows:
    def __init__(
        self,
        spec: RowWindow,
        aggs: Mapping[str, Aggregate],
        key: pa.Schema,
        input: pa.Schema,
        numbered: bool,
    ) -> None:
        """`numbered`: a key is remembered between windows, for their numbers."""
        self._spec, self._aggs, self._key, self._numbered = spec, aggs, key, numbered
        self._parts = [part for name, agg in aggs.items() for part in part_names(name, agg)]
        partials = [f for name, agg in aggs.items() for f in agg.partial_fields(name, input)]
        bounds = [pa.field(name, pa.int64()) for name in (_LOW, _HIGH)]
        value = pa.schema([*book_fields(spec, input), *bounds, *partials])
        self._table = TableSpec(WINDOWS, key, value)

    def tables(self) -> tuple[TableSpec, ...]:
        return (self._table,)

    def step(self, step: Step) -> Iterator[Fired]:
        table, arrived = step.tables[WINDOWS], step.inputs[0]
        if arrived is not None and arrived.num_rows:
            yield from self._apply(table, ordered(arrived, self._key))
        if step.after >= MAX_TIME:
            yield from self._finish(table)

    def _apply(self, table: KeyedTable, rows: Ordered) -> Iterator[Fired]:
        held, known = table.get(rows.keys)
        book = Book.of(held)
        ends = ends_of(self._spec, rows, book.since, book.reference)
        cut = Pieces.cut(rows, ends)
        made = self._made(rows, cut, held, book.since > 0)
        closed = np.ones(len(cut.key), np.bool_)
        closed[cut.last] = ends.since == 0
        which = np.flatnonzero(closed)
        if len(which):
            number = (book.number[cut.key] + np.arange(len(cut.key)) - cut.first[cut.key])[which]
            yield self._fired(rows.keys, cut.key[which], number, made.take(pa.array(which)))
        after = book.after(ends, rows.sizes)
        names = [_LOW, _HIGH, *self._parts]
        kept = take([made[n] for n in names], cut.last, after.since > 0)
        self._put(table, rows.keys, known, after, dict(zip(names, kept, strict=True)))

    def _made(self, rows: Ordered, cut: Pieces, held: pa.Table, open: Mask) -> pa.Table:
        """The bounds and the partial of each piece, with what was held of it."""
        goes_on = np.zeros(len(cut.key), np.bool_)
        goes_on[cut.first] = open
        fresh = self._fresh(rows, cut, held)
        mine = held.take(pa.array(cut.key))
        made = with_held(fresh, mine, goes_on & (cut.size > 0), self._aggs)
        low, high = _bounds(rows, cut, mine, goes_on)
        return made.append_column(_LOW, low).append_column(_HIGH, high)

    def _fresh(self, rows: Ordered, cut: Pieces, held: pa.Table) -> pa.Table:
        """The partial of each piece's rows; what is held where it has none."""
        numbers = np.empty(len(cut.piece), np.int32)
        numbers[rows.order] = cut.piece
        coded = pa.DictionaryArray.from_arrays(numbers, pa.array(np.arange(len(cut.key))))
        made = partial(rows.rows.append_column(_PIECE, coded), [_PIECE], self._aggs)
        at = made.num_rows + cut.key
        at[made[_PIECE].to_numpy()] = np.arange(made.num_rows)
        if made.num_rows == len(at) and (at == np.arange(len(at))).all():
            return made.select(self._parts)
        both = [pa.concat_arrays([flat(made[n]), flat(held[n])]) for n in self._parts]
        return pa.table(take(both, at), self._parts)

    def _fired(self, keys: pa.Table, key: Index, number: Index, made: pa.Table) -> Fired:
        at_end = np.zeros(len(key), np.bool_)
        return self._results(keys.take(pa.array(key)), number, made, at_end)

    def _results(self, keys: pa.Table, number: Index, made: pa.Table, at_end: Mask) -> Fired:
        timed = not made[_LOW].null_count
        begins, ends = (integers(made[_LOW]), integers(made[_HIGH]) + 1) if timed else (None, None)
        windows = Ended(keys, number, begins, ends, at_end)
        return Fired(windows, result(made.select(self._parts), self._aggs), np.arange(len(number)))

    def _put(
        self, table: KeyedTable, keys: pa.Table, known: Mask, book: Book, kept: Mapping[str, Column]
    ) -> None:
        """Of a key without an open window only its number is kept, if wanted."""
        open = book.since > 0
        put = pa.table({n: keys[n] for n in keys.column_names} | dict(book.columns()) | dict(kept))
        if self._numbered or open.all():
            table.put(put)
            return
        table.put(put.filter(pa.array(open)))
        table.delete(keys.filter(pa.array(known & ~open)))

    def _finish(self, table: KeyedTable) -> Iterator[Fired]:
        """The input has ended: so do all windows that are open."""
        whole = table.scan()
        whole = whole.filter(pa.array(Book.of(whole).since > 0))
        if not whole.num_rows:
            return
        keys, book = whole.select([f.name for f in self._table.identity]), Book.of(whole)
        yield self._results(keys, book.number, whole, np.ones(len(book.since), np.bool_))
        names = [_LOW, _HIGH, *self._parts]
        nothing = {n: pa.nulls(whole.num_rows, whole[n].type) for n in names}
        self._put(table, keys, np.ones(whole.num_rows, np.bool_), book.ended(), nothing)


def _bounds(rows: Ordered, cut: Pieces, held: pa.Table, goes_on: Mask) -> tuple[pa.Array, pa.Array]:
    """The earliest and the latest time in each piece; an epoch's rows are in order of time."""
    times, count = rows.times, len(cut.key)
    if times is None:
        return pa.nulls(count, pa.int64()), pa.nulls(count, pa.int64())
    some = cut.size > 0
    stop = np.cumsum(cut.size)
    low, high = np.full(count, MAX_TIME), np.full(count, -MAX_TIME)
    low[some], high[some] = times[(stop - cut.size)[some]], times[stop[some] - 1]
    low[goes_on] = np.minimum(low, integers(held[_LOW]))[goes_on]
    high[goes_on] = np.maximum(high, integers(held[_HIGH]))[goes_on]
    return array(low, pa.int64()), array(high, pa.int64())
