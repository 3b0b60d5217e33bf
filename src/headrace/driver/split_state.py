"""What a split is at a moment: live, idle or ended; and how it stands after an epoch.

A live split holds the watermark back. It is idle when nothing has come for as long as its
input says; one that has rows is not, though they may not be read yet. Rows that take their
time from the clock cannot be older than it, so their splits are as far as the clock is, and
never idle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from headrace.ops.watermarks import Ingestion
from headrace.plan.nodes import Read
from headrace.plan.program import Program
from headrace.state.manifest import ENDED, IDLE, LIVE, Split

IDLE_AFTER = 10_000  # ms of silence after which a split no longer holds the others back


def idle_after(read: Read | None) -> int:
    """How long a split of this input may be silent; what holds if nothing is known of it."""
    return IDLE_AFTER if read is None or read.idle is None else read.idle


def liveness(read: Read | None, split: Split, now: int, *, more: bool, ended: bool) -> str:
    """What the split is; `more` says that it has rows that are not read yet."""
    if ended:
        return ENDED
    quiet = not more and now - split.seen >= idle_after(read)
    return IDLE if quiet and not by_clock(read) else LIVE


def after_epoch(read: Read, split: Split, at: Any, now: int, *, more: bool, ended: bool) -> Split:
    """The split as it stands after an epoch that reads it up to `at`."""
    watermark = max(split.watermark, now) if by_clock(read) else split.watermark
    state = liveness(read, split, now, more=more, ended=ended)
    seen = now if more else split.seen
    return replace(split, at=at, seen=seen, state=state, watermark=watermark)


def by_clock(read: Read | None) -> bool:
    return read is not None and isinstance(read.time, Ingestion)


# Alignment: which splits are not read, because slower ones have to catch up first.
#
# Splits of all inputs that say `align=` go together. One whose watermark is further ahead of
# the slowest than its input allows is held: the next epoch does not read it. Idle and ended
# splits hold nobody, and the slowest is never held, so somebody can always move or will soon
# be idle. Arithmetic only; a watermark moves by whole epochs, so the bound is kept to within
# what one epoch reads.


def alignment_bounds(program: Program) -> dict[str, int]:
    """The inputs that go together, and how far each may run ahead, in milliseconds."""
    return {r.name: r.align for r in program.sources() if r.align is not None}


def slowest_split(
    splits: Iterable[Split], live: Collection[int], bounds: Mapping[str, int]
) -> Split | None:
    """The live split that the others wait for; None when none is live."""
    candidates = [s for s in splits if s.input in bounds and s.id in live]
    return min(candidates, key=lambda s: (s.watermark, s.id), default=None)


def too_far_ahead(
    splits: Iterable[Split], live: Collection[int], bounds: Mapping[str, int]
) -> frozenset[int]:
    """The ids of the splits that are too far ahead."""
    known = list(splits)
    slowest = slowest_split(known, live, bounds)
    if slowest is None:
        return frozenset()
    return frozenset(
        s.id
        for s in known
        if s.input in bounds and s.watermark - slowest.watermark > bounds[s.input]
    )
