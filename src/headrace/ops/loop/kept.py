"""Tables that a loop keeps from batch to batch: loaded when looked at, written where changed.

A table lies by the hash of its key and the place of a row among those of one hash; without a
key all of it has one hash. Only the rows of the keys that a batch touches are loaded. Two keys
that share a hash are loaded and stored together, which changes nothing for either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH
from headrace.hashing import Hashes, hash_keys
from headrace.ops.agg.groups import Index, flat, integers
from headrace.ops.agg.order import sorted_by
from headrace.ops.stream.alike import Mask, place_in_group, same
from headrace.ops.stream.whole import as_table
from headrace.state.table import KeyedTable, TableSpec

_PLACE = "$place"
IDENTITY = [HASH, _PLACE]


def table_of(name: str, schema: pa.Schema) -> TableSpec:
    """How a table named `name` lies in state."""
    return TableSpec(name, pa.schema([(_PLACE, pa.int64())]), schema)


class KeptTables(MutableMapping[str, pa.Table]):
    """The tables of one batch, as the body sees them."""

    def __init__(
        self, schemas: Mapping[str, pa.Schema], keys: Sequence[str], hashes: Hashes,
        tables: Mapping[str, KeyedTable],
    ) -> None:  # fmt: skip
        self._schemas, self._keys, self._hashes = schemas, list(keys), hashes
        self._tables = tables
        self._held: dict[str, pa.Table] = {}
        self._now: dict[str, pa.Table] = {}

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self._now:
            self._now[name] = self._stored(name).select(self._schemas[name].names)
        return self._now[name]

    def __setitem__(self, name: str, rows: pa.Table) -> None:
        if name not in self._schemas:
            raise KeyError(f"the loop keeps no {name!r}; it keeps {', '.join(self._schemas)}")
        self._now[name] = as_table(rows, self._schemas[name])

    def __delitem__(self, name: str) -> None:
        self[name] = self._schemas[name].empty_table()

    def __iter__(self) -> Iterator[str]:
        return iter(self._schemas)

    def __len__(self) -> int:
        return len(self._schemas)

    def write(self) -> None:
        """Put what is new or changed, delete what is gone."""
        laid = {name: self._laid(rows) for name, rows in self._now.items()}
        for name, rows in laid.items():
            self._write(name, rows)

    def _stored(self, name: str) -> pa.Table:
        if name not in self._held:
            found = self._tables[name].match(self._hashes)
            hashes, places = flat(found[HASH]).to_numpy(), integers(found[_PLACE])
            self._held[name] = found.take(pa.array(np.lexsort((places, hashes))))
        return self._held[name]

    def _write(self, name: str, rows: pa.Table) -> None:
        held = self._stored(name)
        at, there = _positions(rows, held)
        unchanged = there.copy()
        unchanged[there] = _equal(rows.filter(pa.array(there)), held.take(pa.array(at[there])))
        self._tables[name].put(rows.filter(pa.array(~unchanged)))
        gone = np.ones(held.num_rows, np.bool_)
        gone[at[there]] = False
        self._tables[name].delete(held.select(IDENTITY).filter(pa.array(gone)))

    def _laid(self, rows: pa.Table) -> pa.Table:
        """The rows with hash and place, in the order of the hash."""
        hashes = hash_keys([rows.column(k) for k in self._keys], rows.num_rows)
        strange = ~np.isin(hashes, self._hashes)
        if strange.any():
            raise ValueError(
                "a row that is kept or fed back has a key that no row of this batch has; "
                "without key_by it may have any"
            )
        order = sorted_by([hashes.view(np.int64)])
        places = place_in_group(hashes[order].view(np.int64))
        laid = rows.take(pa.array(order)).append_column(HASH, pa.array(hashes[order]))
        return laid.append_column(_PLACE, pa.array(places))


def _positions(rows: pa.Table, held: pa.Table) -> tuple[Index, Mask]:
    """Where in `held` each row's hash and place are, and whether they are there at all."""
    hashes = [flat(t[HASH]).to_numpy() for t in (rows, held)]
    known = np.unique(np.concatenate(hashes))
    wanted, there = (
        (np.searchsorted(known, h) << 32) + integers(t[_PLACE])
        for h, t in zip(hashes, (rows, held), strict=True)
    )
    if not len(there):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    at = np.searchsorted(there, wanted)
    found = np.take(there, at, mode="clip") == wanted
    return at, found & (at < len(there))


def _equal(left: pa.Table, right: pa.Table) -> Mask:
    """Row by row, whether all columns agree; lists and records count as changed."""
    alike = np.ones(left.num_rows, np.bool_)
    for name in left.column_names:
        if name in (HASH, _PLACE):
            continue
        if pa.types.is_nested(left.column(name).type):
            return np.zeros(left.num_rows, np.bool_)
        alike &= same(flat(left.column(name)), flat(right.column(name)))
    return alike
