"""Windows with named aggregates, from shared panes.

Where the rows are, each is put into its pane and panes are aggregated; only those partials
travel. The state is one timed table of partials by (pane, key); a window's result is merged
from its panes when the watermark passes its end, and a pane is forgotten when no window
that is still to fire holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isqrt

import numpy as np
import pyarrow as pa

from headrace.arrays import Times, flat, timestamps
from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.hashing import hash_keys
from headrace.ops.agg.named import Aggregate, merge, partial, result, with_stored
from headrace.ops.contract import EpochStep, Operator
from headrace.ops.keys import key_numbers
from headrace.ops.panes.carried import CARRIED, CarriedWindows, others
from headrace.ops.panes.firing import fire
from headrace.ops.tables import derived_rows, with_bounds, with_column
from headrace.ops.window.aligned import Window
from headrace.state.table import KeyedTable, TableSpec

PANES, BLOCKS = "panes", "blocks"
_PANE = "__pane"
_KEY = "__key"


class PaneOperator(Operator):
    def __init__(
        self,
        window: Window,
        aggs: Mapping[str, Aggregate],
        keys: Sequence[str],
        input: pa.Schema,
        output: pa.Schema,
        keep: int = 0,
    ) -> None:
        self._window, self._aggs, self._keys = window, dict(aggs), list(keys)
        self._input, self._schema, self._keep = input, output, keep
        panes = panes_per_block(window)
        self._coarse = CoarsePanes(window, panes, self._aggs, keys) if panes else None
        self._carried = None if window.tumbles else CarriedWindows(window, self._aggs, keys)
        self._partials = [f for n, a in aggs.items() for f in a.partial_fields(n, input)]

    def tables(self) -> tuple[TableSpec, ...]:
        key = pa.schema([self._input.field(k) for k in self._keys])
        names = [PANES, BLOCKS] if self._coarse else [PANES]
        value = pa.schema(self._partials)
        tables = [TableSpec(name, key, value, timed=True) for name in names]
        if self._carried:
            tables.append(TableSpec(CARRIED, key, value, timed=True, optional=True))
        return tuple(tables)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        if watermark == MIN_TIME:
            return None
        return self._window.is_late(rows.column(TIME).to_numpy(), watermark)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        panes = self._window.panes_of(rows.column(TIME).to_numpy())
        placed = rows.append_column(_PANE, pa.array(panes))
        if any(agg.draws for agg in self._aggs.values()):
            placed = self._hashed(placed)
        return partial(placed, [_PANE, *self._keys], self._aggs)

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        merged = self._hashed(merge(prepared, [_PANE, *self._keys], self._aggs))
        return merged.rename_columns([TIME if n == _PANE else n for n in merged.column_names])

    def _hashed(self, rows: pa.Table) -> pa.Table:
        hashes = hash_keys([rows.column(k) for k in self._keys], rows.num_rows)
        return rows.append_column(HASH, pa.array(hashes))

    def step(self, step: EpochStep) -> None:
        table, arrived = step.tables[PANES], step.arrived
        if arrived is not None:
            self._absorb(table, arrived)
            if self._coarse:
                self._absorb(step.tables[BLOCKS], self._in_blocks(arrived))
        if step.after > step.before:
            self._fire(table, step)
        oldest = self._window.oldest_needed_pane(step.after)
        table.expire(oldest_kept(self._window, self._keep, oldest, step))
        if self._coarse:
            step.tables[BLOCKS].expire(self._coarse.oldest_needed(oldest))
        first = table.first_time(oldest)
        live = np.array([] if first is None else [first], dtype=np.int64)
        due = self._window.next_end(step.after, live)
        step.next = MAX_TIME if due is None else due
        if self._carried and step.tables[CARRIED].first_time() is not None:
            step.tables[CARRIED].expire(step.after + 1)
            end = step.tables[CARRIED].first_time()
            step.next = step.next if end is None else min(step.next, end)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The aggregates of each pane and key; of a stretch of time, of each key over it."""
        panes = tables[PANES].scan(since, until)
        size, group = self._window.pane_size, [TIME, HASH, *self._keys]
        if (since, until) != (MIN_TIME, MAX_TIME):
            whole = panes.column(TIME).to_numpy() + size <= until
            panes, group = panes.filter(pa.array(whole)), [HASH, *self._keys]
        times = panes.column(TIME).to_numpy()
        merged = merge(panes, group, self._aggs)
        start = merged.column(TIME).to_numpy() if TIME in group else _same(times.min, merged)
        end = start + size if TIME in group else _same(times.max, merged) + size
        values = result(merged, self._aggs).select(list(self._aggs))
        seen = with_bounds(merged.select(self._keys), start, end, values)
        if self._carried is None or CARRIED not in tables:
            return seen
        parts = [seen, self._carried.view(tables[CARRIED], since, until)]
        return pa.concat_tables([part for part in parts if part.num_rows] or parts[:1])

    def _in_blocks(self, arrived: pa.Table) -> pa.Table:
        assert self._coarse is not None
        blocks = self._coarse.blocks_of(arrived.column(TIME).to_numpy())
        return with_column(arrived, TIME, pa.array(blocks))

    def _absorb(self, table: KeyedTable, arrived: pa.Table) -> None:
        identity = [TIME, HASH, *self._keys]
        fresh = self._merged(arrived, identity)
        stored, present = table.get(fresh.select(identity))
        if present.any():
            fresh = with_stored(fresh, stored, present, self._aggs)
        table.put(fresh)

    def _merged(self, partials: pa.Table, identity: list[str]) -> pa.Table:
        """One partial per identity, in order of time and hash.

        Grouped by time and hash alone where no two keys share a hash, which is nearly always.
        """
        number, first = key_numbers(partials.select(identity[1:]))
        keyed = partials.append_column(_KEY, pa.array(number))
        merged = merge(keyed, [TIME, _KEY], self._aggs)
        at = pa.array(first[merged.column(_KEY).to_numpy()])
        columns = [merged.column(TIME), *(flat(partials.column(n)).take(at) for n in identity[1:])]
        rest = merged.drop_columns([TIME, _KEY])
        return pa.table([*columns, *rest.columns], [*identity, *rest.column_names])

    def _fire(self, table: KeyedTable, step: EpochStep) -> None:
        ends = np.zeros(0, np.int64)
        if self._carried:
            carried = step.tables[CARRIED]
            ends = self._carried.due(carried, step.before, step.after)
            if len(ends):
                fired = self._carried.fire(carried, table, ends)
                step.out.append(derived(fired, self._schema))
        for fired in self._of_panes(table, step):
            rest = others(fired, ends) if len(ends) else fired
            if rest.num_rows:
                step.out.append(derived(rest, self._schema))

    def _of_panes(self, table: KeyedTable, step: EpochStep) -> Iterator[pa.Table]:
        if self._coarse:
            yield from self._coarse.fire(table, step.tables[BLOCKS], step.before, step.after)
            return
        panes = table.scan(self._window.oldest_needed_pane(step.before), step.after)
        if panes.num_rows:
            yield fire(panes, self._keys, self._window, self._aggs, step.before, step.after)


