"""First, last, min_by, max_by, collect, count_distinct: synopses that hold values.

"First" means by (event time, split, offset), never by arrival; rows that are equal in all
three keep the order of the table. Nulls: first, last, collect and count_distinct pass
over them; min_by and max_by pass over a null `by`, and among equal ones the first row wins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, Mask, array, flat, integers, take, valid
from headrace.hashing import plain_floats
from headrace.ops.agg.base import Arguments, Exploding, Synopsis, UnsuitableType
from headrace.ops.agg.groups import Finish, Grouping
from headrace.ops.agg.order import (
    best_rows,
    codes,
    distinct,
    group_numbers,
    inverse,
    is_sortable,
    order_keys,
    packed,
    sorted_by,
)
from headrace.ops.agg.span import ADD, Numbers, RunningSpan, Span, Ufunc

_ORDER = {"t": pa.int64(), "s": pa.int32(), "o": pa.int64()}


class Pick(Synopsis):
    """The value of one row: the first, the last, or that with the least or greatest `by`."""

    ordered = True

    def __init__(self, by: bool, largest: bool) -> None:
        self.by = by
        self.largest = largest

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        if self.by and not is_sortable(by):
            raise UnsuitableType("something that has an order to go by")
        return kind

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {"v": kind, **({"by": by} if self.by else {}), **_ORDER}

    def partial(self, rows: Arguments, grouping: Grouping) -> Finish:
        return self._pick(rows.name, self.single(rows), grouping)

    def single(self, rows: Arguments) -> list[Column]:
        return [rows.column, *([rows.by_column] if self.by else []), *rows.order.columns]

    def merge(self, label: str, columns: Sequence[Column], grouping: Grouping) -> Finish:
        return self._pick(label, columns, grouping)

    def _pick(self, label: str, columns: Sequence[Column], grouping: Grouping) -> Finish:
        keys, eligible = self._keys(columns), valid(self._compared(columns))
        if len(keys) > 1:
            return self._search(columns, keys, eligible, grouping)
        best = grouping.ask(f"{label}:pick", array(keys[0], pa.int64(), eligible), "min")

        def finish() -> list[Column]:
            key = grouping.answer(best)
            return take(columns, self._row_of(integers(key), grouping.rows), valid(key))

        return finish

    def _search(
        self, columns: Sequence[Column], keys: Sequence[Index], eligible: Mask, grouping: Grouping
    ) -> Finish:
        ticket = grouping.ask_rows()

        def finish() -> list[Column]:
            rows, starts = grouping.rows_of(ticket)
            keep, group = eligible[rows], group_numbers(starts, len(rows))
            groups, best = best_rows(rows[keep], group[keep], keys)
            chosen = np.full(grouping.count, -1, np.int64)
            chosen[groups] = best
            return take(columns, chosen, chosen >= 0)

        return finish

    def _compared(self, columns: Sequence[Column]) -> Column:
        return columns[1] if self.by else columns[0]

    def _keys(self, columns: Sequence[Column]) -> list[Index]:
        """What the best row has the least of, in as few columns as can be."""
        late = self.largest and not self.by
        order = (*order_keys(columns[-3:]), np.arange(len(columns[0])))
        keys = [~k if late else k for k in order]
        if self.by:
            by = codes(columns[1]).codes
            keys.insert(0, ~by if self.largest else by)
        return packed(keys)

    def _row_of(self, key: Index, rows: int) -> Index:
        """The row's number, which is the last part of a packed key."""
        last = key % rows
        return rows - 1 - last if self.largest and not self.by else last

    def combine(self, columns: Sequence[Column], span: Span) -> list[Column]:
        row_at = sorted_by(self._keys(columns))
        none = len(row_at)
        scored = np.where(valid(self._compared(columns)), inverse(row_at), none)
        best = span.reduce(Ufunc(np.minimum, none), [scored])[0]
        return take(columns, row_at[np.minimum(best, none - 1)], best < none)

    def result(self, columns: Sequence[Column]) -> Column:
        return columns[0]


