"""Rows kept per key, packed: what a key got in one epoch is one row of a table, with lists.

So a table has as many rows as keys were touched, not as rows are kept, and adding rows does
not read those that are there. A *parcel* is such a list; parcels of a key are numbered in
the order in which they came.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.chunk import HASH, HIDDEN
from headrace.ops.agg_groups import Column, Index, Mask, flat, integers, take
from headrace.ops.agg_keys import key_numbers
from headrace.ops.agg_order import sorted_by
from headrace.state.table import KeyedTable, TableSpec

_PARCEL = "__parcel"


@dataclass(frozen=True, slots=True)
class Kept:
    """The rows of some keys, key by key in order, and the parcels that they came in."""

    rows: pa.Table
    parcels: pa.Table  # their identities
    key: Index  # of each parcel: its place among the keys asked for
    sizes: Index  # rows in each parcel

    def rows_of(self, keys: int) -> Index:
        """How many rows each of so many keys has."""
        return np.bincount(self.key, self.sizes, minlength=keys).astype(np.int64)

    def alive(self, rows: Mask) -> Mask:
        """The parcels that hold one of the given rows."""
        starts = np.cumsum(self.sizes) - self.sizes
        found: Mask = np.logical_or.reduceat(rows, starts) if len(starts) else rows
        return found


class PackedRows:
    """A table of packed rows with the given columns; the key's own are kept only once."""

    def __init__(self, name: str, key: pa.Schema, rows: pa.Schema, timed: bool = False) -> None:
        self._key, self.rows = key, rows
        self._packed = [f for f in rows if f.name not in key.names]
        lists = [pa.field(_list(f.name), pa.list_(f.type)) for f in self._packed]
        parcels = pa.schema([*key, pa.field(_PARCEL, pa.int64())])
        self.spec = TableSpec(name, parcels, pa.schema(lists), timed)

    def add(
        self, table: KeyedTable, owners: pa.Table, parcel: Index, rows: pa.Table, sizes: Index
    ) -> None:
        """Keep `rows`, which lie owner by owner, as a parcel for each that has any."""
        some = np.flatnonzero(sizes)
        if not len(some):
            return
        where = pa.array(some)
        put = owners.take(where).append_column(_PARCEL, pa.array(parcel[some]))
        ends = pa.array(np.append(0, np.cumsum(sizes[some])).astype(np.int32))
        for field in self._packed:
            values = flat(_column(rows, field))
            put = put.append_column(_list(field.name), pa.ListArray.from_arrays(ends, values))
        table.put(put)

    def gather(self, table: KeyedTable, keys: pa.Table) -> Kept:
        """All that is kept of these keys, which are distinct."""
        found = table.match(keys[HASH].to_numpy())
        number = self._numbers(keys, found)
        mine = np.flatnonzero(number >= 0)
        turn = sorted_by([number[mine], integers(found[_PARCEL])[mine]]) if len(mine) else mine
        found, number = found.take(pa.array(mine[turn])), number[mine[turn]]
        identity = found.select(self.spec.identity.names)
        return Kept(self.unpacked(found), identity, number, _sizes(found))

    def _numbers(self, keys: pa.Table, found: pa.Table) -> Index:
        """The place of each row's key among `keys`; -1 for another one of the same hash."""
        names = [HASH, *self._key.names]
        number, first = key_numbers(pa.concat_tables([keys.select(names), found.select(names)]))
        place = np.full(len(first), -1, np.int64)
        place[number[: keys.num_rows]] = np.arange(keys.num_rows)
        return place[number[keys.num_rows :]]

    def unpacked(self, found: pa.Table) -> pa.Table:
        """The rows in these parcels, one after the other, with the hash of their key.

        A hidden column that is null throughout was never there.
        """
        owner = np.repeat(np.arange(found.num_rows), _sizes(found))
        names = [HASH, *self._key.names]
        columns = dict(zip(names, take([found[n] for n in names], owner), strict=True))
        for field in self._packed:
            values = flat(found[_list(field.name)]).flatten()
            if field.name not in HIDDEN or values.null_count < len(owner) or not len(owner):
                columns[field.name] = values
        return pa.table(columns)


def _sizes(found: pa.Table) -> Index:
    return integers(pc.list_value_length(flat(found.columns[-1])))


def _list(name: str) -> str:
    return f"[{name}]"


def _column(rows: pa.Table, field: pa.Field) -> Column:
    """A column as it is kept; hidden ones that the rows do not have are null."""
    if field.name in rows.column_names:
        return rows[field.name].cast(field.type)
    return pa.nulls(rows.num_rows, field.type)


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of `schema` that the rows have; only hidden ones may be missing."""
    fields = [f for f in schema if f.name in rows.column_names or f.name not in HIDDEN]
    return pa.table([rows[f.name].cast(f.type) for f in fields], [f.name for f in fields])
