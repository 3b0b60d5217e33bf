"""A table's state through an epoch: from files to a KeyedTable and back.

`open_table` opens the table for a task's slots; `store_changes` writes what the epoch changed as
one run, merges what is due, and returns which runs make up these slots from now on. Nothing is
overwritten: until a manifest names the new runs, the old state is in force.

A slot state lists the runs of a table in each slot, newest first; it is what a manifest records
of one table. Slots with the same runs and the same floor are one segment. A task gets the part
for its slots and returns it as it is after the epoch; `apply` puts parts into the whole. So tasks
may have other slots at every start, and nothing is moved.

Runs of about one size are merged when there are a few of them, so a row is rewritten a
logarithmic number of times and a slot has a bounded number of runs. Young runs, those still
small, are merged for all slots of a task at once; old ones slot by slot, one per task and epoch,
or several if together they are little work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from headrace.clock import MIN_TIME
from headrace.errors import StateError
from headrace.hashing import first_hash
from headrace.state.runs import RunCache, RunRef, RunWriter
from headrace.state.sorted_run import ALL_HASHES, SortedRun, merge_runs
from headrace.state.spec import TableSpec
from headrace.state.table import KeyedTable


@dataclass(frozen=True, slots=True)
class Segment:
    """Slots [lo, hi) that hold the same runs; rows with a time before `floor` are dead."""

    lo: int
    hi: int
    refs: tuple[RunRef, ...] = ()
    floor: int = MIN_TIME

    def clip(self, lo: int, hi: int) -> Segment:
        return replace(self, lo=max(lo, self.lo), hi=min(hi, self.hi))

    def rows(self) -> list[int]:
        """About how many rows each run has for these slots."""
        return [self._share(ref, ref.rows) for ref in self.refs]

    def bytes(self) -> int:
        """About how much room these slots take."""
        return sum(self._share(ref, ref.length) for ref in self.refs)

    def _share(self, ref: RunRef, whole: int) -> int:
        return -(-whole * (self.hi - self.lo) // max(ref.hi - ref.lo, 1))


@dataclass(frozen=True, slots=True)
class SlotState:
    """The runs of one table, by slot; segments are in order and do not overlap."""

    segments: tuple[Segment, ...]

    @classmethod
    def empty(cls, slots: int) -> SlotState:
        return cls((Segment(0, slots),))

    def part(self, lo: int, hi: int) -> SlotState:
        """The state of slots [lo, hi)."""
        clipped = (s.clip(lo, hi) for s in self.segments)
        return SlotState(tuple(s for s in clipped if s.lo < s.hi))

    def apply(self, parts: Iterable[SlotState]) -> SlotState:
        """This state with the slots of `parts` replaced by what they say."""
        new = sorted((s for p in parts for s in p.segments), key=lambda s: s.lo)
        for before, after in pairwise(new):
            if after.lo < before.hi:
                raise StateError(
                    "HR-STATE-009",
                    f"two tasks both hold slot {after.lo}",
                    "This is a defect of Headrace: please report it with the job's plan.",
                )
        unchanged = (piece for s in self.segments for piece in _outside(s, new))
        return SlotState(_joined(sorted((*unchanged, *new), key=lambda s: s.lo)))

    def rows(self) -> int:
        """About how many rows are held, overwritten ones included."""
        return sum(sum(s.rows()) for s in self.segments)

    def bytes(self) -> int:
        """About how much room it takes on disk."""
        return sum(s.bytes() for s in self.segments)

    def most_runs(self) -> int:
        """The largest number of runs that a slot has."""
        return max((len(s.refs) for s in self.segments), default=0)

    def to_json(self) -> dict[str, Any]:
        refs = list(dict.fromkeys(ref for s in self.segments for ref in s.refs))
        number = {ref: i for i, ref in enumerate(refs)}
        slots = [[s.lo, s.hi, s.floor, [number[r] for r in s.refs]] for s in self.segments]
        return {"runs": [ref.to_json() for ref in refs], "slots": slots}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> SlotState:
        refs = [RunRef.from_json(ref) for ref in value["runs"]]
        return cls(
            tuple(
                Segment(lo, hi, tuple(refs[i] for i in numbers), floor)
                for lo, hi, floor, numbers in value["slots"]
            )
        )


def _outside(segment: Segment, others: Sequence[Segment]) -> Iterator[Segment]:
    """The pieces of `segment` outside of `others`, which are in order."""
    at = segment.lo
    for other in others:
        if at < min(other.lo, segment.hi):
            yield replace(segment, lo=at, hi=min(other.lo, segment.hi))
        at = max(at, other.hi)
    if at < segment.hi:
        yield replace(segment, lo=at)


def _joined(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Neighbours with the same runs and floor become one segment."""
    joined: list[Segment] = []
    for segment in segments:
        last = joined[-1] if joined else None
        if last and last.hi == segment.lo and replace(segment, lo=last.lo, hi=last.hi) == last:
            joined[-1] = replace(last, hi=segment.hi)
        else:
            joined.append(segment)
    return tuple(joined)


