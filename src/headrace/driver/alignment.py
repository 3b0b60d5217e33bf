"""Alignment: which splits are not read, because slower ones have to catch up first.

Splits of all inputs that say `align=` go together. One whose watermark is further ahead of
the slowest than its input allows is held: the next epoch does not read it. Idle and ended
splits hold nobody, and the slowest is never held, so somebody can always move or will soon
be idle. Arithmetic only; a watermark moves by whole epochs, so the bound is kept to within
what one epoch reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headrace.plan.program import Program
from headrace.state.manifest import Split


def aligned(program: Program) -> dict[str, int]:
    """The inputs that go together, and how far each may run ahead, in milliseconds."""
    return {r.name: r.align for r in program.sources() if r.align is not None}


def slowest_of(
    splits: Iterable[Split], live: Collection[int], bounds: Mapping[str, int]
) -> Split | None:
    """The live split that the others wait for; None when none is live."""
    mine = [s for s in splits if s.input in bounds and s.id in live]
    return min(mine, key=lambda s: (s.watermark, s.id), default=None)


def held_back(
    splits: Iterable[Split], live: Collection[int], bounds: Mapping[str, int]
) -> frozenset[int]:
    """The ids of the splits that are too far ahead."""
    known = list(splits)
    slowest = slowest_of(known, live, bounds)
    if slowest is None:
        return frozenset()
    return frozenset(
        s.id
        for s in known
        if s.input in bounds and s.watermark - slowest.watermark > bounds[s.input]
    )
