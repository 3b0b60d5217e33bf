"""Slot states: which runs make up a table in each slot, newest first.

This is what a manifest says of one table. Slots with the same runs and the same floor are
one segment. A task takes the part for its slots and gives back that part as it is after the
epoch; `apply` puts parts into the whole. So tasks may hold other slots at every start, and
nothing is moved. References only: no file is opened here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from headrace.clock import MIN_TIME
from headrace.errors import StateError
from headrace.state.runs import RunRef


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
        kept = (piece for s in self.segments for piece in _outside(s, new))
        return SlotState(_joined(sorted((*kept, *new), key=lambda s: s.lo)))

    def rows(self) -> int:
        """About how many rows are held, overwritten ones included."""
        return sum(sum(s.rows()) for s in self.segments)

    def bytes(self) -> int:
        """About how much room it takes on disk."""
        return sum(s.bytes() for s in self.segments)

    def files(self) -> set[str]:
        return {ref.file for s in self.segments for ref in s.refs}

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


def _outside(segment: Segment, taken: Sequence[Segment]) -> Iterator[Segment]:
    """The pieces of `segment` between those `taken`, which are in order."""
    at = segment.lo
    for other in taken:
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
