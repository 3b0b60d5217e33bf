"""When the records that wait were first seen, for how long they are under way.

An input that does not know when a record came to it is looked at before each epoch: what is
there then and was not before has arrived in between, at the latest. So a record that comes while an
epoch is under way is seen when that is over. Offsets are the sources' own, so records are only
counted; where a source knows their number about, the age of a few is that of their neighbours.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.buckets import added, bucket_of
from headrace.epoch.values import InputLooks
from headrace.sources import Source
from headrace.state.manifest import Split

_MANY = 1_000  # looks at which something new was there, that are told apart for a split


@dataclass(slots=True)
class _UnreadOfSplit:
    """The records of one split that are not read yet, the oldest first."""

    end: Any  # the offset after the last of them
    seen: deque[tuple[int, int]] = field(default_factory=deque)  # since when, and how many


class UnreadRecords:
    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources
        self._waiting: dict[tuple[str, str], _UnreadOfSplit] = {}

    def look(self, splits: Sequence[Split], newest: Sequence[Any], now: int) -> None:
        """Note what is new; each split is as far as it has been read."""
        for split, end in zip(splits, newest, strict=True):
            place = (split.input, split.name)
            waiting = self._waiting.setdefault(place, _UnreadOfSplit(split.at))
            if end != waiting.end:
                rows = self._sources[split.input].rows(split.name, waiting.end, end)
                waiting.end = end
                waiting.seen.append((now, rows))
                if len(waiting.seen) > _MANY:
                    _merge(waiting.seen)

    def taken(self, before: Sequence[Split], after: Sequence[Split], now: int) -> InputLooks:
        """What an epoch that reads so far leaves, and how old the records are that it reads."""
        ages: dict[str, Counter[int]] = {}
        lags: Counter[str] = Counter()
        waits: dict[str, int] = {}
        for old, new in zip(before, after, strict=True):
            waiting = self._waiting.get((new.input, new.name))
            if waiting is None:
                continue
            if new.at != old.at:
                rows = self._sources[new.input].rows(new.name, old.at, new.at)
                gone = waiting.seen if new.at == waiting.end else _first(waiting.seen, rows)
                if not self._sources[new.input].dated:
                    age = ages.setdefault(new.input, Counter())
                    for since, count in gone:
                        age[bucket_of(now - since)] += count
                if gone is waiting.seen:
                    waiting.seen = deque()
            lags[new.input] += sum(count for _, count in waiting.seen)
            if waiting.seen:
                oldest = waiting.seen[0][0]
                waits[new.input] = min(oldest, waits.get(new.input, oldest))
        return InputLooks(dict(lags), waits, {name: added(age) for name, age in ages.items()})


def _first(seen: deque[tuple[int, int]], rows: int) -> list[tuple[int, int]]:
    """Take so many of the oldest records away."""
    gone = []
    while rows > 0 and seen:
        since, count = seen.popleft()
        if count > rows:
            seen.appendleft((since, count - rows))
        gone.append((since, min(count, rows)))
        rows -= count
    return gone


def _merge(seen: deque[tuple[int, int]]) -> None:
    """Two looks become one, of the earlier time, where they are the oldest."""
    (since, first), (_, second) = seen.popleft(), seen.popleft()
    seen.appendleft((since, first + second))