# Which runs are merged: goes by sizes only, no run is opened.


FEW = 3  # so many runs of about one size are merged
RATIO = 2  # "about one size": up to so many times all the newer ones together
TOO_MANY = 8  # old runs in a slot at which some are merged, whatever their sizes
SMALL = 4_096  # rows; runs below count as of one size
AT_ONCE = 131_072  # rows that may be merged for all slots together


@dataclass(frozen=True, slots=True)
class Merge:
    """Make one run of the runs in `what`; `bottom`: nothing lies below them."""

    what: SlotState
    bottom: bool

    @property
    def lo(self) -> int:
        return self.what.segments[0].lo

    @property
    def hi(self) -> int:
        return self.what.segments[-1].hi


def plan_young(part: SlotState, fresh: int) -> Merge | None:
    """A merge of young runs for all slots of the task, after an epoch of `fresh` rows."""
    most = max(AT_ONCE, (FEW + 1) * fresh)
    if part.rows() <= most and len(part.segments) > 1 and part.most_runs() >= FEW:
        return Merge(part, bottom=True)  # so little that separate runs are not worth it
    young = _young(part, most)
    if young < FEW:
        return None
    sizes = _whole(part, young).rows()
    group = _group(sizes, SMALL)
    if group is None:
        return None
    while sum(sizes[group]) > most:
        group = slice(group.start, group.stop - 1)
    return _merge(part, group)


