"""Splits: live, idle or ended, where they are after an epoch, and which are held back.

A live split holds the watermark back. It is idle when nothing has come for as long as its
input allows; one that has rows is not, though they may not be read yet. Rows that take their
time from the clock cannot be older than it, so their splits are as far as the clock is, and
never idle.

Alignment: splits of all inputs with `align=` go together. One whose watermark is further ahead of
the slowest than its input allows is held: the next epoch does not read it. Idle and ended splits
hold no other, and the slowest is never held, so one can always move or will soon be idle. A
watermark moves by whole epochs, so the bound is exact to within what one epoch reads.
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
    """How long a split of this input may be silent; a default if nothing is known of it."""
    return IDLE_AFTER if read is None or read.idle is None else read.idle


def liveness(read: Read | None, split: Split, now: int, *, more: bool, ended: bool) -> str:
    """Live, idle or ended; `more` means that it has rows that are not read yet."""
    if ended:
        return ENDED
    quiet = not more and now - split.seen >= idle_after(read)
    return IDLE if quiet and not by_clock(read) else LIVE


def after_epoch(read: Read, split: Split, at: Any, now: int, *, more: bool, ended: bool) -> Split:
    """The split after an epoch that reads it up to `at`."""
    watermark = max(split.watermark, now) if by_clock(read) else split.watermark
    state = liveness(read, split, now, more=more, ended=ended)
    seen = now if more else split.seen
    return replace(split, at=at, seen=seen, state=state, watermark=watermark)


def by_clock(read: Read | None) -> bool:
    return read is not None and isinstance(read.time, Ingestion)


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
    splits = list(splits)
    slowest = slowest_split(splits, live, bounds)
    if slowest is None:
        return frozenset()
    return frozenset(
        s.id
        for s in splits
        if s.input in bounds and s.watermark - slowest.watermark > bounds[s.input]
    )
