"""Deduplication: of rows with the same key that are close in event time, the first goes on.

A row that goes on hides others of its key less than `within` before or after it. So two rows
that went on are never so close, and one that was left out has a row that went on beside it.
The state is the time of each such row, in buckets `within` long: a bucket can hold only one
of a key, and a row looks into its own and both beside it. What the watermark has passed by
twice `within` is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Index, Mask, flat, integers, timestamps
from headrace.chunk import HASH, TIME
from headrace.clock import MIN_TIME, pretty
from headrace.ops.agg.order import by_number
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.keys import KeyColumns
from headrace.ops.stream.key_groups import (
    by_key_order,
    group_heads,
    key_ids,
    mixed_hashes,
    repeated,
    rows_apart,
)
from headrace.ops.tables import emit_some, with_column
from headrace.state.table import KeyedTable, TableSpec

SEEN = "seen"
_AT = "at"


@dataclass(frozen=True)
class Deduplicate(Spec):
    """`within` None: for ever."""

    within: int | None

    kind = "deduplicate"
    widens_keys = True
    passes = True

    @property
    def endless(self) -> bool:
        return self.within is None

    @property
    def needs_time(self) -> bool:
        return self.within is not None

    @property
    def has_late(self) -> bool:
        return self.within is not None

    def __str__(self) -> str:
        return (
            "the first ever" if self.within is None else f"the first within {pretty(self.within)}"
        )

    @property
    def bound(self) -> str:
        return 'unbounded=True; otherwise pass within="1h": what is older is forgotten.'

    def shape(self) -> dict[str, Any]:
        return {"within": self.within}

    def goes_on(self, before: Mapping[str, Any]) -> dict[str, str]:
        """A shorter time; for a longer one, what has been forgotten would be needed."""
        was = before["within"]
        if self.within is None or was is None or was < self.within:
            return {}
        return {"within": f"from {pretty(was)} to {pretty(self.within)}"}

    def recut(self, table: str, rows: pa.Table, watermark: int) -> pa.Table:
        assert self.within is not None
        at = integers(rows.column(_AT))
        return with_column(rows, TIME, pa.array(at - at % self.within))

    def operator(self, place: Place) -> Operator:
        keys = KeyColumns(place.key, place.input)
        return (
            _DeduplicateForever(keys, place.output)
            if self.within is None
            else _DeduplicateWithin(self.within, keys, place.output)
        )


class _DeduplicateOperator(Operator):
    """Leaves out, where the rows are, those that no state is needed for."""

    filters = True

    def __init__(self, keys: KeyColumns, output: pa.Schema) -> None:
        self._keys, self._output = keys, output

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        rows = self._keys.hashed(rows)
        twice = self._twice(rows)
        return rows if twice is None else rows.filter(pa.array(~twice))

    def _twice(self, rows: pa.Table) -> Mask | None:
        """The rows that repeat another, key and (if that counts) time alike."""
        some = repeated(self._alike(rows))
        if not len(some):
            return None
        part = rows.take(pa.array(some))
        order, ids = self._ordered(part)
        new = group_heads(ids)
        if TIME in self._counts():
            times = integers(part.column(TIME))[order]
            new[1:] |= times[1:] != times[:-1]
        twice = np.zeros(rows.num_rows, np.bool_)
        twice[some[order[~new]]] = True
        return twice

    def _counts(self) -> tuple[str, ...]:
        return ()

    def _alike(self, rows: pa.Table) -> npt.NDArray[np.uint64]:
        hashes = flat(rows.column(HASH)).to_numpy()
        return mixed_hashes(hashes, [integers(rows.column(n)) for n in self._counts()])

    def _ordered(self, rows: pa.Table) -> tuple[Index, Index]:
        """The rows by key and, within one, in order; the key id of each."""
        ids = key_ids(self._keys.of(rows))
        order = by_key_order(rows, ids)
        return order, ids[order]


class _DeduplicateForever(_DeduplicateOperator):
    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec(SEEN, self._keys.schema, pa.schema([])),)

    def step(self, step: EpochStep) -> None:
        rows = step.arrived
        if rows is None:
            return
        twice, table = self._twice(rows), step.tables[SEEN]
        stays = np.ones(rows.num_rows, np.bool_) if twice is None else ~twice
        keys = self._keys.of(rows)
        _, seen = table.get(keys)
        stays &= ~seen
        table.put(keys.filter(pa.array(stays)))
        emit_some(rows, stays, self._output.names, step)


class _DeduplicateWithin(_DeduplicateOperator):
    def __init__(self, within: int, keys: KeyColumns, output: pa.Schema) -> None:
        super().__init__(keys, output)
        self._within = within

    def tables(self) -> tuple[TableSpec, ...]:
        value = pa.schema([(_AT, pa.int64())])
        return (TableSpec(SEEN, self._keys.schema, value, timed=True),)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        """What is before the watermark cannot be judged: what it may repeat is forgotten."""
        return None if watermark == MIN_TIME else integers(rows.column(TIME)) < watermark

    def _counts(self) -> tuple[str, ...]:
        return (TIME,)

    def step(self, step: EpochStep) -> None:
        table, rows = step.tables[SEEN], step.arrived
        if rows is not None:
            times = integers(rows.column(TIME))
            order = self._by_bucket(rows, times)
            identities = self._identities(rows, times, order)
            stays = np.empty(len(times), np.bool_)
            stays[order] = ~self._hidden(identities, times[order], table)
            stays = self._fresh(rows, times, stays)
            seen = identities.append_column(_AT, pa.array(times[order]))
            table.put(seen.filter(pa.array(stays[order])))
            emit_some(rows, stays, self._output.names, step)
        if step.after > MIN_TIME:
            table.expire(step.after - 2 * self._within + 2)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """What went on, and when."""
        stored = tables[SEEN].scan(since - self._within, until)
        times = integers(stored.column(_AT))
        stored = stored.filter(pa.array((times >= since) & (times < until)))
        keys = stored.select(self._keys.schema.names).rename_columns(self._keys.columns)
        return keys.append_column("time", timestamps(integers(stored.column(_AT))))

    def _by_bucket(self, rows: pa.Table, times: Index) -> Index:
        """The order that the state has, so that it is gone through once."""
        order = np.argsort(flat(rows.column(HASH)).to_numpy())
        bucket = times[order] // self._within
        return order[by_number(bucket)] if (bucket != bucket[0]).any() else order

    def _identities(self, rows: pa.Table, times: Index, order: Index) -> pa.Table:
        """The bucket and key by which each row is looked up."""
        keys = self._keys.of(rows).take(pa.array(order))
        return keys.add_column(0, TIME, pa.array((times - times % self._within)[order]))

    def _hidden(self, identities: pa.Table, times: Index, table: KeyedTable) -> Mask:
        """Whether a row of the key that went on in an earlier batch is close to each."""
        hidden = np.zeros(len(times), np.bool_)
        buckets = integers(identities.column(TIME))
        for beside in (-self._within, 0, self._within):
            bucket = buckets + beside
            first = table.first_time(int(bucket.min()))
            if first is None or first > int(bucket.max()):
                continue
            stored, present = table.get(identities.set_column(0, TIME, pa.array(bucket)))
            hidden |= present & (np.abs(times - integers(stored.column(_AT))) < self._within)
        return hidden

    def _fresh(self, rows: pa.Table, times: Index, stays: Mask) -> Mask:
        """Of the rows that nothing in state hides, those that nothing in this batch hides."""
        some = repeated(flat(rows.column(HASH)).to_numpy())
        some = some[stays[some]]
        if len(some):
            order, ids = self._ordered(rows.take(pa.array(some)))
            some = some[order]
            stays[some] = rows_apart(ids, times[some], group_heads(ids), self._within)
        return stays
