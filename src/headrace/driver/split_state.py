"""What a split is at a moment: live, idle or ended; and how it stands after an epoch.

A live split holds the watermark back. It is idle when nothing has come for as long as its
input says; one that has rows is not, though they may not be read yet. Rows that take their
time from the clock cannot be older than it, so their splits are as far as the clock is, and
never idle.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.ops.watermarks import Ingestion
from headrace.plan.nodes import Read
from headrace.state.manifest import ENDED, IDLE, LIVE, Split

IDLE_AFTER = 10_000  # ms of silence after which a split no longer holds the others back


def idle_after(read: Read | None) -> int:
    """How long a split of this input may be silent; what holds if nothing is known of it."""
    return IDLE_AFTER if read is None or read.idle is None else read.idle


def state_of(read: Read | None, split: Split, now: int, *, more: bool, ended: bool) -> str:
    """What the split is; `more` says that it has rows that are not read yet."""
    if ended:
        return ENDED
    quiet = not more and now - split.seen >= idle_after(read)
    return IDLE if quiet and not by_clock(read) else LIVE


def settled(read: Read, split: Split, at: Any, now: int, *, more: bool, ended: bool) -> Split:
    """The split as it stands after an epoch that reads it up to `at`."""
    watermark = max(split.watermark, now) if by_clock(read) else split.watermark
    state = state_of(read, split, now, more=more, ended=ended)
    seen = now if more else split.seen
    return replace(split, at=at, seen=seen, state=state, watermark=watermark)


def by_clock(read: Read | None) -> bool:
    return read is not None and isinstance(read.time, Ingestion)
