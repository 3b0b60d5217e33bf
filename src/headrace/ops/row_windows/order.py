"""An epoch's rows by key, each key's in order, without moving a row.

Order is by event time, source and offset, as far as rows have them. Keys are numbered by
hash, exact where two share one, so they are in the order in which tables hold them. What is
given is where the rows are; whoever needs a column takes that column only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.ops.agg.groups import Column, Index, array, flat, integers, valid
from headrace.ops.agg.keys import key_numbers
from headrace.ops.agg.order import by_number, rises, sorted_by


@dataclass(frozen=True, slots=True)
class Ordered:
    """Row order[i] is the i-th; the rows of key k are those from starts[k] on."""

    rows: pa.Table
    order: Index
    starts: Index
    keys: pa.Table  # "__h" and the key columns, a row per key

    @property
    def sizes(self) -> Index:
        return np.diff(self.starts, append=len(self.order))

    @property
    def timed(self) -> bool:
        return TIME in self.rows.column_names

    def times(self, places: Index) -> Index:
        """The event times of these rows, which are numbered in order."""
        found: Index = integers(self.rows[TIME])[self.order[places]]
        return found

    def column(self, name: str) -> pa.Array:
        """A column in order."""
        return flat(self.rows[name]).take(pa.array(self.order))


def ordered(rows: pa.Table, key: pa.Schema) -> Ordered:
    """The rows of each key together, by event time, source and offset."""
    identity = {HASH: rows[HASH]} | {f.name: _plain(rows[f.name]) for f in key}
    number, first = key_numbers(pa.table(identity))
    schema = pa.schema([pa.field(HASH, pa.uint64()), *key])
    keys = pa.table([flat(c).take(pa.array(first)) for c in identity.values()], [*identity])
    order = _order(rows, number)
    starts = np.cumsum(np.bincount(number, minlength=len(first)))
    return Ordered(rows, order, np.append(0, starts[:-1]), keys.cast(schema))


def _order(rows: pa.Table, number: Index) -> Index:
    """The least significant first, each sort stable; what rises already is not sorted."""
    order = None
    for names in ((SOURCE, OFFSET), (TIME,)):
        keys = [integers(rows[n]) for n in names if n in rows.column_names]
        order = _sorted(order, keys) if keys else order
    order = _sorted(order, [number])
    return np.arange(rows.num_rows) if order is None else order


def _sorted(order: Index | None, keys: list[Index]) -> Index | None:
    """The order after one more sort; None while the rows are in order as they lie."""
    keys = keys if order is None else [k[order] for k in keys]
    if rises(keys):
        return order
    turn = by_number(keys[0]) if len(keys) == 1 else sorted_by(keys)
    return turn if order is None else order[turn]


def _plain(column: Column) -> Column:
    """Floats with one zero and one NaN: the same key is then the same value."""
    if not pt.is_floating(column.type):
        return column
    numbers = column.to_numpy(zero_copy_only=False) + column.type.to_pandas_dtype()(0)
    return array(np.where(np.isnan(numbers), np.nan, numbers), column.type, valid(column))
