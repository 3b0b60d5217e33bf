"""Which appends a producer has made, so that retries are recognised.

A sequence identifies an append as a whole, whichever partitions it went to. For each producer the
sequences are stored as ranges: numbers that grow by one are one range for ever. Where they leave
gaps, the oldest ranges are forgotten in the end; a sequence from before that may or may not have
been appended, and is refused. The offsets of the last appends are stored as well.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import LogError
from headrace.log.block import Note
from headrace.log.contract import Ack

RANGES = 256  # remembered of one producer
PLACES = 32  # of its last appends, to answer a retry with

Places = dict[int, Ack]  # of one append, by partition


@dataclass(slots=True)
class _Appended:
    """Sequences made, as inclusive ranges in order; nothing is known of those below `floor`."""

    places: dict[int, Places] = field(default_factory=dict)  # by sequence, the oldest first
    ranges: list[tuple[int, int]] = field(default_factory=list)
    floor: int = 0

    def __contains__(self, sequence: int) -> bool:
        at = bisect_right(self.ranges, (sequence, 2**63)) - 1
        return at >= 0 and sequence <= self.ranges[at][1]

    def add(self, sequence: int) -> None:
        if sequence in self:
            return
        insort(self.ranges, (sequence, sequence))
        at = self.ranges.index((sequence, sequence))
        for i in (at + 1, at):  # join with the range after, then with the one before
            if 0 < i < len(self.ranges) and self.ranges[i - 1][1] + 1 == self.ranges[i][0]:
                self.ranges[i - 1 : i + 1] = [(self.ranges[i - 1][0], self.ranges[i][1])]
        if len(self.ranges) > RANGES:
            self.floor = self.ranges.pop(0)[1] + 1


class Seen:
    """What producers have appended to a topic, up to some place."""

    def __init__(self) -> None:
        self._appended: dict[str, _Appended] = {}

    def answer(self, producer: str, sequence: int) -> Places | None:
        """The answer to an append made before, {} if that is forgotten; None for a new append."""
        past = self._appended.get(producer)
        if past is None or (sequence not in past and sequence >= past.floor):
            return None
        if sequence not in past:
            raise _too_old(producer, sequence, past.floor)
        return past.places.get(sequence, {})

    def newest(self) -> dict[str, int]:
        """The largest sequence of every producer."""
        return {name: past.ranges[-1][1] for name, past in self._appended.items() if past.ranges}

    def note(self, group: Iterable[tuple[int, Note]]) -> None:
        """Add the appends of a whole group: notes with their partitions."""
        appends: dict[tuple[str, int], Places] = {}
        for partition, note in group:
            places = appends.setdefault((note.producer, note.sequence), {})
            places[partition] = Ack(note.first, note.end)
        for (producer, sequence), places in appends.items():
            past = self._appended.setdefault(producer, _Appended())
            past.add(sequence)
            past.places[sequence] = places
            if len(past.places) > PLACES:
                del past.places[next(iter(past.places))]

    def dump(self) -> list[Any]:
        return [
            [name, past.floor, past.ranges, [_flat(*append) for append in past.places.items()]]
            for name, past in self._appended.items()
        ]

    @classmethod
    def load(cls, dumped: Iterable[Any]) -> Seen:
        seen = cls()
        for name, *values in dumped:
            past = seen._appended.setdefault(name, _Appended())
            if len(values) == 4:  # of one partition, as builds before 0.1.0 have written it
                _, floor, _, ranges = values
                appends: list[Any] = []
            else:
                floor, ranges, appends = values
            past.floor, past.ranges = max(floor, past.floor), _union(past.ranges, ranges)
            for sequence, places in appends:
                past.places[sequence] = {p: Ack(first, end) for p, first, end in places}
        return seen


def _union(left: Iterable[Any], right: Iterable[Any]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for low, high in sorted([*map(tuple, left), *map(tuple, right)]):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined


def _flat(sequence: int, places: Places) -> list[Any]:
    return [sequence, [[p, *ack] for p, ack in places.items()]]


def _too_old(producer: str, sequence: int, floor: int) -> LogError:
    return LogError(
        "HR-LOG-017",
        f"producer {producer!r} appends sequence {sequence}, of whose appends only those from "
        f"{floor} on are remembered",
        "It may have been made long ago, or never: look for its records. Numbers that grow "
        f"by one are remembered for ever; where they leave gaps, the last {RANGES} runs are.",
    )
