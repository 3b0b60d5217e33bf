"""When runs are merged: which neighbours, for which slots, and how much per epoch.

Runs of about one size are merged when there are a few of them, so a row is rewritten a
logarithmic number of times and a slot has a bounded number of runs. Young runs, those still
small, are merged for all slots of a task at once; old ones slot by slot, one per task and
epoch, or several if all of them together are little work. Sizes only: no run is opened here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.state.runs import RunRef
from headrace.state.slots import Segment, SlotState

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
        return Merge(part, bottom=True)  # so little that it is not worth keeping apart
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
