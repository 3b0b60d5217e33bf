"""Windows with named aggregates, from shared panes.

Where the rows are, each is put into its pane and panes are aggregated; only those partials
travel. The state is one timed table of partials by (pane, key); a window's result is made
from its panes when the watermark passes its end, and a pane is forgotten when no window
that is still to fire holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.hashing import hash_keys
from headrace.ops.agg.groups import flat
from headrace.ops.agg.keys import key_numbers
from headrace.ops.agg.named import Aggregate, merge, partial, result
from headrace.ops.agg.partials import with_held
from headrace.ops.contract import Step
from headrace.ops.panes.blocks import CoarsePanes, panes_per_block
from headrace.ops.panes.firing import fire
from headrace.ops.view import with_bounds
from headrace.ops.window.aligned import Window
from headrace.state.table import KeyedTable, TableSpec

PANES, BLOCKS = "panes", "blocks"
_PANE = "__pane"
_KEY = "__key"


class WindowAggOperator:
    version = 1

    def __init__(
        self,
        window: Window,
        aggs: Mapping[str, Aggregate],
        keys: Sequence[str],
        input: pa.Schema,
        output: pa.Schema,
    ) -> None:
        self._window, self._aggs, self._keys = window, dict(aggs), list(keys)
        self._input, self._schema = input, output
        panes = panes_per_block(window)
        self._coarse = CoarsePanes(window, panes, self._aggs, keys) if panes else None
        self._partials = [f for n, a in aggs.items() for f in a.partial_fields(n, input)]

    def tables(self) -> tuple[TableSpec, ...]:
        key = pa.schema([self._input.field(k) for k in self._keys])
        names = [PANES, BLOCKS] if self._coarse else [PANES]
        value = pa.schema(self._partials)
        return tuple(TableSpec(name, key, value, timed=True) for name in names)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        if watermark == MIN_TIME:
            return None
        return self._window.is_late(rows.column(TIME).to_numpy(), watermark)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        panes = self._window.panes_of(rows.column(TIME).to_numpy())
        placed = rows.append_column(_PANE, pa.array(panes))
        return partial(placed, [_PANE, *self._keys], self._aggs)

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        merged = merge(prepared, [_PANE, *self._keys], self._aggs)
        hashes = hash_keys([merged.column(k) for k in self._keys], merged.num_rows)
        names = [TIME if n == _PANE else n for n in merged.column_names]
        return merged.rename_columns(names).append_column(HASH, pa.array(hashes))

    def step(self, step: Step) -> None:
        table = step.tables[PANES]
        if step.inputs[0] is not None and step.inputs[0].num_rows:
            self._absorb(table, step.inputs[0])
            if self._coarse:
                self._absorb(step.tables[BLOCKS], self._in_blocks(step.inputs[0]))
        if step.after > step.before:
            self._fire(table, step)
        oldest = self._window.oldest_needed_pane(step.after)
        table.expire(oldest)
        if self._coarse:
            step.tables[BLOCKS].expire(self._coarse.oldest_needed(oldest))
        first = table.first_time()
        live = np.array([] if first is None else [first], dtype=np.int64)
        due = self._window.next_end(step.after, live)
        step.next = MAX_TIME if due is None else due

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
        return with_bounds(merged.select(self._keys), start, end, values)

    def _in_blocks(self, arrived: pa.Table) -> pa.Table:
        assert self._coarse is not None
        blocks = self._coarse.blocks_of(arrived.column(TIME).to_numpy())
        return arrived.set_column(arrived.column_names.index(TIME), TIME, pa.array(blocks))

    def _absorb(self, table: KeyedTable, arrived: pa.Table) -> None:
        identity = [TIME, HASH, *self._keys]
        fresh = self._merged(arrived, identity)
        held, found = table.get(fresh.select(identity))
        if found.any():
            fresh = with_held(fresh, held, found, self._aggs)
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

    def _fire(self, table: KeyedTable, step: Step) -> None:
        if self._coarse:
            blocks = step.tables[BLOCKS]
            for fired in self._coarse.fire(table, blocks, step.before, step.after):
                step.out.append(derived(fired, self._schema))
            return
        panes = table.scan(self._window.oldest_needed_pane(step.before), step.after)
        if not panes.num_rows:
            return
        fired = fire(panes, self._keys, self._window, self._aggs, step.before, step.after)
        if fired.num_rows:
            step.out.append(derived(fired, self._schema))


def _same(value: Callable[[], int], rows: pa.Table) -> np.ndarray:
    """One number for all rows; there may be none."""
    return np.full(rows.num_rows, value() if rows.num_rows else 0, np.int64)


def derived(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Window results as a chunk: their time is the last millisecond of their window."""
    ends = rows.column("window_end").cast(pa.int64()).to_numpy() // 1_000
    hashes = rows.column(HASH).to_numpy()
    chunk = rows.select(schema.names).cast(schema)
    chunk = chunk.append_column(TIME, pa.array(ends - 1))
    chunk = chunk.append_column(SOURCE, pa.array(np.full(len(ends), -1, dtype=np.int32)))
    return chunk.append_column(OFFSET, pa.array(hashes.view(np.int64)))
