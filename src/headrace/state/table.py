"""Keyed tables: what an operator remembers, for all keys of a task at once.

A table is a list of immutable sorted runs, newest first; a row in a newer run hides the
row of the same identity in an older one, and a tombstone (`__gone`) hides it for good.
This epoch's writes are runs too, in memory, until `changes` gives them as one. A lookup
pays for the keys asked for, not for those held. Touches no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.errors import StateError
from headrace.hashing import Hashes, Ints
from headrace.state.identity import Identities, Mask, find, newest, numbers, sort_order

GONE = "__gone"
ALL_HASHES = 2**64
_PENDING = 4  # writes of one epoch before they are merged in memory


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What an operator declares: identity is ([time,] key), the rest is value."""

    name: str
    key: pa.Schema
    value: pa.Schema
    timed: bool = False

    def __post_init__(self) -> None:
        names = self.run.names
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise StateError(
                f"table {self.name!r} has two columns named {', '.join(map(repr, twice))}",
                code="HR-STATE-008", hint="Rename a key or value column of the table.",
            )  # fmt: skip

    @property
    def identity(self) -> pa.Schema:
        """[__t], __h, key: what is asked for."""
        time = [pa.field(TIME, pa.int64())] if self.timed else []
        return _plain([*time, pa.field(HASH, pa.uint64()), *self.key])

    @property
    def rows(self) -> pa.Schema:
        """[__t], __h, key, value: what is put and scanned."""
        return _plain([*self.identity, *self.value])

    @property
    def run(self) -> pa.Schema:
        """What is stored: the columns of `rows`, and whether the row is a tombstone."""
        return _plain([*self.rows, pa.field(GONE, pa.bool_())])


def _plain(fields: Sequence[pa.Field]) -> pa.Schema:
    """Nullable and without metadata: a tombstone has no values."""
    return pa.schema([pa.field(f.name, f.type) for f in fields])


class Run:
    """A sorted run, of which only the rows with `lo` <= hash < `hi` count."""

    __slots__ = ("hi", "lo", "rows", "table")

    def __init__(self, spec: TableSpec, table: pa.Table, lo: int = 0, hi: int = ALL_HASHES) -> None:
        self.table, self.lo, self.hi = table, lo, hi
        self.rows = _identities(spec, table)

    def find(self, wanted: Identities, which: Ints) -> tuple[Ints, Ints]:
        """Those of `which` (in order) that have a row here, and which row."""
        which = which[self._worth_asking(wanted.hashes[which])]
        at = find(self.rows, wanted, which)
        hit = at >= 0
        return which[hit], at[hit]

    def _worth_asking(self, hashes: Hashes) -> Mask | slice:
        if self.rows.times is None and len(self.rows):  # both sides are sorted by hash
            a = np.searchsorted(hashes, self.rows.hashes[0], "left")
            b = np.searchsorted(hashes, self.rows.hashes[-1], "right")
            return slice(int(a), int(b))
        return self._within(hashes)

    def _within(self, hashes: Hashes) -> Mask:
        if self.lo == 0 and self.hi == ALL_HASHES:
            return np.ones(len(hashes), np.bool_)
        return (hashes >= np.uint64(self.lo)) & (hashes <= np.uint64(self.hi - 1))

    def slice(self, lo: int = MIN_TIME, hi: int = MAX_TIME) -> pa.Table:
        """The rows that count, with lo <= time < hi."""
        table, hashes = self.table, self.rows.hashes
        if self.rows.times is not None:
            first, last = np.searchsorted(self.rows.times, [lo, hi])
            table, hashes = table.slice(first, last - first), hashes[first:last]
        within = self._within(hashes)
        return table if within.all() else table.filter(pa.array(within))


def _identities(spec: TableSpec, table: pa.Table) -> Identities:
    times = numbers(table[TIME]) if spec.timed else None
    return Identities(times, numbers(table[HASH]), [_whole(table[n]) for n in spec.key.names])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def merge_runs(
    spec: TableSpec, runs: Sequence[Run | pa.Table], floor: int = MIN_TIME, bottom: bool = False
) -> pa.Table:
    """One run for several, newest first; `bottom`: nothing lies below, so tombstones go."""
    parts = [_as_run(spec, run).slice(floor) for run in runs]
    parts = [part for part in parts if part.num_rows]
    table = pa.concat_tables(parts or [spec.run.empty_table()]).combine_chunks()
    keep = newest(_identities(spec, table)) if len(parts) > 1 else None
    if bottom and table.num_rows:
        keep = _living(table, keep)
    return table if keep is None else table.take(pa.array(keep))


def _living(table: pa.Table, keep: Ints | None) -> Ints | None:
    gone = numbers(table[GONE])
    if not gone.any():
        return keep
    living: Ints = np.flatnonzero(~gone) if keep is None else keep[~gone[keep]]
    return living