class Collect(Exploding):
    """All values that are not null, as a list in order."""

    ordered = True

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        return pa.list_(kind)

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {name: pa.list_(k) for name, k in ({"v": kind} | _ORDER).items()}

    def partial(self, rows: Arguments, grouping: Grouping) -> Finish:
        return self._gather([rows.column, *rows.order.columns], np.arange(rows.count), grouping)

    def single(self, rows: Arguments) -> list[Column]:
        parts = [rows.column, *rows.order.columns]
        present = valid(rows.column)
        return [lists_of(take([p], np.flatnonzero(present))[0], present) for p in parts]

    def merge(self, label: str, columns: Sequence[Column], grouping: Grouping) -> Finish:
        parts = [flat(c).flatten() for c in columns]
        return self._gather(parts, owners(columns[0]), grouping)

    def _gather(self, parts: Sequence[Column], owner: Index, grouping: Grouping) -> Finish:
        ticket = grouping.ask_rows()

        def finish() -> list[Column]:
            group = group_of(*grouping.rows_of(ticket))[owner]
            order = sorted_by([group, *order_keys(parts[1:])])
            order = order[valid(parts[0])[order]]
            sizes = np.bincount(group[order], minlength=grouping.count)
            return [lists_of(values, sizes) for values in take(parts, order)]

        return finish

    def result(self, columns: Sequence[Column]) -> Column:
        return columns[0]


class Distinct(Exploding):
    """How many different values, stored as the list of them: exact, and as large as that."""

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        if not is_sortable(kind):
            raise UnsuitableType("a number, text, a time or a boolean")
        return pa.int64()

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {"v": pa.list_(kind)}

    def partial(self, rows: Arguments, grouping: Grouping) -> Finish:
        return self._gather(rows.column, np.arange(rows.count), grouping)

    def single(self, rows: Arguments) -> list[Column]:
        present = valid(rows.column)
        return [lists_of(flat(rows.column.drop_null()), present)]

    def merge(self, label: str, columns: Sequence[Column], grouping: Grouping) -> Finish:
        return self._gather(flat(columns[0]).flatten(), owners(columns[0]), grouping)

    def _gather(self, values: Column, owner: Index, grouping: Grouping) -> Finish:
        ticket = grouping.ask_rows()

        def finish() -> list[Column]:
            group = group_of(*grouping.rows_of(ticket))[owner]
            pairs, distinct_values = _pairs(group, values)
            group, code = np.divmod(distinct(pairs[pairs >= 0]), max(len(distinct_values), 1))
            sizes = np.bincount(group, minlength=grouping.count)
            return [lists_of(distinct_values.take(pa.array(code)), sizes)]

        return finish

    def running(self, columns: Sequence[Column], span: RunningSpan) -> tuple[Column, list[Column]]:
        """Counts what is new in each row, instead of making a list for each."""
        values, owner = flat(columns[0]).flatten(), owners(columns[0])
        group = span.groups[owner]
        pairs, _ = _pairs(group, values)
        seen, first = np.unique(pairs, return_index=True)
        new = np.sort(first[seen >= 0])
        fresh = np.bincount(owner[new], minlength=span.rows)
        sizes = np.bincount(group[new], minlength=len(span.starts))
        counts = array(span.reduce(ADD, [fresh])[0], pa.int64())
        return counts, [lists_of(values.take(pa.array(new)), sizes)]

    def result(self, columns: Sequence[Column]) -> Column:
        return pc.list_value_length(columns[0]).cast(pa.int64())


def _pairs(group: Index, values: Column) -> tuple[Index, pa.Array]:
    """A number for each pair of group and value, -1 where it is null; and the values.

    It is group * len(values) + place among the values.
    """
    values = flat(values)
    if pa.types.is_floating(values.type):
        values = plain_floats(values)
    encoded = pc.dictionary_encode(values)
    code = integers(encoded.indices, -1)
    return np.where(code < 0, -1, group * len(encoded.dictionary) + code), encoded.dictionary


def group_of(rows: Index, starts: Index) -> Index:
    group = np.empty(len(rows), np.int64)
    group[rows] = group_numbers(starts, len(rows))
    return group


def owners(lists: Column) -> Index:
    """For each element, the row whose list holds it."""
    sizes = integers(pc.list_value_length(lists))
    return np.repeat(np.arange(len(lists)), sizes)


def lists_of(values: pa.Array, sizes: Numbers) -> pa.Array:
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return pa.ListArray.from_arrays(array(ends, pa.int32()), values)
