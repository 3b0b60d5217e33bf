"""Rows stored per key, packed: what a key got in one epoch is one row of a table, with lists.

So a table has as many rows as keys were touched, not as rows are stored, and adding rows does
not read those that are there. Such a list is a *parcel*; the parcels of a key are numbered
in the order in which they came.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.arrays import Column, Index, Mask, flat, integers, take
from headrace.chunk import HASH, HIDDEN, OFFSET, SOURCE, TIME
from headrace.hashing import plain_floats
from headrace.ops.agg.order import by_number, rises, sorted_by
from headrace.ops.agg.span import stretches
from headrace.ops.keys import key_numbers
from headrace.ops.tables import side_by_side
from headrace.state.table import KeyedTable, TableSpec

FEW = 8  # parcels of a key up to which they are read one by one
_PARCEL = "__parcel"


@dataclass(frozen=True, slots=True)
class StoredParcels:
    """The rows of some keys, key by key in order, and the parcels that they came in."""

    rows: pa.Table
    parcels: pa.Table  # their identities
    key: Index  # of each parcel: its place among the requested keys
    sizes: Index  # rows in each parcel

    @property
    def numbers(self) -> Index:
        """The number of each parcel."""
        return integers(self.parcels[_PARCEL])

    def rows_of(self, keys: int) -> Index:
        """How many rows each of so many keys has."""
        return np.bincount(self.key, self.sizes, minlength=keys).astype(np.int64)

    def reaching(self, place: Index) -> Mask:
        """The parcels that hold a row of their key from the given place on."""
        count = self.rows_of(len(place))
        before = np.cumsum(count) - count
        return np.asarray(np.cumsum(self.sizes) - before[self.key] > place[self.key])


class PackedRows:
    """A table of packed rows with the given columns; the key's own are stored only once."""

    def __init__(self, name: str, key: pa.Schema, rows: pa.Schema, timed: bool = False) -> None:
        self._key, self.rows = key, rows
        self._own = [n for n in key.names if n in rows.names]
        self._packed = [f for f in rows if f.name not in key.names]
        lists = [pa.field(_list(f.name), pa.list_(f.type)) for f in self._packed]
        parcels = pa.schema([*key, pa.field(_PARCEL, pa.int64())])
        self.spec = TableSpec(name, parcels, pa.schema(lists), timed)

    def add(
        self, table: KeyedTable, owners: pa.Table, parcel: Index, rows: pa.Table, sizes: Index
    ) -> None:
        """Store `rows`, which are ordered by owner, as a parcel for each that has any."""
        some = np.flatnonzero(sizes)
        if not len(some):
            return
        parcels = owners.take(pa.array(some)).append_column(_PARCEL, pa.array(parcel[some]))
        ends = pa.array(np.append(0, np.cumsum(sizes[some])).astype(np.int32))
        for field in self._packed:
            values = flat(_column(rows, field))
            lists = pa.ListArray.from_arrays(ends, values)
            parcels = parcels.append_column(_list(field.name), lists)
        table.put(parcels)

    def gather(self, table: KeyedTable, keys: pa.Table, first: Index, stop: Index) -> StoredParcels:
        """All that is stored of these keys, which are distinct, in parcels first to stop - 1."""
        if (stop - first).max(initial=0) <= FEW:
            stored, number = self._by_number(table, keys, first, stop)
        else:
            stored, number = self._by_hash(table, keys)
        parcels = stored.select(self.spec.identity.names)
        return StoredParcels(self.unpacked(stored), parcels, number, _sizes(stored))

    def _by_number(
        self, table: KeyedTable, keys: pa.Table, first: Index, stop: Index
    ) -> tuple[pa.Table, Index]:
        """Those that are still there, read parcel by parcel."""
        number = np.repeat(np.arange(keys.num_rows), stop - first)
        parcel = pa.array(stretches(first, stop - first))
        parcels = keys.take(pa.array(number)).append_column(_PARCEL, parcel)
        values, present = table.get(parcels)
        parcels = side_by_side(parcels, values)
        if present.all():
            return parcels, number
        return parcels.filter(pa.array(present)), number[present]

    def _by_hash(self, table: KeyedTable, keys: pa.Table) -> tuple[pa.Table, Index]:
        """All parcels of the keys' hashes, without those of other keys."""
        matches = table.match(keys[HASH].to_numpy())
        names = [HASH, *self._key.names]
        numbers, firsts = key_numbers(pa.concat_tables([keys.select(names), matches.select(names)]))
        place = np.full(len(firsts), -1, np.int64)
        place[numbers[: keys.num_rows]] = np.arange(keys.num_rows)
        number = place[numbers[keys.num_rows :]]
        own = np.flatnonzero(number >= 0)
        order = own[sorted_by([number[own], integers(matches[_PARCEL])[own]])]
        return matches.take(pa.array(order)), number[order]

    def unpacked(self, parcels: pa.Table, keyed: bool = False) -> pa.Table:
        """The rows in these parcels, one after the other; `keyed`: with their key and its hash.

        A hidden column that is null throughout was never there.
        """
        names = [HASH, *self._key.names] if keyed else self._own
        owner = np.repeat(np.arange(parcels.num_rows), _sizes(parcels))
        columns = {n: take([parcels[n]], owner)[0] for n in names}
        for field in self._packed:
            values = flat(parcels[_list(field.name)]).flatten()
            if field.name not in HIDDEN or not len(values) or values.null_count < len(values):
                columns[field.name] = values
        return pa.table(columns)


def _sizes(parcels: pa.Table) -> Index:
    return integers(pc.list_value_length(flat(parcels.columns[-1])))


def _list(name: str) -> str:
    return f"[{name}]"


def _column(rows: pa.Table, field: pa.Field) -> Column:
    """A column as it is stored; hidden ones that the rows do not have are null."""
    if field.name in rows.column_names:
        return rows[field.name].cast(field.type)
    return pa.nulls(rows.num_rows, field.type)


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of `schema` that the rows have; only hidden ones may be missing."""
    fields = [f for f in schema if f.name in rows.column_names or f.name not in HIDDEN]
    return pa.table([rows[f.name].cast(f.type) for f in fields], [f.name for f in fields])


# An epoch's rows by key, each key's in order, without moving a row.
#
# Order is by event time, source and offset, as far as rows have them. Keys are numbered by
# hash, exact where two share one, so they are in the order in which tables hold them. The result
# is where the rows are; whoever needs a column takes that column only.


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
        times: Index = integers(self.rows[TIME])[self.order[places]]
        return times

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
    resorted = by_number(keys[0]) if len(keys) == 1 else sorted_by(keys)
    return resorted if order is None else order[resorted]


def _plain(column: Column) -> Column:
    """Floats with one zero and one NaN: the same key is then the same value."""
    return plain_floats(column) if pt.is_floating(column.type) else column