def _as_run(spec: TableSpec, run: Run | pa.Table) -> Run:
    return run if isinstance(run, Run) else Run(spec, run)


class KeyedTable:
    """One table of one operator, for all slots of one task, during one epoch."""

    def __init__(
        self, spec: TableSpec, runs: Sequence[Run | pa.Table] = (), floor: int = MIN_TIME
    ) -> None:
        self.spec = spec
        self.floor = floor
        self._stored = [_as_run(spec, run) for run in runs]
        self._written: list[Run] = []  # newest first

    @property
    def rows_held(self) -> int:
        """About how many rows: overwritten, deleted and expired ones may be counted."""
        return sum(len(run.rows) for run in self._runs)

    @property
    def _runs(self) -> list[Run]:
        return [*self._written, *self._stored]

    def get(self, keys: pa.Table) -> tuple[pa.Table, Mask]:
        """The values under `keys` row by row, null where absent, and whether found."""
        wanted = _identities(self.spec, _conform(keys, self.spec.identity))
        order = sort_order(wanted.times, wanted.hashes)
        if order is not None:
            wanted = wanted.take(order)
        values, at = self._lookup(wanted)
        if order is not None:
            at[order] = at.copy()
        found: Mask = at >= 0
        return values.take(pa.array(at, mask=~found)), found

    def _lookup(self, wanted: Identities) -> tuple[pa.Table, Ints]:
        """Values found, and for each identity wanted which of them is its; -1 for none."""
        at = np.full(len(wanted), -1, np.int64)
        names, parts, count = self.spec.value.names, [self._no_values], 0
        which = np.arange(len(wanted))
        if wanted.times is not None:
            which = which[wanted.times >= self.floor]
        for run in self._runs:
            hit, row = run.find(wanted, which)
            if not len(hit):
                continue
            which = np.setdiff1d(which, hit, assume_unique=True)
            living = ~numbers(run.table[GONE].take(pa.array(row)))
            hit, row = hit[living], row[living]
            at[hit] = np.arange(count, count + len(hit))
            parts.append(run.table.select(names).take(pa.array(row)))
            count += len(hit)
        return pa.concat_tables(parts).combine_chunks(), at

    @property
    def _no_values(self) -> pa.Table:
        return _plain(list(self.spec.value)).empty_table()

    def put(self, rows: pa.Table) -> None:
        """Write `rows`; a later put of the same identity wins."""
        rows = _conform(rows, self.spec.rows)
        self._write(rows.append_column(GONE, pa.repeat(False, rows.num_rows)))

    def delete(self, keys: pa.Table) -> None:
        """Forget the rows under `keys`; those that are not there stay away."""
        keys = _conform(keys, self.spec.identity)
        nothing = [pa.nulls(keys.num_rows, f.type) for f in self.spec.value]
        columns = [*keys.columns, *nothing, pa.repeat(True, keys.num_rows)]
        self._write(pa.Table.from_arrays(columns, schema=self.spec.run))

    def scan(self, lo: int = MIN_TIME, hi: int = MAX_TIME) -> pa.Table:
        """The live rows, with lo <= time < hi if timed, sorted by ([time,] hash)."""
        parts = [run.slice(max(lo, self.floor), hi) for run in self._runs]
        return merge_runs(self.spec, parts, bottom=True).drop_columns(GONE)

    def first_time(self) -> int | None:
        """The earliest time of a row that has not expired; a deleted row may still count."""
        firsts = (np.searchsorted(run.rows.times, self.floor) for run in self._runs)
        times = (
            run.rows.times[at] for run, at in zip(self._runs, firsts, strict=True) if at < len(run.rows)
        )
        return min(map(int, times), default=None)

    def expire(self, floor: int) -> None:
        """Rows with a time before `floor` are dead from now on; it never goes back."""
        self.floor = max(self.floor, floor)

    def changes(self) -> pa.Table | None:
        """This epoch's run with its tombstones, or None if nothing was written."""
        run = merge_runs(self.spec, self._written, self.floor, bottom=not self._stored)
        return run if run.num_rows else None

    def _write(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._written.insert(0, Run(self.spec, _sorted(self.spec, rows)))
        if len(self._written) > _PENDING:
            self._written = [Run(self.spec, merge_runs(self.spec, self._written, self.floor))]


def _conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    rows = rows.select(schema.names)
    return (rows if rows.schema.equals(schema) else rows.cast(schema)).combine_chunks()


def _sorted(spec: TableSpec, rows: pa.Table) -> pa.Table:
    """As a run; of rows given twice the last counts."""
    order = newest(_identities(spec, rows))
    if order is not None and len(order) < rows.num_rows:
        rows = rows.take(pa.array(np.arange(rows.num_rows)[::-1]))
        order = newest(_identities(spec, rows))
    return rows if order is None else rows.take(pa.array(order))
