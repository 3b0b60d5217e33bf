"""The first sight of a key in each period, in bounded memory: Bloom filters instead of keys.

Of rows with the same key in one period the first goes on. A key that is new may count as seen, with
a chance of at most the error; a key that was seen never counts as new. Periods follow one
another, and what is stored of one is dropped when the watermark has passed it.

The hashes of keys are divided into blocks, each with a filter of its own, and where the boundary
of two slots lies within a block, each slot has a filter for its part: so filters move with
their slots, and do not depend on the number of tasks. All keys of a batch are judged by what was
stored before it, and then added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Index, Mask, Times, flat, integers, timestamps
from headrace.chunk import HASH, TIME
from headrace.clock import MIN_TIME, pretty
from headrace.errors import PlanError, call_site
from headrace.hashing import Hashes, block_starts
from headrace.ops.agg.order import run_starts, sorted_by
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.keys import ORDER, KeyColumns
from headrace.ops.sketch import bloom
from headrace.ops.sketch.sizes import check_error, in_words, out_of_reach
from headrace.ops.stream.key_groups import group_heads, place_in_group
from headrace.ops.tables import emit_some
from headrace.ops.window.calendar import Calendar
from headrace.state.table import KeyedTable, TableSpec

FILTERS = "filters"
_LAYER, _KEYS, _BITS = "layer", "keys", "bits"
_TOP = np.uint64(1 << 63)  # turns the order of hashes into that of integers with a sign
_MOST_KEYS = 10**10
_FORMAT = 1  # of the stored bits: how keys are hashed, and what sizes layers have


def check_filter(error: object, expected: object) -> None:
    """Refuse an error or a number of keys that no filter has."""
    check_error("first_seen", error, None)
    if not isinstance(error, int | float) or error < bloom.LEAST_ERROR:
        least = f"The least is {bloom.LEAST_ERROR:g}; deduplicate and throttle are exact."
        raise out_of_reach("first_seen", f"an error of {error!r}", least)
    whole = isinstance(expected, int) and not isinstance(expected, bool)
    if not whole or not 0 < expected <= _MOST_KEYS:  # type: ignore[operator]
        raise PlanError(
            "HR-APPROX-002",
            f"first_seen has expected={expected!r}",
            f"Say how many different keys a period may have: 1 to {_MOST_KEYS:,}.",
            site=call_site(),
        )


@dataclass(frozen=True)
class FirstSeen(Spec):
    per: int | Calendar
    error: float
    expected: int

    kind = "first_seen"
    widens_keys = True
    passes = True
    needs_time = True
    has_late = True

    def __str__(self) -> str:
        per = self.per.at_rest() if isinstance(self.per, Calendar) else pretty(self.per)
        room = in_words(bloom.memory(self.error, self.expected))
        per_slot = in_words(bloom.ROW_BYTES)  # a block that two slots share is two filters
        return (
            f"the first in each {per}, error {self.error:g} "
            f"(for {self.expected:,} keys {room} per period, and {per_slot} per slot)"
        )

    def shape(self) -> dict[str, Any]:
        per = self.per.at_rest() if isinstance(self.per, Calendar) else self.per
        return {"per": per, "error": self.error, "expected": self.expected, "format": _FORMAT}

    def operator(self, place: Place) -> Operator:
        return _FirstSeenOperator(self, KeyColumns(place.key, place.input), place.output)

    def periods(self, times: Times) -> tuple[Times, Times]:
        """When the period of each time begins and ends."""
        if isinstance(self.per, Calendar):
            placed = self.per.place(times, pa.table({}))
            return placed.start, placed.end
        start = times - times % self.per
        return start, start + self.per


class _FirstSeenOperator(Operator):
    filters = True

    def __init__(self, spec: FirstSeen, keys: KeyColumns, output: pa.Schema) -> None:
        self._spec, self._keys, self._output = spec, keys, output

    def tables(self) -> tuple[TableSpec, ...]:
        key = pa.schema([(_LAYER, pa.int32())])
        value = pa.schema([(_KEYS, pa.int64()), (_BITS, pa.binary())])
        return (TableSpec(FILTERS, key, value, timed=True),)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        """What is seen in a period that is over is forgotten."""
        if watermark == MIN_TIME:
            return None
        _, end = self._spec.periods(integers(rows.column(TIME)))
        late: Mask = end <= watermark
        return late

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        rows = self._keys.hashed(rows)
        _, _, first = self._candidates(rows)
        if len(first) == rows.num_rows:
            return rows
        return rows.take(pa.array(np.sort(first)))

    def step(self, step: EpochStep) -> None:
        table, rows = step.tables[FILTERS], step.arrived
        if rows is not None:
            periods, hashes, first = self._candidates(rows)
            stays = np.zeros(rows.num_rows, np.bool_)
            homes = np.array(step.homes, np.uint64)
            filters = _Filters(self._spec, table, periods[first], hashes[first], homes)
            stays[first] = ~filters.seen
            filters.add()
            emit_some(rows, stays, self._output.names, step)
        if step.after > MIN_TIME:
            start, _ = self._spec.periods(np.array([step.after]))
            table.expire(int(start[0]))

    def _candidates(self, rows: pa.Table) -> tuple[Times, Hashes, Index]:
        """The period and hash of each row; the first row of each of both, sorted by them."""
        periods, _ = self._spec.periods(integers(rows.column(TIME)))
        hashes = flat(rows.column(HASH)).to_numpy()
        place = [integers(rows.column(n)) for n in ORDER if n in rows.column_names]
        rising = (hashes ^ _TOP).view(np.int64)
        order = sorted_by([periods, rising, *place])
        new = group_heads(periods[order]) | group_heads(rising[order])
        return periods, hashes, order[new]

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """For each period, how many keys went on, and the bytes of its filters."""
        stored = tables[FILTERS].scan(since, until)
        bits = pc.binary_length(stored.column(_BITS))
        found = pa.table([stored.column(TIME), stored.column(_KEYS), bits], ["t", "n", "b"])
        found = found.group_by("t").aggregate([("n", "sum"), ("b", "sum")]).sort_by("t")
        times = timestamps(integers(found.column("t")))
        columns = [times, found.column("n_sum"), found.column("b_sum")]
        return pa.table(columns, ["time", _KEYS, "bytes"])


class _Filters:
    """The filters that the keys of one batch fall into, in layers."""

    def __init__(
        self, spec: FirstSeen, table: KeyedTable, periods: Times, hashes: Hashes, homes: Hashes
    ) -> None:
        """Keys are sorted by period and hash, no two of them equal."""
        self._error, self._table = spec.error, table
        self._hashes = hashes
        blocks = bloom.blocks_for(spec.error, spec.expected)
        slots = homes[np.searchsorted(homes, hashes, side="right") - 1]
        home = np.maximum(block_starts(hashes, blocks), slots)
        new = group_heads(periods) | group_heads(home.view(np.int64))
        starts = np.flatnonzero(new)
        self._filter = np.cumsum(new) - 1  # of each key
        self._periods, self._homes = periods[starts], home[starts]
        self._open = np.zeros(len(starts), np.int64)  # the layer that takes new keys
        self._count = np.zeros(len(starts), np.int64)  # the keys that it has
        self._bits: dict[int, tuple[Index, bloom.Bits]] = {}  # of a layer: which filters have it
        self.seen = self._look_up()

    def _look_up(self) -> Mask:
        seen = np.zeros(len(self._hashes), np.bool_)
        among, number = np.arange(len(self._open)), 0
        while len(among):
            layer = bloom.layer_of(self._error, number)
            stored, present = self._table.get(self._identities(among, number))
            among = among[present]
            stored = stored.filter(pa.array(present))
            matrix = _matrix(stored.column(_BITS), layer)
            counts = integers(stored.column(_KEYS))
            row = np.full(len(self._open), -1, np.int64)
            row[among] = np.arange(len(among))
            asked = np.flatnonzero(~seen & (row[self._filter] >= 0))
            at = row[self._filter[asked]]
            seen[asked] = bloom.contains(layer, matrix, at, self._hashes[asked])
            full = counts >= layer.keys
            self._open[among] = np.where(full, number + 1, number)
            self._count[among] = np.where(full, 0, counts)
            self._bits[number] = among[~full], matrix[~full]
            among, number = among[full], number + 1
        return seen

    def add(self) -> None:
        """Write the keys that were not seen."""
        fresh = np.flatnonzero(~self.seen)
        owner = self._filter[fresh]
        ordinal = place_in_group(owner) + self._count[owner]
        number = int(self._open[owner].min(initial=np.iinfo(np.int64).max))
        while len(fresh):
            layer = bloom.layer_of(self._error, number)
            here = (self._open[owner] <= number) & (ordinal < layer.keys)
            self._put(layer, owner[here], self._hashes[fresh[here]])
            ordinal = np.where(self._open[owner] <= number, ordinal - layer.keys, ordinal)[~here]
            fresh, owner = fresh[~here], owner[~here]
            number += 1

    def _put(self, layer: bloom.Layer, owner: Index, hashes: Hashes) -> None:
        if not len(owner):
            return
        starts = run_starts(owner)
        filters = owner[starts]
        added = np.diff(starts, append=len(owner))
        matrix = np.zeros((len(filters), layer.bytes), np.uint8)
        known, before = self._bits.get(layer.number, (np.zeros(0, np.int64), matrix[:0]))
        at = np.searchsorted(known, filters)
        had = np.zeros(len(filters), np.bool_)
        had[at < len(known)] = known[at[at < len(known)]] == filters[at < len(known)]
        matrix[had] = before[at[had]]
        bloom.insert(layer, matrix, np.repeat(np.arange(len(filters)), added), hashes)
        counts = added + np.where(had, self._count[filters], 0)
        rows = self._identities(filters, layer.number).append_column(_KEYS, pa.array(counts))
        self._table.put(rows.append_column(_BITS, _column(matrix)))

    def _identities(self, filters: Index, number: int) -> pa.Table:
        columns = {
            TIME: self._periods[filters], HASH: self._homes[filters],
            _LAYER: np.full(len(filters), number, np.int32),
        }  # fmt: skip
        return pa.table({name: pa.array(column) for name, column in columns.items()})


def _matrix(column: pa.ChunkedArray, layer: bloom.Layer) -> bloom.Bits:
    """The bits of filters of one layer, a row each."""
    fixed = flat(column.cast(pa.binary(layer.bytes)))
    if not len(fixed):
        return np.zeros((0, layer.bytes), np.uint8)
    data = np.frombuffer(fixed.buffers()[1], np.uint8)
    start = fixed.offset * layer.bytes
    return data[start : start + len(fixed) * layer.bytes].reshape(-1, layer.bytes)


def _column(matrix: bloom.Bits) -> pa.Array:
    fixed = pa.binary(matrix.shape[1])
    return pa.Array.from_buffers(fixed, len(matrix), [None, pa.py_buffer(matrix)]).cast(pa.binary())