def oldest_kept(window: Window, keep: int, oldest: int, step: EpochStep) -> int:
    """Panes before this are forgotten: in no window to come, nor kept to be looked at.

    At the end of the input it goes by how far that has come.
    """
    if keep and step.after >= MAX_TIME:
        oldest = window.oldest_needed_pane(step.newest)
    return oldest - keep if MIN_TIME < oldest < MAX_TIME else oldest


def _same(value: Callable[[], int], rows: pa.Table) -> np.ndarray:
    """One number for all rows; there may be none."""
    return np.full(rows.num_rows, value() if rows.num_rows else 0, np.int64)


def derived(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Window results as a chunk: their time is the last millisecond of their window."""
    ends = rows.column("window_end").cast(pa.int64()).to_numpy() // 1_000
    hashes = rows.column(HASH).to_numpy()
    return derived_rows(rows.select(schema.names).cast(schema), hashes.view(np.int64), ends - 1)


# Panes of panes, for windows that overlap hundreds of times.
#
# A window of 3,600 panes that fires every second must not read 3,600 panes every second. So
# panes are stored twice: as they are, and in *blocks* of many. While the watermark crosses one
# block, every window that ends in it is the end of one block of panes, the same whole blocks,
# and the beginning of another: those whole blocks are merged once and count as one pane.
# Invariant: a block holds what its panes hold.


_ENOUGH = 64  # overlaps from which it is worth storing panes twice


def panes_per_block(window: Window) -> int | None:
    """How many panes to a block: about the root of a window's; None if it is not worth it."""
    overlaps = window.size // window.slide
    if overlaps < _ENOUGH or window.size % window.slide:
        return None
    root = isqrt(overlaps)
    best = min(
        (d for d in range(2, 2 * root + 1) if not overlaps % d),
        default=None,
        key=lambda d: abs(d - root),
    )
    return best if best is not None and 4 * best >= root else None


class CoarsePanes:
    def __init__(
        self, window: Window, panes: int, aggs: Mapping[str, Aggregate], keys: Sequence[str]
    ) -> None:
        self._window, self._panes, self._aggs, self._keys = window, panes, aggs, list(keys)
        self._pane = window.slide
        self._block = panes * window.slide
        self._blocks = window.size // self._block
        self._virtual = Window(panes + 1, 1)

    def blocks_of(self, times: Times) -> Times:
        """The start of the block that holds each time."""
        offset = self._window.offset
        return (times - offset) // self._block * self._block + offset

    def oldest_needed(self, pane: int) -> int:
        return pane if abs(pane) >= MAX_TIME else int(self.blocks_of(np.array([pane]))[0])

    def fire(
        self, panes: KeyedTable, blocks: KeyedTable, before: int, after: int
    ) -> Iterator[pa.Table]:
        """The results of windows that end in (before, after], a block at a time."""
        oldest = self._window.oldest_needed_pane(before)
        stored = blocks.scan(self.oldest_needed(oldest), after)
        if not stored.num_rows:
            return
        starts = stored.column(TIME).to_numpy()
        for block in self._crossed(np.unique(starts), before, after).tolist():
            yield from self._cross(panes, stored, starts, block, before, after)

    def _crossed(self, starts: Times, before: int, after: int) -> Times:
        """The blocks in which a window ends that holds one of those at `starts`."""
        ends = starts[:, None] + np.arange(self._blocks + 1) * self._block
        blocks = np.unique(ends)
        return blocks[(blocks + self._block > before) & (blocks < after)]

    def _cross(
        self, panes: KeyedTable, rows: pa.Table, starts: Times, block: int, before: int, after: int
    ) -> Iterator[pa.Table]:
        """The windows that end within one block, from panes that stand in a row."""
        first = max(1, (before - block) // self._pane + 1)
        last = min(self._panes, (after - block) // self._pane)
        if first > last:
            return
        left = block - self._window.size
        parts = [
            self._row(panes.scan(left, left + self._block), left, 0),
            self._middle(rows, starts, left + self._block, block),
            self._row(panes.scan(block, block + self._block), block, self._panes + 1),
        ]
        row = pa.concat_tables([p for p in parts if p.num_rows] or parts[:1])
        if row.num_rows:
            ends = (first + self._panes, last + self._panes + 1)
            yield self._real(fire(row, self._keys, self._virtual, self._aggs, *ends), block)

    def _row(self, panes: pa.Table, start: int, at: int) -> pa.Table:
        """Panes by their place in the row instead of by time."""
        place = (panes.column(TIME).to_numpy() - start) // self._pane + at
        return with_column(panes, TIME, pa.array(place))

    def _middle(self, stored: pa.Table, starts: Times, low: int, high: int) -> pa.Table:
        """The whole blocks that every window of the row holds, as one pane per key."""
        whole = stored.filter(pa.array((starts >= low) & (starts < high)))
        number, first = key_numbers(whole.select([HASH, *self._keys]))
        merged = merge(whole.append_column(_KEY, pa.array(number)), [_KEY], self._aggs)
        at = pa.array(first[merged.column(_KEY).to_numpy()])
        place = pa.array(np.full(merged.num_rows, self._panes))
        columns = {n: flat(whole.column(n)).take(at) for n in (HASH, *self._keys)}
        columns |= {n: merged.column(n) for n in merged.column_names if n != _KEY}
        middle = pa.table({TIME: place, **columns}).select(stored.column_names)
        return middle.sort_by(HASH)

    def _real(self, fired: pa.Table, block: int) -> pa.Table:
        """Results with the bounds of the windows they are of."""
        place = fired.column("window_end").cast(pa.int64()).to_numpy() // 1_000
        ends = block + (place - self._panes - 1) * self._pane
        for name, times in (("window_start", ends - self._window.size), ("window_end", ends)):
            fired = with_column(fired, name, timestamps(times))
        return fired
