"""The way of a table through an epoch: from files to a KeyedTable and back.

`open_table` gives a task the table for its slots; `store_changes` writes what the epoch
changed as one run, merges what has become due, and says which runs make up these slots from
now on. Nothing is overwritten: until a manifest names the new runs, the old state stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.clock import MIN_TIME
from headrace.hashing import first_hash
from headrace.state.merging import AT_ONCE, TOO_MANY, Merge, plan_slot, plan_young, replaced
from headrace.state.runs import RunCache, RunRef, RunWriter
from headrace.state.slots import Segment, SlotState
from headrace.state.sorted_run import ALL_HASHES, Run, merge_runs
from headrace.state.spec import TableSpec
from headrace.state.table import KeyedTable


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
    table: KeyedTable,
    state: SlotState,
    lo: int,
    hi: int,
    slots: int,
    writer: RunWriter,
    cache: RunCache,
) -> SlotState:
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
        while (merge := plan_slot(part, fresh)) and self._allowed(merge, part, merged, fresh):
            part = self._do(part, merge)
            merged += merge.what.rows()
            self.writer.merged_slot = True
        return part

    def _allowed(self, merge: Merge, part: SlotState, merged: int, fresh: int) -> bool:
        """One slot per task and epoch; more if they are small, or a table has waited long."""
        if merged == 0:
            return not self.writer.merged_slot or part.most_runs() > 2 * TOO_MANY
        return merged + merge.what.rows() <= max(AT_ONCE, fresh)

    def _do(self, part: SlotState, merge: Merge) -> SlotState:
        runs = load(self.spec, merge.what, merge.lo, merge.hi, self.slots, self.cache)
        run = merge_runs(self.spec, runs, bottom=merge.bottom)
        ref = self.writer.add(run, merge.lo, merge.hi) if run.num_rows else None
        return replaced(part, merge, ref)


@dataclass(slots=True)
class _Piece:
    """A run, as far as it counts: in slots [lo, hi), from the time `floor` on."""

    ref: RunRef
    lo: int
    hi: int
    floor: int


def _pieces(part: SlotState) -> list[_Piece]:
    """Each run once for all neighbouring slots that have it, newest first in every slot."""
    pieces: list[_Piece] = []
    ending: dict[tuple[RunRef, int, int], _Piece] = {}  # by run, last slot and floor
    for segment in part.segments:
        at, open_ = 0, ending
        ending = {}
        for ref in segment.refs:
            piece = open_.get((ref, segment.lo, segment.floor))
            if piece is not None and piece in pieces[at:]:
                at = pieces.index(piece, at)
                piece.hi = segment.hi
            else:
                piece = _Piece(ref, segment.lo, segment.hi, segment.floor)
                pieces.insert(at, piece)
            ending[ref, segment.hi, segment.floor] = piece
            at += 1
    return pieces


def _cut(spec: TableSpec, piece: _Piece, slots: int, cache: RunCache) -> Run:
    """The run without the rows that do not count; nothing is copied."""
    run, ref = cache.open(piece.ref, spec), piece.ref
    if piece.lo <= ref.lo and ref.hi <= piece.hi:
        return run.part(0, ALL_HASHES, piece.floor)
    share = (piece.hi - piece.lo) / (ref.hi - ref.lo)
    return run.part(first_hash(piece.lo, slots), first_hash(piece.hi, slots), piece.floor, share)