def plan_slot(part: SlotState, fresh: int) -> Merge | None:
    """A merge of old runs where there are the most of them: in one slot, or, while that is
    little work, in several neighbours at once."""
    young = _young(part, max(AT_ONCE, (FEW + 1) * fresh))
    best: tuple[Segment, slice] | None = None
    for segment in part.segments:
        slot = replace(segment, hi=segment.lo + 1)
        group = _group(slot.rows()[young:], SMALL // _width(part))
        if group and (best is None or _count(group) > _count(best[1])):
            best = segment, slice(group.start + young, group.stop + young)
    return _merge(SlotState((_some_slots(*best),)), best[1]) if best else None


def _some_slots(segment: Segment, group: slice) -> Segment:
    """The first slots of the segment, as many as may be merged at once."""
    per_slot = sum(replace(segment, hi=segment.lo + 1).rows()[group])
    count = max(1, AT_ONCE // max(per_slot, 1))
    return replace(segment, hi=min(segment.hi, segment.lo + count))


def replaced(part: SlotState, merge: Merge, by: RunRef | None) -> SlotState:
    """The state after `merge` gave the run `by`, or nothing."""
    new = () if by is None else (by,)
    after = []
    for old in merge.what.segments:
        (segment,) = part.part(old.lo, old.hi).segments
        after.append(replace(segment, refs=_swap(segment.refs, old.refs, new)))
    return part.apply([SlotState(tuple(after))])


def _swap(
    refs: tuple[RunRef, ...], old: tuple[RunRef, ...], new: tuple[RunRef, ...]
) -> tuple[RunRef, ...]:
    at = refs.index(old[0]) if old else len(refs)
    return refs[:at] + new + refs[at + len(old) :]


def _young(part: SlotState, most: int) -> int:
    """How many of the newest runs all slots share, and are small enough to merge at once."""
    shared = 0
    for refs in zip(*(s.refs for s in part.segments), strict=False):
        if len(set(refs)) > 1 or refs[0].rows * FEW > most:
            break
        shared += 1
    return shared


def _whole(part: SlotState, young: int) -> Segment:
    first, last = part.segments[0], part.segments[-1]
    return Segment(first.lo, last.hi, first.refs[:young])


def _width(part: SlotState) -> int:
    return part.segments[-1].hi - part.segments[0].lo


def _merge(part: SlotState, group: slice) -> Merge:
    bottom = all(group.stop >= len(s.refs) for s in part.segments)
    what = tuple(replace(s, refs=s.refs[group]) for s in part.segments)
    return Merge(SlotState(what), bottom)


def _count(group: slice) -> int:
    return int(group.stop - group.start)


def _group(sizes: Sequence[int], small: int) -> slice | None:
    """The newest stretch of neighbours of about one size; with too many runs, the cheapest."""
    sizes = [max(size, small) for size in sizes]
    for start in range(len(sizes)):
        stop, total = start + 1, sizes[start]
        while stop < len(sizes) and sizes[stop] <= RATIO * total:
            total += sizes[stop]
            stop += 1
        if stop - start >= FEW:
            return slice(start, stop)
    if len(sizes) < TOO_MANY:
        return None
    starts = range(len(sizes) - FEW + 1)
    cheapest = min(starts, key=lambda i: sum(sizes[i : i + FEW]))
    return slice(cheapest, cheapest + FEW)


# From files to tables and back.


def open_table(
    spec: TableSpec, state: SlotState, lo: int, hi: int, slots: int, cache: RunCache
) -> KeyedTable:
    """The table as a task that holds slots [lo, hi) sees it."""
    floors = [s.floor for s in state.part(lo, hi).segments]
    return KeyedTable(spec, load(spec, state, lo, hi, slots, cache), min(floors, default=MIN_TIME))


def load(
    spec: TableSpec, state: SlotState, lo: int, hi: int, slots: int, cache: RunCache
) -> list[SortedRun]:
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
class _TablePiece:
    """A run, as far as it counts: in slots [lo, hi), from the time `floor` on."""

    ref: RunRef
    lo: int
    hi: int
    floor: int


def _pieces(part: SlotState) -> list[_TablePiece]:
    """Each run once for all neighbouring slots that have it, newest first in every slot."""
    pieces: list[_TablePiece] = []
    ending: dict[tuple[RunRef, int, int], _TablePiece] = {}  # by run, last slot and floor
    for segment in part.segments:
        at, open_ = 0, ending
        ending = {}
        for ref in segment.refs:
            piece = open_.get((ref, segment.lo, segment.floor))
            if piece is not None and piece in pieces[at:]:
                at = pieces.index(piece, at)
                piece.hi = segment.hi
            else:
                piece = _TablePiece(ref, segment.lo, segment.hi, segment.floor)
                pieces.insert(at, piece)
            ending[ref, segment.hi, segment.floor] = piece
            at += 1
    return pieces


def _cut(spec: TableSpec, piece: _TablePiece, slots: int, cache: RunCache) -> SortedRun:
    """The run without the rows that do not count; nothing is copied."""
    run, ref = cache.open(piece.ref, spec), piece.ref
    if piece.lo <= ref.lo and ref.hi <= piece.hi:
        return run.part(0, ALL_HASHES, piece.floor)
    share = (piece.hi - piece.lo) / (ref.hi - ref.lo)
    return run.part(first_hash(piece.lo, slots), first_hash(piece.hi, slots), piece.floor, share)
