"""Load shedding on the driver: whether an epoch drops records of an input, and how many.

An input sheds while more of its records would wait after the epoch than it allows: as many as the
job processes in its `lag`, at the speed of the best of its last full batches, or `rows`. Nothing is
shed before that speed is known, nor by a run that ends. The decision is part of the epoch's offset
(`Split.shed`), as plain JSON; tasks carry it out (`task/shed_rows.py`):

    random   {"keep": n}                    each record has n chances in 2**32 to be used
    oldest   {"before": offset}             records before it are only counted
    lowest   {"all": a, "some": s, "keep": n, "rest": r}   by priority; see there

One record in 64 is always used: an input of which more had to be dropped is behind until the burst
is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.ops.shedding import LOWEST, OLDEST, WHOLE, Shedding
from headrace.plan.program import Program
from headrace.sources import Offset, Source
from headrace.state.manifest import Split

MOST = 64  # records read for one that is used
_BATCHES = 5  # whose speed is remembered
_REST = 0.1  # of records used: those of low priority on which estimates of the others rest
_POINTS = 256  # priorities remembered of an input
_FORGOTTEN = 1_000_000  # records beyond which earlier priorities count for half


@dataclass(frozen=True, slots=True)
class ShedShare:
    """What an epoch does with an input: so many records are skipped, then so many read."""

    skip: int
    read: int
    use: int  # of those read, about how many
    decision: Mapping[str, Any] | None = None


class Speed:
    """How many records a millisecond the job processes when it has enough of them."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=_BATCHES)
        self._begun = False

    @property
    def known(self) -> float | None:
        return max(self._last, default=None)

    def lasted(self, rows: int, ms: float, *, full: bool) -> None:
        """A batch has taken this long; it is `full` if nothing but its time has limited it."""
        if not self._begun:  # the first says more about the start of the JVM
            self._begun = True
            return
        speed = rows / max(ms, 1.0)
        if full or (self._last and speed > max(self._last)):
            self._last.append(speed)


Part = tuple[Offset, Mapping[str, Any] | None]  # how far a split is read, and the decision


class Shedder:
    """What the next epoch sheds."""

    def __init__(self, program: Program, sources: Mapping[str, Source]) -> None:
        self._asked = {r.name: r.shed for r in program.sources() if r.shed is not None}
        self._sources = sources
        self.speed = Speed()
        self.dropped = 0  # about how many of the records that the epoch reads

    def parts(
        self,
        splits: Sequence[tuple[Split, Offset, int]],
        budget: int,
        priorities: Mapping[str, Sequence[Sequence[Any]]],
    ) -> dict[int, Part]:
        """By split id, the splits of which records are shed; `splits` come with their ends and how
        many records wait. Without a `budget` none are."""
        self.dropped, found = 0, dict[int, Part]()
        total = sum(lag for _, _, lag in splits)
        if not budget or total <= budget:
            return found
        for name, shed in self._asked.items():
            own = [part for part in splits if part[0].input == name and part[2]]
            waiting = sum(lag for _, _, lag in own)
            known = priorities.get(name, ())
            share = share_of(shed, waiting, total, budget, self.speed.known, known)
            if share is None:
                continue
            self.dropped += share.skip + share.read - share.use
            for split, end, lag in own:
                found[split.id] = self._part(split, end, lag / waiting, share)
        return found

    def _part(self, split: Split, end: Offset, fraction: float, share: ShedShare) -> Part:
        """What becomes of a split that has this fraction of the records that wait."""
        source, skip = self._sources[split.input], int(share.skip * fraction)
        read = max(1, int(share.read * fraction))
        begin = source.clamp(split.name, split.at, end, skip) if skip else split.at
        at = source.clamp(split.name, begin, end, read) if begin != end else end
        if share.decision is not None:
            return at, share.decision
        return at, {"before": begin} if begin != split.at else None


def share_of(
    shed: Shedding,
    waiting: int,
    all_waiting: int,
    budget: int,
    speed: float | None,
    priorities: Sequence[Sequence[Any]],
) -> ShedShare | None:
    """What the epoch does with `waiting` records of an input; None if nothing is to be shed.

    `all_waiting` are the records of all inputs, of which the epoch may process `budget`.
    """
    own = max(1, budget * waiting // max(1, all_waiting))
    allowed = _allowed(shed, waiting, all_waiting, speed)
    if allowed is None or waiting - own <= allowed:
        return None
    if shed.how == OLDEST:
        return ShedShare(waiting - own - allowed, own, own)
    read = min(waiting - allowed, own * MOST)
    if shed.how == LOWEST:
        decision = by_priority(priorities, own / read, estimates=shed.weight is not None)
        return None if decision is None else ShedShare(0, read, own, decision)
    return ShedShare(0, read, own, {"keep": max(1, WHOLE * own // read)})


def _allowed(shed: Shedding, waiting: int, all_waiting: int, speed: float | None) -> int | None:
    """How many records of the input may wait; None if that is not known yet."""
    bounds = [] if shed.rows is None else [shed.rows]
    if shed.lag is not None and speed is not None:
        bounds.append(int(speed * shed.lag * waiting / max(1, all_waiting)))
    return min(bounds, default=None)


def by_priority(
    priorities: Sequence[Sequence[Any]], share: float, *, estimates: bool
) -> dict[str, Any] | None:
    """The decision by which about `share` of the records are used, those of high priority first.

    Priorities come with how many records have them, None for null, in ascending order. None if
    there are none yet.
    """
    total = sum(count for _, count in priorities)
    if not total:
        return None
    rest = share * _REST if estimates else 0.0
    room = (share - rest) / (1 - rest) * total  # as each is used with `rest` in any case
    upper = None
    for value, count in reversed(priorities):
        if count > room:
            some = rest + (1 - rest) * room / count
            return _decision(upper, value, some, rest)
        room, upper = room - count, value
    return _decision(upper, priorities[0][0], 1.0, rest)


def _decision(upper: Any, lower: Any, some: float, rest: float) -> dict[str, Any]:
    return {
        "all": upper,
        "some": lower,
        "keep": min(WHOLE, max(1, int(some * WHOLE))),
        "rest": int(rest * WHOLE),
    }


Priorities = Iterable[Sequence[Any]]


def joined(before: Priorities, now: Priorities) -> list[list[Any]]:
    """Priorities of earlier epochs and of this one, in ascending order; few stand for all."""
    new = list(now)
    old = list(before)
    if sum(count for _, count in old) > _FORGOTTEN and new:
        old = [(value, count // 2) for value, count in old]
    counts: dict[float, int] = {}
    for value, count in (*old, *new):
        key = float("-inf") if value is None else value
        counts[key] = counts.get(key, 0) + count
    values = sorted(value for value, count in counts.items() if count)
    return [
        [None if value == float("-inf") else value, count]
        for value, count in _fewer([(value, counts[value]) for value in values])
    ]


def _fewer(priorities: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """At most about `_POINTS` of them: neighbours go together, under the lowest."""
    if len(priorities) <= _POINTS:
        return priorities
    total = sum(count for _, count in priorities)
    found: list[tuple[float, int]] = []
    passed, last = 0, -1
    for value, count in priorities:
        place = passed * _POINTS // total
        if place != last:
            found.append((value, count))
        else:
            found[-1] = (found[-1][0], found[-1][1] + count)
        passed, last = passed + count, place
    return found
