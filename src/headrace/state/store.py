"""The way of a table through an epoch: from files to a KeyedTable and back.

`open_table` gives a task the table for its slots; `store_changes` writes what the epoch
changed as one run, merges what has become due, and says which runs make up these slots from
now on. Nothing is overwritten: until a manifest names the new runs, the old state stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.clock import MIN_TIME
from headrace.errors import StateError
from headrace.hashing import Hashes, first_hash
from headrace.state.identity import numbers
from headrace.state.merging import TOO_MANY, Merge, plan_slot, plan_young, replaced
from headrace.state.runs import RunCache, RunRef, RunWriter
from headrace.state.slots import Segment, SlotState
from headrace.state.table import GONE, KeyedTable, Run, TableSpec, merge_runs


def open_table(
    spec: TableSpec, state: SlotState, lo: int, hi: int, slots: int, cache: RunCache
) -> KeyedTable:
    """The table as a task that holds slots [lo, hi) sees it."""
    floors = [s.floor for s in state.part(lo, hi).segments]
    return KeyedTable(spec, load(spec, state, lo, hi, slots, cache), min(floors, default=MIN_TIME))


def load(
    spec: TableSpec, state: SlotState, lo: int, hi: int, slots: int, cache: RunCache
) -> list[Run]:
    """The runs of slots [lo, hi), newest first, without the rows of other slots."""
    return [_cut(spec, piece, slots, cache) for piece in _pieces(state.part(lo, hi))]


def store_changes(
    table: KeyedTable, state: SlotState, lo: int, hi: int, slots: int,
    writer: RunWriter, cache: RunCache,
) -> SlotState:  # fmt: skip
    """Write the epoch's changes and the merges that are due; the new state of slots [lo, hi)."""
    part = SlotState(tuple(_aged(s, table.floor) for s in state.part(lo, hi).segments))
    changes = table.changes()
    fresh = 0 if changes is None else changes.num_rows
    part = _Merging(table.spec, slots, writer, cache).apply(part, fresh)
    if changes is not None:
        ref = writer.add(changes, lo, hi)
        part = SlotState(tuple(replace(s, refs=(ref, *s.refs)) for s in part.segments))
    return part


def _aged(segment: Segment, floor: int) -> Segment:
    """With its floor raised, and without runs whose every row is below it."""
    floor = max(segment.floor, floor)
    alive = tuple(r for r in segment.refs if r.max_time is None or r.max_time >= floor)
    return replace(segment, refs=alive, floor=floor)


@dataclass(frozen=True, slots=True)
class _Merging:
    """The merges of one table in one epoch."""

    spec: TableSpec
    slots: int
    writer: RunWriter
    cache: RunCache

    def apply(self, part: SlotState, fresh: int) -> SlotState:
        merge = plan_young(part, fresh)
        part = self._do(part, merge) if merge else part
        merged = 0
        while (merge := plan_slot(part, fresh)) and self._allowed(part, merged, fresh):
            part = self._do(part, merge)
            merged += merge.what.rows()
            self.writer.merged_slot = True
        return part

    def _allowed(self, part: SlotState, merged: int, fresh: int) -> bool:
        """One slot per task and epoch; more if a table has waited long, or has much to write."""
        waited = part.most_runs() > 2 * TOO_MANY and merged == 0
        return not self.writer.merged_slot or waited or 0 < merged < fresh

    def _do(self, part: SlotState, merge: Merge) -> SlotState:
        runs = load(self.spec, merge.what, merge.lo, merge.hi, self.slots, self.cache)
        run = merge_runs(self.spec, runs, bottom=merge.bottom)
        ref = self.writer.add(run, merge.lo, merge.hi) if run.num_rows else None
        return replaced(part, merge, ref)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run, as far as it counts: in slots [lo, hi), from the time `floor` on."""

    ref: RunRef
    lo: int
    hi: int
    floor: int


def _pieces(part: SlotState) -> list[_Piece]:
    """Each run once for all neighbouring slots that have it, newest first in every slot."""
    pieces: list[_Piece] = []
    for segment in part.segments:
        at = 0
        for ref in segment.refs:
            same = _extendable(pieces, at, ref, segment)
            if same is None:
                pieces.insert(at, _Piece(ref, segment.lo, segment.hi, segment.floor))
                at += 1
            else:
                pieces[same] = replace(pieces[same], hi=segment.hi)
                at = same + 1
    return pieces


def _extendable(pieces: list[_Piece], at: int, ref: RunRef, segment: Segment) -> int | None:
    """Where, from `at` on, the piece is that `segment` continues."""
    wanted = (ref, segment.lo, segment.floor)
    found = (i for i in range(at, len(pieces)) if _end(pieces[i]) == wanted)
    return next(found, None)


def _end(piece: _Piece) -> tuple[RunRef, int, int]:
    return piece.ref, piece.hi, piece.floor


def _cut(spec: TableSpec, piece: _Piece, slots: int, cache: RunCache) -> Run:
    """The run without the rows that do not count; nothing is copied."""
    table = cache.open(piece.ref)
    _check_columns(spec, piece.ref, table)
    lo, hi = first_hash(piece.lo, slots), first_hash(piece.hi, slots)
    if spec.timed:
        start = int(np.searchsorted(numbers(table[TIME]), piece.floor))
        whole = piece.lo <= piece.ref.lo and piece.ref.hi <= piece.hi
        return Run(spec, table.slice(start), *(() if whole else (lo, hi)))
    hashes = numbers(table[HASH])
    start, stop = (int(np.searchsorted(hashes, np.uint64(lo))), _before(hashes, hi))
    return Run(spec, table.slice(start, stop - start))


def _before(hashes: Hashes, hi: int) -> int:
    """How many of the sorted `hashes` are less than `hi`, which may be 2**64."""
    return int(np.searchsorted(hashes, np.uint64(hi - 1), "right")) if hi else 0


def _check_columns(spec: TableSpec, ref: RunRef, table: pa.Table) -> None:
    if not table.schema.equals(spec.run):
        raise StateError(
            f"table {spec.name!r} has the columns {_columns(spec.run)}, but its state in "
            f"{ref.file!r} has {_columns(table.schema)}", code="HR-STATE-005",
            hint="Give the changed step a new name, or drop its old state.",
        )  # fmt: skip


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema if f.name not in (HASH, GONE))
