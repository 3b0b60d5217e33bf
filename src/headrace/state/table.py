"""Keyed tables: what an operator remembers, for all keys of a task at once.

A table is a list of immutable sorted runs, newest first; a row in a newer run hides the
row of the same identity in an older one, and a tombstone hides it for good. This epoch's
writes are runs too, in memory, until `changes` returns them as one. The cost of a lookup grows
with the keys sought, not with those stored. Touches no file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, numbers
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.hashing import Hashes, Ints
from headrace.state.identity import Identities, Probe, sort_order
from headrace.state.sorted_run import SortedRun, as_run, identities, merge_runs, sorted_run
from headrace.state.spec import GONE, TableSpec, conform

__all__ = ["KeyedTable", "TableSpec", "merge_runs"]

_PENDING = 4  # writes of one epoch before they are merged in memory


class KeyedTable:
    """One table of one operator, for all slots of one task, during one epoch."""

    def __init__(
        self, spec: TableSpec, runs: Sequence[SortedRun | pa.Table] = (), floor: int = MIN_TIME
    ) -> None:
        self.spec = spec
        self.floor = floor
        self._stored = [as_run(spec, run) for run in runs]
        self._written: list[SortedRun] = []  # newest first

    @property
    def rows_held(self) -> int:
        """About how many rows, and 0 only if there are none.

        Overwritten and deleted ones, and other tasks', may be counted until runs merge.
        """
        return sum(run.count(self.floor) for run in self._runs)

    @property
    def _runs(self) -> list[SortedRun]:
        return [*self._written, *self._stored]

    def get(self, keys: pa.Table) -> tuple[pa.Table, Mask]:
        """The values under `keys` row by row, null where absent, and which are present."""
        sought = identities(self.spec, conform(keys, self.spec.identity))
        order = sort_order(sought.times, sought.hashes, stable=False)
        rows, at = self._lookup(sought if order is None else sought.take(order))
        if order is not None:
            at[order] = at.copy()
        hit: Mask = at >= 0
        return rows.take(pa.array(at, mask=~hit)).drop_columns(GONE), hit

    def _lookup(self, sought: Identities) -> tuple[pa.Table, Ints]:
        """The rows that match, and for each identity sought the index of its row; -1 for none."""
        at = np.full(len(sought), -1, np.int64)
        columns = [*self.spec.value.names, GONE]
        parts, count = [self.spec.run.empty_table().select(columns)], 0
        probe = Probe.all_of(sought)
        if sought.times is not None:
            probe = probe.only(sought.times >= self.floor)
        for run in self._runs:
            row = run.find(probe)
            hit = row >= 0
            if hit.any():
                part = run.table.select(columns).take(pa.array(row[hit]))
                living = np.flatnonzero(~numbers(part[GONE]))
                at[probe.which[hit][living]] = count + living
                parts, count = [*parts, part], count + part.num_rows
                probe = probe.only(~hit)
        return pa.concat_tables(parts).combine_chunks(), at

    def put(self, rows: pa.Table) -> None:
        """Write `rows`; a later put of the same identity wins."""
        rows = conform(rows, self.spec.rows)
        self._write(rows.append_column(GONE, pa.repeat(False, rows.num_rows)))

    def delete(self, keys: pa.Table) -> None:
        """Delete the rows under `keys`, where there are any."""
        keys = conform(keys, self.spec.identity)
        nothing = [pa.nulls(keys.num_rows, f.type) for f in self.spec.value]
        columns = [*keys.columns, *nothing, pa.repeat(True, keys.num_rows)]
        self._write(pa.Table.from_arrays(columns, schema=self.spec.run))

    def scan(self, lo: int = MIN_TIME, hi: int = MAX_TIME) -> pa.Table:
        """The live rows, with lo <= time < hi if timed, sorted by ([time,] hash)."""
        parts = [run.slice(max(lo, self.floor), hi) for run in self._runs]
        return merge_runs(self.spec, parts, bottom=True).drop_columns(GONE)

    def match(self, hashes: Hashes) -> pa.Table:
        """The live rows with one of these hashes, sorted by hash; for tables without time.

        Where a key is only the beginning of the identity, these are all its rows; another
        key may have the same hash.
        """
        sought = np.unique(hashes)
        parts = [run.having(sought) for run in self._runs]
        return merge_runs(self.spec, parts, bottom=True).drop_columns(GONE)

    def match_at(self, times: Ints, hashes: Hashes) -> pa.Table:
        """The live rows of one of these times and its hash, for timed tables.

        The times and hashes are distinct pairs, sorted by time and hash.
        """
        alive = times >= self.floor
        times, hashes = times[alive], hashes[alive]
        parts = [run.having(hashes, times) for run in self._runs]
        return merge_runs(self.spec, parts, bottom=True).drop_columns(GONE)

    def first_time(self, since: int = MIN_TIME) -> int | None:
        """The earliest time, not before `since`, of a row that has not expired.

        A deleted row may still count.
        """
        times = (run.first_time(max(since, self.floor)) for run in self._runs)
        return min((t for t in times if t is not None), default=None)

    def last_time(self) -> int | None:
        """The latest time of a row; a deleted row may still count."""
        return max((t for run in self._runs if (t := run.last_time()) is not None), default=None)

    def expire(self, floor: int) -> None:
        """Rows with a time before `floor` are dead from now on; it never goes back."""
        self.floor = max(self.floor, floor)

    def changes(self) -> pa.Table | None:
        """This epoch's run with its tombstones, or None if nothing was written."""
        run = merge_runs(self.spec, self._written, self.floor, bottom=not self._stored)
        return run if run.num_rows else None

    def _write(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._written.insert(0, sorted_run(self.spec, rows))
        if len(self._written) > _PENDING:
            self._written = _compacted(self.spec, self._written)


def _compacted(spec: TableSpec, runs: list[SortedRun]) -> list[SortedRun]:
    """The newest runs as one, up to the first that is much larger than they are."""
    stop, total = 1, len(runs[0])
    while stop < len(runs) and len(runs[stop]) <= 2 * total:
        total, stop = total + len(runs[stop]), stop + 1
    return [SortedRun.of(spec, merge_runs(spec, runs[:stop])), *runs[stop:]]
